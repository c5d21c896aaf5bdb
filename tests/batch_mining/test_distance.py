"""The distance miner's draws against the formula."""

import math

import numpy as np
import pytest
import torch

import batch_mining
from tests.batch_mining._reference import all_triplets, as_lists, assert_drawn_with, batch_of, mine_often, slow_distances

LABELS = [0, 0, 0, 1, 1, 2, 2, 3]


def slow_probabilities(embeddings, labels, anchor, lower=0.5, upper=None):
    """Negative -> probability for one anchor, by the formula."""
    distances, dimensions = slow_distances(embeddings, normalised=True)[anchor], embeddings.shape[1]
    negatives = [n for n in range(len(labels)) if labels[n] != labels[anchor]]
    near = [n for n in negatives if upper is None or distances[n] <= upper]
    log_weights = {}
    for n in near or negatives:
        d = min(max(distances[n], lower), 2 - 1e-4)
        log_weights[n] = (2 - dimensions) * math.log(d) - (dimensions - 3) / 2 * math.log(1 - d * d / 4)
    highest = max(log_weights.values())
    weights = {n: math.exp(w - highest) for n, w in log_weights.items()}
    return {n: w / sum(weights.values()) for n, w in weights.items()}


def check_draws(embeddings, labels, **flags):
    mined = mine_often("distance", embeddings, torch.tensor(labels), **{f"miner_distance_{k}_cutoff": v for k, v in flags.items()})
    for anchor in sorted(set(mined.anchors.tolist())):
        of_anchor = mined.anchors == anchor
        assert_drawn_with(slow_probabilities(embeddings, labels, anchor, **flags), mined.negatives[of_anchor].tolist())
        positives = [p for p in range(len(labels)) if p != anchor and labels[p] == labels[anchor]]
        assert_drawn_with({p: 1 / len(positives) for p in positives}, mined.positives[of_anchor].tolist())


@pytest.mark.parametrize("dimensions", [1, 2, 3, 5, 16])
def test_draws_follow_the_formula(dimensions):
    check_draws(batch_of(LABELS, dimensions, seed=3)[0], LABELS)


def test_embeddings_are_normalised_for_it():
    embeddings = batch_of(LABELS, 6, seed=4)[0] * torch.tensor([0.01, 5, 30, 1, 2, 0.5, 9, 100])[:, None]  # distances far above 2
    check_draws(embeddings, LABELS)


def test_upper_cutoff_acts_and_yields_where_nothing_is_left():
    embeddings = batch_of(LABELS, 4, seed=5)[0]
    distances = slow_distances(embeddings, normalised=True)
    different = np.array([[a != b for b in LABELS] for a in LABELS])
    upper = float(np.median(distances[different]))
    left = [any(distances[a, n] <= upper and different[a, n] for n in range(8)) for a in range(8)]
    assert any(left)
    check_draws(embeddings, LABELS, upper=upper)
    check_draws(embeddings, LABELS, upper=0.0)  # no anchor has a negative as near as that


def test_lower_cutoff_flattens():
    embeddings = batch_of(LABELS, 4, seed=6)[0]
    check_draws(embeddings, LABELS, lower=1.9)
    check_draws(embeddings, LABELS, lower=0.05)


def test_identical_and_opposite_points():
    embeddings = torch.tensor([[1.0, 0, 0, 0, 0]] * 4 + [[-1.0, 0, 0, 0, 0]] * 2)
    check_draws(embeddings, [0, 0, 1, 2, 3, 4])
    zero_cutoff = batch_mining.select("distance", miner_distance_lower_cutoff=0.0)
    negatives = zero_cutoff(embeddings, torch.tensor([0, 0, 1, 2, 3, 3])).negatives
    assert all(n in (2, 3) for n in negatives[:2].tolist())  # at distance 0 the density is 0, its inverse beats all others


def test_singletons_are_negatives_but_no_anchors():
    mined = mine_often("distance", *batch_of(LABELS), times=300)
    assert set(mined.anchors.tolist()) == set(range(7))
    assert set(as_lists(*mined)) <= set(all_triplets(LABELS))
    assert 7 in mined.negatives


def test_broken_embeddings_give_valid_tuples():
    embeddings, y = batch_of(LABELS)
    embeddings[2] = torch.nan
    assert set(as_lists(*batch_mining.select("distance")(embeddings, y))) <= set(all_triplets(LABELS))


def test_hard_share():
    miner = batch_mining.select("distance")
    x = torch.tensor([[1.0, 0], [0.0, 1], [1.0, 0.1], [0.1, 1.0]])
    miner(x, torch.tensor([0, 0, 1, 1]))  # every negative is nearer than every positive but for the diagonal, drawn by density
    assert 0 <= miner.stats["hard_share"] <= 1
    x = torch.nn.functional.normalize(torch.tensor([[1.0, 0], [1.0, 0.01], [-1.0, 0], [-1.0, 0.01]]))
    miner(x, torch.tensor([0, 0, 1, 1]))
    assert miner.stats["hard_share"] == 0
    miner(x, torch.tensor([0, 1, 0, 1]))
    assert miner.stats["tuples"] == 4
