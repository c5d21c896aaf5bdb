"""The pairmargin miner against two loops and pytorch-metric-learning."""

from pytorch_metric_learning import distances, miners

import batch_mining
from tests.batch_mining._reference import as_lists, batch_of, complete, slow_distances


def test_rule():
    labels = [0, 1, 0, 1, 0, 2, 2, 1, 3]  # 3 has no positive: no anchor, but a negative
    embeddings, y = batch_of(labels, 2, seed=3)
    d, anchors = slow_distances(embeddings), complete(labels)
    flags = {"miner_pairmargin_pos_margin": 1.0, "miner_pairmargin_neg_margin": 1.5}
    mined = batch_mining.select("pairmargin", **flags)(embeddings, y)
    pairs = [(a, b) for a in anchors for b in range(9) if a != b]
    assert as_lists(*mined[:2]) == [(a, p) for a, p in pairs if labels[a] == labels[p] and d[a, p] > 1.0]
    assert as_lists(*mined[2:]) == [(a, n) for a, n in pairs if labels[a] != labels[n] and d[a, n] < 1.5]
    assert 0 < len(mined.positives) < 14
    assert 0 < len(mined.negatives) < 50


def test_agrees_with_pytorch_metric_learning():
    embeddings, y = batch_of([0, 1, 2, 3] * 4, 2)
    oracle = miners.PairMarginMiner(distance=distances.LpDistance(normalize_embeddings=False))(embeddings, y)
    mined = batch_mining.select("pairmargin")(embeddings, y)
    assert as_lists(*mined[:2]) == as_lists(*oracle[:2])
    assert as_lists(*mined[2:]) == as_lists(*oracle[2:])
