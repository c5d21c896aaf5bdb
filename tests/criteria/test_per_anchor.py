"""`--loss_triplet_per_anchor`: random triplets of each anchor, as TripletMarginLoss without a miner, or all."""

import itertools

import pytest
import torch
from pytorch_metric_learning.distances import LpDistance
from pytorch_metric_learning.losses import TripletMarginLoss
from pytorch_metric_learning.utils import loss_and_miner_utils

import batch_mining
import criteria
from tests.kit import tiny
from tests.kit.mining import as_lists, assert_drawn_with, normal
from tests.kit.refusals import refused
from utilities.errors import UserError

LABELS = torch.tensor([0, 0, 0, 1, 1, 2, 3, 3])
VALID = [
    (a, p, n) for a, p, n in itertools.product(range(8), repeat=3) if a != p and LABELS[a] == LABELS[p] != LABELS[n]
]
EUCLIDEAN = {"loss_triplet_distance": "euclidean", "loss_triplet_reduction": "nonzero"}


def criterion_of(count, miner="none", **flags):
    return criteria.select("triplet", batchminer=batch_mining.select(miner), loss_triplet_per_anchor=count, **flags)


def embeddings():
    return normal(8, 5, seed=1)


def triplets_of(criterion):
    return as_lists(*criterion.triplets(embeddings(), LABELS))


@pytest.mark.parametrize("count", [1, 3])
def test_so_many_triplets_of_each_anchor_drawn_uniformly(count):
    criterion = criterion_of(count)
    torch.manual_seed(0)
    draws = []
    for _ in range(300):
        triplets = triplets_of(criterion)
        assert sorted(a for a, _, _ in triplets) == sorted([0, 1, 2, 3, 4, 6, 7] * count)
        draws += triplets
    for anchor in (0, 3, 7):
        candidates = [valid for valid in VALID if valid[0] == anchor]
        chances = dict.fromkeys(candidates, 1 / len(candidates))
        assert_drawn_with(chances, [triplet for triplet in draws if triplet[0] == anchor])
    theirs = loss_and_miner_utils.get_random_triplet_indices(LABELS, t_per_anchor=count)
    assert sorted(theirs[0].tolist()) == sorted(a for a, _, _ in triplets), "as many as pytorch-metric-learning draws"


@pytest.mark.parametrize(("flags", "power"), [({}, 2), (EUCLIDEAN, 1)])
def test_the_loss_is_that_of_the_drawn_triplets(flags, power):
    criterion = criterion_of(4, **flags)
    torch.manual_seed(3)
    triplets = triplets_of(criterion)
    torch.manual_seed(3)
    loss = criterion(embeddings(), LABELS).item()
    rows = embeddings().tolist()
    terms = []
    for a, p, n in triplets:
        gap = tiny.distance(rows[a], rows[p]) ** power - tiny.distance(rows[a], rows[n]) ** power
        terms.append(max(gap + 0.2, 0))
    counted = [term for term in terms if term > 0] if flags else terms
    assert loss == pytest.approx(sum(counted) / len(counted), rel=1e-10)


def test_all_are_all():
    x = embeddings()
    assert sorted(triplets_of(criterion_of("all"))) == sorted(triplets_of(criterion_of(None))) == sorted(VALID)
    theirs = TripletMarginLoss(0.2, triplets_per_anchor="all", distance=LpDistance(normalize_embeddings=False))
    assert criterion_of("all", **EUCLIDEAN)(x, LABELS).item() == pytest.approx(theirs(x, LABELS).item(), rel=1e-6)


def test_a_reference_and_a_batch_without_triplets():
    criterion = criterion_of(2)
    x = embeddings().requires_grad_()
    assert criterion(x, LABELS, embeddings() + 1, LABELS.flip(0), torch.full((8,), -1)).isfinite()
    loss = criterion(x, torch.arange(8))
    loss.backward()
    assert loss == 0 and (x.grad == 0).all()


def test_a_miner_and_wrong_values_are_refused():
    without_miner = "--loss triplet --batch_mining none --loss_triplet_per_anchor".split()
    assert tiny.resolve(*without_miner, "all").loss_triplet_per_anchor == "all"
    with refused("--loss_triplet_per_anchor 3: --batch_mining distance chooses the triplets; add --batch_mining none"):
        tiny.resolve("--loss triplet --loss_triplet_per_anchor 3")
    with refused("--loss_triplet_per_anchor 3: a miner chooses"):
        criterion_of(3, "all")
    for value in (0, "some", 1.5):
        with refused("loss_triplet_per_anchor"):
            criterion_of(value)
        with pytest.raises((UserError, SystemExit)):
            tiny.resolve(*without_miner, value)
