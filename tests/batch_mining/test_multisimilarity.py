"""The multisimilarity miner against two loops and pytorch-metric-learning."""

import pytest
import torch
from pytorch_metric_learning import distances, miners

import batch_mining
from tests.batch_mining._reference import as_lists, batch_of, complete

LABELS = [0, 1, 0, 1, 0, 2, 2, 1, 3]


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 2.0, float("inf")])
def test_rule(epsilon):
    embeddings, y = batch_of(LABELS, 3, seed=4, dtype=torch.float64)
    s = (embeddings @ embeddings.T).tolist()
    positives, negatives = [], []
    for a in complete(LABELS):
        of_class = [j for j in range(9) if j != a and LABELS[j] == LABELS[a]]
        others = [j for j in range(9) if LABELS[j] != LABELS[a]]
        positives += [(a, p) for p in of_class if s[a][p] - epsilon < max(s[a][n] for n in others)]
        negatives += [(a, n) for n in others if s[a][n] + epsilon > min(s[a][p] for p in of_class)]
    mined = batch_mining.select("multisimilarity", miner_multisimilarity_epsilon=epsilon)(embeddings, y)
    assert as_lists(*mined[:2]) == positives
    assert as_lists(*mined[2:]) == negatives


def test_agrees_with_pytorch_metric_learning():
    embeddings, y = batch_of([0, 1, 2, 3] * 4, 5)
    oracle = miners.MultiSimilarityMiner(epsilon=0.1, distance=distances.DotProductSimilarity(normalize_embeddings=False))(embeddings, y)
    mined = batch_mining.select("multisimilarity")(embeddings, y)
    assert as_lists(*mined[:2]) == sorted(as_lists(*oracle[:2]))
    assert as_lists(*mined[2:]) == sorted(as_lists(*oracle[2:]))
