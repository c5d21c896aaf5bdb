"""On a GPU: values and gradients are the CPU's, no step waits where it need not, half precision and several processes.
`make test-gpu`.

What is compared draws its random numbers on the CPU, in float64. Some cases run on the CPU as well, so that the tests
themselves are tested.
"""

import contextlib
import copy
import functools
import itertools
import os
import warnings
from unittest import mock

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

import batch_mining
import criteria
from engine.runtime import Runtime
from metrics import _kmeans
from tests.criteria.test_registry_wide import N_CLASSES, build, run
from tests.engine import test_chunks
from tests.engine.test_chunks import WAYS, batches, failures, of_loss, rounding, trained
from tests.kit import processes
from tests.kit.samplers import draw, make_sampler
from tests.test_host_reads import CRITERIA, MINERS, asked_by, labels_of, reference, unit
from utilities import shards
from utilities.criterion import takes_reference
from utilities.tuples import Pairs

EXACT = {"rtol": 1e-8, "atol": 1e-10}


@contextlib.contextmanager
def runs_on(device: str):
    """Inside runs are there, whatever the machine has."""
    place = torch.device(device, 0) if device == "cuda" else torch.device(device)
    with mock.patch.object(Runtime, "_device", staticmethod(lambda gpus: place)):
        yield


def everywhere(names, on_cpu):
    """The check, of a device and a name, for all names on a GPU, for some also on the CPU; all that fail are said."""

    def decorate(check):
        @pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
        def test(device):
            checked = names if device == "cuda" else on_cpu
            with runs_on(device):
                failed = failures(((device, name) for name in checked), check)
            assert not failed, "\n".join(failed)

        return test

    return decorate


class DrawnOnCpu(TorchFunctionMode):
    """Inside, random numbers for any device come from the CPU's generator."""

    BY_SIZE = (torch.rand, torch.randn, torch.randint, torch.randperm)
    ALIKE = (torch.rand_like, torch.randn_like, torch.bernoulli)

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if function in self.BY_SIZE:
            device = kwargs.pop("device", None)
            return function(*args, **kwargs).to(device or "cpu")
        if function in self.ALIKE:
            return function(args[0].cpu(), *args[1:], **kwargs).to(args[0].device)
        if function is torch.nn.functional.dropout:
            return args[0] * function(torch.ones_like(args[0], device="cpu"), *args[1:], **kwargs).to(args[0].device)
        return function(*args, **kwargs)


def on_device(tensors: dict, device) -> dict:
    return {name: tensor.to(device) for name, tensor in tensors.items()}


def exact_reference(labels: torch.Tensor, n_classes: int) -> dict:
    compared = reference(labels, n_classes)
    return {**compared, "reference": compared["reference"].double()}


def same_loss(name: str, device: str, mine_pairs: bool, compared: dict) -> None:
    """Value, gradient by the embeddings and by each parameter, as on the CPU."""
    labels = labels_of(criteria.REGISTRY.module(name))
    batch = unit(len(labels)).double()
    on_cpu = build(name, mine_pairs=mine_pairs).double()
    elsewhere = copy.deepcopy(on_cpu).to(device)
    with DrawnOnCpu():
        expected = run(on_cpu, batch, labels, **compared)
        actual = run(elsewhere, batch.to(device), labels.to(device), **on_device(compared, device))
    for value, device_value in zip((*expected[:2], *expected[2]), (*actual[:2], *actual[2]), strict=True):
        assert device_value.device.type == device
        torch.testing.assert_close(device_value.cpu(), value, **EXACT)
    assert expected[1].abs().sum() > 0


@everywhere(CRITERIA, on_cpu=["hier", "triplet", "vicreg"])
def test_criteria_are_those_of_the_cpu(device, name):
    """Also of mined pairs, and against a reference."""
    module = criteria.REGISTRY.module(name)
    same_loss(name, device, False, {})
    if getattr(module, "MINES_PAIRS", False):
        same_loss(name, device, True, {})
    if takes_reference(module.Criterion):
        # negatives of few positives are met in blocks
        for n_classes in (N_CLASSES, 60):
            same_loss(name, device, False, exact_reference(labels_of(module), n_classes))


def in_order(mined) -> list:
    """Columns of tuples; pairs sorted, as each device's topk has its own order."""
    columns = [indices.tolist() for indices in mined]
    return [sorted(zip(*columns[i : i + 2], strict=True)) for i in (0, 2)] if isinstance(mined, Pairs) else columns


