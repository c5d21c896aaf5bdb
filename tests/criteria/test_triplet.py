"""Triplet loss: loops, pytorch-metric-learning, edge cases."""

import pytest
import torch
from pytorch_metric_learning import distances, losses, reducers

import criteria
from tests.criteria._oracles import MIXED, check_empty, check_finite, check_tuples, criterion_of, distance, embeddings_of, mined, rows
from utilities.tuples import as_triplets


def slow(tuples, margin, power, reduction, swap=False, smooth=False):
    def cost(x, a, p, n):
        negative = min(distance(x, a, n), distance(x, p, n)) if swap else distance(x, a, n)
        violation = distance(x, a, p) ** power - negative**power + margin
        return torch.log1p(torch.exp(violation)) if smooth else torch.relu(violation)

    def value(criterion, x):
        terms = [cost(x, a, p, n) for a, p, n in rows(as_triplets(tuples))]
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


@pytest.mark.parametrize("smooth", [False, True])
@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("kind, power", [("squared", 2), ("euclidean", 1)])
@pytest.mark.parametrize("miner", ["all", "distance", "none"])
def test_swap_and_smooth(miner, kind, power, swap, smooth):
    tuples = mined(miner, embeddings_of())
    for reduction in ("mean", "nonzero"):
        flags = {"loss_triplet_swap": swap, "loss_triplet_smooth": smooth, "loss_triplet_reduction": reduction}
        check_tuples("triplet", slow(tuples, 0.2, power, reduction, swap, smooth), tuples, loss_triplet_distance=kind, **flags)


@pytest.mark.parametrize("smooth", [False, True])
@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("kind, power", [("squared", 2), ("euclidean", 1)])
def test_swap_and_smooth_agree_with_pytorch_metric_learning(kind, power, swap, smooth):
    x, y = embeddings_of(), torch.tensor(MIXED)
    tuples = mined("all", x)
    flags = {"loss_triplet_swap": swap, "loss_triplet_smooth": smooth, "loss_triplet_distance": kind, "loss_triplet_margin": -0.3}
    value = criterion_of("triplet", tuples, **flags)(x, y)
    metric = distances.LpDistance(normalize_embeddings=False, power=power)
    peer = losses.TripletMarginLoss(-0.3, swap, smooth, distance=metric, reducer=reducers.MeanReducer())
    expected = peer(x, y, tuple(tuples))
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(*(torch.autograd.grad(v, x)[0] for v in (value, expected)))
    assert ((value != criterion_of("triplet", tuples, **{**flags, "loss_triplet_swap": False})(x, y)) == swap).all()


def test_swap_with_a_reference():
    """The positive and the negative are both rows of the reference."""
    x, others = (torch.randn(n, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(n)).requires_grad_() for n in (3, 6))
    labels, other_labels = torch.tensor([0, 1, 2]), torch.tensor([0, 1, 1, 2, 0, 3])
    triplets = [(a, p, n) for a in range(3) for p in range(6) for n in range(6) if labels[a] == other_labels[p] != other_labels[n]]

    def miner(batch, labels, reference=None, reference_labels=None, own=None):
        return triplets

    criterion = criteria.select("triplet", batchminer=miner, loss_triplet_swap=True)
    value = criterion(x, labels, reference=others, reference_labels=other_labels)
    apart = lambda a, b: (a - b).square().sum()  # noqa: E731
    terms = [torch.relu(apart(x[a], others[p]) - min(apart(x[a], others[n]), apart(others[p], others[n])) + 0.2) for a, p, n in triplets]
    expected = sum(terms) / len(terms)
    torch.testing.assert_close(value, expected)
    for ours, theirs in zip(torch.autograd.grad(value, [x, others]), torch.autograd.grad(expected, [x, others]), strict=True):
        torch.testing.assert_close(ours, theirs)


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
    check_empty("triplet", loss_triplet_swap=True, loss_triplet_smooth=True)


def test_finite():
    check_finite("triplet", ["all", "distance", "rho_distance", "batchhard"])
    check_finite("triplet", ["all", "rho_distance"], loss_triplet_distance="euclidean")
    check_finite("triplet", ["all", "rho_distance"], loss_triplet_distance="euclidean", loss_triplet_swap=True, loss_triplet_smooth=True)
