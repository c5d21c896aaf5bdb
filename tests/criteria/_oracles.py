"""Checks that the tests of the criteria share: a criterion against its loops, its numeric gradient, its peer elsewhere.

Losses on whole batches are tested on every one of `LABELS`, losses on tuples on `MIXED` with the tuples of real miners.
"""

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
# four unit embeddings with their labels and three unit class vectors: the authors' functions gave the pinned values on these
PINNED = torch.tensor([[1, 0, 0], [0.8, 0.6, 0], [0, 1, 0], [0, 0.6, 0.8]], dtype=torch.float64)
PINNED_LABELS = torch.tensor([0, 0, 1, 1])
PINNED_VECTORS = torch.nn.functional.normalize(torch.tensor([[1, 0.2, 0], [0, 1, 0.3], [0.1, 0, 1]], dtype=torch.float64))
MIXED = [0, 0, 0, 1, 1, 2, 2, 2, 3]


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


def criterion_of(name: str, tuples, **flags) -> torch.nn.Module:
    """The criterion, its parameters as they come, on the same tuples whatever the batch."""
    miner = Fixed(tuples)
    return criteria.select(
        name, batchminer=miner, batch_mining="random", arch="resnet50", n_classes=N_CLASSES, embed_dim=DIMENSIONS, **flags
    )


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
