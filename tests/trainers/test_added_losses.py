"""What flags add to the criterion: cross-batch memory, its moving average, regularisers; by loops and the package."""

import functools
from argparse import Namespace

import pytest
import torch
from pytorch_metric_learning import regularizers
from torch.testing import assert_close

import trainers
from batch_mining._miner import Miner
from tests.criteria._table import PINNED_LABELS, PINNED_VECTORS
from tests.kit import tiny
from tests.kit.mining import normal
from tests.kit.refusals import refused
from trainers import _memory, _regularizers
from trainers._averaging import MovingAverage
from trainers._memory import KEYS
from utilities.tuples import Triplets

MEMORY = "--memory_size 10 --memory_start"


def against(*flags, criterion=tiny.Against, make=trainers.select):
    """A trainer whose criterion is a plain module."""

    def select(name, opt, network, _):
        return make(name, opt, network, criterion())

    return tiny.trainer("metric_only", "--loss contrastive --optim sgd --lr 1e-4", *flags, make=select)


@pytest.mark.parametrize("start", [0, 2])
def test_the_loss_against_the_memory_is_that_of_plain_loops(start):
    trainer, _ = against(f"{MEMORY} {start}")
    held = []  # (embedding, label, step, row)
    for number in range(6):
        batch = tiny.batch([number % 3, 0, 1, number % 2], seed=number)
        outputs, losses = tiny.losses(trainer, batch)
        assert ("memory_loss" in losses) == (number >= start)
        if number < start:
            continue
        x = outputs["embeddings"]
        labels = batch.labels.tolist()
        held = [*held, *((x[i].detach(), labels[i], number, i) for i in range(4))][-10:]
        expected = sum(
            -(x[i] @ row) for i in range(4) for row, label, *at in held if label == labels[i] and at != [number, i]
        )
        assert_close(losses["memory_loss"], torch.as_tensor(expected, dtype=torch.float64))
        weight = trainer.network.last_linear.weight
        assert_close(*(torch.autograd.grad(v, weight, retain_graph=True)[0] for v in (losses["memory_loss"], expected)))


def test_weights_and_the_moving_average():
    trainer, opt = against(f"{MEMORY} 0 --memory_ema .9 --loss_weights memory_loss=.5")
    step = tiny.step(opt, trainer)
    before = [p.detach().clone() for p in trainer.network.parameters()]
    outputs, losses, total = step.forward(tiny.batch(seed=0))
    assert_close(total, losses["metric_loss"] + 0.5 * losses["memory_loss"])
    assert_close(outputs[KEYS], outputs["embeddings"])
    assert not outputs[KEYS].requires_grad and not trainer.own_parameters()
    assert set(step(tiny.batch(seed=1)).losses) == {"metric_loss", "memory_loss"}
    average = trainer.added_losses[0].average.network
    for old, new, averaged in zip(before, trainer.network.parameters(), average.parameters(), strict=True):
        assert_close(averaged, 0.9 * old + 0.1 * new)
    assert not torch.equal(before[-2], trainer.network.last_linear.weight)
    layer = torch.nn.BatchNorm1d(3)
    average = MovingAverage(layer, 0.5)
    average(torch.randn(8, 3))
    average.update(layer)
    assert not torch.equal(average.network.running_mean, layer.running_mean), "an average keeps its own buffers"


class BatchAlone(torch.nn.Module):
    """Knows the batch alone."""

    def forward(self, batch, labels, **kwargs):
        return batch.sum()


class OwnLoss(trainers.Base):
    """A loss of its own."""

    def losses(self, outputs, batch):
        return {"own_loss": outputs["embeddings"].sum()}


class WithinBatches(Miner):
    def mine(self, embeddings, labels):
        return Triplets(*labels.new_zeros(3, 1))


