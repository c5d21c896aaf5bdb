"""Checks that the tests of the criteria share: a criterion against its double loop, its numeric gradient, its peer elsewhere."""

import pytest
import torch

import criteria

N_CLASSES, DIMENSIONS = 5, 6

LABELS = {
    "pairs": [0, 0, 1, 1, 2, 2, 3, 3],
    "ragged": [0, 1, 0, 2, 2, 2, 3, 0, 4],  # 1, 3 and 4 stand alone
    "one class": [3, 3, 3, 3],
    "all alone": [0, 1, 2, 3],
    "one sample": [2],
    "duplicates": [0, 0, 0, 1, 1, 2, 2],
}

every_batch = pytest.mark.parametrize(("kind", "unit"), [(kind, unit) for kind in LABELS for unit in (True, False)])


def batch_of(kind: str, unit: bool = True, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Float64 embeddings and labels of one of `LABELS`; in "duplicates" points coincide within a class and between two."""
    labels = torch.tensor(LABELS[kind])
    batch = torch.randn(len(labels), DIMENSIONS, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
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


def check_formula(name: str, reference, kind: str, unit: bool, batchminer=None, **flags) -> None:
    """Value to 1e-9 in float64 and 1e-4 in float32, gradients to 1e-8, against `reference(batch, labels, *parameters)`."""
    batch, labels = batch_of(kind, unit)
    criterion = build(name, batchminer, **flags)
    ours_in, theirs_in = batch.clone().requires_grad_(), batch.clone().requires_grad_()
    parameters = [p.detach().clone().requires_grad_() for p in criterion.parameters()]
    ours = criterion(ours_in, labels)
    ours.backward()
    theirs = torch.as_tensor(reference(theirs_in, labels, *parameters), dtype=torch.float64)
    torch.testing.assert_close(ours.detach(), theirs.detach(), rtol=1e-9, atol=1e-9)
    if kind != "duplicates":  # coincident points lie on kinks, where either one-sided slope is right
        (theirs + 0 * sum(p.sum() for p in [theirs_in, *parameters])).backward()
        for mine, other in zip([ours_in, *criterion.parameters()], [theirs_in, *parameters], strict=True):
            torch.testing.assert_close(mine.grad, other.grad, rtol=1e-8, atol=1e-8)
    single = criterion.float()(batch.float(), labels)
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double().detach(), theirs.detach(), rtol=1e-4, atol=1e-4)


def check_gradient(name: str, **flags) -> None:
    """`torch.autograd.gradcheck` by the embeddings and every parameter."""
    batch, labels = batch_of("ragged", unit=False, seed=3)
    batch = 0.7 * batch / batch.norm(dim=1).mean()
    criterion = build(name, **flags)
    names = [name for name, _ in criterion.named_parameters()]

    def loss(batch, *parameters):
        return torch.func.functional_call(criterion, dict(zip(names, parameters, strict=True)), (batch, labels))

    inputs = [batch.requires_grad_(), *(p.detach().clone().requires_grad_() for p in criterion.parameters())]
    assert torch.autograd.gradcheck(loss, inputs)


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
