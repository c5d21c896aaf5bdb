"""The batchhard miner against two loops and pytorch-metric-learning."""

import torch
from pytorch_metric_learning import distances, miners

import batch_mining
from tests.batch_mining._reference import as_lists, batch_of, complete, slow_distances

LABELS = [0, 1, 0, 1, 0, 2, 2, 1, 3]


def test_farthest_and_nearest():
    embeddings, y = batch_of(LABELS)
    d = slow_distances(embeddings)
    expected = []
    for a in complete(LABELS):
        p = max((j for j in range(9) if j != a and LABELS[j] == LABELS[a]), key=lambda j: d[a, j])
        n = min((j for j in range(9) if LABELS[j] != LABELS[a]), key=lambda j: d[a, j])
        expected.append((a, p, n))
    miner = batch_mining.select("batchhard")
    mined = as_lists(*miner(embeddings, y))
    assert mined == expected
    assert miner.stats["hard_share"] == torch.tensor(sum(d[a, n] < d[a, p] for a, p, n in expected) / 8)
    oracle = miners.BatchHardMiner(distance=distances.LpDistance(normalize_embeddings=False))
    assert mined == as_lists(*oracle(embeddings, y))


def test_identical_points():
    mined = batch_mining.select("batchhard")(torch.ones(4, 2), torch.tensor([0, 0, 1, 1]))
    assert mined.positives.tolist() == [1, 0, 3, 2]
