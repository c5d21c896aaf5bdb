"""FastReID: `evaluate_rank` of a matrix of distances, identities and cameras."""

import importlib.util
from pathlib import Path

from referee.adapters import _reidentification

PROGRAM = "FastReID"
PACKAGES = ("fastreid",)
SETTINGS = {}


def measure(case: dict) -> dict:
    """Its file alone is imported: the package asks for an old torchvision."""
    folder = Path(importlib.util.find_spec("fastreid").origin).parent
    spec = importlib.util.spec_from_file_location("fastreid_rank", folder / "evaluation/rank.py")
    rank = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(rank)
    return _reidentification.measure(case, rank.evaluate_rank)