@everywhere(itertools.product(MINERS, [False, True]), on_cpu=[("distance", False), ("uniform_histogram", True)])
def test_miners_find_the_tuples_of_the_cpu(device, case):
    name, against = case
    labels = labels_of(batch_mining.REGISTRY.module(name))
    batch = unit(len(labels)).double()
    compared = exact_reference(labels, 6) if against else {}
    mined = []
    miners = []
    for place in ("cpu", device):
        miners.append(batch_mining.select(name, loss="triplet", embed_dim=batch.shape[1]))
        torch.manual_seed(3)
        with DrawnOnCpu():
            mined.append(miners[-1](batch.to(place), labels.to(place), **on_device(compared, place)))
    assert type(mined[0]) is type(mined[1]) and sum(map(len, mined[0])) > 0
    assert all(indices.device.type == device for indices in mined[1])
    assert in_order(mined[0]) == in_order(mined[1])
    assert isinstance(mined[0], Pairs) or len(mined[0][0]) == miners[1].stats["tuples"]
    for statistic, value in miners[0].stats.items():
        torch.testing.assert_close(miners[1].stats[statistic].cpu(), value)


@contextlib.contextmanager
def at_most(waits: int):
    """Fails where the GPU is waited for more often; on the CPU nothing is seen."""
    before = torch.cuda.get_sync_debug_mode() if torch.cuda.is_available() else 0
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            if torch.cuda.is_available():
                mode = "warn" if waits else "error"
                torch.cuda.set_sync_debug_mode(mode)
            yield
        finally:
            if torch.cuda.is_available():
                torch.cuda.set_sync_debug_mode(before)
    messages = [str(warning.message) for warning in seen if "synchronizing CUDA operation" in str(warning.message)]
    assert len(messages) <= waits, messages


def test_only_the_tests_marked_gpu_see_one(pytestconfig):
    assert (os.environ.get("CUDA_VISIBLE_DEVICES") == "") == (pytestconfig.getoption("markexpr") != "gpu")


@pytest.mark.gpu
def test_a_wait_is_an_error_or_counted():
    x = torch.arange(3.0, device="cuda")
    with pytest.raises(RuntimeError, match="synchronizing"), at_most(0):
        x.sum().item()
    with pytest.raises(AssertionError), at_most(1):
        assert [x.sum().item(), x.max().item()] == [3, 2]
    with at_most(2):
        assert x.tolist() == [0, 1, 2]


@everywhere(CRITERIA, on_cpu=["softmax"])
def test_a_step_waits_for_no_more_than_its_criterion(device, name):
    """From images to the moved parameters, clipping included; the labels are looked at once, in the first step."""
    small = ["--loss_hier_n_proxies", "25"] if name == "hier" else []
    trainer, step, done, _ = trained(0, *of_loss(name), *small, "--clip_grad_norm", "1", dtype=torch.float32, steps=2)
    # a batch on the CPU, as the loader gives it
    (batch,) = batches(trainer.VIEWS, 1)
    batch = type(batch)(*map(_host, batch))
    with at_most(asked_by(name)):
        done = step(batch)
    assert torch.isfinite(done.loss) and done.loss.device.type == device


@everywhere(["arcface", "proxyanchor"], on_cpu=["arcface"])
def test_a_step_with_drawn_class_vectors_waits_for_nothing(device, name):
    criterion = build(name, n_classes=100, sample_classes=0.3).to(device)
    optimizer = torch.optim.SGD(criterion.parameters(), lr=0.1, momentum=0.9, foreach=True)
    labels = labels_of(criteria.REGISTRY.module(name)).to(device)
    batch = unit(len(labels)).to(device)
    before = criterion.proxies.detach().clone()
    # in the first step the labels are looked at
    for waits in (2, 0):
        with at_most(waits):
            run(criterion, batch, labels)
            with shards.undrawn_at_rest(optimizer):
                optimizer.step()
    assert 30 <= int((criterion.proxies != before).any(1).sum()) <= 60


@everywhere([(*way, chunk_size) for way in WAYS for chunk_size in (0, 5)], on_cpu=[(*WAYS[-2], 5)])
def test_trainers_steps_are_those_of_the_cpu(device, way):
    name, flags, chunk_size = way
    loss = []
    if "--loss" not in flags:
        loss = ["--loss", "contrastive" if "--memory_size" in flags else "margin"]
    states = []
    for place in ("cpu", device):
        with runs_on(place), DrawnOnCpu():
            trainer, _, done, _ = trained(chunk_size, "--trainer", name, *loss, *flags, stand_in=False)
        assert all(step.loss.device.type == place for step in done)
        states.append({key: value.cpu() for key, value in trainer.state_dict().items() if torch.is_tensor(value)})
    for key, value in states[0].items():
        tolerances = {"rtol": 1e-7, "atol": 1e-9 * rounding(key)}
        explain = functools.partial("{}: {}".format, key)
        torch.testing.assert_close(states[1][key], value, **tolerances, msg=explain)


