"""Draws of the semihard miner, in both branches."""

import argparse

import pytest
import torch

import batch_mining
from tests.batch_mining._reference import assert_drawn_with, batch_of, mine_often, slow_distances

LABELS = [0, 0, 0, 1, 1, 1, 2, 2]


def branches(distances, labels, margin):
    """(anchor, positive) -> (negatives to draw from, is there a semihard one?)."""
    result, b = {}, range(len(labels))
    for a in b:
        for p in b:
            if a != p and labels[a] == labels[p]:
                negatives = [n for n in b if labels[n] != labels[a]]
                semihard = [n for n in negatives if distances[a, p] < distances[a, n] < distances[a, p] + margin]
                result[a, p] = semihard or negatives, bool(semihard)
    return result


def check_draws(embeddings, labels, margin):
    """Draws against the rule; which branches were reached."""
    expected = branches(slow_distances(embeddings), labels, margin)
    mined = mine_often("semihard", embeddings, torch.tensor(labels), miner_semihard_margin=margin)
    for (anchor, positive), (negatives, _) in expected.items():
        chosen = (mined.anchors == anchor) & (mined.positives == positive)
        assert_drawn_with({n: 1 / len(negatives) for n in negatives}, mined.negatives[chosen].tolist())
        assert chosen.any()
    return {semihard for _, semihard in expected.values()}


def test_both_branches():
    assert check_draws(batch_of(LABELS, 3, seed=2)[0], LABELS, 0.4) == {True, False}


def test_equal_distances_are_not_semihard():
    x = torch.tensor([[0.0], [1.0], [1.0], [-1.0], [1.1]])
    assert check_draws(x, [0, 0, 1, 1, 1], 0.2) == {True, False}


def test_share_is_told():
    miner = batch_mining.select("semihard", miner_semihard_margin=10.0)
    miner(torch.tensor([[0.0], [1.0], [5.0], [6.0]]), torch.tensor([0, 0, 1, 1]))
    assert miner.stats["semihard_share"] == 1
    miner(torch.tensor([[0.0], [50.0], [1.0], [51.0]]), torch.tensor([0, 0, 1, 1]))
    assert miner.stats["semihard_share"] == 0.5  # 0 -> 50 finds 51; from 50 nothing lies beyond its positive but within 10


@pytest.mark.parametrize(
    "opt, margin",
    [
        ({"loss": "triplet", "loss_triplet_margin": 0.7}, 0.7),
        ({"loss": "softmax"}, 0.2),
        ({"loss": "triplet", "loss_triplet_margin": 0.7, "miner_semihard_margin": 0.3}, 0.3),
    ],
)
def test_margin_of_the_loss(opt, margin):
    assert batch_mining.select("semihard", argparse.Namespace(**opt)).margin == margin
