"""Draws of the parametric miner against the probability of each negative's bin."""

import numpy as np
import pytest
import torch

import batch_mining
from tests.batch_mining._reference import assert_drawn_with, batch_of, mine_often, slow_distances
from utilities.errors import UserError

LABELS = [0, 0] + list(range(1, 40))
LIMITS = {"uniform": (0.1, 1.4), "hards": (0.1, 0.5), "semihards": (0.3, 0.7), "veryhards": (0.1, 0.3)}


def line(seed=0):
    """Sample 0 at 0, its positive far away, negatives from 0.02 to 1.6 on a line."""
    places = np.concatenate([[0.0, 50.0], np.linspace(0.02, 1.6, len(LABELS) - 2)])
    return torch.tensor(places, dtype=torch.float32)[:, None], torch.tensor(LABELS)


def draws_of(anchor, mined):
    return mined.negatives[mined.anchors == anchor].tolist()


@pytest.mark.parametrize("mode", LIMITS)
def test_modes(mode):
    embeddings, y = line()
    mined = mine_often("parametric", embeddings, y, miner_parametric_mode=mode)
    low, high = LIMITS[mode]
    allowed = [n for n in range(2, len(LABELS)) if low <= float(embeddings[n]) <= high]
    assert 0 < len(allowed) < len(LABELS) - 2
    assert_drawn_with({n: 1 / len(allowed) for n in allowed}, draws_of(0, mined))
    assert_drawn_with({n: 1 / (len(LABELS) - 2) for n in range(2, len(LABELS))}, draws_of(1, mined))  # all outside: uniform


@pytest.mark.parametrize("bins", [29, 5, 1])
def test_given_distribution(bins):
    embeddings, y = line()
    p = np.random.default_rng(1).random(bins) + 0.05
    if bins > 3:
        p[2] = 0
    miner = batch_mining.select("parametric", miner_parametric_mode="hards")
    miner.set_distribution(p)
    torch.manual_seed(0)
    drawn = [int(miner(embeddings, y).negatives[0]) for _ in range(1200)]
    edges = np.linspace(0.1, 1.4, bins + 1)
    expected = {}
    for n in range(2, len(LABELS)):
        d = float(embeddings[n])
        inside = [i for i in range(bins) if edges[i] < d <= edges[i + 1]]
        expected[n] = p[inside[0]] if inside else 0.0
    assert_drawn_with(expected, drawn)


def test_distances_are_not_normalised():
    embeddings, y = batch_of(LABELS, 3)
    embeddings = 0.3 * embeddings
    d = slow_distances(embeddings)
    mined = mine_often("parametric", embeddings, y, times=1000)
    allowed = [n for n in range(2, len(LABELS)) if 0.1 <= d[0, n] <= 1.4]
    assert_drawn_with({n: 1 / len(allowed) for n in allowed}, draws_of(0, mined))


@pytest.mark.parametrize("p", [[], [0.0, 0.0], [1.0, -1.0], [[1.0]], [float("nan")]])
def test_no_distribution(p):
    with pytest.raises(ValueError, match="distribution over bins"):
        batch_mining.select("parametric").set_distribution(p)


@pytest.mark.parametrize("flags", [{"miner_parametric_n_support": 1}, {"miner_parametric_support_lim": [1.0, 0.5]}])
def test_no_support(flags):
    with pytest.raises(UserError, match="at least 2|a larger one"):
        batch_mining.select("parametric", **flags)
