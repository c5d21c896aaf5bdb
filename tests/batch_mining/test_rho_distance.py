"""The switch of rho_distance: how often, and to whom."""

import pytest
import torch

import batch_mining
from tests.batch_mining._reference import assert_drawn_with, batch_of, mine_often
from tests.batch_mining.test_distance import slow_probabilities

LABELS = [0, 0, 0, 0, 1, 1, 2]


@pytest.mark.parametrize("probability", [0.2, 0.7])
def test_draws(probability):
    embeddings, y = batch_of(LABELS, 5, seed=1)
    mined = mine_often("rho_distance", embeddings, y, miner_rho_distance_cp=probability)
    for anchor in range(6):
        drawn = [(p, n) for a, p, n in zip(*(c.tolist() for c in mined), strict=True) if a == anchor]
        positives = [p for p in range(7) if p != anchor and LABELS[p] == LABELS[anchor]]
        expected = {(anchor, p): probability / len(positives) for p in positives}
        for n, weight in slow_probabilities(embeddings, LABELS, anchor).items():
            expected |= {(p, n): (1 - probability) * weight / len(positives) for p in positives}
        assert_drawn_with(expected, drawn)


def test_never_and_always():
    embeddings, y = batch_of(LABELS)
    never = batch_mining.select("rho_distance", miner_rho_distance_cp=0.0)
    mined = never(embeddings, y)
    assert not (mined.anchors == mined.positives).any()
    assert never.stats["switched_share"] == 0
    always = batch_mining.select("rho_distance", miner_rho_distance_cp=1.0)
    mined = always(embeddings, y)
    assert (mined.anchors == mined.positives).all()
    assert (y[mined.anchors] == y[mined.negatives]).all()
    assert always.stats["switched_share"] == 1


def test_cutoffs_are_its_own():
    flags = {"miner_rho_distance_lower_cutoff": 0.7, "miner_rho_distance_upper_cutoff": 1.3, "miner_distance_lower_cutoff": 0.1}
    miner = batch_mining.select("rho_distance", **flags)
    assert (miner.lower_cutoff, miner.upper_cutoff) == (0.7, 1.3)
    x = torch.nn.functional.normalize(torch.tensor([[1.0, 0], [1.0, 0.1], [0.8, 0.6], [-1.0, 0]]))
    miner.switch_probability = 0.0
    assert all(2 in miner(x, torch.tensor([0, 0, 1, 2])).negatives for _ in range(20))  # only sample 2 is within 1.3
    assert all(3 not in miner(x, torch.tensor([0, 0, 1, 2])).negatives for _ in range(20))
