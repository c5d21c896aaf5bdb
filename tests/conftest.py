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


def pytest_collection_modifyitems(items):
    """Tests marked `gpu` are skipped where there is no CUDA device."""
    import torch

    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="no CUDA device here"))


@pytest.fixture(scope="session")
def folder_data(tmp_path_factory):
    """A small data set of real images, a folder a class."""
    return builders.make_folder(tmp_path_factory.mktemp("data") / "things", n_classes=8, n_images=6)


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """Twelve classes of five real images, a folder a class: enough for folds."""
    return builders.make_folder(tmp_path_factory.mktemp("folds") / "things", n_classes=12, n_images=5)


@pytest.fixture(scope="module")
def without_pictures():
    """Drawing takes longer than the shortest trainings."""
    import main

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(main.outputs, "of_best_epoch", lambda run, embedded: None)
        patch.setattr("runs.run.Run.plot", lambda run: None)
        yield
