"""The easy_hard miner against pytorch-metric-learning's BatchEasyHardMiner, and what both refuse."""

import itertools

import pytest
import torch
from pytorch_metric_learning import distances, miners

import batch_mining
from tests.batch_mining._reference import as_lists
from utilities.errors import UserError

STRATEGIES = ["easy", "semihard", "hard", "all"]
REFUSED = {("semihard", "semihard"), ("semihard", "all"), ("all", "semihard")}
RANGES = [(None, None), ((0.5, 2.0), None), (None, (1.0, 2.5)), ((0.5, 2.0), (1.0, 2.5)), ((7.0, 8.0), (0.0, 0.1))]


def flags(pos, neg, pos_range=None, neg_range=None):
    return {
        "miner_easy_hard_pos": pos, "miner_easy_hard_neg": neg,
        "miner_easy_hard_pos_range": pos_range, "miner_easy_hard_neg_range": neg_range,
    }  # fmt: skip


@pytest.mark.parametrize("ranges", RANGES, ids=str)
def test_agrees_with_pytorch_metric_learning(ranges):
    for strategies in sorted(set(itertools.product(STRATEGIES, STRATEGIES)) - REFUSED):
        check(strategies, ranges)


def check(strategies, ranges):
    found = 0
    miner = batch_mining.select("easy_hard", **flags(*strategies, *ranges))
    oracle = miners.BatchEasyHardMiner(*strategies, *ranges, distance=distances.LpDistance(normalize_embeddings=False))
    for seed in range(2):
        generator = torch.Generator().manual_seed(seed)
        x, r = torch.randn(20, 3, generator=generator), torch.randn(30, 3, generator=generator)
        y, z = torch.randint(6, (20,), generator=generator), torch.randint(7, (30,), generator=generator)
        for compared in ((), (r, z)):
            mined, expected = miner(x, y, *compared), oracle(x, y, *compared)
            assert sorted(as_lists(*mined[:2])) == sorted(as_lists(*expected[:2]))
            assert sorted(as_lists(*mined[2:])) == sorted(as_lists(*expected[2:]))
            found += len(mined[0]) + len(mined[2])
    assert found > 0 or ranges == RANGES[-1]


def test_the_default_is_that_packages():
    x, y = torch.randn(12, 4, generator=torch.Generator().manual_seed(1)), torch.arange(12) % 4
    mined = batch_mining.select("easy_hard")(x, y)
    expected = miners.BatchEasyHardMiner(distance=distances.LpDistance(normalize_embeddings=False))(x, y)
    assert as_lists(*mined[:2]) == as_lists(*expected[:2]) and as_lists(*mined[2:]) == as_lists(*expected[2:])
    assert len(mined[0]) > 3


@pytest.mark.parametrize("strategies", sorted(REFUSED), ids="-".join)
def test_strategies_that_do_not_go_together(strategies):
    with pytest.raises(
        UserError, match=f"--miner_easy_hard_pos {strategies[0]} with --miner_easy_hard_neg {strategies[1]}: .*easy or hard"
    ) as error:
        batch_mining.select("easy_hard", **flags(*strategies))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", ["pos", "neg"])
def test_an_empty_range(kind):
    with pytest.raises(UserError, match=f"--miner_easy_hard_{kind}_range 2 1: from a distance to a larger one"):
        batch_mining.select("easy_hard", **{f"miner_easy_hard_{kind}_range": [2.0, 1.0]})
