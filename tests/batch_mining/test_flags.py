"""What the flags of single miners do, beyond the defaults of the table."""

import argparse

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import batch_mining
from tests.batch_mining._reference import all_triplets, as_lists, assert_drawn_with, batch_of, mine_often, slow_distances
from utilities.errors import UserError

LABELS = [0, 0, 0, 1, 1, 2, 2, 3]


def check_distance_draws(embeddings, labels, lower=0.5, upper=None):
    """Draws of `distance` against its formula."""
    mined = mine_often("distance", embeddings, torch.tensor(labels), miner_distance_lower_cutoff=lower, miner_distance_upper_cutoff=upper)
    for anchor in sorted(set(mined.anchors.tolist())):
        distances, dimensions = slow_distances(embeddings, normalised=True)[anchor], embeddings.shape[1]
        negatives = [n for n in range(len(labels)) if labels[n] != labels[anchor]]
        negatives = [n for n in negatives if upper is None or distances[n] <= upper] or negatives
        d = {n: min(max(distances[n], lower), 2 - 1e-4) for n in negatives}
        logs = {n: (2 - dimensions) * np.log(d[n]) - (dimensions - 3) / 2 * np.log(1 - d[n] ** 2 / 4) for n in negatives}
        highest = max(logs.values())
        assert_drawn_with({n: np.exp(value - highest) for n, value in logs.items()}, mined.negatives[mined.anchors == anchor].tolist())


@pytest.mark.parametrize("dimensions", [1, 16])
def test_cutoffs_of_distance(dimensions):
    embeddings = batch_of(LABELS, dimensions, seed=5)[0] * torch.tensor([0.01, 5, 30, 1, 2, 0.5, 9, 100])[:, None]  # normalised for it
    distances = slow_distances(embeddings, normalised=True)
    different = np.array([[a != b for b in LABELS] for a in LABELS])
    for flags in ({}, {"lower": 1.9}, {"lower": 0.05}, {"upper": float(np.median(distances[different]))}, {"upper": 0.0}):
        check_distance_draws(embeddings, LABELS, **flags)


def test_identical_and_opposite_points():
    embeddings = torch.tensor([[1.0, 0, 0, 0, 0]] * 4 + [[-1.0, 0, 0, 0, 0]] * 2)
    negatives = batch_mining.select("distance", miner_distance_lower_cutoff=0.0)(embeddings, torch.tensor([0, 0, 1, 2, 3, 3])).negatives
    assert all(n in (2, 3) for n in negatives[:2].tolist())  # at distance 0 the density is 0, its inverse beats all others


@pytest.mark.parametrize("probability", [0.0, 1.0])
def test_rho_distance_never_and_always_switches(probability):
    embeddings, y = batch_of(LABELS)
    miner = batch_mining.select("rho_distance", miner_rho_distance_cp=probability, miner_rho_distance_lower_cutoff=0.7)
    mined = miner(embeddings, y)
    assert ((mined.anchors == mined.positives) == bool(probability)).all() and miner.stats["switched_share"] == probability
    assert ((y[mined.anchors] == y[mined.negatives]) == bool(probability)).all() and miner.lower_cutoff == 0.7


def test_the_margin_of_semihard_is_its_own_or_the_losss():
    for opt, margin in (
        ({"loss": "triplet", "loss_triplet_margin": 0.7}, 0.7),
        ({"loss": "softmax"}, 0.2),
        ({"loss": "triplet", "loss_triplet_margin": 0.7, "miner_semihard_margin": 0.3}, 0.3),
    ):
        assert batch_mining.select("semihard", argparse.Namespace(**opt)).margin == margin
    miner = batch_mining.select("semihard", miner_semihard_margin=10.0)
    miner(torch.tensor([[0.0], [50.0], [1.0], [51.0]]), torch.tensor([0, 0, 1, 1]))
    assert miner.stats["semihard_share"] == 0.5  # 0 -> 50 finds 51; from 50 nothing lies beyond its positive but within 10
    x = torch.tensor([[0.0], [1.0], [1.0], [-1.0], [1.1]])  # equal distances are not semihard: only sample 4 is
    mined = mine_often("semihard", x, torch.tensor([0, 0, 1, 1, 1]), 50, miner_semihard_margin=0.2)
    assert set(mined.negatives[(mined.anchors == 0)].tolist()) == {4}


