"""Contrastive loss: loops, pytorch-metric-learning, edge cases."""

import pytest
import torch
from pytorch_metric_learning import distances, losses, reducers

from tests.criteria._oracles import MIXED, check_empty, check_finite, check_tuples, criterion_of, distance, embeddings_of, mined
from utilities.tuples import Triplets, as_pairs


def slow(tuples, pos_margin, neg_margin, reduction):
    def value(criterion, x):
        a_p, p, a_n, n = (column.tolist() for column in as_pairs(tuples))
        positives = [torch.relu(distance(x, i, j) - pos_margin) for i, j in zip(a_p, p, strict=True)]
        negatives = [torch.relu(neg_margin - distance(x, i, j)) for i, j in zip(a_n, n, strict=True)]
        total = x.sum() * 0
        for terms in (positives, negatives):
            count = sum(bool(term > 0) for term in terms) if reduction == "nonzero" else len(terms)
            total = total + sum(terms) / max(count, 1)
        return total

    return value


@pytest.mark.parametrize("reduction", ["mean", "nonzero"])
@pytest.mark.parametrize("miner", ["none", "all", "rho_distance", "distance", "pairmargin"])
@pytest.mark.parametrize("pos_margin, neg_margin", [(0.0, 1.0), (0.7, 3.1)])
def test_value(miner, reduction, pos_margin, neg_margin):
    tuples = mined(miner, embeddings_of())
    flags = {"loss_contrastive_pos_margin": pos_margin, "loss_contrastive_neg_margin": neg_margin, "loss_contrastive_reduction": reduction}
    check_tuples("contrastive", slow(tuples, pos_margin, neg_margin, reduction), tuples, **flags)


@pytest.mark.parametrize("reduction, reducer", [("mean", reducers.MeanReducer()), ("nonzero", reducers.AvgNonZeroReducer())])
def test_agrees_with_pytorch_metric_learning(reduction, reducer):
    x = embeddings_of()
    tuples = mined("none", x)
    flags = {"loss_contrastive_neg_margin": 3.0, "loss_contrastive_reduction": reduction}
    value = criterion_of("contrastive", tuples, **flags)(x, torch.tensor(MIXED))
    oracle = losses.ContrastiveLoss(0, 3.0, distance=distances.LpDistance(normalize_embeddings=False), reducer=reducer)
    expected = oracle(x, torch.tensor(MIXED), tuple(tuples))
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(*(torch.autograd.grad(v, x)[0] for v in (value, expected)))


def test_a_pushed_sample_of_the_same_class_counts_as_negative():
    x = torch.tensor([[0.0], [0.25]], requires_grad=True)
    triplets = Triplets(torch.tensor([0]), torch.tensor([0]), torch.tensor([1]))  # (a, a, p) of rho_distance
    criterion = criterion_of("contrastive", triplets)
    value = criterion(x, torch.tensor([0, 0]))
    value.backward()
    assert value == 0.75
    assert x.grad.flatten().tolist() == [1.0, -1.0]
    assert (criterion.stats["active_positives"], criterion.stats["active_negatives"]) == (0, 1)


def test_nothing_mined():
    check_empty("contrastive")
    check_empty("contrastive", loss_contrastive_reduction="nonzero")


def test_finite():
    check_finite("contrastive", ["none", "distance", "rho_distance"])
