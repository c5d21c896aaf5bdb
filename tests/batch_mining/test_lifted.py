"""The lifted miner: masks of all positives and all negatives."""

import batch_mining
from tests.batch_mining._reference import batch_of


def test_masks():
    mined = batch_mining.select("lifted")(*batch_of([0, 1, 0, 2, 0, 1]))
    assert mined.anchors.tolist() == [0, 1, 2, 4, 5]
    assert mined.positives.nonzero().tolist() == [[0, 2], [0, 4], [1, 5], [2, 0], [2, 4], [3, 0], [3, 2], [4, 1]]
    assert mined.negatives.sum(1).tolist() == [3, 4, 3, 3, 4]
    assert not (mined.positives & mined.negatives).any()
