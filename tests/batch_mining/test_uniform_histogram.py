"""The uniform_histogram miner against pytorch-metric-learning's UniformHistogramMiner: the same pairs, equally often."""

import collections

import pytest
import torch
from pytorch_metric_learning import distances, miners

import batch_mining
from tests.batch_mining._reference import as_lists, assert_drawn_with, batch_of


def select(bins, pos, neg):
    return batch_mining.select(
        "uniform_histogram",
        miner_uniform_histogram_bins=bins, miner_uniform_histogram_pos_per_bin=pos, miner_uniform_histogram_neg_per_bin=neg,
    )  # fmt: skip


@pytest.mark.parametrize("bins", [1, 3, 7])
def test_agrees_with_pytorch_metric_learning(bins):
    x, y = batch_of([0, 1, 2, 0, 1, 2, 0, 5], 3, seed=2)
    oracle = miners.UniformHistogramMiner(bins, 20, 30, distance=distances.LpDistance(normalize_embeddings=False))
    torch.manual_seed(0)
    miner, drawn, expected = select(bins, 20, 30), [[], []], [collections.Counter(), collections.Counter()]
    for _ in range(150):
        mined, theirs = miner(x, y), oracle(x, y)
        assert [len(column) for column in mined] == [len(column) for column in theirs]
        for kind in (0, 1):
            drawn[kind] += as_lists(*mined[2 * kind : 2 * kind + 2])
            expected[kind].update(as_lists(*theirs[2 * kind : 2 * kind + 2]))
    for kind, d in enumerate(drawn):
        assert set(d) == set(expected[kind])
        pairs = {pair: float((x[pair[0]] - x[pair[1]]).norm()) for pair in set(d)}
        low, high = min(pairs.values()), max(pairs.values())
        of_pair = {pair: min(int((length - low) / (high - low) * bins), bins - 1) for pair, length in pairs.items()}
        sizes = collections.Counter(of_pair.values())
        assert_drawn_with({pair: 1 / sizes[of_pair[pair]] for pair in pairs}, d)


def test_equal_distances_are_one_bin():
    mined = select(5, 3, 2)(torch.eye(4), torch.tensor([0, 0, 1, 1]))
    assert [len(column) for column in mined] == [3, 3, 2, 2]


@pytest.mark.parametrize("labels, sizes", [([0, 0, 0], (True, False)), ([0, 1, 2], (False, True)), ([0], (False, False))])
def test_without_pairs_of_a_kind(labels, sizes):
    mined = select(4, 2, 2)(*batch_of(labels))
    assert (len(mined[0]) > 0, len(mined[2]) > 0) == sizes
