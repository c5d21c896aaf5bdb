import pytest
import torch
from pytorch_metric_learning.losses import PNPLoss

import criteria.pnp
from tests.criteria._oracles import DIMENSIONS, build, check_formula, check_gradient, every_batch, partners
from tests.criteria._references import check_references

COSTS = {
    "O": lambda r: r,
    "Iu": lambda r: (1 + r) * torch.log(1 + r),
    "Ib": lambda r: (2 * r - torch.log(1 + 2 * r)) / 4,
    "Ds": lambda r: torch.log(1 + r),
    "Dq": lambda r: 1 - 1 / (1 + r) ** 4,
}
every_variant = pytest.mark.parametrize("variant", COSTS)


def slow(variant, temperature=0.1):
    def loss(batch, compared, positives, negatives):
        means = []
        for i, x in enumerate(batch):
            cosines = [x @ y / x.norm() / y.norm() for y in compared]
            before = [
                sum(torch.sigmoid((cosines[n] - cosines[p]) / temperature) for n in negatives[i]) + 0 * cosines[p] for p in positives[i]
            ]
            if before:
                means.append(sum(COSTS[variant](r) for r in before) / len(before))
        return sum(means) / len(means) if means else 0.0

    return loss


FLAGS = {"loss_pnp_temperature": 0.1}  # at .01 single precision loses the fourth digit


@every_variant
@every_batch
def test_formula(kind, unit, variant):
    check_formula("pnp", lambda x, labels: slow(variant)(x, x, *partners(labels)), kind, unit, loss_pnp_variant=variant, **FLAGS)


@every_variant
def test_references(variant):
    check_references("pnp", slow(variant), loss_pnp_variant=variant, **FLAGS)


@every_variant
def test_gradient(variant):
    check_gradient("pnp", loss_pnp_variant=variant, **FLAGS)


def test_other_flags():
    def loss(power):
        return lambda x, labels: slow_with(lambda r: 1 - (1 + r) ** -power)(x, labels)

    def slow_with(cost):
        def value(x, labels):
            COSTS["changed"] = cost
            return slow("changed", 0.2)(x, x, *partners(labels))

        return value

    check_formula("pnp", loss(1.5), "ragged", True, loss_pnp_alpha=1.5, loss_pnp_temperature=0.2)
    b3 = slow_with(lambda r: (3 * r - torch.log(1 + 3 * r)) / 9)
    check_formula("pnp", b3, "ragged", True, loss_pnp_variant="Ib", loss_pnp_b=3, loss_pnp_temperature=0.2)
    del COSTS["changed"]


@every_variant
def test_against_pytorch_metric_learning(variant):
    """There the query is one of its own positives, at cosine 1: P of P + 1 terms of its mean are ours."""
    labels = torch.arange(24) // 2 % 4  # six of each
    batch = torch.randn(24, DIMENSIONS, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    ours = build("pnp", loss_pnp_variant=variant, **FLAGS)(batch, labels)
    theirs = PNPLoss(b=2, alpha=4, anneal=0.1, variant=variant)(batch, labels)
    unit = torch.nn.functional.normalize(batch)
    counts = (torch.sigmoid((unit @ unit.T - 1) / 0.1) * (labels[:, None] != labels)).sum(1)  # of negatives before the query itself
    of_queries = COSTS[variant](counts).mean()
    torch.testing.assert_close((5 * ours + of_queries) / 6, theirs, rtol=1e-9, atol=1e-12)
    gradients = [torch.autograd.grad(value, batch, retain_graph=True)[0] for value in ((5 * ours + of_queries) / 6, theirs)]
    torch.testing.assert_close(*gradients, rtol=1e-7, atol=1e-10)


def test_chunks_change_nothing(monkeypatch):
    labels = torch.arange(24) // 2 % 4
    batch = torch.randn(24, DIMENSIONS, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    whole = build("pnp")(batch, labels)
    monkeypatch.setattr(criteria.pnp, "CHUNK", 7 * 24)
    parts = build("pnp")(batch, labels)
    torch.testing.assert_close(whole, parts, rtol=1e-12, atol=0)
    torch.testing.assert_close(*(torch.autograd.grad(value, batch)[0] for value in (whole, parts)), rtol=1e-10, atol=1e-14)
