"""Freed memory on a CPU: kept between steps, given back before worker processes are started."""

import argparse
import platform
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.data import TensorDataset

from training import loading, memory
from training.runtime import Runtime

ROOT = Path(__file__).resolve().parents[2]
FAULTS = """
import resource
import torch
from training import memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        torch.ones(24_000_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident():
    return int(open("/proc/self/statm").read().split()[1])

as_it_comes = faults()
memory.keep_freed()
faults()
kept = faults()
before = resident()
memory.release_freed()
print(as_it_comes, kept, before - resident())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="elsewhere nothing changes")
def test_pages_are_made_once_and_can_be_given_back():
    printed = subprocess.run([sys.executable, "-c", FAULTS], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    as_it_comes, kept, given_back = map(int, printed.split())
    assert kept < as_it_comes / 10
    assert given_back * resource.getpagesize() > 80e6  # of 96 MB


@pytest.mark.parametrize(("device", "calls"), [("cpu", [1]), ("meta", [])])
def test_a_run_keeps_it_on_a_cpu_alone(monkeypatch, device, calls):
    kept = []
    monkeypatch.setattr(memory, "keep_freed", lambda: kept.append(1))
    monkeypatch.setattr(Runtime, "_device", staticmethod(lambda gpus: torch.device(device)))
    Runtime(argparse.Namespace(gpu=[0], precision="float32", clip_grad_norm=0, seed=0)).begin()
    assert kept == calls


class Images(TensorDataset):
    """(label, image, index)."""

    def __init__(self):
        super().__init__(torch.arange(8) // 2, torch.zeros(8, 3, 4, 4), torch.arange(8))


class InOrder:
    """A sampler of two batches."""

    def __len__(self):
        return 2

    def __iter__(self):
        return iter([[0, 1, 2, 3], [4, 5, 6, 7]])


@pytest.mark.parametrize(("n_kernels", "of_training", "of_evaluation"), [(0, 0, 0), (1, 1, 2)])
def test_given_back_before_workers_start_and_then_alone(monkeypatch, n_kernels, of_training, of_evaluation):
    calls = []
    monkeypatch.setattr(memory, "release_freed", lambda: calls.append(1))
    opt = type("opt", (), dict(kernels=n_kernels, eval_kernels=n_kernels, eval_bs=4, seed=0, iterations_per_epoch=None))
    for loader, expected in (
        (loading.training_loader(Images(), InOrder(), opt), of_training),
        (loading.evaluation_loader(Images(), opt), of_evaluation),
    ):
        calls.clear()
        for _ in range(2):
            assert torch.cat([labels for labels, _, _ in loader]).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
        assert len(calls) == expected
