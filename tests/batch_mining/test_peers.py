"""Miners that pytorch-metric-learning has too: easy_hard with all strategies and ranges, and the adapter of the
package's own.
"""

import itertools
import sys

import torch
from pytorch_metric_learning import distances, miners

import batch_mining
from tests.kit.mining import as_lists, batch_of
from tests.kit.refusals import refused

STRATEGIES = ["easy", "semihard", "hard", "all"]
REFUSED = {("semihard", "semihard"), ("semihard", "all"), ("all", "semihard")}
RANGES = [(None, None), ((0.5, 2.0), None), (None, (1.0, 2.5)), ((0.5, 2.0), (1.0, 2.5)), ((7.0, 8.0), (0.0, 0.1))]


def easy_hard(pos, neg, pos_range=None, neg_range=None):
    flags = {"pos": pos, "neg": neg, "pos_range": pos_range, "neg_range": neg_range}
    return batch_mining.select("easy_hard", **{f"miner_easy_hard_{name}": value for name, value in flags.items()})


def test_easy_hard_is_the_packages():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(20, 3, generator=generator)
    r = torch.randn(30, 3, generator=generator)
    y = torch.randint(6, (20,), generator=generator)
    z = torch.randint(7, (30,), generator=generator)
    distance = distances.LpDistance(normalize_embeddings=False)
    for ranges in RANGES:
        n_pairs = 0
        for strategies in sorted(set(itertools.product(STRATEGIES, STRATEGIES)) - REFUSED):
            peer = miners.BatchEasyHardMiner(*strategies, *ranges, distance=distance)
            own_ranges = [
                None if strategy == "all" else limits for strategy, limits in zip(strategies, ranges, strict=True)
            ]
            for form in ((), (r, z)):
                mined = easy_hard(*strategies, *own_ranges)(x, y, *form)
                expected = peer(x, y, *form)
                for part in (slice(2), slice(2, 4)):
                    same_pairs = sorted(as_lists(*mined[part])) == sorted(as_lists(*expected[part]))
                    assert same_pairs, (strategies, ranges, len(form))
                n_pairs += len(mined[0]) + len(mined[2])
        assert n_pairs > 0 or ranges == RANGES[-1]


def test_strategies_and_ranges_that_do_not_go_together_are_refused():
    for pos, neg in sorted(REFUSED):
        with refused(f"--miner_easy_hard_pos {pos} with --miner_easy_hard_neg {neg}: .*easy or hard"):
            easy_hard(pos, neg)
    for ranges, kind in ((([2.0, 1.0], None), "pos"), ((None, [2.0, 1.0]), "neg")):
        with refused(f"--miner_easy_hard_{kind}_range 2 1: from a distance to a larger one"):
            easy_hard("easy", "hard", *ranges)


def test_the_adapter_gives_what_a_miner_of_the_package_gives(monkeypatch):
    batch = batch_of([0, 1, 2] * 5)
    for name, arguments in (
        ("TripletMarginMiner", {"margin": 0.4, "type_of_triplets": "semihard"}),
        ("PairMarginMiner", {"pos_margin": 0.1}),
    ):
        words = [f"{argument}={value}" for argument, value in arguments.items()]
        mined = batch_mining.select("pml", miner_pml_class=name, miner_pml_kwargs=words)(*batch)
        expected = getattr(miners, name)(**arguments)(*batch)
        assert len(mined[0]) and len(mined) == len(expected) and all(map(torch.equal, mined, expected))
    empty = batch_mining.select("pml", miner_pml_class="DistanceWeightedMiner")(*batch_of([0, 1, 2]))
    assert [len(column) for column in empty] == [0, 0, 0] and empty.anchors.dtype == torch.long
    with refused("Did you mean 'BatchHardMiner'"):
        batch_mining.select("pml", miner_pml_class="BatchHardMinr")
    monkeypatch.setitem(sys.modules, "pytorch_metric_learning.miners", None)
    with refused("pip install pytorch-metric-learning"):
        batch_mining.select("pml")