def test_a_memory_that_cannot_work_is_refused_in_one_line():
    def build(loss, **options):
        return tiny.trainer("metric_only", f"--loss {loss} {MEMORY} 5", **options)

    for loss in ("arcface", "proxyanchor", "softtriplet"):
        with refused(f"--memory_size 10: --loss {loss} compares no samples that a memory could hold"):
            build(loss)
    with refused("BatchAlone cannot be used with a memory"):
        against(f"{MEMORY} 0", criterion=BatchAlone)
    with refused("ArcFaceLoss cannot be used with a memory"):
        build("pml --loss_pml_class ArcFaceLoss")
    with refused("NCALoss cannot leave an anchor's own image out"):
        build("pml --loss_pml_class NCALoss")
    build("pml --loss_pml_class CircleLoss")
    for miner, message in (
        (WithinBatches(), "WithinBatches cannot be used with a memory: its mine"),
        (lambda batch, labels: [], "cannot be used with a memory: its call"),
    ):

        def with_miner(name, opt, network, criterion, miner=miner):
            criterion.batchminer = miner
            return trainers.select(name, opt, network, criterion)

        with refused(message):
            build("triplet --batch_mining distance", make=with_miner)
    with refused("--memory_size 3 is less than the 6 embeddings of a batch"):
        tiny.losses(against("--memory_size 3")[0], tiny.batch())
    trainer, opt = against(f"{MEMORY} 0", make=lambda name, *arguments: OwnLoss(*arguments))
    with refused("--memory_size has no effect with this --trainer"):
        tiny.step(opt, trainer)(tiny.batch())


# --- regularisers
def points(rows=7):
    return normal(rows, 5, seed=0).requires_grad_()


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        *(
            (functools.partial(_regularizers.lp, p=p, power=power), regularizers.LpRegularizer(p=p, power=power))
            for p, power in ((2, 1), (2, 2), (1, 1), (3, 1.5))
        ),
        (_regularizers.zero_mean, regularizers.ZeroMeanRegularizer()),
        (_regularizers.center_invariant, regularizers.CenterInvariantRegularizer()),
        (_regularizers.regular_face, regularizers.RegularFaceRegularizer()),
    ],
    ids=["lp 2 1", "lp 2 2", "lp 1 1", "lp 3 1.5", "zero_mean", "center_invariant", "regular_face"],
)
def test_regularisers_are_those_of_the_package(ours, theirs):
    x = points()
    assert_close(ours(x), theirs(x))
    assert_close(*(torch.autograd.grad(value(x), x)[0] for value in (ours, theirs)))


