"""`--deterministic`: equal and resumed runs end in the same bits, on a GPU too; what torch cannot do so is named.

On a CPU the operations of each criterion, miner, trainer and of some networks are recorded, and none is one that torch
refuses on a GPU. The tests marked gpu compare bits there.
"""

import copy
import os
import re
from argparse import Namespace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import architectures
import batch_mining
import criteria
from engine import determinism
from engine.determinism import WORKSPACE, same_bits
from engine.random_state import random_states, set_random_states
from tests.criteria.test_registry_wide import build, run
from tests.engine.test_chunks import WAYS, batches, failures, of_loss, trained
from tests.kit.refusals import refused
from tests.kit.runs import assert_same_run, equal_states, read, resolve, run_main, run_words
from tests.test_gpu import everywhere
from tests.test_host_reads import CRITERIA, MINERS, labels_of, unit
from trainers import TrainerState
from utilities.tensors import amax_at

ON = Namespace(
    deterministic=True, compile=False, arch="conv4", loss="margin", trainer="metric_only", batch_mining="distance"
)
# What torch's documentation says it refuses on a GPU, by the names there: the operators of that, a pattern.
REFUSED = {
    "AvgPool3d": "avg_pool3d_backward",
    "AdaptiveAvgPool2d": "_adaptive_avg_pool2d_backward",
    "AdaptiveAvgPool3d": "_adaptive_avg_pool3d_backward",
    "AdaptiveMaxPool2d": "adaptive_max_pool2d_backward",
    "FractionalMaxPool2d": "fractional_max_pool2d_backward",
    "FractionalMaxPool3d": "fractional_max_pool3d_backward",
    "MaxUnpool1d": "max_unpool2d",
    "MaxUnpool2d": "max_unpool2d",
    "MaxUnpool3d": "max_unpool3d",
    "interpolate": r"_?upsample_(linear|bilinear|bicubic|trilinear)\dd(_aa)?_backward",
    "ReflectionPad1d": "reflection_pad1d_backward",
    "ReflectionPad2d": "reflection_pad2d_backward",
    "ReflectionPad3d": "reflection_pad3d_backward",
    # of maps: the loss of rows has one order
    "NLLLoss": r"nll_loss2d_\w+",
    "CTCLoss": r"_(cudnn_)?ctc_loss_backward",
    "EmbeddingBag": r"_embedding_bag_\w*backward",
    "put_": "put_?",
    "histc": "histc",
    "bincount": "bincount",
    "median": "(nan)?median",
    "grid_sample": r"grid_sampler_\dd_backward",
    "scatter_reduce": "scatter_reduce_?",
    "kthvalue": "kthvalue",  # of older versions
    "cumsum": "",  # of older versions than 2.6, which the project does not take
}


@pytest.fixture(autouse=True)
def workspace(monkeypatch):
    """As in a process that has not computed on a GPU yet, whatever other tests have done."""
    monkeypatch.setenv(WORKSPACE, determinism.WORKSPACES[0])


def settings():
    return torch.get_deterministic_debug_mode(), torch.backends.cudnn.benchmark


# ---------- the flag
@pytest.mark.parametrize("before", [(0, True), (1, False), (2, False)], ids=["off", "warns", "on"])
def test_the_flag_holds_inside_and_what_was_set_comes_back(before, monkeypatch):
    mode, benchmark = before
    torch.set_deterministic_debug_mode(mode)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", benchmark)
    monkeypatch.delenv(WORKSPACE)
    try:
        with same_bits(Namespace(deterministic=False)):
            assert settings() == before and WORKSPACE not in os.environ
        with same_bits(ON):
            assert settings() == (2, False) and os.environ[WORKSPACE] == ":4096:8"
            largest = amax_at(torch.zeros(3), 0, torch.tensor([1, 1, 2]), torch.tensor([2.0, 1.0, -1.0]))
            assert settings() == (2, False) and largest.tolist() == [0, 2, 0]
        assert settings() == before
        with pytest.raises(KeyError), same_bits(ON):
            raise KeyError
        assert settings() == before
    finally:
        torch.set_deterministic_debug_mode("default")


