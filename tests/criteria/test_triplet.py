"""Triplet loss: loops, pytorch-metric-learning, edge cases."""

import pytest
import torch
from pytorch_metric_learning import distances, losses, reducers

from tests.criteria._oracles import MIXED, check_empty, check_finite, check_tuples, criterion_of, distance, embeddings_of, mined, rows
from utilities.tuples import as_triplets


def slow(tuples, margin, power, reduction):
    def value(criterion, x):
        terms = [torch.relu(distance(x, a, p) ** power - distance(x, a, n) ** power + margin) for a, p, n in rows(as_triplets(tuples))]
        count = sum(bool(term > 0) for term in terms) if reduction == "nonzero" else len(terms)
        return sum(terms, x.sum() * 0) / max(count, 1)

    return value


@pytest.mark.parametrize("reduction", ["mean", "nonzero"])
@pytest.mark.parametrize("kind, power", [("squared", 2), ("euclidean", 1)])
@pytest.mark.parametrize("miner", ["all", "distance", "rho_distance", "none", "multisimilarity"])
def test_value(miner, kind, power, reduction):
    tuples = mined(miner, embeddings_of())
    flags = {"loss_triplet_margin": 0.3, "loss_triplet_distance": kind, "loss_triplet_reduction": reduction}
    check_tuples("triplet", slow(tuples, 0.3, power, reduction), tuples, **flags)


@pytest.mark.parametrize("kind, power", [("squared", 2), ("euclidean", 1)])
@pytest.mark.parametrize("reduction, reducer", [("mean", reducers.MeanReducer()), ("nonzero", reducers.AvgNonZeroReducer())])
def test_agrees_with_pytorch_metric_learning(kind, power, reduction, reducer):
    x = embeddings_of()
    tuples = mined("all", x)
    value = criterion_of("triplet", tuples, loss_triplet_distance=kind, loss_triplet_reduction=reduction)(x, torch.tensor(MIXED))
    metric = distances.LpDistance(normalize_embeddings=False, power=power)
    expected = losses.TripletMarginLoss(margin=0.2, distance=metric, reducer=reducer)(x, torch.tensor(MIXED), tuple(tuples))
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(*(torch.autograd.grad(v, x)[0] for v in (value, expected)))


def test_list_of_a_users_miner():
    x = embeddings_of()
    triplets = mined("distance", x)
    one, two = (criterion_of("triplet", given)(x, torch.tensor(MIXED)) for given in (triplets, rows(triplets)))
    assert one == two


def test_identical_points_cost_the_margin():
    x = torch.ones(4, 3, requires_grad=True)
    tuples = mined("all", x, [0, 0, 1, 1])
    criterion = criterion_of("triplet", tuples)
    value = criterion(x, torch.tensor([0, 0, 1, 1]))
    assert value.item() == pytest.approx(0.2)
    assert criterion.stats["active_share"] == 1


def test_nothing_mined():
    check_empty("triplet")


def test_finite():
    check_finite("triplet", ["all", "distance", "rho_distance", "batchhard"])
    check_finite("triplet", ["all", "rho_distance"], loss_triplet_distance="euclidean")
