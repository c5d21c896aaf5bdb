"""No step reads a value back from the device, except the size of a mined batch: how often each criterion, miner and
trainer asks, on a stand-in.

A number that is not 0 (criteria, trainers) or 1 (miners) stands below with its reason; it is to be exactly so.
"""

import contextlib
import functools
from unittest import mock

import pytest
import torch
from torch._subclasses import FakeTensorMode

import batch_mining
import criteria
from datasets import _transforms
from engine.cropping import Cut
from engine.parts import Parts
from tests import test_shards
from tests.criteria.test_registry_wide import ADAPTERS, N_CLASSES, build, points, run
from tests.engine.test_chunks import WAYS, batches, failures, of_loss, trained
from tests.kit.gpu import GPU, pretend_gpu
from tests.kit.processes import spawned
from tests.kit.runs import read
from utilities.criterion import takes_reference

OF_MINERS = {
    # of the positive pairs, then of the triplets: a row for every pair that could be would take O(B^3) memory
    "angular": 2,
    "uniform_histogram": 2,  # of the pairs, then of the bins that have any
    "intra_random": 0,  # always B triplets
    "packaged": 0,  # always B / 3
}
# beside a reference: whether it holds any class; which triplets it holds
WITH_A_REFERENCE = {"intra_random": 1, "packaged": 1}
OF_CRITERIA = {
    "hier": 2,  # of the anchors among the samples, of those among the proxies
    "hyperbolic": 2,  # of the views, of the positive pairs
    # of the positive pairs
    **dict.fromkeys("happier lifted_original ntxent pnp recallatk roadmap smoothap tupletmargin".split(), 1),
}
# beside the miner's: their own triplets, pairs, a head's miner
OF_TRAINERS = {"adversarial": 1, "cascaded": 3, "diva": 2, "s2sd": 1}

LABELS = torch.tensor([0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4])
TRIPLETS = torch.tensor([0, 0, 1, 2, 2, 3, 4, 4, 5, 1, 1, 2])
# what another package asks is not ours
MINERS = [name for name in batch_mining.REGISTRY.names() if name not in ADAPTERS]
CRITERIA = [name for name in criteria.REGISTRY.names() if name not in ADAPTERS]


def unit(n: int) -> torch.Tensor:
    return torch.nn.functional.normalize(points(n))


def reference(labels: torch.Tensor, n_classes: int, size: int = 240) -> dict:
    """Other images, behind those of the batch itself."""
    all_labels = torch.cat([labels, torch.arange(size) % n_classes])
    return {"reference": unit(len(all_labels)), "reference_labels": all_labels, "own": torch.arange(len(labels))}


def labels_of(module) -> torch.Tensor:
    return TRIPLETS if getattr(module, "NEEDS_TRIPLETS", False) else LABELS


def asked_by(name: str, mines=None) -> int:
    """How often a criterion and its miner ask; `mines`: whether it has one (default: only if it needs one)."""
    module = criteria.REGISTRY.module(name)
    mined = OF_MINERS.get((module.ALLOWED_MINING_OPS or ["distance"])[0], 1)
    return OF_CRITERIA.get(name, 0) + mined * (module.REQUIRES_BATCHMINER if mines is None else bool(mines))


def reads_of(call, *arguments, **named) -> int:
    """How often a second call asks: what is looked at once a run does not count."""
    for _ in range(2):
        with pretend_gpu() as reads:
            call(*arguments, **named)
    return len(reads)


def test_miners_ask_for_a_size():
    def check(name):
        miner = batch_mining.select(name)
        labels = labels_of(batch_mining.REGISTRY.module(name))
        assert reads_of(miner, unit(len(labels)), labels) == OF_MINERS.get(name, 1)
        expected = {**OF_MINERS, **WITH_A_REFERENCE}.get(name, 1)
        assert reads_of(miner, unit(len(labels)), labels, **reference(labels, 6)) == expected

    assert not failures(((name,) for name in MINERS), check)


