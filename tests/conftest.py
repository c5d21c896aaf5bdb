"""Tests run from anywhere: the repository root is on the path; two threads, as the benchmarks.

Finished runs that tests may read and change, each trained once a session and copied for every test that asks (the
folder's path; flags of `FINISHED`, on the CPU, without pictures, with all records):

- `trained_run`: conv4 with margin loss on `folder_data`, 2 epochs, measured on test after each.
- `resumed_run`: the same flags, 1 epoch, then resumed to 2 with another --lr, so it has configs/ with one change.
- `cross_validated`: two class-disjoint folds of one epoch on `data`, with final test.

`trained_once`, `resumed_once`, `cross_validated_once` are the originals, for tests that only read.
"""

import copy
import functools
import gc
import os
import pkgutil
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("WANDB_MODE", "offline")
os.environ.setdefault("MPLBACKEND", "Agg")
# a width of which tests know nothing would break the lines that they compare
os.environ.pop("COLUMNS", None)

import pytest  # noqa: E402

from tests.kit.data_sets import make_folder  # noqa: E402
from tests.kit.runs import resolve, run_words  # noqa: E402
from utilities import registry  # noqa: E402


@functools.cache
def _modules(folder, files):
    return list(pkgutil.iter_modules([folder]))


def save_time():
    """Do once what tests repeat: folders of plug-ins are listed, and the parser built, anew only for other plug-ins."""
    import torch

    import parameters

    registry.pkgutil = SimpleNamespace(iter_modules=lambda folders: _modules(folders[0], tuple(os.listdir(folders[0]))))
    build = parameters.get_parser
    of_plug_ins = functools.cache(lambda names: build())
    parameters.get_parser = lambda: copy.copy(
        of_plug_ins(tuple(tuple(registry_of_kind.names()) for registry_of_kind in parameters.REGISTRIES.values()))
    )
    # A search collects garbage after each trial: this spares it what was imported
    gc.freeze()
    # manual_seed keeps its caller's stack for each kind of device that may come
    if not torch.cuda.is_available():
        for module in (torch.cuda.random, torch.xpu.random, torch.mtia):
            module._lazy_call = lambda *arguments, **options: None


def pytest_configure(config):
    """Only `-m gpu` sees GPUs: the other tests are of the CPU's bits, the same on every machine."""
    if config.getoption("markexpr") != "gpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


def pytest_collection_modifyitems(items):
    """Tests marked `gpu` are skipped without `-m gpu`, and where there is no CUDA device."""
    import torch

    save_time()
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs -m gpu, alone, and a CUDA device"))


@pytest.fixture(scope="session")
def folder_data(tmp_path_factory):
    """A small data set of real images, a folder a class."""
    return make_folder(tmp_path_factory.mktemp("data") / "things", n_classes=8, n_images=6)


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """Twelve classes of five real images, a folder a class: enough for folds."""
    return make_folder(tmp_path_factory.mktemp("folds") / "things", n_classes=12, n_images=5)


@pytest.fixture(scope="session")
def few_glyphs(tmp_path_factory):
    """`--source_path` of the data set glyphs with 24 of its characters, of all four scripts in its training half."""
    from datasets import glyphs

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(glyphs, "covered_characters", lambda: sorted("0123ABCDabLqΓΔΛΞΣΦБГДЖЗИ"))
        return glyphs.prepare(None, tmp_path_factory.mktemp("few_glyphs")).parent


@pytest.fixture(autouse=True)
def states():
    """Tests draw as if those before had not been."""
    from engine.random_state import random_states, set_random_states

    before = random_states()
    yield
    set_random_states(before)


@pytest.fixture(autouse=True)
def modules_of_temporary_files(tmp_path_factory):
    """Modules that a test wrote and imported are forgotten after it: their files are deleted, their names free."""
    names_before = set(sys.modules)
    yield
    for name in set(sys.modules) - names_before:
        file = getattr(sys.modules[name], "__file__", None)
        if file is not None and Path(file).is_relative_to(tmp_path_factory.getbasetemp()):
            del sys.modules[name]
            package, _, attribute = name.rpartition(".")
            vars(sys.modules.get(package, SimpleNamespace())).pop(attribute, None)


@pytest.fixture(scope="session")
def drawing():
    """What draws a run's pictures and its curves, by owner and name."""
    from evaluation import outputs

    return {(outputs, name): getattr(outputs, name) for name in ("draw_pictures", "draw_curves")}


@pytest.fixture(scope="module", autouse=True)
def without_pictures(request, drawing):
    """Trainings in this process draw nothing: it takes longer than the shortest of them. Not in a module that says
    `PICTURES = True`.
    """
    from pictures import groups

    with pytest.MonkeyPatch.context() as patch:
        # fonts as TrueType take half of the time of a figure
        patch.setitem(groups.STYLE, "pdf.fonttype", 3)
        if not getattr(request.module, "PICTURES", False):
            for owner, name in drawing:
                patch.setattr(owner, name, lambda *arguments: [])
        yield


@pytest.fixture
def with_pictures(drawing, monkeypatch):
    """For one test, trainings draw."""
    for (owner, name), draw in drawing.items():
        monkeypatch.setattr(owner, name, draw)


FINISHED = "--loss margin --batch_mining distance --savename Run_s1".split()


def train(data, folder, *words):
    """The folder `Run_s1` that main.py trains in `folder` on a data set of images, a folder a class."""
    import main
    from evaluation import outputs

    argv = [word for word in run_words(data, folder, *FINISHED, *words) if word != "--no_records"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outputs, "draw_pictures", lambda *arguments: [])
        patch.setattr(outputs, "draw_curves", lambda *arguments: None)
        return main.main(resolve(*argv)).folder


@pytest.fixture(scope="session")
def trained_once(folder_data, tmp_path_factory):
    return train(folder_data, tmp_path_factory.mktemp("trained"), "--n_epochs 2")


@pytest.fixture(scope="session")
def resumed_once(folder_data, tmp_path_factory):
    folder = train(folder_data, tmp_path_factory.mktemp("resumed"), "--n_epochs 1")
    changed = "--resume --resume_allow_changes --n_epochs 2 --lr 0.0005".split()
    return train(folder_data, folder.parent.parent, *changed)


@pytest.fixture(scope="session")
def cross_validated_once(data, tmp_path_factory):
    folds = "--split_scheme class_disjoint --split_sets 2 --split_partitions 2 --final_test".split()
    return train(data, tmp_path_factory.mktemp("cross_validated"), *folds, "--n_epochs 1")


def copied(name):
    """A fixture: a copy of the finished run `<name>_once`, which the test may change."""

    @pytest.fixture
    def copy(request, tmp_path):
        original = request.getfixturevalue(f"{name}_once")
        return shutil.copytree(original, tmp_path / name / original.name)

    return copy


trained_run, resumed_run, cross_validated = map(copied, ("trained", "resumed", "cross_validated"))
