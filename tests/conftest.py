"""Tests run from anywhere: the repository root is on the path; two threads, as the benchmarks."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("WANDB_MODE", "offline")
os.environ.setdefault("MPLBACKEND", "Agg")

import pytest  # noqa: E402

from tests import builders  # noqa: E402


@pytest.fixture(scope="session")
def folder_data(tmp_path_factory):
    """A small data set of real images, a folder a class."""
    return builders.make_folder(tmp_path_factory.mktemp("data") / "things", n_classes=8, n_images=6)
