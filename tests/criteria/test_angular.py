"""Angular loss: loops, pytorch-metric-learning, edge cases."""

import math

import pytest
import torch
from pytorch_metric_learning import losses

from tests.criteria._oracles import MIXED, check_finite, check_tuples, criterion_of, embeddings_of, mined, npair_terms


def slow(sets, alpha, weight, l2):
    def value(criterion, x):
        t, unit = math.tan(math.radians(alpha)) ** 2, x / x.norm(dim=1, keepdim=True)
        angular = x.sum() * 0
        for a, p, negatives in zip(sets.anchors.tolist(), sets.positives.tolist(), sets.negatives.tolist(), strict=True):
            chosen = [n for n, is_negative in enumerate(negatives) if is_negative]
            exponents = [4 * t * (unit[a] + unit[p]) @ unit[n] - 2 * (1 + t) * unit[a] @ unit[p] for n in chosen]
            angular = angular + torch.log1p(sum(torch.exp(e) for e in exponents))
        return (sum(npair_terms(x, sets)) + weight * angular) / len(sets.anchors) + l2 * sum(row.norm() for row in x) / len(x)

    return value


@pytest.mark.parametrize("alpha, weight", [(45.0, 2.0), (36.0, 0.5)])
@pytest.mark.parametrize("labels", [MIXED, [0, 0, 1], [0, 0, 0, 0, 1, 1]])
def test_value(labels, alpha, weight):
    sets = mined("npair", embeddings_of(labels), labels)
    flags = {"loss_angular_alpha": alpha, "loss_angular_npair_ang_weight": weight, "loss_angular_npair_l2": 0.2}
    check_tuples("angular", slow(sets, alpha, weight, 0.2), sets, labels=labels, **flags)


def test_angular_term_agrees_with_pytorch_metric_learning():
    labels = [0, 0, 1, 1, 2, 2]
    x, y = embeddings_of(labels), torch.tensor(labels)
    unit = torch.nn.functional.normalize(x)  # it leaves the negatives as they are
    sets = mined("npair", x, labels)
    with_term, without = (criterion_of("angular", sets, loss_angular_npair_ang_weight=w)(unit, y) for w in (1.0, 0.0))
    expected = losses.AngularLoss(alpha=45)(unit, y)
    torch.testing.assert_close(with_term - without, expected)
    torch.testing.assert_close(*(torch.autograd.grad(v, x, retain_graph=True)[0] for v in (with_term - without, expected)))


def test_finite():
    check_finite("angular", ["npair"])


def test_far_embeddings_do_not_overflow():
    x = (100 * embeddings_of([0, 0, 1, 1]).detach().float()).requires_grad_()
    value = criterion_of("angular", mined("npair", x, [0, 0, 1, 1]), loss_angular_alpha=89.0)(x, torch.tensor([0, 0, 1, 1]))
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(x.grad).all()
