"""Averages, warm-up, resting, rates by depth, precision, compiling, recomputed activations: each does what it says and resumes to the bit."""

import copy
import math

import pytest
import torch

import architectures
import main
import parameters
from runs import RunFolder, checkpoint
from tests import builders
from training import compiling
from training.meter import learning_rates
from training.optimisers import build_optimizer, build_scheduler, build_step_factor, parameter_groups
from training.random_state import random_states, set_random_states
from training.runtime import Runtime
from training.step import Step
from utilities import load_run
from utilities.errors import UserError

RESUMED = {
    "in chunks": ["--precision", "bfloat16", "--ema_decay", ".8", "--chunk_size", "3"],
    "all": ["--warmup_epochs", "2", "--warmup_head_epochs", "2", "--scheduler", "cosine", "--layer_decay", ".5", "--no_decay_on_bias_and_norm",
            "--grad_checkpointing", "--channels_last", "--tf32", "--ema_decay", ".5", "--optim", "adamw", "--clip_grad_norm", "1"],
    "float16": ["--precision", "float16"],
    "compiled": ["--compile"],
}  # fmt: skip


@pytest.fixture(autouse=True)
def states():
    before = random_states()
    yield
    set_random_states(before)


def read(data, tmp_path, *more):
    return parameters.read([
        "--dataset", "folder", "--dataset_folder_path", str(data), "--save_path", str(tmp_path), *builders.SHORT_RUN, "--loss", "margin",
        "--no_train_metrics", *more,
    ])  # fmt: skip


def content_of(run):
    return checkpoint.read(run.folder / checkpoint.LAST)