def test_lp_of_zeros_is_finite_and_regular_face_compares_classes():
    for p, power in ((1, 1), (2, 1), (2, 0.5), (3, 2)):
        x = torch.zeros(2, 3, requires_grad=True)
        value = _regularizers.lp(x, p, power)
        value.backward()
        assert value.isfinite() and x.grad.isfinite().all(), (p, power)
    x = points(6)
    units = x / x.norm(dim=1, keepdim=True)
    expected = 0
    for i in range(6):
        expected = expected + max(units[i] @ units[k] for k in range(6) if k // 2 != i // 2) / 6
    assert_close(_regularizers.regular_face(x, 2), expected)


@pytest.mark.parametrize("per_class", [1, 2])
def test_anticollapse_is_the_determinant_of_the_vectors_in_the_batch(per_class):
    """Of the classes that are there, each once; by the authors' function too."""
    x = points(6)
    labels = torch.tensor([2, 0, 2, 0, 0])
    chosen = [x[c * per_class + k] for c in (0, 2) for k in range(per_class)]
    units = torch.stack([row / row.norm() for row in chosen])
    # the same determinant, in the dimensions
    inner = torch.eye(5, dtype=x.dtype) + len(units) / (5 * 0.5) * units.T @ units
    expected = torch.exp(-torch.logdet(inner) / 2)
    computed = _regularizers.anticollapse(x, labels, per_class)
    assert_close(computed, expected)
    assert_close(*(torch.autograd.grad(value, x)[0] for value in (computed, expected)))
    assert torch.autograd.gradcheck(lambda x: _regularizers.anticollapse(x, labels, per_class), [points(6)])
    assert round(float(_regularizers.anticollapse(PINNED_VECTORS, PINNED_LABELS)), 7) == 0.4310619
    zeros = torch.zeros(6, 5, requires_grad=True)
    value = _regularizers.anticollapse(zeros, labels, per_class)
    value.backward()
    assert value == 1 and zeros.grad.isfinite().all()


def test_koleo_spreads_embeddings_of_different_images():
    """By a loop, and the value of the authors' function; copies of an image are not its nearest."""
    x = torch.tensor([[1, 0, 0], [0.8, 0.6, 0], [0, 1, 0], [0, 0.6, 0.8]], dtype=torch.float64)
    assert float(_regularizers.koleo(x, torch.arange(4))) == pytest.approx(0.2848586, abs=1e-7)
    copies = x[[0, 0, 1, 2, 3]]
    assert float(_regularizers.koleo(copies, torch.arange(5))) == pytest.approx(7.10, abs=0.005)
    x = points()
    images = torch.tensor([3, 3, 5, 6, 6, 7, 3])
    terms = []
    for row, image in zip(x, images, strict=True):
        rivals = [k for k in range(7) if images[k] != image]
        nearest = max(rivals, key=lambda k, row=row: float(torch.cosine_similarity(row.detach(), x[k].detach(), dim=0)))
        difference = row / row.norm() - x[nearest] / x[nearest].norm() + 1e-8
        terms.append(-torch.log(difference.norm() + 1e-8))
    ours = _regularizers.koleo(x, images)
    assert_close(ours, sum(terms) / 7)
    assert_close(*(torch.autograd.grad(value, x)[0] for value in (ours, sum(terms) / 7)))
    for lone in (torch.zeros(3, 2, requires_grad=True), torch.ones(1, 2, requires_grad=True)):
        value = _regularizers.koleo(lone, torch.zeros(len(lone)))
        value.backward()
        assert value == 0 and lone.grad.isfinite().all()
    trainer, opt = tiny.trainer("metric_only", "--loss contrastive --batch_mining none --embed_regularizer koleo")
    outputs, losses, _ = tiny.step(opt, trainer).forward(tiny.batch())
    expected = _regularizers.koleo(outputs["embeddings"], tiny.batch().indices)
    assert_close(losses["embed_regularizer"], expected)


def test_regularisers_are_losses_of_a_step():
    trainer, opt = tiny.trainer(
        "metric_only",
        "--loss softtriplet --loss_softtriplet_n_centroids 2 --arch conv4 --loss_weights weight_regularizer=.3",
        "--embed_regularizer lp --embed_regularizer_power 2 --weight_regularizer sparse_centers",
    )
    outputs, losses, total = tiny.step(opt, trainer).forward(tiny.batch())
    assert list(losses) == ["metric_loss", "embed_regularizer", "weight_regularizer"]
    assert_close(total, losses["metric_loss"] + losses["embed_regularizer"] + 0.3 * losses["weight_regularizer"])
    assert_close(losses["embed_regularizer"], outputs["embeddings"].square().sum(1).mean())
    theirs = regularizers.SparseCentersRegularizer(num_classes=4, centers_per_class=2)
    # other epsilons
    assert_close(losses["weight_regularizer"], theirs(trainer.criterion.proxies), rtol=1e-3, atol=0)
    # The same holds for several centres a class
    with refused("there is one class alone"):
        tiny.trainer("metric_only", "--loss subcenter_arcface --weight_regularizer regular_face", n_classes=1)
    for flags, message in (
        ("contrastive --weight_regularizer regular_face", "--loss contrastive trains no class vectors"),
        ("manifold --weight_regularizer anticollapse", "the vectors of --loss manifold are not each of a class"),
        ("arcface --weight_regularizer sparse_centers", "--loss arcface has one vector a class"),
        ("triplet --embed_regularizer lp --arch conv4_normalize", "have length 1"),
    ):
        network = tiny.Network(normalizes="conv4_normalize" in flags)
        with refused(message):
            tiny.trainer("metric_only", f"--loss {flags}", network=network)


def test_a_smaller_memory_keeps_the_newest():
    trainer, opt = tiny.trainer("metric_only", "--loss contrastive --memory_size 10")
    large, small = (
        _memory.Memory(Namespace(**{**vars(opt), "memory_size": size}), trainer.network, trainer.criterion)
        for size in (10, 4)
    )
    # the last overwrites the two oldest
    for start in (0, 3, 6, 9):
        large.queue.put(torch.arange(start, start + 3.0)[:, None], torch.arange(start, start + 3))
    small.set_extra_state(large.get_extra_state())
    assert small.queue.labels.tolist() == [8, 9, 10, 11] and small.queue.rows.squeeze(1).tolist() == [8, 9, 10, 11]
    small.queue.put(torch.tensor([[12.0]]), torch.tensor([12]))
    assert sorted(small.queue.labels.tolist()) == [9, 10, 11, 12]
