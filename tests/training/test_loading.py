"""Batches and augmentations depend on the seed alone: not on workers, not on what the training draws in between."""

import subprocess
import sys
import time
from argparse import Namespace
from pathlib import Path

import pytest
import torch

import main
import parameters
from tests import builders
from training.loading import Loader, evaluation_loader, training_loader
from utilities import errors
from utilities.errors import lost_worker


class Noisy(torch.utils.data.Dataset):
    """Every item carries a random draw, as an augmentation would."""

    def __len__(self):
        return 40

    def __getitem__(self, index):
        return index % 4, torch.rand(3), index


class Draws(torch.utils.data.Sampler):
    def __init__(self):
        pass

    def __len__(self):
        return 6

    def __iter__(self):
        for _ in range(6):
            yield torch.randint(40, (5,)).tolist()

    def precompute_indices(self):
        pass


def epochs(kernels, iterations=None, disturb=True):
    torch.manual_seed(3)
    opt = Namespace(kernels=kernels, eval_kernels=kernels, eval_bs=7, seed=3, iterations_per_epoch=iterations)
    loader, drawn = training_loader(Noisy(), Draws(), opt), []
    for _ in range(2):
        for _, noise, indices in loader:
            drawn.append((indices.tolist(), noise))
            if disturb:
                torch.rand(11)  # a miner draws from the same stream
    return drawn


@pytest.mark.parametrize("kernels", [1, 2])
def test_workers_change_nothing(kernels):
    for (indices, noise), (expected_indices, expected_noise) in zip(epochs(kernels), epochs(0), strict=True):
        assert indices == expected_indices and torch.equal(noise, expected_noise)


def test_augmentations_differ_between_batches_and_epochs():
    noises = [noise for _, noise in epochs(0)]
    assert len({tuple(n.flatten().tolist()) for n in noises}) == len(noises) == 12


def test_loading_takes_nothing_from_the_stream_but_the_epochs_draws():
    torch.manual_seed(3)
    opt = Namespace(kernels=0, eval_kernels=0, eval_bs=7, seed=3, iterations_per_epoch=None)
    for _ in evaluation_loader(Noisy(), opt):
        pass
    after = torch.rand(1)
    torch.manual_seed(3)
    assert torch.equal(after, torch.rand(1))


@pytest.mark.parametrize("iterations", [4, 6, 15])
def test_iterations_per_epoch(iterations):
    assert len(epochs(0, iterations)) == 2 * iterations


def test_evaluation_goes_through_the_data_in_order():
    opt = Namespace(kernels=0, eval_kernels=0, eval_bs=7, seed=3, iterations_per_epoch=None)
    assert torch.cat([indices for _, _, indices in evaluation_loader(Noisy(), opt)]).tolist() == list(range(40))


def check_told(line):
    assert "--kernels" in line and "memory" in line and "--resume" in line and "\n" not in line.strip()


@pytest.mark.parametrize(
    "text", ["DataLoader worker (pid(s) 12, 13) exited unexpectedly", "DataLoader worker (pid 9) is killed by signal: Bus error. "]
)
def test_a_worker_that_the_system_kills_is_told_in_one_line(text, capsys):
    # Killing one in this process would let torch's signal handler raise at each later end of any process: see the next test.
    with pytest.raises(SystemExit) as stop, errors.one_line_errors():
        raise RuntimeError(text)  # as torch's signal handler does, whatever is being computed
    told = capsys.readouterr().err
    check_told(told)
    assert stop.value.code == 2 and told.count("\n") == 1


def test_another_error_of_the_loader_is_no_lost_worker():
    assert lost_worker(RuntimeError("out of luck")) is None
    with pytest.raises(RuntimeError, match="out of luck"), errors.one_line_errors():
        raise RuntimeError("out of luck")


@pytest.mark.parametrize("broken", [ConnectionResetError("by peer"), EOFError(), ConnectionRefusedError()])
def test_a_worker_lost_while_it_hands_over_a_batch(broken, monkeypatch):
    """The connection breaks off first; then torch's handler of SIGCHLD speaks."""

    def batches():
        yield 1
        raise broken

    def told(seconds):
        raise RuntimeError("DataLoader worker (pid 9) is killed by signal: Terminated. ")

    loader = Loader(range(3))
    with pytest.raises(type(broken)):  # a data set's own connection, and no worker is lost
        list(loader._reporting_lost_workers(batches()))
    monkeypatch.setattr(time, "sleep", told)
    with pytest.raises(KeyboardInterrupt):
        list(loader._reporting_lost_workers(batches()))


DEADLY = """
import os, signal, sys
import torch
import main, parameters
from datasets import _images
from utilities import errors

read = _images.ImageSet.__getitem__

def deadly(self, index):
    if torch.utils.data.get_worker_info() is not None and os.path.exists(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)
    return read(self, index)

_images.ImageSet.__getitem__ = deadly
with errors.one_line_errors():
    main.main(parameters.read(sys.argv[2:]))
"""


def test_a_run_goes_on_after_its_worker_was_killed(folder_data, tmp_path):
    argv = ["--dataset", "folder", "--dataset_folder_path", str(folder_data), *builders.SHORT_RUN, *builders.SMALL, "--n_epochs", "3"]
    argv += ["--kernels", "1", "--eval_kernels", "0", "--save_path", str(tmp_path / "runs"), "--group", "Killed"]
    folder = tmp_path / "runs" / "folder" / "Killed_s1"
    words = [sys.executable, "-c", DEADLY, str(folder / "checkpoint_last.pth.tar"), *argv]
    told = subprocess.run(words, cwd=Path(main.__file__).parent, capture_output=True, text=True)
    assert told.returncode == 2 and "Traceback" not in told.stderr, told.stderr
    check_told(told.stderr.strip().splitlines()[-1])
    assert main.main(parameters.read(["--resume_from", str(folder), "--kernels", "0"])).epoch == 3
