"""A step: gradients, clipping, precision, random states, freed memory, the loss that is not finite."""

import math
import operator
import platform
import random
import resource
import subprocess
import sys
from argparse import Namespace

import numpy as np
import pytest
import torch

from engine import memory
from engine.random_state import random_states, seed_everything, set_random_states
from engine.runtime import NonFiniteLoss, Runtime
from tests.conftest import ROOT
from tests.kit import tiny
from utilities.batchnorm import resting_statistics
from utilities.errors import NotFinite

FAULTS = """
import resource
import torch
from engine import memory

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


def runtime(**flags):
    return Runtime(Namespace(**{"gpu": [0], "precision": "float32", "clip_grad_norm": None, "seed": 0, **flags}))


def draws():
    return random.random(), np.random.rand(), torch.rand(()).item(), np.random.randn()  # noqa: NPY002


def test_a_seed_sets_all_generators_and_their_states_come_back_from_a_file(tmp_path):
    draws_of_seeds = []
    for seed in (3, 3, 4, 2**32 + 3):
        seed_everything(seed)
        draws_of_seeds.append(draws())
    first, repeated, second, _ = draws_of_seeds
    assert first == repeated and all(map(operator.ne, first, second))
    np.random.randn()  # noqa: NPY002  an odd number of normal draws leaves one in store
    torch.save(random_states(), tmp_path / "states.pt")
    expected = draws()
    draws()
    set_random_states(torch.load(tmp_path / "states.pt", weights_only=True))
    assert draws() == expected


@pytest.mark.parametrize(
    "flags",
    [{}, {"clip_grad_norm": 100.0}, {"clip_grad_norm": 0.3}, {"clip_grad_each": 1.0}, {"clip_grad_value": 0.1}],
    ids=str,
)
def test_a_step_by_limited_gradients(flags):
    """Two steps of SGD by hand, some gradients beyond their limit; the norm that is recorded is that before it."""
    torch.manual_seed(0)
    network, twin = (torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)) for _ in range(2))
    twin.load_state_dict(network.state_dict())
    unused = torch.nn.Parameter(torch.zeros(1))
    images = torch.randn(5, 3)
    steps = runtime(**flags)
    optimizer = torch.optim.SGD([{"params": [*network.parameters(), unused]}], lr=0.01)
    network.to(steps.device)
    for _ in range(2):
        norm = steps.step(network(images.to(steps.device)).square().sum(), optimizer)
        twin.zero_grad()
        twin(images).square().sum().backward()
        gradients = [p.grad for p in twin.parameters()]
        total = math.sqrt(sum(g.square().sum().item() for g in gradients))
        assert norm.item() == pytest.approx(total, rel=1e-5) and total > 0.5
        if "clip_grad_value" in flags:
            gradients = [g.clamp(-0.1, 0.1) for g in gradients]
        else:
            sizes = [g.norm().item() if "clip_grad_each" in flags else total for g in gradients]
            limit = min(flags.values(), default=math.inf)
            gradients = [g * min(1, limit / size) for g, size in zip(gradients, sizes, strict=True)]
        for p, expected, gradient in zip(network.parameters(), twin.parameters(), gradients, strict=True):
            expected.data -= 0.01 * gradient
            torch.testing.assert_close(p.data.cpu(), expected.data, rtol=1e-4, atol=1e-6)
    assert unused.grad is None


def test_precision_of_the_forward_pass():
    layer = torch.nn.Linear(2, 2).to(runtime().device)
    for precision, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        steps = runtime(precision=precision)
        with steps.autocast():
            output = layer(torch.ones(1, 2, device=steps.device))
        assert output.dtype == dtype
        assert steps.full(output).dtype == steps.full({"a": {"b": output}})["a"]["b"].dtype == torch.float32
    assert runtime().full(torch.ones(1, dtype=torch.float64)).dtype == torch.float64


@pytest.mark.parametrize(("steps_between_checks", "value"), [(1, float("-inf")), (25, float("nan"))])
def test_a_loss_that_is_not_finite_names_epoch_step_and_value(steps_between_checks, value):
    """The first bad step is named, though a GPU looks every 25 steps."""
    steps = runtime()
    weight = torch.nn.Parameter(torch.ones(1, device=runtime().device))
    steps._check_every = steps_between_checks
    optimizer = torch.optim.SGD([weight], lr=0.0)
    steps.start_epoch(4)
    steps.step(weight.sum(), optimizer)
    with pytest.raises(NonFiniteLoss, match=f"the loss is {value} at epoch 4, step 2: "):
        for factor in (value, float("inf"), 1.0):
            steps.step(factor * weight.sum(), optimizer)
        steps.check_finite()
    assert issubclass(NonFiniteLoss, NotFinite)
    steps.start_epoch(5)
    steps.check_finite()


def test_a_gradient_of_nan_stops_a_run_at_the_end_of_its_epoch():
    steps = runtime()
    weight = torch.nn.Parameter(torch.zeros(1, device=runtime().device))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    steps.start_epoch(2)
    # The loss is 0, and its derivative infinity times 0
    steps.step(weight.sqrt().sum() * 0, optimizer)
    with pytest.raises(NonFiniteLoss, match="the norm of the gradient is nan at epoch 2, step 1: "):
        steps.check_finite()


@pytest.mark.parametrize("miner", ["distance", "semihard", "multisimilarity"])
def test_embeddings_of_nan_stop_a_run_whatever_is_mined_of_them(miner):
    trainer, opt = tiny.trainer("metric_only", "--loss contrastive --batch_mining", miner)
    step = tiny.step(opt, trainer)
    step(tiny.batch())
    torch.nn.init.constant_(trainer.network.last_linear.weight, torch.nan)
    with pytest.raises(NonFiniteLoss, match="the loss is nan at epoch 1, step 2: "):
        step(tiny.batch())


@pytest.mark.long
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="elsewhere nothing changes")
def test_pages_are_made_once_and_can_be_given_back():
    words = [sys.executable, "-c", FAULTS]
    printed = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    as_it_comes, kept_faults, given_back = map(int, printed.split())
    assert kept_faults < as_it_comes / 10
    # Most of a tensor's 96 MB is given back
    assert given_back * resource.getpagesize() > 80e6


def test_a_run_keeps_freed_memory_on_a_cpu_alone(monkeypatch):
    devices = []
    for device in ("cpu", "meta"):
        monkeypatch.setattr(memory, "keep_freed", lambda device=device: devices.append(device))
        monkeypatch.setattr(Runtime, "_device", staticmethod(lambda gpus, device=device: torch.device(device)))
        runtime().begin()
    assert devices == ["cpu"]


def test_statistics_rest_and_normalise_all_the_same():
    layer = torch.nn.BatchNorm1d(3)
    normalization = torch.nn.BatchNorm1d(3)
    x = torch.randn(8, 3)
    with resting_statistics(layer):
        resting = layer(x)
    assert torch.equal(resting, normalization(x))
    assert layer.num_batches_tracked == 0 and not layer.running_mean.any()


def test_states_of_more_gpus_than_there_are(monkeypatch):
    states = {**random_states(), "cuda": ["of 0", "of 1"]}
    restored = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: restored.append((state, device)))
    set_random_states(states)
    assert restored == [("of 0", 0)]
