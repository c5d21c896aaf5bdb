"""The adapter gives what the package's own miner gives."""

import sys

import pytest
import torch
from pytorch_metric_learning import miners

import batch_mining
from tests.batch_mining._reference import batch_of
from utilities.errors import UserError
from utilities.tuples import Pairs, Triplets


@pytest.mark.parametrize(
    "name, kwargs, kind",
    [("TripletMarginMiner", ["margin=0.4", "type_of_triplets=semihard"], Triplets), ("PairMarginMiner", ["pos_margin=0.1"], Pairs)],
)
def test_same_tuples(name, kwargs, kind):
    embeddings, y = batch_of([0, 1, 2] * 5)
    mined = batch_mining.select("pml", miner_pml_class=name, miner_pml_kwargs=kwargs)(embeddings, y)
    oracle = getattr(miners, name)(**dict([k.split("=")[0], type_of(k.split("=")[1])] for k in kwargs))
    assert type(mined) is kind
    assert all(torch.equal(one, two) for one, two in zip(mined, oracle(embeddings, y), strict=True))
    assert len(mined[0]) > 0


def type_of(word):
    return word if word.isalpha() else float(word)


def test_nothing_mined():
    mined = batch_mining.select("pml", miner_pml_class="DistanceWeightedMiner")(*batch_of([0, 1, 2]))
    assert [len(column) for column in mined] == [0, 0, 0]
    assert mined.anchors.dtype == torch.long


def test_unknown_class_is_the_users_mistake():
    with pytest.raises(UserError, match="Did you mean 'BatchHardMiner'"):
        batch_mining.select("pml", miner_pml_class="BatchHardMinr")


def test_absent_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "pytorch_metric_learning.miners", None)
    with pytest.raises(UserError, match="pip install pytorch-metric-learning"):
        batch_mining.select("pml")