def test_criteria_ask_for_nothing(monkeypatch):
    def check(name, flags):
        module = criteria.REGISTRY.module(name)
        criterion = build(name, **flags)
        labels = labels_of(module)
        expected = asked_by(name, getattr(criterion, "batchminer", None))
        assert reads_of(run, criterion, unit(len(labels)), labels) == expected
        if takes_reference(module.Criterion):
            assert reads_of(run, criterion, unit(len(labels)), labels, **reference(labels, N_CLASSES)) == expected

    cases = [(name, {"mine_pairs": False}) for name in CRITERIA]
    cases += [(name, {"mine_pairs": True}) for name in ("contrastive", "ntxent", "multisimilarity")]
    messages = failures(cases, check)
    # losses of some coordinates, in blocks
    monkeypatch.setattr("criteria._shards.ENTRIES", 2 * len(LABELS))
    assert not messages + failures(
        [(name, {"loss_dims": 3}) for name in ("arcface", "proxyanchor", "subcenter_arcface")], check
    )


@pytest.mark.skipif(torch.version.cuda is None, reason="a torch that knows no CUDA tensors")
def test_criteria_mix_no_tensors_of_the_cpu_in():
    """Torch's own tensors without data, which refuse two devices in one operation, and every question for a value."""

    def check(name):
        n = len(labels_of(criteria.REGISTRY.module(name)))
        with FakeTensorMode():
            criterion = build(name)
            # what has been looked at in the first step; `cuda()` itself would ask the driver
            for module in criterion.modules():
                module.looked = module.looked_at_labels = True
                for key, value in module._parameters.items():
                    module._parameters[key] = value if value is None else torch.nn.Parameter(value.detach().to("cuda"))
                for key, value in module._buffers.items():
                    module._buffers[key] = value if value is None else value.detach().to("cuda")
            loss = criterion(torch.empty(n, points(1).shape[1]).to("cuda"), torch.empty(n, dtype=torch.long).to("cuda"))
            assert loss.shape == () and loss.device.type == "cuda"
            assert all(value.device.type == "cuda" for value in criterion.stats.values())

    asking_nothing = [
        name for name in CRITERIA if not criteria.REGISTRY.module(name).REQUIRES_BATCHMINER and name not in OF_CRITERIA
    ]
    assert not failures(((name,) for name in asking_nothing), check)


@contextlib.contextmanager
def watched(step, *modules):
    """The step on the stand-in; reads in `modules`, (owner, call), and in the optimiser are not counted."""
    step.runtime.device = GPU
    step.runtime._check_every = 25
    with pretend_gpu() as reads, contextlib.ExitStack() as stack:

        def unseen(call):
            def calls(*arguments):
                with reads.pause():
                    return call(*arguments)

            return calls

        for owner, name in ((step.optimizer, "step"), *modules):
            stack.enter_context(mock.patch.object(owner, name, unseen(getattr(owner, name))))
        yield reads


def reads_of_a_step(*flags, **how) -> int:
    """What the third step of a trainer asks of the device."""
    trainer, step, _, _ = trained(0, *flags, dtype=torch.float32, steps=2, **how)
    (batch,) = batches(trainer.VIEWS, 1)
    with watched(step) as reads:
        done = step(batch)
    assert torch.isfinite(done.loss)
    return len(reads)


@pytest.mark.parametrize(
    "of_criteria", [["margin", "softmax"], pytest.param(CRITERIA, marks=pytest.mark.long)], ids=["some", "all"]
)
def test_a_step_asks_for_what_its_trainer_and_its_criterion_mine(of_criteria):
    def check(flags, expected, **how):
        reads = reads_of_a_step(*flags, **how)
        assert reads == expected, reads

    def of_trainer(name, flags):
        against = "--memory_size" in flags
        loss = []
        if "--loss" not in flags:
            loss = ["--loss", "contrastive"] if against else ["--loss", "margin"]
        # its first epoch trains the generator alone
        trains_generator = "--adversarial_generator_epochs" in flags
        mined = 0 if "softmax" in flags or trains_generator or name == "cascaded" else 1 + against
        second_head = name == "s2sd" and "8" in flags
        return ["--trainer", name, *loss, *flags], OF_TRAINERS.get(name, 0) + mined + second_head

    messages = failures((of_trainer(*way) for way in WAYS), functools.partial(check, stand_in=False))
    losses = ("contrastive", "multisimilarity", "proxyanchor")
    cases = [([*of_loss(loss), "--metrix", ".4"], loss == "contrastive") for loss in losses]
    cases += [([*of_loss(loss), "--clip_grad_norm", "1"], asked_by(loss)) for loss in of_criteria]
    assert not messages + failures(cases, check)


