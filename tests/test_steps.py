"""Averages, resting, precision, compiling, recomputed activations: each does what it says and resumes to the bit.
Rates: training/test_optimisers.py.
"""

import copy

import numpy as np
import pytest
import torch

import architectures
import main
import metrics
from criteria._pairs import few_at_a_time
from engine import compiling
from engine import runtime as runtimes
from engine.runtime import Runtime
from engine.step import RestingBackbone, Step
from tests.kit.runs import assert_same_run, equal_states, last_checkpoint, read, resolve, run_main, run_words
from utilities import load_run
from utilities.errors import UserError
from utilities.tensors import Products, multiply_at

RESUMED = {
    "in chunks": "--precision bfloat16 --ema_decay .8 --chunk_size 3",
    "all": "--warmup_epochs 2 --warmup_head_epochs 2 --scheduler cosine --layer_decay .5 --no_decay_on_bias_and_norm "
    "--grad_checkpointing --channels_last --tf32 --ema_decay .5 --optim adamw --clip_grad_norm 1",
    "float16": "--precision float16",
    "compiled": "--compile",
}
LONG = {"compiled", "float16"}


def run(data, tmp_path, *flags):
    return run_main(*run_words(data, tmp_path, "--loss margin --no_train_metrics", *flags)).folder


def resume(folder, *flags):
    run_main("--resume_from", folder, *flags)


def resumed_param(name):
    """A name of `RESUMED` as a parameter of a test."""
    marks = pytest.mark.long if name in LONG else ()
    return pytest.param(name, marks=marks)


@pytest.mark.parametrize("name", [resumed_param(name) for name in RESUMED])
def test_a_run_resumes_to_the_bit(name, data, tmp_path, monkeypatch):
    monkeypatch.setattr(compiling, "BACKEND", "aot_eager")
    whole_run = run(data, tmp_path, RESUMED[name], "--n_epochs 2 --savename Whole")
    resumed = run(data, tmp_path, RESUMED[name], "--n_epochs 1 --savename Resumed")
    resume(resumed, "--n_epochs 2")
    assert_same_run(whole_run, resumed)
    assert last_checkpoint(whole_run)["scaler"].get("_growth_tracker", 0) == (4 if name == "float16" else 0)


# ---------- averages
def test_the_average_is_evaluated_and_kept_beside_the_trained_network(data, tmp_path, monkeypatch):
    trained = []
    seen = []
    real = Step.__call__
    measure = main.evaluation.evaluate

    def step(self, batch):
        trained.append(copy.deepcopy(self.trainer.network.state_dict()))
        return real(self, batch)

    def evaluate(model, *arguments):
        seen.append(copy.deepcopy(model.state_dict()))
        return measure(model, *arguments)

    monkeypatch.setattr(Step, "__call__", step)
    monkeypatch.setattr(main.evaluation, "evaluate", evaluate)
    folder = run(data, tmp_path, "--ema_decay .7 --n_epochs 2")
    content = last_checkpoint(folder)
    average = trained[0]
    for state in [*trained[1:], content["trained"]]:
        for name, value in state.items():
            average[name] = 0.7 * average[name].double() + 0.3 * value if value.is_floating_point() else value
    weights = dict(content["state_dict"])
    for name, value in average.items():
        torch.testing.assert_close(weights[name], value.to(weights[name]), rtol=1e-5, atol=1e-6)
    assert any("running_mean" in name for name in average) and not equal_states(dict(content["trained"]), weights)
    assert equal_states(dict(seen[-1]), weights), "the average is what was evaluated"
    assert equal_states(dict(load_run(folder, "last")[0].state_dict()), weights)


def test_an_average_may_begin_on_resume_and_changes_nothing_in_training(trained_once, folder_data, tmp_path):
    folder = run(folder_data, tmp_path, "--n_epochs 1")
    before = last_checkpoint(folder)["state_dict"]
    resume(folder, "--n_epochs 2 --ema_decay .999999 --resume_allow_changes")
    content = last_checkpoint(folder)
    for name, value in before.items():
        if value.is_floating_point():
            torch.testing.assert_close(content["state_dict"][name], value, rtol=1e-3, atol=1e-4)
    assert equal_states(dict(content["trained"]), dict(last_checkpoint(trained_once)["state_dict"]))


