"""What the tests of losses on tuples share: a miner that gives fixed tuples, batches, one round of checks against a slow value."""

import torch

import batch_mining
import criteria
from utilities.tuples import Pairs, Triplets

LABELS = [0, 0, 0, 1, 1, 2, 2, 2, 3]


class Fixed:
    """A user's miner that always returns the same."""

    def __init__(self, tuples):
        self.tuples = tuples

    def __call__(self, batch, labels):
        return self.tuples


def embeddings_of(labels=LABELS, dimensions=5, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(len(labels), dimensions, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()


def mined(name, x, labels=LABELS, seed=0, **flags):
    """The tuples of a real miner, once."""
    torch.manual_seed(seed)
    return batch_mining.select(name, **flags)(x, torch.tensor(labels))


def criterion_of(name, tuples, **flags):
    return criteria.select(name, None, Fixed(tuples), batch_mining="random", arch="resnet50", n_classes=5, **flags)


def rows(tuples):
    """Triplets as a list of (a, p, n)."""
    return list(zip(*(column.tolist() for column in tuples), strict=True))


def check(name, slow, tuples, x=None, labels=LABELS, prepare=lambda criterion: None, **flags):
    """Value and gradient against `slow(criterion, x)` in float64 (1e-9) and float32 (1e-4); gradcheck."""
    x = embeddings_of(labels) if x is None else x
    y = torch.tensor(labels)
    criterion = criterion_of(name, tuples, **flags)
    prepare(criterion)
    value, expected = criterion(x, y), slow(criterion, x)
    assert value.shape == ()
    torch.testing.assert_close(value, expected.to(value.dtype), rtol=1e-9, atol=1e-9)
    one, two = (torch.autograd.grad(v, x, retain_graph=True, allow_unused=True)[0] for v in (value, expected))
    torch.testing.assert_close(one, torch.zeros_like(x) if two is None else two, rtol=1e-8, atol=1e-9)
    single = criterion(x.detach().float(), y)
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), expected.detach().double(), rtol=1e-4, atol=1e-4)
    half = criterion(x.detach().bfloat16(), y)
    assert half.dtype == torch.float32
    assert torch.isfinite(half)
    assert torch.autograd.gradcheck(lambda batch: criterion(batch, y), (x.detach().clone().requires_grad_(),), eps=1e-6, atol=1e-5)
    for statistic in criterion.stats.values():
        assert statistic.shape == ()
        assert not statistic.requires_grad
    return criterion


def check_empty(name, value=0.0, **flags):
    """Nothing mined: the value is `value`, the graph is kept, every parameter gets a zero gradient."""
    empty = torch.empty(0, dtype=torch.long)
    for tuples in (Triplets(empty, empty, empty), Pairs(empty, empty, empty, empty), []):
        x = embeddings_of(dtype=torch.float32)
        criterion = criterion_of(name, tuples, **flags)
        loss = criterion(x, torch.tensor(LABELS))
        assert loss == value
        loss.backward()
        assert torch.equal(x.grad, torch.zeros_like(x))
        for parameter in criterion.parameters():
            assert torch.equal(parameter.grad, torch.zeros_like(parameter))


def check_finite(name, miners, **flags):
    """Value and gradient are finite on identical points, zeros, one class, two classes."""
    for miner in miners:
        for labels in (LABELS, [0, 0, 0, 0], [0, 0, 1, 1], [0, 1, 2, 3], [0]):
            size = len(labels)
            for x in (embeddings_of(labels, dtype=torch.float32), torch.ones(size, 4), torch.zeros(size, 4), 1e3 * torch.ones(size, 1)):
                x = x.detach().requires_grad_()
                criterion = criteria.select(name, None, batch_mining.select(miner), n_classes=5, **flags)
                loss = criterion(x, torch.tensor(labels))
                loss.backward()
                assert torch.isfinite(loss)
                assert torch.isfinite(x.grad).all()


def distance(x, i, j):
    """|x_i - x_j|, with no gradient where the points coincide."""
    squared = (x[i] - x[j]).square().sum()
    return squared.sqrt() if squared > 0 else squared
