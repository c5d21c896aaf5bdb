"""Class vectors in shards, drawn in part, in some coordinates: losses and steps of several processes are those of one; what is not drawn rests."""

from unittest import mock

import pytest
import torch

import criteria
import main
import parameters
from criteria import _shards
from tests._processes import alone, spawned
from tests.training import test_chunks
from trainers import average_of
from training.optimisers import build_optimizer
from training.ranks import Ranks
from training.runtime import Runtime
from training.step import build_step
from utilities import shards

ABLE = ["arcface", "circle_softmax", "cosface", "proxyanchor", "softmax", "sphereface", "subcenter_arcface"]
LEARNED = {"arcface": ["angular_margin", "feature_scale"], "cosface": ["margin"], "softmax": ["temperature"]}
C, D, LABELS = 7, 5, torch.tensor([6, 0, 0, 3, 4, 4, 6, 2, 1, 0])


def made(loss, dtype=torch.float64, **flags):
    torch.manual_seed(0)
    return criteria.select(loss, loss=loss, arch="", n_classes=C, embed_dim=D, **flags).to(dtype)


def points(dtype=torch.float64):
    return torch.randn(len(LABELS), D, dtype=dtype, generator=torch.Generator().manual_seed(3))


def run(criterion, batch=None, labels=LABELS):
    """Loss, gradient of the embeddings, of the class vectors, of the learned hyperparameters."""
    batch = (points() if batch is None else batch).clone().requires_grad_()
    loss = criterion(batch, labels)
    loss.backward()
    others = [p.grad for p in criterion.parameters() if p is not criterion.proxies]
    return loss.detach(), batch.grad, criterion.proxies.grad, others


def near(found, wanted, tolerance=1e-12):
    torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)


def joined(ranks, tensor, shard):
    return ranks.share(shard.whole(tensor) if ranks.writes else [shard.whole(tensor), None][1])


def as_one_process(rank, block):
    """Loss and gradients by each criterion; the mean over processes of what is equal on all is its gradient, the vectors' are never averaged."""
    ranks = Ranks()
    for loss in ABLE:
        for learned in ([], *([name] for name in LEARNED.get(loss, []))):
            flags = {"loss_learn": learned, "loss_learn_per_class": bool(learned)}
            plain, divided = made(loss, **flags), made(loss, **flags)
            criteria.shard(divided, parameters.read(["--dataset", "glyphs", "--loss", loss, "--shard_classes"]), ranks)
            rows = divided.shard.rows
            assert len(divided.proxies) == len(plain.proxies[rows]) < len(plain.proxies) and divided.proxies.untyped_storage().nbytes() == 8 * divided.proxies.numel()
            wanted = run(plain)
            with mock.patch.object(_shards, "ENTRIES", block):
                found = run(divided)
            near(found[0], wanted[0])
            near(ranks.total(found[1]) / ranks.size, wanted[1])
            near(found[2], wanted[2][rows])
            for mine, theirs in zip(found[3], wanted[3], strict=True):
                near(ranks.total(mine) / ranks.size, theirs)
            for name, value in plain.stats.items():
                near(divided.stats[name], value)
            state = divided.state_dict()
            if ranks.writes:
                assert torch.equal(state["proxies"], plain.proxies)
            again = made(loss, **flags)
            again.shard_over(ranks)
            again.load_state_dict(plain.state_dict())
            assert torch.equal(again.proxies, divided.proxies)


def test_two_processes_give_the_loss_and_gradients_of_one():
    spawned(2, as_one_process, 2 * len(LABELS))


@pytest.mark.long
@pytest.mark.parametrize("n,block", [(2, 1 << 22), (3, 10), (4, 1 << 22)])
def test_any_number_of_processes_and_blocks_gives_the_loss_and_gradients_of_one(n, block):
    spawned(n, as_one_process, block)


# ---------------------------------------------------------------------------------------------------------------- steps
STEPS = ["--warmup_steps", "3", "--clip_grad_norm", ".05", "--ema_decay", ".9", "--loss_decay", ".01"]
OPTIMISERS = [["--optim", "sgd", "--momentum", ".9"], ["--optim", "adam"], ["--optim", "adamw"], ["--optim", "rmsprop", "--lr", ".002"]]


def trained(*flags, steps=5, dtype=torch.float64):
    """A step of the program itself after some batches, its optimiser, its results."""
    opt = test_chunks.read("--crop_size", "4", "--iterations_per_epoch", "5", *flags).but(n_classes=C)
    torch.manual_seed(0)
    runtime = Runtime(opt)
    network = test_chunks.Network()
    trainer = main.build_trainer(opt, network, runtime).to(dtype)
    optimizer = build_optimizer(network, trainer.criterion, opt, trainer.param_groups(opt))
    step = build_step(opt, trainer, optimizer, runtime, test_chunks.Sampler(), average_of(network, opt))
    step.start_epoch(1)
    torch.manual_seed(1)
    return step, [step(batch) for batch in test_chunks.batches(steps=steps)]


def flat_state(step):
    """Every tensor of what a checkpoint holds of a step."""
    parts = {name: part.state_dict() for name, part in step.parts.items() if name in ("model", "trained", "criterion", "optimizer")}
    tensors = {f"{part} {name}": value for part in ("model", "trained", "criterion") for name, value in parts.get(part, {}).items()}
    return tensors | {f"state {n} {name}": value for n, state in parts["optimizer"]["state"].items() for name, value in state.items() if torch.is_tensor(value)}


def same_steps(rank, cases):
    wrong = []
    for words in cases:
        with alone():
            one, wanted = trained(*words)
        many, found = trained(*words, "--shard_classes")
        state, wanted_state = flat_state(many), flat_state(one)
        assert any(map(shards.divided, many.trainer.criterion.parameters())) and list(state) == list(wanted_state)
        try:
            for a, b in zip(wanted, found, strict=True):
                near((b.loss, b.gradient_norm), (a.loss, a.gradient_norm))
            for name, value in wanted_state.items() if rank == 0 else ():
                near(state[name], value)
        except AssertionError as error:
            wrong.append(f"{words}: {error}")
    assert not wrong, "\n".join(wrong)


def test_two_processes_step_as_one():
    spawned(2, same_steps, [["--loss", "arcface", *STEPS, *OPTIMISERS[2], "--chunk_size", "4"]])


@pytest.mark.long
@pytest.mark.parametrize("n", [2, 4])
def test_five_steps_of_every_criterion_and_optimiser_are_those_of_one_process(n):
    """Four processes do not divide the seven classes. Also limits of each gradient and of its entries, and trainers with further criteria."""
    cases = [["--loss", loss, *STEPS, *OPTIMISERS[number % 4], *(["--chunk_size", "4"] if number % 2 else [])] for number, loss in enumerate(ABLE)]
    cases += [["--loss", "cosface", *how] for how in OPTIMISERS]
    cases += [["--loss", "softmax", "--clip_grad_each", ".01"], ["--loss", "softmax", "--clip_grad_value", ".001"]]
    cases += [["--loss", "softmax", "--trainer", "s2sd", "--s2sd_dims", "5"], ["--loss", "proxyanchor", "--subset_mining", "maximum_loss", "--subset_size", "6"]]
    cases += [["--loss", "arcface", "--loss_learn", "feature_scale", "--loss_learn_per_class"]]
    spawned(n, same_steps, cases)
