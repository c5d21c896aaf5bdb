"""The tripletmargin miner against three loops and pytorch-metric-learning."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_metric_learning import distances, miners

import batch_mining
from tests.batch_mining._reference import all_triplets, as_lists, batch_of, slow_distances

RULES = {
    "all": lambda gap, margin: gap <= margin,
    "hard": lambda gap, margin: gap <= 0,
    "semihard": lambda gap, margin: 0 < gap <= margin,
    "easy": lambda gap, margin: gap > margin,
}


@pytest.mark.parametrize("kind", RULES)
@settings(max_examples=20, deadline=None)
@given(
    labels=st.lists(st.integers(0, 3), min_size=2, max_size=10),
    margin=st.sampled_from([0.0, 0.25, 1.0, 3.0]),
    grid=st.booleans(),
    seed=st.integers(0, 999),
)
def test_rule(kind, labels, margin, grid, seed):
    embeddings, y = batch_of(labels, 2, seed, torch.float64)
    if grid:  # many equal distances, exact in binary
        embeddings = torch.cat([(embeddings[:, :1] * 4).round() / 4, torch.zeros(len(labels), 1, dtype=torch.float64)], 1)
    d = slow_distances(embeddings)
    expected = [(a, p, n) for a, p, n in all_triplets(labels) if RULES[kind](d[a, n] - d[a, p], margin)]
    mined = batch_mining.select("tripletmargin", miner_tripletmargin_type=kind, miner_tripletmargin_margin=margin)(embeddings, y)
    assert sorted(as_lists(*mined)) == sorted(expected)


@pytest.mark.parametrize("kind", RULES)
def test_agrees_with_pytorch_metric_learning(kind):
    embeddings, y = batch_of([0, 1, 2, 3, 4] * 4, 6, seed=8)
    oracle = miners.TripletMarginMiner(margin=0.2, type_of_triplets=kind, distance=distances.LpDistance(normalize_embeddings=False))
    mined = batch_mining.select("tripletmargin", miner_tripletmargin_type=kind)(embeddings, y)
    assert sorted(as_lists(*mined)) == sorted(as_lists(*oracle(embeddings, y)))
    assert len(mined.anchors) > 0


def test_hard_share_counts_all_triplets():
    labels = [0, 0, 1, 1, 1, 2]
    embeddings, y = batch_of(labels, 2)
    d = slow_distances(embeddings)
    miner = batch_mining.select("tripletmargin")
    miner(embeddings, y)
    hard = [d[a, n] <= d[a, p] for a, p, n in all_triplets(labels)]
    assert miner.stats["hard_share"] == pytest.approx(sum(hard) / len(hard))
