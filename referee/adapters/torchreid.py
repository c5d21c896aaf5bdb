"""torchreid: `evaluate_rank` of a matrix of distances, identities and cameras."""

import importlib

from referee.adapters import _reidentification

PROGRAM = "torchreid"
PACKAGES = ("torchreid",)
SETTINGS = {}


def measure(case: dict) -> dict:
    """`recall@k` and `cmc@k` are its CMC."""
    rank = importlib.import_module("torchreid.reid.metrics.rank")
    return _reidentification.measure(case, rank.evaluate_rank)