MODES = {"uniform": (0.1, 1.4), "hards": (0.1, 0.5), "semihards": (0.3, 0.7), "veryhards": (0.1, 0.3)}
MANY = [0, 0] + list(range(1, 40))
# sample 0 at 0, its positive far away, negatives from 0.02 to 1.6 on a line
LINE = torch.tensor(np.concatenate([[0.0, 50.0], np.linspace(0.02, 1.6, len(MANY) - 2)]), dtype=torch.float32)[:, None]


@pytest.mark.parametrize("mode", MODES)
def test_modes_of_parametric(mode):
    mined = mine_often("parametric", LINE, torch.tensor(MANY), miner_parametric_mode=mode)
    allowed = [n for n in range(2, len(MANY)) if MODES[mode][0] <= float(LINE[n]) <= MODES[mode][1]]
    assert_drawn_with({n: 1 / len(allowed) for n in allowed}, mined.negatives[mined.anchors == 0].tolist())
    assert_drawn_with({n: 1.0 for n in range(2, len(MANY))}, mined.negatives[mined.anchors == 1].tolist())  # all outside: uniform


def test_a_distribution_given_to_parametric():
    shares = np.random.default_rng(1).random(29) + 0.05
    shares[2] = 0
    miner = batch_mining.select("parametric", miner_parametric_mode="hards")
    miner.set_distribution(shares)
    torch.manual_seed(0)
    drawn = [int(miner(LINE, torch.tensor(MANY)).negatives[0]) for _ in range(1000)]
    edges = np.linspace(0.1, 1.4, 30)
    bins = {n: [i for i in range(29) if edges[i] < float(LINE[n]) <= edges[i + 1]] for n in range(2, len(MANY))}
    assert_drawn_with({n: shares[inside[0]] if inside else 0.0 for n, inside in bins.items()}, drawn)
    for wrong in ([], [0.0, 0.0], [1.0, -1.0], [[1.0]], [float("nan")]):
        with pytest.raises(ValueError, match="distribution over bins"):
            miner.set_distribution(wrong)
    for flags in ({"miner_parametric_n_support": 1}, {"miner_parametric_support_lim": [1.0, 0.5]}):
        with pytest.raises(UserError, match="at least 2|a larger one"):
            batch_mining.select("parametric", **flags)


RULES = {
    "all": lambda gap, margin: gap <= margin,
    "hard": lambda gap, margin: gap <= 0,
    "semihard": lambda gap, margin: 0 < gap <= margin,
    "easy": lambda gap, margin: gap > margin,
}


@pytest.mark.parametrize("kind", RULES)
@settings(max_examples=10, derandomize=True, deadline=None, database=None)
@given(
    labels=st.lists(st.integers(0, 3), min_size=2, max_size=10),
    margin=st.sampled_from([0.0, 0.25, 3.0]),
    grid=st.booleans(),
    seed=st.integers(0, 999),
)
def test_types_of_tripletmargin(kind, labels, margin, grid, seed):
    embeddings, y = batch_of(labels, 2, seed, torch.float64)
    if grid:  # many equal distances, exact in binary
        embeddings = torch.cat([(embeddings[:, :1] * 4).round() / 4, torch.zeros(len(labels), 1, dtype=torch.float64)], 1)
    d = slow_distances(embeddings)
    expected = [(a, p, n) for a, p, n in all_triplets(labels) if RULES[kind](d[a, n] - d[a, p], margin)]
    mined = batch_mining.select("tripletmargin", miner_tripletmargin_type=kind, miner_tripletmargin_margin=margin)(embeddings, y)
    assert sorted(as_lists(*mined)) == sorted(expected)
