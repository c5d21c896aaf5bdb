"""Draws of intra_random: a class uniformly, then three samples of it with replacement."""

import torch

from tests.batch_mining._reference import as_lists, assert_drawn_with, batch_of, mine_often


def test_draws():
    labels = [4, 9, 4, 7, 4, 9]
    mined = mine_often("intra_random", *batch_of(labels), times=1500)
    assert len(mined.anchors) == 6 * 1500
    expected = {}
    for members in ([0, 2, 4], [1, 5], [3]):
        expected |= {(a, p, n): 1 / 3 / len(members) ** 3 for a in members for p in members for n in members}
    assert_drawn_with(expected, as_lists(*mined))


def test_one_class():
    mined = mine_often("intra_random", *batch_of([2, 2]), times=10)
    assert torch.stack(tuple(mined)).max() == 1
