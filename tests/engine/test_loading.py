"""Batches and augmentations depend on the seed alone, not on workers or on other draws; memory is given back."""

import subprocess
import sys
import time
from argparse import Namespace
from pathlib import Path

import pytest
import torch

import main
from engine import memory
from engine.loading import Loader, evaluation_loader, training_loader
from runs import checkpoint
from tests.kit.refusals import refused
from tests.kit.runs import run_main, run_words
from tests.kit.samplers import make_sampler
from utilities import errors


class Noisy(torch.utils.data.Dataset):
    """Every item carries a random draw, as an augmentation would."""

    def __len__(self):
        return 40

    def __getitem__(self, index):
        return index % 4, torch.rand(3), index


class Batches(torch.utils.data.Sampler):
    """Yields these batches."""

    def __init__(self, batches):
        self.batches = batches

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        return iter(self.batches)

    def precompute_indices(self):
        pass


class Draws(Batches):
    """Six batches of five random images."""

    def __init__(self):
        super().__init__(range(6))

    def __iter__(self):
        for _ in range(6):
            yield torch.randint(40, (5,)).tolist()


def options(kernels=0, iterations=None):
    flags = {"kernels": kernels, "eval_kernels": kernels, "iterations_per_epoch": iterations}
    return Namespace(**flags, eval_bs=7, seed=3, subset_mining=None, decode_once=False)


def epochs(kernels, iterations=None):
    torch.manual_seed(3)
    loader = training_loader(Noisy(), Draws(), options(kernels, iterations))
    draws = []
    for _ in range(2):
        for _, noise, indices in loader:
            draws.append((indices.tolist(), noise.flatten().tolist()))
            # a miner draws from the same stream
            torch.rand(11)
    return draws


def test_workers_change_nothing_and_augmentations_differ():
    plain = epochs(0)
    assert plain == epochs(1) == epochs(2) and len({tuple(noise) for _, noise in plain}) == len(plain) == 12
    for iterations in (4, 15):
        assert len(epochs(0, iterations)) == 2 * iterations


def test_loading_leaves_the_seeds_of_gpus_alone(monkeypatch):
    """A state that is not restored afterwards would make every epoch's draws on the device alike."""
    seeded = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    torch.manual_seed(3)
    list(training_loader(Noisy(), Draws(), options(), 1)), list(evaluation_loader(Noisy(), options()))
    make_sampler("fixed_triplets", [4, 4, 4], bs=6, data_fixed_triplets_n=4)
    assert seeded == [3]


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([], "yields no batch"),
        ([[]], r"yields \[\]"),
        ([[0, 40]], r"yields \[0, 40\]: .* from 0 to 39"),
        ([["a/1.jpg"]], "whole numbers"),
    ],
)
def test_what_a_users_sampler_yields_is_checked(batches, message):
    with refused(message):
        list(training_loader(Noisy(), Batches(batches), options(iterations=3)))


@pytest.mark.parametrize("iterations", [None, 3])
@pytest.mark.parametrize(
    ("later", "message"),
    [([], "yields no batch.* in every epoch"), ([[0, 40]], r"yields \[0, 40\]"), ([[0], 7, [1]], "yields 7")],
)
def test_a_users_sampler_is_checked_in_every_epoch(later, message, iterations):
    """One that is exhausted after the first epoch would let a filled-up epoch wait forever."""

    sampler = Batches([[0, 1], [2, 3], [4, 5]])
    loader = training_loader(Noisy(), sampler, options(iterations=iterations))
    assert len(list(loader)) == 3
    sampler.batches = later
    with refused(message):
        list(loader)


def test_batches_that_are_iterators_are_read():
    sampler = Batches([map(int, batch) for batch in ("012", "345")])
    indices = [batch.indices.tolist() for batch in training_loader(Noisy(), sampler, options())]
    assert indices == [[0, 1, 2], [3, 4, 5]]


