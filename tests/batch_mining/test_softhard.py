"""Draws of the softhard miner, in both branches of both partners."""

import torch

import batch_mining
from tests.batch_mining._reference import assert_drawn_with, batch_of, mine_often, slow_distances

LABELS = [0, 0, 0, 1, 1, 1, 2, 2, 3]


def test_draws():
    embeddings, y = batch_of(LABELS, 2, seed=1)
    embeddings[6:8] = torch.tensor([[9.0, 9.0], [9.0, 9.1]])  # class 2 has neither hard positives nor hard negatives
    distances, reached, b = slow_distances(embeddings), set(), range(9)
    mined = mine_often("softhard", embeddings, y)
    for a in range(8):
        positives = [p for p in b if p != a and LABELS[p] == LABELS[a]]
        negatives = [n for n in b if LABELS[n] != LABELS[a]]
        hard_positives = [p for p in positives if distances[a, p] > min(distances[a, n] for n in negatives)]
        hard_negatives = [n for n in negatives if distances[a, n] < max(distances[a, p] for p in positives)]
        reached.add((bool(hard_positives), bool(hard_negatives)))
        of_anchor = mined.anchors == a
        for partners, drawn in ((hard_positives or positives, mined.positives), (hard_negatives or negatives, mined.negatives)):
            assert_drawn_with({i: 1 / len(partners) for i in partners}, drawn[of_anchor].tolist())
    assert reached == {(True, True), (False, False)}


def test_share_is_told():
    miner = batch_mining.select("softhard")
    miner(torch.tensor([[0.0], [1.0], [9.0], [10.0]]), torch.tensor([0, 0, 1, 1]))
    assert miner.stats["hard_share"] == 0
    miner(torch.tensor([[0.0], [9.0], [1.0], [10.0]]), torch.tensor([0, 0, 1, 1]))
    assert miner.stats["hard_share"] == 1