def test_the_workspace_of_cublas_is_the_users_or_refused(monkeypatch):
    monkeypatch.setenv(WORKSPACE, ":16:8")
    determinism.set_workspace()
    assert os.environ[WORKSPACE] == ":16:8"
    monkeypatch.setenv(WORKSPACE, ":0:0")
    with refused("CUBLAS_WORKSPACE_CONFIG=:0:0 must be :4096:8 or :16:8, or unset"), same_bits(ON):
        pass
    monkeypatch.delenv(WORKSPACE)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 512 * device)
    with refused("already been used in this process", f"{WORKSPACE}=:4096:8"), same_bits(ON):
        pass
    assert WORKSPACE not in os.environ
    # as after torchrun's set_device
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 0)
    determinism.set_workspace()


def test_a_refused_operation_is_named_with_what_uses_it():
    torch.zeros(4).put_(torch.tensor([1]), torch.ones(1))
    with refused("--deterministic: torch has no deterministic form of put_, which a gradient of"), same_bits(ON):
        torch.zeros(4).put_(torch.tensor([1]), torch.ones(1))
    message = "adaptive_max_pool2d_backward_cuda does not have a deterministic implementation, but you set …"
    with refused("no deterministic form of adaptive_max_pool2d_backward_cuda, which a gradient of"), same_bits(ON):
        raise RuntimeError(message)
    with pytest.raises(RuntimeError, match="another"), same_bits(ON):
        raise RuntimeError("another")


def extract_and_put(network, images):
    """What a network does that calls an operation which torch refuses also on a CPU."""
    images.new_zeros(2).put_(torch.zeros(1, dtype=torch.long), images.new_ones(1))


def test_a_run_ends_with_one_line(data, tmp_path, monkeypatch):
    extract_there = extract_and_put.__code__.replace(co_filename=architectures.conv4.__file__)
    monkeypatch.setattr(extract_and_put, "__code__", extract_there)
    monkeypatch.setattr(architectures.conv4.Network, "extract", extract_and_put)
    words = run_words(data, tmp_path, "--loss margin --deterministic --n_epochs 1")
    with refused(
        "^--deterministic: torch has no deterministic form of put_, which --arch conv4_normalize uses: change that, or "
        "leave --deterministic out$"
    ):
        run_main(*words)
    assert settings()[0] == 0


def test_on_a_cpu_a_run_is_that_without_the_flag(data, tmp_path, capsys):
    words = run_words(data, tmp_path, "--loss triplet --no_train_metrics --n_epochs 1")
    plain = run_main(*words, "--savename Plain").folder
    assert "--deterministic" not in capsys.readouterr().out
    flagged = run_main(*words, "--savename Flagged --deterministic").folder
    assert "steps  --deterministic" in capsys.readouterr().out
    assert_same_run(plain, flagged)
    assert settings()[0] == 0
    assert "cublas_workspace: :4096:8" in (flagged / "environment.yaml").read_text()
    assert "deterministic: true" in (flagged / "parameters.yaml").read_text()
    with refused("flags differ", "--deterministic False (saved: True)"):
        resolve("--resume_from", flagged, "--no-deterministic --n_epochs 2")


# ---------- the operations that torch refuses
def documented() -> set[str]:
    """The names in the part of torch's documentation on what it refuses, without what it refuses on MPS alone."""
    text = torch.use_deterministic_algorithms.__doc__.partition("operations will throw a\n")[2]
    entries = re.split(r"\n\s+\* (?=:)", text.partition("In addition")[0])[1:]
    names = set()
    for entry in entries:
        if "CUDA" in entry or "MPS" not in entry and "quantized" not in entry:
            title = re.match(r"(:\w+:`[^`]+`,? ?(and )?)+", entry)[0]
            names |= {name.split(".")[-1] for name in re.findall(r"`([^`]+)`", title)}
    return names


