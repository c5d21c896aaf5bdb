"""N-pair loss: loops, pytorch-metric-learning, edge cases."""

import math

import pytest
import torch
from pytorch_metric_learning import distances, losses

import criteria
from tests.criteria._oracles import MIXED, Fixed, check_finite, check_tuples, criterion_of, embeddings_of, mined, npair_terms


def slow(sets, l2):
    def value(criterion, x):
        return sum(npair_terms(x, sets)) / len(sets.anchors) + l2 * sum(row.norm() for row in x) / len(x)

    return value


@pytest.mark.parametrize("labels", [MIXED, [0, 0, 1], [0, 0, 0, 0, 1, 1, 2, 2]])
def test_value(labels):
    sets = mined("npair", embeddings_of(labels), labels)
    check_tuples("npair", slow(sets, 0.3), sets, labels=labels, loss_npair_l2=0.3)


def test_agrees_with_pytorch_metric_learning():
    """Two samples a class and one anchor a class: the paper's form, in which a class has one negative."""
    x, y = embeddings_of([0, 0, 1, 1, 2, 2]), torch.tensor([0, 0, 1, 1, 2, 2])
    sets = mined("npair", x, y.tolist())
    firsts = torch.tensor([0, 2, 4])
    ours = type(sets)(firsts, firsts + 1, sets.negatives[firsts] & (torch.arange(6) % 2 == 1))
    value = criterion_of("npair", ours, loss_npair_l2=0.0)(x, y)
    oracle = losses.NPairsLoss(distance=distances.DotProductSimilarity(normalize_embeddings=False))
    expected = oracle(x, y, (firsts, firsts + 1, firsts[:0], firsts[:0]))
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(*(torch.autograd.grad(v, x)[0] for v in (value, expected)))


def test_far_embeddings_do_not_overflow():
    x = (100 * embeddings_of([0, 0, 1, 1]).detach().float()).requires_grad_()
    sets = mined("npair", x, [0, 0, 1, 1])
    value = criterion_of("npair", sets)(x, torch.tensor([0, 0, 1, 1]))
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(x.grad).all()


def test_nothing_mined_leaves_the_norm():
    x = torch.tensor([[3.0, 4.0], [0.0, 0.0]], requires_grad=True)
    criterion = criterion_of("npair", mined("npair", x, [0, 1]), loss_npair_l2=0.1)
    value = criterion(x, torch.tensor([0, 1]))
    value.backward()
    assert value.item() == pytest.approx(0.1 * 2.5)
    torch.testing.assert_close(x.grad, torch.tensor([[0.03, 0.04], [0.0, 0.0]]))


def test_identical_points():
    x = torch.zeros(4, 2)
    criterion = criterion_of("npair", mined("npair", x, [0, 0, 1, 1]))
    assert criterion(x, torch.tensor([0, 0, 1, 1])) == pytest.approx(math.log(3))
    assert criterion.stats["outweighed_share"] == 1


@pytest.mark.parametrize("name", ["npair", "angular", "lifted"])
@pytest.mark.parametrize(
    "arch, lines",
    [("resnet50_frozen_normalize", 1), ("conv4_normalize_frozen", 1), ("resnet50_frozen", 0), ("normalizer50", 0), ("net_normalized", 0)],
)
def test_a_word_on_normalised_networks(name, arch, lines, capsys):
    criteria.select(name, None, Fixed(None), arch=arch)
    printed = capsys.readouterr()
    assert (printed.out + printed.err).count("\n") == lines
    assert arch in printed.err or not lines


def test_finite():
    check_finite("npair", ["npair"])
