"""Draws of the random miner: uniform over all valid triplets, whatever the sizes of the classes."""

import pytest
import torch

import batch_mining
from tests.batch_mining._reference import all_triplets, as_lists, assert_drawn_with, batch_of, complete, mine_often


@pytest.mark.parametrize("labels", [[0, 0, 1, 1], [0, 0, 0, 0, 1, 1, 2], [5, 1, 5, 1, 1, 3]])
def test_uniform_over_all_triplets(labels):
    mined = mine_often("random", *batch_of(labels), times=1500)
    assert len(mined.anchors) == 1500 * len(labels)
    triplets = all_triplets(labels)
    assert_drawn_with({triplet: 1 / len(triplets) for triplet in triplets}, as_lists(*mined))


def test_so_many_an_anchor():
    labels = [0, 0, 0, 1, 1, 2]
    mined = mine_often("random", *batch_of(labels), times=800, miner_random_per_anchor=3)
    for anchor in complete(labels):
        drawn = [triplet for triplet in as_lists(*mined) if triplet[0] == anchor]
        assert len(drawn) == 3 * 800
        of_anchor = [triplet for triplet in all_triplets(labels) if triplet[0] == anchor]
        assert_drawn_with({triplet: 1 / len(of_anchor) for triplet in of_anchor}, drawn)


def test_none_valid():
    assert len(batch_mining.select("random")(*batch_of([0, 1, 2])).anchors) == 0


def test_large_batches_are_not_enumerated():
    y = torch.arange(60_000) // 2  # 3.6e9 triplets
    mined = batch_mining.select("random")(torch.zeros(60_000, 1), y)
    assert (y[mined.anchors] == y[mined.positives]).all()
    assert (y[mined.anchors] != y[mined.negatives]).all()