class Recorded(TorchDispatchMode):
    """Keeps the names of operators that a GPU would refuse."""

    PATTERN = re.compile("|".join(filter(None, REFUSED.values())))

    def __init__(self):
        super().__init__()
        self.count = 0
        self.refused = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function._schema.name.partition("::")[2]
        self.count += 1
        # without weights, and without the places of medians, these have one order
        is_of_another_form = name in ("bincount", "median", "nanmedian") and len(args) < 2
        is_listed = self.PATTERN.fullmatch(name) and not is_of_another_form
        if is_listed and torch.are_deterministic_algorithms_enabled():
            self.refused.add(name)
        return function(*args, **(kwargs or {}))


def check_operations(call, *arguments, **named):
    with same_bits(ON), Recorded() as recorded:
        call(*arguments, **named)
    assert recorded.count > 10 and not recorded.refused, recorded.refused


def test_the_table_holds_what_torch_documents():
    assert documented() and documented() <= set(REFUSED)
    x = torch.rand(2, 3, 5, 5, requires_grad=True)
    with pytest.raises(AssertionError, match="adaptive_avg_pool2d_backward"):
        check_operations(lambda: torch.nn.functional.adaptive_avg_pool2d(x + x * x - x, 3).square().sum().backward())


def test_criteria_and_miners_call_nothing_that_a_gpu_refuses():
    def check_criterion(name, mine_pairs):
        criterion = build(name, mine_pairs=mine_pairs)
        labels = labels_of(criteria.REGISTRY.module(name))
        check_operations(run, criterion, unit(len(labels)), labels)

    def check_miner(name):
        labels = labels_of(batch_mining.REGISTRY.module(name))
        check_operations(batch_mining.select(name), unit(len(labels)), labels)

    cases = [(name, False) for name in CRITERIA]
    cases += [(name, True) for name in CRITERIA if getattr(criteria.REGISTRY.module(name), "MINES_PAIRS", False)]
    assert not failures(cases, check_criterion) + failures(((name,) for name in MINERS), check_miner)


def words_of_way(name, flags):
    """Words for a trainer, with a loss where its own flags name none."""
    if "--loss" in flags:
        return ["--trainer", name, *flags]
    return ["--trainer", name, "--loss", "contrastive" if "--memory_size" in flags else "margin", *flags]


STEPS = [words_of_way(*way) for way in WAYS]


def test_trainers_steps_call_nothing_that_a_gpu_refuses():
    def check(*words):
        check_operations(trained, 0, *words, dtype=torch.float32, steps=2, stand_in=False)

    assert not failures(STEPS, check)


@pytest.mark.parametrize(
    "flags",
    [
        "conv4 --crop_size 48",
        "resnet18 --crop_size 64 --pool max",
        "resnet18 --crop_size 64 --pool avgmax",
        "timm:vit_tiny_patch16_224 --crop_size 224",
    ],
)
def test_networks_call_nothing_that_a_gpu_refuses(flags):
    opt = read(f"--dataset glyphs --not_pretrained --embed_dim 8 --arch {flags}")
    network = architectures.select(opt.arch, opt)
    images = torch.rand(2, 3, opt.crop_size, opt.crop_size)
    check_operations(lambda: network(images)[0].sum().backward())


def test_the_maximum_of_a_map_is_that_of_adaptive_pooling():
    maps = torch.rand(3, 4, 5, 2).round(decimals=1).relu()
    maps[0, 0] = 0
    maps[1, 1, 2, 1] = torch.nan
    for layout in (torch.contiguous_format, torch.channels_last):
        results = []
        for layer in (torch.nn.AdaptiveMaxPool2d(1), architectures._pool.pooling("max")):
            x = maps.clone(memory_format=layout).requires_grad_()
            pooled = layer(x)
            (pooled * torch.arange(12.0).view(3, 4, 1, 1)).nan_to_num().sum().backward()
            results.append((pooled.detach(), x.grad))
        for expected, value in zip(*results, strict=True):
            torch.testing.assert_close(value, expected, rtol=0, atol=0, equal_nan=True)


