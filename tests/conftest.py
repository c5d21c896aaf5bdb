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


@pytest.fixture(scope="session")
def drawing():
    """What draws a run's pictures and its curves, by owner and name."""
    from evaluation import pictures
    from runs.run import Run

    return {(pictures, "draw"): pictures.draw, (Run, "plot"): Run.plot}


@pytest.fixture(scope="module", autouse=True)
def without_pictures(request, drawing):
    """Trainings in this process draw nothing: it takes longer than the shortest of them. Not in a module that says `PICTURES = True`."""
    with pytest.MonkeyPatch.context() as patch:
        if not getattr(request.module, "PICTURES", False):
            for owner, name in drawing:
                patch.setattr(owner, name, lambda *about: [])
        yield


@pytest.fixture
def with_pictures(drawing, monkeypatch):
    """For one test, trainings draw."""
    for (owner, name), draw in drawing.items():
        monkeypatch.setattr(owner, name, draw)
