"""The hdc miner against a sort of all pairs and pytorch-metric-learning."""

import math

import pytest
from pytorch_metric_learning import distances, miners

import batch_mining
from tests.batch_mining._reference import as_lists, batch_of, complete, slow_distances


@pytest.mark.parametrize("percentage", [0.0, 0.1, 0.5, 1.0])
def test_hardest_share(percentage):
    labels = [0, 1, 0, 1, 0, 2, 2, 1, 3]
    embeddings, y = batch_of(labels, 3)
    d = slow_distances(embeddings)
    mined = batch_mining.select("hdc", miner_hdc_percentage=percentage)(embeddings, y)
    pairs = [(a, b) for a in complete(labels) for b in range(9) if a != b]
    for kept, same, sign in ((mined[:2], True, -1), (mined[2:], False, 1)):
        hardness = sorted(sign * d[a, b] for a, b in pairs if (labels[a] == labels[b]) is same)
        number = max(1, math.ceil(percentage * len(hardness)))
        chosen = as_lists(*kept)
        assert len(set(chosen)) == number
        assert all((labels[a] == labels[b]) is same and a != b for a, b in chosen)
        assert sorted(sign * d[a, b] for a, b in chosen) == pytest.approx(hardness[:number])


def test_agrees_with_pytorch_metric_learning():
    embeddings, y = batch_of([0, 1, 2, 3] * 4, 3, seed=5)
    oracle = miners.HDCMiner(distance=distances.LpDistance(normalize_embeddings=False))(embeddings, y)
    mined = batch_mining.select("hdc")(embeddings, y)
    assert {frozenset(pair) for pair in as_lists(*mined[:2])} == {frozenset(pair) for pair in as_lists(*oracle[:2])}
    assert {frozenset(pair) for pair in as_lists(*mined[2:])} == {frozenset(pair) for pair in as_lists(*oracle[2:])}
