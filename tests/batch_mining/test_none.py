"""All pairs, against two loops and pytorch-metric-learning."""

import torch
from pytorch_metric_learning.utils.loss_and_miner_utils import get_all_pairs_indices

import batch_mining
from tests.batch_mining._reference import as_lists, batch_of

LABELS = [0, 1, 0, 2, 1, 1]


def test_every_pair_once():
    embeddings, y = batch_of(LABELS)
    mined = batch_mining.select("none")(embeddings, y)
    different = [(i, j) for i in range(6) for j in range(6) if i != j]
    assert as_lists(*mined[:2]) == [(i, j) for i, j in different if LABELS[i] == LABELS[j]]
    assert as_lists(*mined[2:]) == [(i, j) for i, j in different if LABELS[i] != LABELS[j]]
    assert all(torch.equal(one, two) for one, two in zip(mined, get_all_pairs_indices(y), strict=True))


def test_one_class_has_positive_pairs_only():
    mined = batch_mining.select("none")(*batch_of([1, 1, 1]))
    assert len(mined.positives) == 6
    assert len(mined.negatives) == 0
