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
from tests.kit.mining import assert_drawn_with
from tests.kit.refusals import refused
from utilities.errors import UserError

LABELS = torch.tensor([0, 0, 0, 1, 1, 2, 3, 3])
VALID = [
    (a, p, n) for a, p, n in itertools.product(range(8), repeat=3) if a != p and LABELS[a] == LABELS[p] != LABELS[n]
]


def criterion_of(count, **flags):
    return criteria.select("triplet", batchminer=batch_mining.select("none"), loss_triplet_per_anchor=count, **flags)


def embeddings():
    return torch.randn(8, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def triplets_of(criterion, x):
    return list(zip(*(column.tolist() for column in criterion.triplets(x, LABELS)), strict=True))


@pytest.mark.parametrize("count", [1, 3])
def test_so_many_triplets_of_each_anchor_drawn_uniformly(count):
    criterion = criterion_of(count)
    x = embeddings()
    torch.manual_seed(0)
    drawn = []
    for _ in range(300):
        triplets = triplets_of(criterion, x)
        assert sorted(a for a, _, _ in triplets) == sorted([0, 1, 2, 3, 4, 6, 7] * count)
        drawn += triplets
    of_anchor = {a: sum(valid[0] == a for valid in VALID) for a in range(8)}
    for anchor in (0, 3, 7):
        chances = {valid: 1 / of_anchor[anchor] for valid in VALID if valid[0] == anchor}
        assert_drawn_with(chances, [triplet for triplet in drawn if triplet[0] == anchor])
    theirs = loss_and_miner_utils.get_random_triplet_indices(LABELS, t_per_anchor=count)
    assert sorted(theirs[0].tolist()) == sorted(a for a, _, _ in triplets), "as many as pytorch-metric-learning draws"


@pytest.mark.parametrize("flags", [{}, {"loss_triplet_distance": "euclidean", "loss_triplet_reduction": "nonzero"}])
def test_the_loss_is_that_of_the_drawn_triplets(flags):
    criterion = criterion_of(4, **flags)
    x = embeddings()
    torch.manual_seed(3)
    triplets = triplets_of(criterion, x)
    torch.manual_seed(3)
    loss = criterion(x, LABELS).item()
    power = 1 if flags else 2
    rows = x.tolist()
    terms = [
        max(tiny.distance(rows[a], rows[p]) ** power - tiny.distance(rows[a], rows[n]) ** power + 0.2, 0)
        for a, p, n in triplets
    ]
    counted = [term for term in terms if term > 0] if flags else terms
    assert loss == pytest.approx(sum(counted) / len(counted), rel=1e-10)


def test_all_are_all():
    x = embeddings()
    flags = {"loss_triplet_distance": "euclidean", "loss_triplet_reduction": "nonzero"}
    assert sorted(triplets_of(criterion_of("all"), x)) == sorted(triplets_of(criterion_of(None), x)) == sorted(VALID)
    theirs = TripletMarginLoss(0.2, triplets_per_anchor="all", distance=LpDistance(normalize_embeddings=False))
    assert criterion_of("all", **flags)(x, LABELS).item() == pytest.approx(theirs(x, LABELS).item(), rel=1e-6)


def test_a_reference_and_a_batch_without_triplets():
    criterion = criterion_of(2)
    x = embeddings().requires_grad_()
    others = embeddings() + 1
    labels = LABELS.flip(0)
    assert criterion(x, LABELS, others, labels, torch.full((8,), -1)).isfinite()
    loss = criterion(x, torch.arange(8))
    loss.backward()
    assert loss == 0 and (x.grad == 0).all()


def test_a_miner_and_wrong_values_are_refused():
    assert (
        tiny.resolve(
            "--loss", "triplet", "--batch_mining", "none", "--loss_triplet_per_anchor", "all"
        ).loss_triplet_per_anchor
        == "all"
    )
    with refused("--loss_triplet_per_anchor 3: --batch_mining distance chooses the triplets; add --batch_mining none"):
        tiny.resolve("--loss", "triplet", "--loss_triplet_per_anchor", "3")
    with refused("--loss_triplet_per_anchor 3: a miner chooses"):
        criteria.select("triplet", batchminer=batch_mining.select("all"), loss_triplet_per_anchor=3)
    for value in (0, "some", 1.5):
        with pytest.raises(UserError, match="loss_triplet_per_anchor"):
            criterion_of(value)
        with pytest.raises((UserError, SystemExit)):
            tiny.resolve("--loss", "triplet", "--batch_mining", "none", "--loss_triplet_per_anchor", str(value))