def asks_in_shards(rank, flags):
    """A step on crops of the cache, in drawn coordinates of drawn class vectors; draws on the CPU stay there."""
    with mock.patch.object(test_shards, "C", 100):
        step, _ = test_shards.trained(
            *flags, "--shard_classes", "--sample_classes", ".5", "--loss_dims", "3", steps=2, dtype=torch.float32
        )
    transform, _ = _transforms.build(
        read("--dataset cub200 --image_cache x --decode_once --augmentation adv --crop_size 4")
    )
    (batch,) = batches(1, 1)
    draws = transform.draw(torch.tensor([[9, 7]]).expand(len(batch.images), 2), torch.Generator().manual_seed(0))
    batch = batch._replace(
        images=Cut(torch.randint(256, (len(batch.images), 9, 7, 3), dtype=torch.uint8), draws, transform)
    )
    generator = torch.Generator()
    colours = Cut._colours
    with (
        mock.patch.object(Cut, "_colours", lambda cut: list(colours(cut))),
        mock.patch.object(torch, "Generator", lambda device: generator),
        mock.patch.object(Parts, "_own_draws", contextlib.nullcontext),
        watched(step, (Cut, "_colours")) as reads,
    ):
        done = step(batch)
    assert torch.isfinite(done.loss) and step.trainer.criterion.shard.size == 50
    assert [at.split(":")[0] for _, at in reads.found] == ["utilities/shards.py"], reads


@pytest.mark.parametrize(
    "flags",
    ["--loss arcface --clip_grad_norm 1".split(), "--loss cosface --ema_decay .9".split()],
    ids=lambda flags: flags[1],
)
def test_shards_drawn_vectors_and_cut_batches_ask_for_nothing(flags):
    spawned(2, asks_in_shards, flags)


class _Reading(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.sum()

    @staticmethod
    def backward(ctx, gradient):
        return gradient.new_full((6,), gradient.item())


X = torch.arange(6.0)
MASK = torch.arange(6) % 2 == 0
WAITS = [
    lambda: X[0].item(),
    lambda: bool((X > 0).all()),
    lambda: X[torch.tensor(2)],
    lambda: X.tolist(),
    lambda: X.to("cpu"),
    lambda: X.numpy(),
    lambda: MASK.nonzero(),
    lambda: X[MASK],
    lambda: X.clone().__setitem__(MASK, X[:3]),
    lambda: X.masked_select(MASK),
    lambda: X.unique(),
    lambda: X.long().bincount(),
    lambda: X.repeat_interleave(X.long()),
    lambda: torch.equal(X, X),
    lambda: torch.linalg.inv(torch.eye(2)),
    lambda: torch.tensor([1.0, 2.0], device=X.device),
    lambda: X.new_tensor([1.0]),
    lambda: X[[0, 1]],
    lambda: _Reading.apply(X.clone().requires_grad_()).backward(),
]
WAITS_NOT = [
    lambda: X.sum(),
    lambda: X[MASK.long()],
    lambda: X.clone().__setitem__(MASK, 0.0),
    lambda: torch.where(MASK, X, 0.0),
    lambda: X.sort().values,
    lambda: torch.nonzero_static(MASK, size=3),
    lambda: X.repeat_interleave(X.long(), output_size=15),
    lambda: torch.linalg.inv_ex(torch.eye(2)).inverse,
    lambda: torch.full((), 2.0, device=X.device) + X.new_full((), 1.0),
    lambda: torch.arange(3, device=X.device),
    lambda: X.to(X.device).to(X),
]


def test_the_stand_in_counts_what_waits_and_nothing_else():
    def check(number, call, waits):
        with pretend_gpu() as reads:
            call()
        assert (len(reads) >= 1) == waits, reads
        assert not waits or "tests/test_host_reads.py" in str(reads)
        with pretend_gpu() as reads, reads.pause():
            call()
        assert len(reads) == 0

    assert not failures(
        [(number, call, calls is WAITS) for calls in (WAITS, WAITS_NOT) for number, call in enumerate(calls)], check
    )
    with pretend_gpu():
        assert X.device == GPU and X.is_cuda and torch.zeros(2, device=X.device).device.type == "cuda"
    assert X.device.type == "cpu"