def test_repeated_images_in_batches_are_told_at_the_start_and_once(capsys):
    repeating = Batches([[0, 1, 0, 0], [2, 3, 4, 5], [6, 6, 7, 8]])
    loader = training_loader(Noisy(), repeating, options(), views=2)
    for _ in range(2):
        list(loader)
    output = capsys.readouterr().out
    assert output.count("\n") == 1 and "2 of 3 hold an image several times, 25.0% of the images" in output
    assert "at distance 0" not in output, "each is augmented for itself"
    assert "--data_sampler class_balanced" in output
    list(training_loader(Noisy(), make_sampler("class_balanced", [4, 4, 4], bs=6), options()))
    assert capsys.readouterr().out == ""
    list(training_loader(Noisy(), make_sampler("class_balanced", [1, 4, 4], bs=6), options()))
    assert "batches of class_balanced: " in capsys.readouterr().out


def test_evaluation_goes_through_the_data_in_order_and_draws_nothing():
    before = torch.get_rng_state()
    assert torch.cat([indices for _, _, indices in evaluation_loader(Noisy(), options())]).tolist() == list(range(40))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(("kernels", "of_training", "of_evaluation"), [(0, 0, 0), (1, 1, 2)])
def test_memory_is_given_back_before_workers_start(monkeypatch, kernels, of_training, of_evaluation):
    """A training's workers stay from epoch to epoch."""
    calls = []
    opt = options(kernels)
    monkeypatch.setattr(memory, "release_freed", lambda: calls.append(1))
    for loader, expected in (
        (training_loader(Noisy(), Draws(), opt), of_training),
        (evaluation_loader(Noisy(), opt), of_evaluation),
    ):
        calls.clear()
        for _ in range(2):
            assert len(list(loader)) == 6
        assert len(calls) == expected


def test_a_worker_that_the_system_kills_is_told_in_one_line(capsys):
    # one killed in this process would let torch's handler raise at each later end of a process: see the last test
    with pytest.raises(SystemExit), errors.one_line_errors():
        # as torch's signal handler does, whatever is being computed
        raise RuntimeError("DataLoader worker (pid(s) 12, 13) exited unexpectedly")
    line = capsys.readouterr().err
    assert line.count("\n") == 1 and all(word in line for word in ("--kernels", "memory", "--resume"))


@pytest.mark.parametrize("broken", [ConnectionResetError("by peer"), EOFError()])
def test_a_worker_lost_while_it_hands_over_a_batch(broken, monkeypatch):
    """The connection breaks off first; then torch's handler of SIGCHLD speaks."""

    def batches():
        yield 1
        raise broken

    def late(seconds):
        raise RuntimeError("DataLoader worker (pid 9) is killed by signal: Terminated. ")

    loader = Loader(range(3))
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    # The connection was the data set's own, and no worker is lost
    with pytest.raises(type(broken)):
        list(loader._reporting_lost_workers(batches()))
    monkeypatch.setattr(time, "sleep", late)
    with pytest.raises(KeyboardInterrupt):
        list(loader._reporting_lost_workers(batches()))


DEADLY = """
import os, signal, sys
import torch
import main, parameters
from datasets import _image_set
from utilities import errors

read = _image_set.ImageSet.__getitem__

def deadly(self, index):
    if torch.utils.data.get_worker_info() is not None and os.path.exists(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)
    return read(self, index)

_image_set.ImageSet.__getitem__ = deadly
with errors.one_line_errors():
    main.main(parameters.read(sys.argv[2:]))
"""


@pytest.mark.long
def test_a_run_goes_on_after_its_worker_was_killed(folder_data, tmp_path):
    argv = run_words(folder_data, tmp_path, "--savename Killed --n_epochs 3 --kernels 1 --eval_kernels 0")
    folder = tmp_path / "folder" / "Killed"
    words = [sys.executable, "-c", DEADLY, str(folder / checkpoint.LAST), *argv]
    done = subprocess.run(words, cwd=Path(main.__file__).parent, capture_output=True, text=True)
    assert done.returncode == 2 and "Traceback" not in done.stderr and "--kernels" in done.stderr, done.stderr
    assert run_main("--resume_from", folder, "--kernels 0").epoch == 3
