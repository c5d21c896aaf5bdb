"""Dynamic soft margin: loops over several batches, as the histogram moves; pytorch-metric-learning's values."""

import math

import pytest
import torch
from pytorch_metric_learning.losses import DynamicSoftMarginLoss
from torch.testing import assert_close

from tests.criteria.test_table import DIMENSIONS, MIXED, criterion_of, mined, points
from tests.kit.mining import as_lists
from utilities.tuples import as_triplets


def normal(n, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, DIMENSIONS, dtype=torch.float64, generator=generator).requires_grad_()


class Slow:
    """The official code's steps in loops, its weights constants."""

    def __init__(self, nbins=512, momentum=0.01):
        self.histogram = None
        self.momentum = momentum
        self.width = 4 / (nbins - 1)
        self.nbins = nbins

    def __call__(self, x, triplets, reference=None):
        unit, others_unit = ([row / row.norm() for row in rows] for rows in (x, x if reference is None else reference))
        differences = [(unit[a] - others_unit[p]).norm() - (unit[a] - others_unit[n]).norm() for a, p, n in triplets]
        counts = [0.0] * self.nbins
        for d in differences:
            position = (float(d.detach()) + 2) / self.width
            low = min(math.floor(position), self.nbins - 2)
            counts[low] += 1 - (position - low)
            counts[low + 1] += position - low
        counts = [count / len(differences) for count in counts]
        m = 1.0 if self.histogram is None else self.momentum
        before = self.histogram or counts
        self.histogram = [(1 - m) * old + m * new for old, new in zip(before, counts, strict=True)]
        total = 0.0
        for d in differences:
            node = math.floor((float(d.detach()) + 2) / self.width)
            total = total + sum(self.histogram[: node + 1]) / sum(self.histogram) * d
        return total / len(differences)


@pytest.mark.parametrize(
    ("miner", "flags"),
    [
        ("all", {}),
        ("none", {"nbins": 11, "momentum": 0.3}),
        ("all", {"nbins": 2, "momentum": 1.0}),
        ("all", {"nbins": 11, "momentum": 0.1}),
    ],
)
def test_value_and_gradient_of_several_batches(miner, flags):
    """By the loops, and by pytorch-metric-learning, whose n bins are n + 1 nodes of ours without the last, at 2, where
    no difference lies here.

    It adds the counts of a batch, not their shares, to the moving histogram: a momentum m there is one of m T / (1 - m
    + m T) for T triplets.
    """
    y = torch.tensor(MIXED)
    slow = Slow(**flags)
    peer = None
    criterion = criterion_of("dynamic_softmargin", None, **flags)
    for seed in range(3):
        x = normal(len(MIXED), seed)
        tuples = mined(miner, x)
        criterion.batchminer = lambda batch, labels, tuples=tuples: tuples
        size = len(tuples[0])
        values = criterion(x, y), slow(x, as_lists(*as_triplets(tuples)))
        assert_close(*values, rtol=1e-9, atol=1e-12)
        assert_close(*(torch.autograd.grad(v, x)[0] for v in values), rtol=1e-8, atol=1e-10)
        if flags.get("momentum") == 0.1:
            peer = peer or DynamicSoftMarginLoss(num_bins=10, momentum=0.1 / (size + 0.1 - 0.1 * size))
            assert_close(values[0], peer(x, y, tuple(tuples)))
    assert_close(criterion.histogram, torch.tensor(slow.histogram, dtype=torch.float64))


def test_reference():
    x = normal(4, 4)
    reference = normal(7, 7)
    y = [0, 1, 2, 0]
    z = [0, 1, 1, 2, 0, 3, 0]
    triplets = [(a, p, n) for a in range(4) for p in range(7) for n in range(7) if y[a] == z[p] and y[a] != z[n]]
    criterion = criterion_of("dynamic_softmargin", None)
    criterion.batchminer = lambda batch, labels, reference=None, **rows: triplets
    ours = criterion(x, torch.tensor(y), reference=reference, reference_labels=torch.tensor(z))
    values = ours, Slow()(x, triplets, reference)
    assert_close(*values)
    assert_close(*(torch.autograd.grad(value, [x, reference]) for value in values))


def test_differences_at_the_ends():
    """-2 and 2 are the first and the last node."""
    x = torch.tensor([[1.0, 0], [1, 0], [-1, 0], [-1, 0]], dtype=torch.float64, requires_grad=True)
    criterion = criterion_of("dynamic_softmargin", [(0, 1, 2), (0, 2, 1)])
    loss = criterion(x, torch.tensor([0, 0, 1, 1]))
    assert float(loss.detach()) == pytest.approx((-2 * 0.5 + 2 * 1.0) / 2)
    assert criterion.histogram[0] == criterion.histogram[-1] == 0.5


def test_nothing_mined_leaves_the_histogram():
    criterion = criterion_of("dynamic_softmargin", [])
    x = points(9, 0, False)
    loss = criterion(x, torch.tensor(MIXED))
    loss.backward()
    assert loss == 0 and (x.grad == 0).all() and (criterion.histogram == 0).all()
