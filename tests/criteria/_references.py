"""Losses on pairs against loops that are given the pairs: of a batch, of a miner, and of a batch beside a reference."""

import torch

from tests.criteria._oracles import DIMENSIONS, build, gradients, mined_partners, partners


def plain(slow):
    """`slow(batch, compared, positives, negatives)` as `check_formula` wants it: all pairs of the batch."""
    return lambda batch, labels: slow(batch, batch, *partners(labels))


def mined(slow):
    """The same on the distinct pairs of `ListMiner`."""
    return lambda batch, labels: slow(batch, batch, *mined_partners(labels))


CASES = {  # labels of the batch, labels of the reference, own
    "larger": ([0, 1, 2, 0], [0, 0, 1, 2, 2, 3, 1, 0], None),
    "larger, with the batch in it": ([0, 1, 2, 0], [0, 1, 2, 0, 2, 3, 1, 0], [0, 1, 2, 3]),
    "some of the batch in it": ([0, 1, 2, 0], [2, 0, 1, 4, 0], [-1, 2, 0, 4]),
    "smaller": ([0, 1, 2, 0, 1, 3], [1, 0], None),
    "classes that it lacks": ([0, 0, 1], [2, 2, 3, 4], None),
    "of one class": ([0, 0, 0], [0, 0, 0, 0], [2, 1, 0]),
    "empty": ([0, 0, 1], [], None),
}


def check_references(name: str, slow, batchminer=None, **flags) -> None:
    """Values and gradients, those of the reference too, in every one of `CASES`; the batch as its own reference is the plain form."""
    for kind, (labels, others, own) in CASES.items():
        generator = torch.Generator().manual_seed(1)
        batch, compared = (
            torch.nn.functional.normalize(torch.randn(n, DIMENSIONS, dtype=torch.float64, generator=generator)).requires_grad_()
            for n in (len(labels), len(others))
        )
        rows = own or [-1] * len(labels)
        positives = [[j for j, other in enumerate(others) if other == label and j != row] for label, row in zip(labels, rows, strict=True)]
        negatives = [[j for j, other in enumerate(others) if other != label and j != row] for label, row in zip(labels, rows, strict=True)]
        given = {"reference": compared, "reference_labels": torch.tensor(others, dtype=torch.long)}
        if own is not None:
            given["own"] = torch.tensor(own)
        value = build(name, batchminer, **flags)(batch, torch.tensor(labels), **given)
        expected = torch.as_tensor(slow(batch, compared, positives, negatives), dtype=torch.float64)
        torch.testing.assert_close(value, expected, rtol=1e-9, atol=1e-9, msg=lambda text, kind=kind: f"{kind}: {text}")
        for ours, theirs in zip(gradients(value, [batch, compared]), gradients(expected, [batch, compared]), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-8, msg=lambda text, kind=kind: f"{kind}: {text}")
    _check_the_batch_itself(name, batchminer, **flags)


def _check_the_batch_itself(name: str, batchminer, **flags) -> None:
    labels = torch.tensor([0, 0, 1, 1, 2, 2, 2, 3])
    batch = torch.randn(8, DIMENSIONS, dtype=torch.float64, generator=torch.Generator().manual_seed(2)).requires_grad_()
    alone = build(name, batchminer, **flags)(batch, labels)
    beside = build(name, batchminer, **flags)(batch, labels, reference=batch, reference_labels=labels, own=torch.arange(8))
    torch.testing.assert_close(alone, beside, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(*(torch.autograd.grad(value, batch)[0] for value in (alone, beside)), rtol=1e-10, atol=1e-12)