SAMPLERS = ["d2_coreset", "greedy_coreset", "disthist_batchmatch", "fid_batchmatch"]


@everywhere(SAMPLERS, on_cpu=["d2_coreset"])
def test_a_samplers_storage_stays_where_the_embeddings_are(device, name):
    epochs = []
    storages = []
    for place in ("cpu", device):
        sampler = make_sampler(name, [8] * 6, dtype=torch.float64, bs=8, samples_per_class=2, data_batchmatch_bigbs=24)
        new = torch.randn(8, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(7)).to(place)
        # The first entries bring the storage to the device
        sampler.replace_storage_entries(new, torch.arange(8))
        with at_most(0):
            sampler.replace_storage_entries(new, _host(torch.arange(8, 16)))
        assert sampler.storage.device.type == place
        storages.append(sampler.storage.cpu())
        with DrawnOnCpu():
            epochs.append(draw(sampler, seed=2))
    assert torch.equal(*storages) and epochs[0].shape == epochs[1].shape


def _host(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.pin_memory() if torch.cuda.is_available() else tensor


@everywhere(["torch"], on_cpu=["torch"])
def test_k_means_are_those_of_the_cpu(device, name):
    rng = np.random.default_rng(0)
    features = (rng.integers(0, 40, (600, 1)) * 10 + rng.standard_normal((600, 5))).astype(np.float32)
    expected = _kmeans.kmeans(features, 40)
    clusters = _kmeans.kmeans(features, 40, device=device)
    # equal but for rounding, of samples halfway between two centres
    assert (clusters == expected).mean() > 0.999
    assert len(np.unique(clusters)) == len(np.unique(expected))


@everywhere(["bfloat16", "float16"], on_cpu=["bfloat16", "float16"])
def test_half_precision_is_near_float32(device, name):
    states = []
    # torch's own start overflows here, and the first steps would be left out
    low = functools.partial(torch.amp.GradScaler, init_scale=2.0**8)
    for precision in (name, "float32"):
        with mock.patch.object(torch.amp, "GradScaler", low):
            trainer, step, done, _ = trained(
                0, "--loss", "softmax", "--precision", precision, dtype=torch.float32, steps=2
            )
        assert all(torch.isfinite(result.loss) and 0 < result.gradient_norm < torch.inf for result in done)
        assert step.runtime.device.type == device and step.runtime.scaler.is_enabled() == (precision == "float16")
        states.append({key: value.float().cpu() for key, value in trainer.state_dict().items()})
    torch.testing.assert_close(*states, rtol=0.05, atol=0.01)


@pytest.mark.gpu
def test_the_scaler_leaves_out_a_step_that_overflows():
    trainer, step, _, _ = trained(0, "--loss", "softmax", "--precision", "float16", dtype=torch.float32, steps=1)
    parameters = [value.clone() for value in trainer.parameters()]
    scale = step.runtime.scaler.get_scale()
    loss = sum(value.sum() for value in trainer.parameters())
    # The loss is finite, but not its product with the scale
    step.runtime.step(loss * 1e37, step.optimizer)
    assert all(map(torch.equal, parameters, trainer.parameters())) and step.runtime.scaler.get_scale() == scale / 2


@pytest.mark.gpu
def test_dropout_of_chunks_on_a_gpu_is_the_same_in_both_runs():
    """The step is that of the chunks' own graphs: tests/engine/test_chunks.py, here with CUDA's generator."""
    test_chunks.check_draws_of_chunks()


@pytest.mark.gpu
def test_two_processes_on_one_gpu_step_as_one():
    """By nccl if two ranks may share a device, else by gloo, as main.py does; tensors on the GPU."""
    cases = [(0, of_loss(loss), {}) for loss in ("margin", "softmax")]
    cases.append((4, "--loss contrastive --memory_size 30 --memory_start 1".split(), {}))
    try:
        processes.spawned(2, processes.same_steps, cases, backend="cpu:gloo,cuda:nccl")
    except AssertionError as error:
        if "Duplicate GPU" not in str(error) and "invalid usage" not in str(error):
            raise
        processes.spawned(2, processes.same_steps, cases)
