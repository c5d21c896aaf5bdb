"""The packaged miner: the batch's own triplets, as they lie."""

import pytest
import torch

import batch_mining
from tests.batch_mining._reference import as_lists
from tests.builders import refused


def test_triplets_as_they_lie():
    miner = batch_mining.select("packaged")
    mined = miner(torch.randn(9, 2), torch.tensor([4, 4, 1, 1, 1, 4, 7, 7, 1]))
    assert as_lists(*mined) == [(0, 1, 2), (3, 4, 5), (6, 7, 8)]
    assert all(column.dtype == torch.long for column in mined)
    assert miner.stats == {"tuples": torch.tensor(3.0)}
    assert as_lists(*miner(torch.randn(0, 2), torch.tensor([], dtype=torch.long))) == []


@pytest.mark.parametrize("labels", [[0, 0], [0, 0, 1, 1], [0, 0, 0], [0, 1, 0], [0, 1, 2], [0, 0, 1, 2, 2, 2]], ids=str)
def test_another_batch_is_refused_in_one_line(labels):
    with refused(f"a batch of {len(labels)} images is not made of triplets.* fixed_triplets"):
        batch_mining.select("packaged")(torch.randn(len(labels), 2), torch.tensor(labels))
