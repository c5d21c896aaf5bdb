"""Checks that the tests of the criteria share: a criterion against its loops, its numeric gradient, its peer elsewhere.

Losses on whole batches are tested on every one of `LABELS`, losses on tuples on `MIXED` with the tuples of real miners.
"""

import pytest
import torch

import batch_mining
import criteria
from tests.batch_mining._reference import as_lists
from tests.batch_mining._reference import batch_of as random_batch
from utilities.tuples import Pairs, Triplets

N_CLASSES, DIMENSIONS = 5, 6

LABELS = {
    "pairs": [0, 0, 1, 1, 2, 2, 3, 3],
    "ragged": [0, 1, 0, 2, 2, 2, 3, 0, 4],  # 1, 3 and 4 stand alone
    "one class": [3, 3, 3, 3],
    "all alone": [0, 1, 2, 3],
    "one sample": [2],
    "duplicates": [0, 0, 0, 1, 1, 2, 2],
}
MIXED = [0, 0, 0, 1, 1, 2, 2, 2, 3]

every_batch = pytest.mark.parametrize(("kind", "unit"), [(kind, unit) for kind in LABELS for unit in (True, False)])


def batch_of(kind: str, unit: bool = True, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Float64 embeddings and labels of one of `LABELS`; in "duplicates" points coincide within a class and between two."""
    batch, labels = random_batch(LABELS[kind], DIMENSIONS, seed, torch.float64)
    if kind == "duplicates":
        batch[1] = batch[0]
        batch[3] = batch[2]
    return (torch.nn.functional.normalize(batch) if unit else batch), labels


def build(name: str, batchminer=None, **flags) -> torch.nn.Module:
    """The criterion with float64 parameters that are the same in every call."""
    torch.manual_seed(0)
    return criteria.select(name, batchminer=batchminer, n_classes=N_CLASSES, embed_dim=DIMENSIONS, **flags).double()


def partners(labels) -> tuple[list[list[int]], list[list[int]]]:
    """Of each sample the indices of its positives and of its negatives."""
    labels = [int(label) for label in labels]
    others = [[j for j in range(len(labels)) if j != i] for i in range(len(labels))]
    return (
        [[j for j in others[i] if labels[j] == labels[i]] for i in range(len(labels))],
        [[j for j in others[i] if labels[j] != labels[i]] for i in range(len(labels))],
    )


def compare(criterion, slow, batch, labels, kinks: bool = False) -> None:
    """A float64 criterion on a batch against `slow(batch, *parameters)`.

    Values to 1e-9, gradients of embeddings and parameters to 1e-8 (unless the batch lies on `kinks`, where either one-sided slope is
    right), the value in float32 to 1e-4; bfloat16 gives a finite float32; statistics are detached scalars.
    """
    inputs = [batch.detach().clone().requires_grad_(), *criterion.parameters()]
    value, expected = criterion(inputs[0], labels), torch.as_tensor(slow(*inputs), dtype=torch.float64)
    assert value.shape == ()
    torch.testing.assert_close(value, expected, rtol=1e-9, atol=1e-9)
    for statistic in criterion.stats.values():
        assert statistic.shape == ()
        assert not statistic.requires_grad
    if not kinks:
        for ours, theirs in zip(gradients(value, inputs), gradients(expected, inputs), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-8)
    criterion.float()
    single, half = criterion(batch.detach().float(), labels), criterion(batch.detach().bfloat16(), labels)
    criterion.double()
    assert single.dtype == half.dtype == torch.float32
    torch.testing.assert_close(single.double(), expected, rtol=1e-4, atol=1e-4)
    assert torch.isfinite(half)


def gradients(value, inputs) -> list[torch.Tensor]:
    """Of a value by its inputs, zeros by those that it does not depend on."""
    if not value.requires_grad:
        return [torch.zeros_like(x) for x in inputs]
    found = torch.autograd.grad(value, inputs, retain_graph=True, allow_unused=True)
    return [torch.zeros_like(x) if gradient is None else gradient for x, gradient in zip(inputs, found, strict=True)]


def gradcheck(criterion, batch, labels) -> None:
    """`torch.autograd.gradcheck` by the embeddings and every parameter."""
    names = [name for name, _ in criterion.named_parameters()]

    def loss(batch, *parameters):
        return torch.func.functional_call(criterion, dict(zip(names, parameters, strict=True)), (batch, labels))

    inputs = [batch.detach().clone().requires_grad_(), *(p.detach().clone().requires_grad_() for p in criterion.parameters())]
    assert torch.autograd.gradcheck(loss, inputs)


# ---------------------------------------------------------------------------------------------------------- losses on whole batches
def check_formula(name: str, reference, kind: str, unit: bool, batchminer=None, **flags) -> None:
    """`compare` with `reference(batch, labels, *parameters)` on one of `LABELS`."""
    batch, labels = batch_of(kind, unit)
    compare(build(name, batchminer, **flags), lambda x, *parameters: reference(x, labels, *parameters), batch, labels, kind == "duplicates")


def check_gradient(name: str, **flags) -> None:
    """`gradcheck` on a ragged batch of moderate norms."""
    batch, labels = batch_of("ragged", unit=False, seed=3)
    gradcheck(build(name, **flags), 0.7 * batch / batch.norm(dim=1).mean(), labels)


def check_peer(name: str, peer, own_parameter=None, tuples=None, labels=None, **flags) -> None:
    """Value and gradients against a loss of pytorch-metric-learning, whose weight `own_parameter` ours takes (class-major).

    Both get normalised embeddings and give the gradient of what was normalised: most peers normalise by themselves.
    """
    labels = torch.arange(24) // 2 % 5 if labels is None else labels
    generator = torch.Generator().manual_seed(1)
    batch = torch.randn(len(labels), DIMENSIONS, dtype=torch.float64, generator=generator)
    criterion = build(name, **flags)
    ours_in, theirs_in = batch.clone().requires_grad_(), batch.clone().requires_grad_()
    if own_parameter is not None:
        weight = getattr(peer, own_parameter)
        weight.data = weight.data.double()
        with torch.no_grad():
            criterion.proxies.copy_(weight if weight.shape == criterion.proxies.shape else weight.T)
    ours = criterion(torch.nn.functional.normalize(ours_in), labels)
    theirs = peer(torch.nn.functional.normalize(theirs_in), labels, *([] if tuples is None else [tuples(batch, labels)]))
    torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-8)
    ours.backward()
    theirs.backward()
    torch.testing.assert_close(ours_in.grad, theirs_in.grad, rtol=1e-6, atol=1e-8)
    assert ours_in.grad.abs().sum() > 0
    if own_parameter is not None:
        gradient = weight.grad if weight.shape == criterion.proxies.shape else weight.grad.T
        torch.testing.assert_close(criterion.proxies.grad, gradient, rtol=1e-6, atol=1e-8)


class ListMiner:
    """A user's miner: the first positive and the first two negatives of every anchor that has both."""

    stats: dict = {}

    def __call__(self, batch, labels):
        positives, negatives = partners(labels)
        return [(a, positives[a][0], n) for a in range(len(labels)) if positives[a] for n in negatives[a][:2]]


def mined_partners(labels) -> tuple[list[list[int]], list[list[int]]]:
    """What `partners` is for all pairs, for the distinct pairs of `ListMiner`."""
    triplets = ListMiner()(None, labels)
    positives, negatives = ([sorted({t[column] for t in triplets if t[0] == i}) for i in range(len(labels))] for column in (1, 2))
    return positives, negatives


# ----------------------------------------------------------------------------------------------------------------- losses on tuples
class Fixed:
    """A user's miner that always returns the same."""

    def __init__(self, tuples):
        self.tuples = tuples

    def __call__(self, batch, labels):
        return self.tuples


def embeddings_of(labels=MIXED, dtype=torch.float64) -> torch.Tensor:
    """Embeddings `(B, D)` that want a gradient."""
    return random_batch(labels, DIMENSIONS, dtype=dtype)[0].requires_grad_()


def mined(name: str, x, labels=MIXED, **flags):
    """The tuples of a real miner, once."""
    torch.manual_seed(0)
    return batch_mining.select(name, **flags)(x, torch.tensor(labels))


def rows(tuples) -> list[tuple[int, ...]]:
    """Triplets as a list of (a, p, n)."""
    return as_lists(*tuples)


def distance(x, i: int, j: int) -> torch.Tensor:
    """|x_i - x_j|, with no gradient where the points coincide."""
    squared = (x[i] - x[j]).square().sum()
    return squared.sqrt() if squared > 0 else squared


def npair_terms(x, sets):
    """log(1 + sum_n exp(s_an - s_ap)) of each anchor: what N-pair and angular loss share."""
    for a, p, negatives in zip(sets.anchors.tolist(), sets.positives.tolist(), sets.negatives.tolist(), strict=True):
        yield torch.log1p(sum(torch.exp(x[a] @ x[n] - x[a] @ x[p]) for n, chosen in enumerate(negatives) if chosen))


def criterion_of(name: str, tuples, **flags) -> torch.nn.Module:
    """The criterion, its parameters as they come, on the same tuples whatever the batch."""
    miner = Fixed(tuples)
    return criteria.select(
        name, batchminer=miner, batch_mining="random", arch="resnet50", n_classes=N_CLASSES, embed_dim=DIMENSIONS, **flags
    )


def check_tuples(name: str, slow, tuples, labels=MIXED, prepare=lambda criterion: None, **flags) -> torch.nn.Module:
    """`compare` with `slow(criterion, batch)`, and `gradcheck`. Returns the criterion."""
    x, y = embeddings_of(labels), torch.tensor(labels)
    criterion = criterion_of(name, tuples, **flags).double()
    prepare(criterion)
    compare(criterion, lambda batch, *parameters: slow(criterion, batch), x, y)
    gradcheck(criterion, x, y)
    return criterion


def check_empty(name, value=0.0, **flags):
    """Nothing mined: the value is `value`, the graph is kept, every parameter gets a zero gradient."""
    empty = torch.empty(0, dtype=torch.long)
    for tuples in (Triplets(empty, empty, empty), Pairs(empty, empty, empty, empty), []):
        x = embeddings_of(dtype=torch.float32)
        criterion = criterion_of(name, tuples, **flags)
        loss = criterion(x, torch.tensor(MIXED))
        assert loss == value
        loss.backward()
        assert torch.equal(x.grad, torch.zeros_like(x))
        for parameter in criterion.parameters():
            assert torch.equal(parameter.grad, torch.zeros_like(parameter))


def check_finite(name, miners, **flags):
    """Value and gradient are finite on identical points, zeros, one class, two classes."""
    for miner in miners:
        for labels in (MIXED, [0, 0, 0, 0], [0, 0, 1, 1], [0, 1, 2, 3], [0]):
            size = len(labels)
            for x in (embeddings_of(labels, dtype=torch.float32), torch.ones(size, 4), torch.zeros(size, 4), 1e3 * torch.ones(size, 1)):
                x = x.detach().requires_grad_()
                criterion = criteria.select(name, None, batch_mining.select(miner), n_classes=5, **flags)
                loss = criterion(x, torch.tensor(labels))
                loss.backward()
                assert torch.isfinite(loss)
                assert torch.isfinite(x.grad).all()