# ---------- resting
@pytest.mark.parametrize(
    ("flags", "resting"), [("--freeze_backbone_steps 6", 6), ("--warmup_head_epochs 1", 4)], ids=str
)
def test_the_backbone_rests_and_wakes(flags, resting, data, tmp_path, monkeypatch):
    """For some of the four steps of an epoch, running statistics too, in spite of weight decay; resumed alike."""
    moved = []
    real = Step.__call__

    def step(self, batch):
        before = copy.deepcopy(self.trainer.network.state_dict())
        done = real(self, batch)
        after = self.trainer.network.state_dict()
        names = ("backbone.0.weight", "backbone.1.running_mean", "last_linear.weight")
        moved.append(tuple(not torch.equal(before[name], after[name]) for name in names))
        return done

    monkeypatch.setattr(Step, "__call__", step)
    flags += " --iterations_per_epoch 4 --optim adamw --decay .1"
    whole_run = run(data, tmp_path, flags, "--n_epochs 2 --savename Whole")
    assert moved == [(False, False, True)] * resting + [(True, True, True)] * (8 - resting)
    parts = run(data, tmp_path, flags, "--n_epochs 1 --savename Parts")
    groups = {group["name"]: group["params"] for group in last_checkpoint(parts)["optimizer"]["param_groups"]}
    # no gradient, no step, no decay
    assert not set(groups["backbone"]) & set(last_checkpoint(parts)["optimizer"]["state"])
    resume(parts, "--n_epochs 2")
    assert_same_run(whole_run, parts)


def chosen(*flags):
    opt = read("--dataset glyphs --not_pretrained --embed_dim 8", *flags)
    return opt, architectures.select(opt.arch, opt)


def test_what_a_network_lacks_is_refused(data, tmp_path):
    with pytest.raises(UserError, match="--warmup_head_epochs 1: --embed_dim 0 leaves no layers"):
        run(data, tmp_path, "--warmup_head_epochs 1 --embed_dim 0 --dry_run")
    bare = torch.nn.Module()
    bare.backbone = torch.nn.Linear(2, 2)
    classifier = {torch.nn.Parameter(torch.zeros(1))}
    RestingBackbone(bare, 1, batches=1, heads=classifier).begin(1)
    assert not bare.backbone.training
    with pytest.raises(UserError, match="leaves no layers"):
        RestingBackbone(bare, 1)
    for flags in ("--layer_decay .5", "--grad_checkpointing"):
        with torch.device("meta"), pytest.raises(UserError, match=f"{flags.split()[0]}.*alexnet has no blocks"):
            opt, network = chosen("--arch alexnet", flags)
            network.param_groups(opt)
    with pytest.raises(UserError, match="--compile --grad_checkpointing: "):
        resolve("--dataset glyphs --compile --grad_checkpointing")


# ---------- activations computed again
@pytest.mark.parametrize("arch", ["resnet18", "convnext_tiny"])
def test_recomputed_activations_give_the_same_gradients_and_statistics_in_less_memory(arch):
    images = torch.randint(0, 256, (4, 3, 32, 32), dtype=torch.uint8)
    recorded = []
    networks = []
    memory_sizes = []
    for flags in (f"--arch {arch}", f"--arch {arch} --grad_checkpointing"):
        torch.manual_seed(0)
        network = chosen(flags)[1].train()
        sizes = []
        # convnext drops paths
        torch.manual_seed(1)
        with torch.autograd.graph.saved_tensors_hooks(lambda x, sizes=sizes: sizes.append(x.numel()) or x, lambda x: x):
            embeddings = network(images)[0]
        memory_sizes.append(sum(sizes))
        embeddings.square().sum().backward()
        recorded.append([p.grad for p in network.parameters()] + [b.clone() for b in network.buffers()])
        networks.append(network)
    assert equal_states(*recorded) and list(networks[0].state_dict()) == list(networks[1].state_dict())
    assert memory_sizes[1] < memory_sizes[0] / 2
    twin = copy.deepcopy(networks[1])
    with torch.no_grad():
        twin.last_linear.weight.zero_()
        for parameter in twin.backbone.parameters():
            parameter.zero_()
    # a copy runs its own blocks
    assert networks[1](images)[0].abs().sum() > 0 and twin(images)[1]["pooled"].abs().sum() == 0