# ---------- the same bits
def state_of(trainer, step):
    states = {name: part.state_dict() for name, part in step.parts.items() if name != "sampler"}
    states |= {name: part.state_dict() for name, part in TrainerState.part(trainer).items()}
    return copy.deepcopy(states)


def continued(words, states, random, batch):
    """The state after one step of a new trainer that has loaded these states."""
    trainer, step, *_ = trained(0, *words, dtype=torch.float32, steps=0, stand_in=False)
    for name, part in {**step.parts, **TrainerState.part(trainer)}.items():
        if name != "sampler":
            part.load_state_dict(states[name])
    set_random_states(random)
    step(batch)
    return state_of(trainer, step)


CASES = [*(of_loss(name) for name in CRITERIA), *STEPS]


@everywhere(CASES, on_cpu=[of_loss("triplet"), of_loss("proxyanchor"), STEPS[-1]])
def test_steps_made_again_and_resumed_end_in_the_same_bits(device, words):
    with same_bits(ON):
        runs = []
        for _ in range(2):
            trainer, step, *_ = trained(0, *words, dtype=torch.float32, steps=2, stand_in=False)
            before = state_of(trainer, step), random_states()
            batch = list(batches(trainer.VIEWS))[2]
            step(batch)
            runs.append(state_of(trainer, step))
        resumed = continued(words, *before, batch)
    assert equal_states(*runs) and equal_states(runs[0], resumed)


BY_MINING = [(name, mine_pairs) for name in CRITERIA for mine_pairs in (False, True)]


@everywhere(BY_MINING, on_cpu=[("triplet", False), ("ntxent", True)])
def test_criteria_of_large_batches_give_the_same_bits_again(device, case):
    name, mine_pairs = case
    module = criteria.REGISTRY.module(name)
    if mine_pairs and not getattr(module, "MINES_PAIRS", False):
        return
    labels = labels_of(module).repeat(16).to(device)
    batch = unit(len(labels)).to(device)
    criterion = build(name, mine_pairs=mine_pairs).to(device)
    with same_bits(ON):
        first, second = (run(copy.deepcopy(criterion), batch, labels) for _ in range(2))
    assert torch.equal(first[0], second[0]) and torch.equal(first[1], second[1])
    assert all(map(torch.equal, first[2], second[2]))


@everywhere(MINERS, on_cpu=["distance"])
def test_miners_of_large_batches_find_the_same_tuples_again(device, name):
    labels = labels_of(batch_mining.REGISTRY.module(name)).repeat(16).to(device)
    batch = unit(len(labels)).to(device)
    mined = []
    with same_bits(ON):
        for _ in range(2):
            torch.manual_seed(3)
            mined.append(batch_mining.select(name, loss="triplet", embed_dim=batch.shape[1])(batch, labels))
    assert len(mined[0][0]) and all(map(torch.equal, *mined))


@pytest.mark.gpu
@pytest.mark.parametrize("loss", ["triplet", "multisimilarity", "proxyanchor"])
def test_runs_on_a_gpu_made_again_and_resumed_end_in_the_same_bits(loss, data, tmp_path):
    words = run_words(data, tmp_path, f"--loss {loss} --deterministic --resize_size 50 --crop_size 48")
    first, second = (run_main(*words, "--n_epochs 2 --savename", name).folder for name in ("First", "Second"))
    resumed = run_main(*words, "--n_epochs 1 --savename Resumed").folder
    run_main("--resume_from", resumed, "--n_epochs 2")
    assert_same_run(first, second)
    assert_same_run(first, resumed)


@pytest.mark.gpu
def test_a_gpu_refuses_what_it_has_no_form_of(data, tmp_path):
    # maps of one pixel, pooled to 3 x 3
    words = run_words(data, tmp_path, "--loss margin --deterministic --n_epochs 1")
    with refused("no deterministic form of adaptive_avg_pool2d_backward_cuda", "--arch conv4_normalize"):
        run_main(*words)