def equal(one, two):
    """Of nested dicts, lists and tensors."""
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(equal(one[name], two[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(two) and all(map(equal, one, two))
    return torch.equal(one, two) if torch.is_tensor(one) else one == two


LONG = {"compiled", "float16"}


@pytest.mark.parametrize(
    "flags", [pytest.param(flags, id=name, marks=[pytest.mark.long] * (name in LONG)) for name, flags in RESUMED.items()]
)
def test_a_run_resumes_to_the_bit_and_is_recorded(flags, data, tmp_path, monkeypatch):
    monkeypatch.setattr(compiling, "BACKEND", "aot_eager")
    whole = main.main(read(data, tmp_path, *flags, "--n_epochs", "3", "--savename", "Whole"))
    main.main(read(data, tmp_path, *flags, "--n_epochs", "1", "--savename", "Resumed"))
    resumed = main.main(parameters.read(["--resume_from", str(whole.folder.parent / "Resumed"), "--n_epochs", "3"]))
    one, two = content_of(whole), content_of(resumed)
    for part in sorted(set(one) - {"run"}):
        assert equal(one[part], two[part]), part
    rows = [
        frame[~frame.metric.str.contains("seconds")].values.tolist() for frame in (RunFolder(r.folder).metrics for r in (whole, resumed))
    ]
    assert rows[0] == rows[1]
    saved = RunFolder(whole.folder).flags
    given = parameters.read(["--dataset", "glyphs", *flags])
    assert all(saved[flag[2:]] == getattr(given, flag[2:]) for flag in flags if flag.startswith("--"))
    assert bool(one["scaler"]) == ("float16" in flags)


@pytest.mark.long
def test_the_scaler_of_float16_is_kept(data, tmp_path):
    run = main.main(read(data, tmp_path, "--precision", "float16", "--n_epochs", "1"))
    scaler = content_of(run)["scaler"]
    assert scaler["scale"] == 65536 and scaler["_growth_tracker"] == 2
    content = {**content_of(run), "scaler": {**scaler, "scale": 1024.0, "_growth_tracker": 1999}}
    torch.save(content, run.folder / checkpoint.LAST)
    main.main(parameters.read(["--resume_from", str(run.folder), "--n_epochs", "2"]))
    assert content_of(run)["scaler"]["scale"] == 2048, "it went on from there and grew at step 2000"


# ------------------------------------------------------------------------------------------------------------------- averages
def test_the_average_is_evaluated_and_kept_beside_the_trained_network(data, tmp_path, monkeypatch):
    trained, seen = [], []
    real, measure = Step.__call__, main.evaluation.evaluate

    def step(self, batch):
        if not trained:
            trained.append(copy.deepcopy(self.trainer.network.state_dict()))
        done = real(self, batch)
        trained.append(copy.deepcopy(self.trainer.network.state_dict()))
        return done

    def evaluate(model, *rest):
        seen.append(copy.deepcopy(model.state_dict()))
        return measure(model, *rest)

    monkeypatch.setattr(Step, "__call__", step)
    monkeypatch.setattr(main.evaluation, "evaluate", evaluate)
    run = main.main(read(data, tmp_path, "--ema_decay", ".7", "--n_epochs", "2"))
    average = {name: value.double() if value.is_floating_point() else value for name, value in trained[0].items()}
    for state in trained[1:]:
        average = {n: 0.7 * v + 0.3 * state[n].double() if v.is_floating_point() else state[n] for n, v in average.items()}
    content = content_of(run)
    for name, value in average.items():
        torch.testing.assert_close(content["state_dict"][name], value.to(content["state_dict"][name]), rtol=1e-5, atol=1e-6)
    assert any("running_mean" in name for name in average)
    assert equal(dict(content["trained"]), dict(trained[-1])) and not equal(dict(content["trained"]), dict(content["state_dict"]))
    assert equal(dict(seen[-1]), dict(content["state_dict"])), "the average is what was evaluated"
    assert equal(dict(load_run(run.folder, "last")[0].state_dict()), dict(content["state_dict"]))
    best = checkpoint.read(run.folder / run.state["selected"]["checkpoint"])
    assert equal(dict(load_run(run.folder)[0].state_dict()), dict(best["state_dict"])) and "trained" in best


def test_an_average_may_begin_on_resume_and_changes_nothing_in_training(data, tmp_path):
    run = main.main(read(data, tmp_path, "--n_epochs", "1"))
    before = content_of(run)["state_dict"]
    main.main(parameters.read(["--resume_from", str(run.folder), "--n_epochs", "2", "--ema_decay", ".999999", "--resume_allow_changes"]))
    content = content_of(run)
    for name, value in before.items():
        if value.is_floating_point():
            torch.testing.assert_close(content["state_dict"][name], value, rtol=1e-3, atol=1e-4)
    plain = content_of(main.main(read(data, tmp_path, "--n_epochs", "2", "--savename", "Plain")))["state_dict"]
    assert equal(dict(content["trained"]), dict(plain))
    zero = content_of(main.main(read(data, tmp_path, "--n_epochs", "2", "--ema_decay", "0", "--savename", "Zero")))
    assert equal(dict(zero["trained"]), dict(plain)) and equal(dict(zero["state_dict"]), dict(plain)), "of decay 0 it is the network"


# ------------------------------------------------------------------------------------------------------------ rates and phases
@pytest.mark.parametrize("name", ["step", "cosine"])
def test_warm_up_multiplies_every_schedule(name):
    """Others: tests/training/test_optimisers.py."""
    opt = parameters.read(["--dataset", "glyphs", "--optim", "sgd", "--lr", ".1", "--tau", "1", "3", "--gamma", ".5", "--n_epochs", "6", "--scheduler", name])
    rates = {}
    for epochs in (0, 3):
        optimizer = build_optimizer(torch.nn.Linear(2, 1), torch.nn.Identity(), opt)
        schedule, warmup, rates[epochs] = build_scheduler(optimizer, opt, None), build_step_factor(opt.but(warmup_epochs=epochs), 4), []
        for epoch in range(1, 7):
            warmup.start_epoch(epoch)
            for _ in range(4):
                with warmup.step(optimizer):
                    used = optimizer.param_groups[0]["lr"]
                    optimizer.step()
                rates[epochs].append(used)
                assert learning_rates(optimizer)["rate/network"] == pytest.approx(used, abs=0), "as recorded"
            schedule.step({})
    assert rates[3] == pytest.approx([rate * min((number + 1) / 12, 1) for number, rate in enumerate(rates[0])], abs=1e-15)
    assert rates[3][12:] == rates[0][12:]


def test_the_backbone_rests_and_wakes(data, tmp_path):
    start = main.main(read(data, tmp_path, "--n_epochs", "0", "--check_untrained_accuracy", "--savename", "Start"))
    one = main.main(read(data, tmp_path, "--warmup_head_epochs", "1", "--n_epochs", "1", "--optim", "adamw", "--decay", ".1"))
    a, b = content_of(start)["state_dict"], content_of(one)["state_dict"]
    for name in a:
        assert torch.equal(a[name], b[name]) == (not name.startswith("last_linear")), name  # running statistics among them
    groups = {group["name"]: group["params"] for group in content_of(one)["optimizer"]["param_groups"]}
    assert not set(groups["backbone"]) & set(content_of(one)["optimizer"]["state"]), "no gradient, no step, no decay"
    main.main(parameters.read(["--resume_from", str(one.folder), "--n_epochs", "2"]))
    c = content_of(one)["state_dict"]
    assert not any(torch.equal(b[name], c[name]) for name in b if name.endswith(("weight", "running_mean")))


def test_the_backbone_rests_for_some_steps_of_an_epoch(data, tmp_path, monkeypatch):
    """Six of the steps, of which an epoch has four: the weights move from the seventh on, in training mode, and a resumed run does the same."""
    moved, real = [], Step.__call__

    def step(self, batch):
        before = copy.deepcopy(self.trainer.network.backbone.state_dict())
        done = real(self, batch)
        after = self.trainer.network.backbone.state_dict()
        moved.append((not torch.equal(before["0.weight"], after["0.weight"]), not torch.equal(before["1.running_mean"], after["1.running_mean"])))
        return done

    monkeypatch.setattr(Step, "__call__", step)
    flags = ["--freeze_backbone_steps", "6", "--iterations_per_epoch", "4"]
    whole = content_of(main.main(read(data, tmp_path, *flags, "--n_epochs", "3")))
    assert moved == [(False, False)] * 6 + [(True, True)] * 6
    run = main.main(read(data, tmp_path, *flags, "--n_epochs", "1", "--savename", "Parts"))
    main.main(parameters.read(["--resume_from", str(run.folder), "--n_epochs", "3"]))
    assert equal(dict(content_of(run)["state_dict"]), dict(whole["state_dict"]))


def chosen(*flags):
    opt = parameters.read(["--dataset", "glyphs", "--not_pretrained", "--lr", ".1", "--decay", ".01", "--embed_dim", "8", *flags])
    return opt, architectures.select(opt.arch, opt)


@pytest.mark.parametrize(("arch", "depth", "places"), [
    ("resnet18", 8, {"conv1.weight": 9, "bn1.bias": 9, "layer1.0.conv1.weight": 8, "layer2.0.downsample.0.weight": 6, "layer4.1.bn2.weight": 1}),
    ("vit_b_32", 12, {"class_token": 13, "conv_proj.weight": 13, "encoder.pos_embedding": 13, "encoder.layers.encoder_layer_0.mlp.0.weight": 12,
                      "encoder.layers.encoder_layer_11.ln_1.weight": 1, "encoder.ln.weight": 0}),
    ("conv4", 4, {"0.weight": 4, "1.bias": 4, "12.weight": 1}),
])  # fmt: skip
def test_rates_fall_with_depth(arch, depth, places):
    opt, network = chosen("--arch", arch, "--layer_decay", ".5")
    assert len(network.blocks()) == depth
    groups = parameter_groups(network, torch.nn.Identity(), opt)
    rate = {id(p): (group["lr"], group["name"]) for group in groups for p in group["params"]}
    assert sum(len(group["params"]) for group in groups) == len(rate) == len(list(network.parameters()))
    for name, expected in places.items():
        assert rate[id(network.backbone.get_parameter(name))] == (pytest.approx(0.1 * 0.5**expected), f"backbone_{expected}")
    assert rate[id(network.last_linear.weight)] == (0.1, "last_linear")
    assert all(group["lr"] <= 0.1 for group in groups)


def test_rates_by_depth_are_shown_and_refused_without_blocks(data, tmp_path, capsys):
    with pytest.raises(UserError, match="--warmup_head_epochs 1: --embed_dim 0 leaves no layers"):
        main.main(read(data, tmp_path, "--warmup_head_epochs", "1", "--embed_dim", "0", "--dry_run"))
    main.main(read(data, tmp_path, "--layer_decay", ".5", "--no_decay_on_bias_and_norm", "--dry_run"))
    said = capsys.readouterr().out
    assert "backbone_4, " in said and "rate 6.25e-05, decay 0.0004" in said and "backbone_4_no_decay" in said and "decay 0\n" in said
    for flags in (["--layer_decay", ".5"], ["--grad_checkpointing"]):
        with pytest.raises(UserError, match=f"{flags[0]}.*alexnet has no blocks"):
            opt, network = chosen("--arch", "alexnet", *flags)
            network.param_groups(opt)


def test_other_groups_may_begin_on_resume(data, tmp_path, capsys):
    run = main.main(read(data, tmp_path, "--n_epochs", "1"))
    for number, flags in enumerate((["--layer_decay", ".5"], ["--no_decay_on_bias_and_norm"]), start=2):
        with pytest.raises(SystemExit):
            parameters.read(["--resume_from", str(run.folder), *flags])
        main.main(parameters.read(["--resume_from", str(run.folder), *flags, "--n_epochs", str(number), "--resume_allow_changes"]))
        assert "optimiser's groups have changed" in capsys.readouterr().out
        groups = content_of(run)["optimizer"]["param_groups"]
        assert groups[0]["name"] == "backbone_4" and groups[0]["lr"] == pytest.approx(0.001 * 0.5**4)


def test_no_decay_on_biases_and_norms():
    opt, network = chosen("--arch", "resnet18", "--no_decay_on_bias_and_norm", "--fc_decay", ".3")
    groups = parameter_groups(network, torch.nn.Identity(), opt, [{"params": [torch.nn.Parameter(torch.zeros(2, 2))], "name": "trainer"}])
    decay = {id(p): group["weight_decay"] for group in groups for p in group["params"] if group["name"] != "trainer"}
    norms = [module for module in network.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    assert norms and all(decay[id(p)] == 0 for module in norms for p in module.parameters())
    assert decay[id(network.last_linear.bias)] == 0 and decay[id(network.last_linear.weight)] == 0.3
    assert all(decay[id(m.weight)] == 0.01 for m in network.modules() if isinstance(m, torch.nn.Conv2d))
    assert len(decay) == len(list(network.parameters())) and [g["name"] for g in groups].count("trainer") == 1
    plain = parameter_groups(network, torch.nn.Identity(), opt.but(no_decay_on_bias_and_norm=False))
    assert [group["name"] for group in plain] == ["backbone", "last_linear"]


# ------------------------------------------------------------------------------------------------- activations computed again
@pytest.mark.parametrize(("arch", "side"), [("conv4", 32), ("resnet18", 32), ("convnext_tiny", 32)])
def test_recomputed_activations_give_the_same_gradients_and_statistics(arch, side):
    images = torch.randint(0, 256, (4, 3, side, side), dtype=torch.uint8)
    found, networks = [], []
    for flags in ([], ["--grad_checkpointing"]):
        torch.manual_seed(0)
        network = chosen("--arch", arch, *flags)[1].train()
        torch.manual_seed(1)  # convnext drops paths
        network(images)[0].square().sum().backward()
        found.append([p.grad for p in network.parameters()] + [b.clone() for b in network.buffers()])
        networks.append(network)
    assert equal(*found) and list(networks[0].state_dict()) == list(networks[1].state_dict())
    twin = copy.deepcopy(networks[1])
    with torch.no_grad():
        twin.last_linear.weight.zero_()
        for parameter in twin.backbone.parameters():
            parameter.zero_()
    assert networks[1](images)[0].abs().sum() > 0 and twin(images)[1]["pooled"].abs().sum() == 0, "a copy runs its own blocks"


def test_recomputed_activations_take_less_memory():
    kept = []
    for flags in ([], ["--grad_checkpointing"]):
        network, sizes = chosen("--arch", "resnet18", *flags)[1].train(), []
        images = torch.randint(0, 256, (4, 3, 32, 32), dtype=torch.uint8)
        with torch.autograd.graph.saved_tensors_hooks(lambda x, sizes=sizes: sizes.append(x.numel()) or x, lambda x: x):
            network(images)
        kept.append(sum(sizes))
    assert kept[1] < kept[0] / 2


def test_recomputed_draws_are_the_same():
    """A block with dropout."""
    from architectures._blocks import Recomputing

    block = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Dropout(0.5), torch.nn.Tanh())
    x, gradients = torch.randn(8, 6), []
    for again in (False, True):
        block.zero_grad()
        if again:
            block.forward = Recomputing(block)
        torch.manual_seed(2)
        y = block(x)
        y.square().sum().backward()
        gradients.append(block[0].weight.grad)
    assert torch.equal(*gradients)


# -------------------------------------------------------------------------------------------------------------- the machine
def test_channels_last_orders_network_and_images(data, tmp_path):
    opt = read(data, tmp_path, "--channels_last", "--arch", "resnet18")
    runtime = Runtime(opt)
    network = runtime.place(architectures.select(opt.arch, opt, not_pretrained=True))
    weight = network.backbone.conv1.weight
    assert weight.is_contiguous(memory_format=torch.channels_last) and not weight.is_contiguous()
    images = runtime.to_device(torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8))
    assert images.is_contiguous(memory_format=torch.channels_last)
    plain = architectures.select(opt.arch, opt, not_pretrained=True)
    plain.load_state_dict(network.state_dict())
    torch.testing.assert_close(network.eval()(images)[0], plain.eval()(images.contiguous())[0], rtol=1e-4, atol=1e-5)
    assert runtime.to_device(torch.arange(3)).tolist() == [0, 1, 2]


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.long)])
def test_a_compiled_network_trains_and_keeps_its_names(backend, data, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(compiling, "BACKEND", backend)
    try:
        run = main.main(read(data, tmp_path, "--compile", "--optim", "sgd", "--n_epochs", "2", "--eval_bs", "7", "--savename", backend))
    except UserError as error:
        pytest.skip(str(error)) if "C++ compiler" in str(error) else pytest.fail(str(error))
    said = capsys.readouterr().out
    assert "--compile: " in said and " graphs\n" in said and "recompiled" not in said
    plain = content_of(main.main(read(data, tmp_path, "--optim", "sgd", "--n_epochs", "2", "--eval_bs", "7", "--savename", "Plain")))[
        "state_dict"
    ]
    content = content_of(run)["state_dict"]
    assert list(content) == list(plain)
    for name in plain:
        torch.testing.assert_close(content[name], plain[name], rtol=1e-3, atol=1e-4)
    assert load_run(run.folder)[0].state_dict().keys() == plain.keys()


@pytest.mark.long
@pytest.mark.parametrize("flags", [["--chunk_size", "3"], ["--ema_decay", ".5", "--precision", "bfloat16"]],
                         ids=lambda flags: flags[0])  # fmt: skip
def test_compiling_goes_with_the_other_flags(flags, data, tmp_path, monkeypatch):
    monkeypatch.setattr(compiling, "BACKEND", "aot_eager")
    flags = [*flags, "--optim", "sgd", "--n_epochs", "1", "--arch", "conv4_frozen_normalize"]
    contents = [content_of(main.main(read(data, tmp_path, *flags, *more))) for more in (["--compile"], [])]
    one, two = (content["state_dict"] for content in contents)
    assert list(one) == list(two)
    tolerance = 1e-2 if "bfloat16" in flags else 1e-5
    for name in one:
        torch.testing.assert_close(one[name], two[name], rtol=tolerance, atol=tolerance / 10, msg=name)
    with pytest.raises(UserError, match="--compile --grad_checkpointing: "):
        parameters.resolve(["--dataset", "glyphs", "--compile", "--grad_checkpointing"])


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
        "--compile: 2 graphs", "--compile: recompiled in epoch 3, 3 graphs in all",
    ]  # fmt: skip


def test_without_a_compiler_one_line_says_so(monkeypatch):
    from torch._inductor import cpp_builder

    def missing():
        raise RuntimeError("no compiler")

    monkeypatch.setattr(cpp_builder, "get_cpp_compiler", missing)
    with pytest.raises(UserError, match=r"--compile needs a C\+\+ compiler on a CPU"):
        compiling.Compiler(torch.device("cpu"))


def test_tf32_leaves_the_losses_exact(monkeypatch):
    opt = parameters.read(["--dataset", "glyphs", "--tf32"])
    runtime = Runtime(opt)
    assert runtime.tf32 == (runtime.device.type == "cuda")
    before = torch.backends.cuda.matmul.allow_tf32
    runtime.tf32, torch.backends.cuda.matmul.allow_tf32 = True, True
    try:
        with runtime.exact_products():
            assert not torch.backends.cuda.matmul.allow_tf32
        assert torch.backends.cuda.matmul.allow_tf32
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    assert math.isclose(torch.ones(2) @ torch.ones(2), 2)