# ---------- the machine
def test_channels_last_orders_network_and_images():
    opt, plain = chosen("--channels_last --arch resnet18")
    runtime = Runtime(opt)
    network = runtime.place(copy.deepcopy(plain))
    weight = network.backbone.conv1.weight
    assert weight.is_contiguous(memory_format=torch.channels_last) and not weight.is_contiguous()
    images = runtime.to_device(torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8))
    assert images.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(network.eval()(images)[0], plain.eval()(images.contiguous())[0], rtol=1e-4, atol=1e-5)
    assert runtime.to_device(torch.arange(3)).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("arch", "device", "is_half", "gains"),
    [
        ("resnet18", "cuda", True, True),
        ("resnet18", "cuda", False, False),
        ("resnet18", "cpu", True, False),
        ("timm:vit_tiny_patch16_224", "cuda", True, False),
    ],
)
def test_convolutions_in_half_precision_on_a_gpu_have_their_channels_last(arch, device, is_half, gains, monkeypatch):
    opt, network = chosen(f"--arch {arch}")
    assert runtimes.gains_from_channels_last(network, device, is_half) is gains
    monkeypatch.setattr(runtimes, "gains_from_channels_last", lambda *arguments: gains)
    runtime = Runtime(opt)
    runtime.place(network)
    images = runtime.to_device(torch.zeros(2, 3, 8, 8))
    assert images.is_contiguous(memory_format=torch.channels_last) is gains


SLOW_TO_COMPILE = [("inductor", ""), ("aot_eager", "")]
SLOW_TO_COMPILE += [("aot_eager", "--chunk_size 3"), ("aot_eager", "--ema_decay .5 --precision bfloat16")]


@pytest.mark.parametrize(
    ("backend", "step_flags"),
    [("eager", ""), *(pytest.param(*case, marks=pytest.mark.long) for case in SLOW_TO_COMPILE)],
)
def test_a_compiled_network_trains_and_keeps_its_names(backend, step_flags, data, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(compiling, "BACKEND", backend)
    flags = "--optim sgd --n_epochs 2 --eval_bs 7"
    if step_flags:
        flags += f" --arch conv4_frozen_normalize {step_flags}"
    try:
        folder = run(data, tmp_path, "--compile", flags, "--savename Compiled")
    except UserError as error:
        pytest.skip(str(error)) if "C++ compiler" in str(error) else pytest.fail(str(error))
    output = capsys.readouterr().out
    assert "--compile: " in output and " graphs\n" in output and "recompiled" not in output
    content = last_checkpoint(folder)["state_dict"]
    plain = last_checkpoint(run(data, tmp_path, flags, "--savename Plain"))["state_dict"]
    assert list(content) == list(plain) == list(load_run(folder)[0].state_dict())
    tolerance = 1e-2 if "bfloat16" in step_flags else 1e-3
    for name in plain:
        torch.testing.assert_close(content[name], plain[name], rtol=tolerance, atol=tolerance / 10, msg=name)


def test_recompilations_are_said(monkeypatch, capsys):
    monkeypatch.setattr(compiling, "BACKEND", "eager")
    compiler = compiling.Compiler(torch.device("cpu"))
    network = torch.nn.Linear(2, 2)
    compiler.compile(network)
    for epoch, sizes in ((1, (4, 6)), (2, (4, 6)), (3, (8,))):
        compiler.start_epoch(epoch)
        for size in sizes:
            network(torch.randn(size, 2))
    compiler.start_epoch(4)
    assert capsys.readouterr().out.splitlines() == [
        "--compile: 2 graphs",
        "--compile: recompiled in epoch 3, 3 graphs in all",
    ]


def test_tf32_leaves_losses_and_metrics_exact():
    opt = read("--dataset glyphs --tf32")
    runtime = Runtime(opt)
    assert runtime.tf32 == (runtime.device.type == "cuda")
    before = torch.get_float32_matmul_precision()
    runtime.tf32 = True
    try:
        multiply_at("high")
        with runtime.exact_products():
            assert torch.get_float32_matmul_precision() == "highest"
        seen = []

        def noted_square(x):
            seen.append(torch.get_float32_matmul_precision())
            return x.square().sum()

        x = torch.ones(2, requires_grad=True)
        with runtime.exact_products():
            (sums,) = few_at_a_time(noted_square, [(x,)])
        sums.backward()
        # what is computed again is as exact as before
        assert seen == ["highest"] * 2 and torch.backends.cuda.matmul.allow_tf32
        # One switch is off beside "high", and torch does not say any more which precision holds
        torch.backends.cuda.matmul.allow_tf32 = False
        with pytest.raises(RuntimeError):
            torch.get_float32_matmul_precision()
        with Products("highest"):
            assert torch.get_float32_matmul_precision() == "highest"
        runtime.device = torch.device("cuda")
        # a run with --tf32 and, in the same process, one without it
        for runtime.tf32, precision in ((True, "high"), (False, "highest")):
            runtime.begin()
            assert metrics.compute(["e_recall@1"], np.eye(4), [0, 0, 1, 1])
            assert torch.get_float32_matmul_precision() == precision
    finally:
        torch.set_float32_matmul_precision(before)
