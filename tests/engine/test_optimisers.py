"""Every parameter in exactly one group, with its rate and decay; the rate of each step, also after a resume."""

import math
from argparse import Namespace

import pytest
import torch

import architectures
import parameters
from engine.meter import learning_rates
from engine.optimisers import (
    build_optimizer,
    build_scheduler,
    build_step_factor,
    change_of_length,
    fitting,
    keeping_rates,
    parameter_groups,
)
from tests.kit.refusals import refused
from tests.kit.runs import words_of
from utilities.errors import UserError


def options(**flags):
    rates = {"lr": 0.1, "decay": 0.01, "loss_decay": 0.0, "momentum": 0.9, "nesterov": False, "optim": "sgd"}
    schedule = {"scheduler": "step", "min_lr": 0.0, "tau": [2], "gamma": 0.5, "n_epochs": 4, "plateau_patience": 0}
    return Namespace(**{**rates, **schedule, "no_decay_on_bias_and_norm": False, **flags})


def read(*flags):
    return parameters.read(words_of(*["--dataset glyphs --optim sgd --lr 0.2", *flags]))


def network_and_optimizer(opt):
    """The smallest network and its optimiser."""
    network = torch.nn.Linear(2, 1)
    return network, build_optimizer(network, torch.nn.Identity(), opt)


class WithGroups(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Parameter(torch.zeros(2))
        self.b = torch.nn.Parameter(torch.zeros(3))
        self.optim_dict_list = [{"params": self.a, "lr": 0.5, "weight_decay": 0}]


def test_a_criterions_parameters_are_all_covered_once():
    criterion = WithGroups()
    plain = torch.nn.Linear(2, 2)
    groups = parameter_groups(torch.nn.Linear(2, 2), criterion, options(loss_decay=0.3))
    assert [(len(g["params"]), g.get("lr"), g.get("weight_decay")) for g in groups[1:]] == [(1, 0.5, 0), (1, 0.1, 0.3)]
    plain.lr = 7.0
    assert parameter_groups(torch.nn.Linear(2, 2), plain, options())[1]["lr"] == 7.0
    criterion.optim_dict_list *= 2
    with refused("optim_dict_list"):
        parameter_groups(torch.nn.Linear(2, 2), criterion, options())


def chosen(*flags):
    opt = read("--not_pretrained --lr .1 --decay .01 --embed_dim 8", *flags)
    with torch.device("meta"):
        return opt, architectures.select(opt.arch, opt)


# architecture -> how many blocks, parameter -> how many from the end
DEPTHS = {
    "resnet18": (
        8,
        "conv1.weight 9 bn1.bias 9 layer1.0.conv1.weight 8 layer2.0.downsample.0.weight 6 layer4.1.bn2.weight 1",
    ),
    "vit_b_32": (
        12,
        "class_token 13 conv_proj.weight 13 encoder.pos_embedding 13 encoder.layers.encoder_layer_0.mlp.0.weight 12 "
        "encoder.layers.encoder_layer_11.ln_1.weight 1 encoder.ln.weight 0",
    ),
    "efficientnet_b0": (
        16,
        "features.0.0.weight 17 features.1.0.block.0.0.weight 16 features.7.0.block.0.0.weight 1 features.8.0.weight 0",
    ),
    "convnext_tiny": (18, "features.0.0.weight 19 features.1.0.block.0.weight 18 features.7.2.block.0.weight 1"),
    "conv4": (4, "0.weight 4 1.bias 4 12.weight 1"),
}


@pytest.mark.parametrize("arch", DEPTHS)
def test_rates_fall_with_depth(arch):
    depth, places = DEPTHS[arch]
    opt, network = chosen(f"--arch {arch} --layer_decay .5")
    assert len(network.blocks()) == depth
    groups = parameter_groups(network, torch.nn.Identity(), opt)
    rate = {id(p): (group["lr"], group["name"]) for group in groups for p in group["params"]}
    assert sum(len(group["params"]) for group in groups) == len(rate) == len(list(network.parameters()))
    words = places.split()
    for name, place in zip(words[::2], map(int, words[1::2]), strict=True):
        expected = pytest.approx(0.1 * 0.5**place), f"backbone_{place}"
        assert rate[id(network.backbone.get_parameter(name))] == expected
    assert rate[id(network.last_linear.weight)] == (0.1, "last_linear")


def test_no_decay_on_biases_and_norms():
    opt, network = chosen("--arch resnet18 --no_decay_on_bias_and_norm --fc_decay .3")
    of_trainer = {"params": [torch.nn.Parameter(torch.zeros(2, 2))], "name": "trainer"}
    groups = parameter_groups(network, torch.nn.Identity(), opt, [of_trainer])
    decay = {id(p): group["weight_decay"] for group in groups for p in group["params"] if group["name"] != "trainer"}
    expected = {id(p): 0 if p.ndim == 1 else 0.01 for p in network.parameters()}
    expected[id(network.last_linear.weight)] = 0.3
    assert decay == expected and [g["name"] for g in groups].count("trainer") == 1
    plain = parameter_groups(network, torch.nn.Identity(), opt.but(no_decay_on_bias_and_norm=False))
    assert [group["name"] for group in plain] == ["backbone", "last_linear"]


@pytest.mark.parametrize(
    ("words", "kind", "expected"),
    [
        ("adam", "Adam", {"amsgrad": False}),
        ("amsgrad", "Adam", {"amsgrad": True}),
        ("adamw", "AdamW", {}),
        ("radam", "RAdam", {"decoupled_weight_decay": True}),
        ("rmsprop --momentum .5", "RMSprop", {"momentum": 0.5}),
        ("sgd --nesterov --momentum .99", "SGD", {"nesterov": True, "momentum": 0.99}),
        ("sgd --momentum 0", "SGD", {"nesterov": False, "momentum": 0}),
    ],
)
def test_optimisers_have_the_hyperparameters_of_the_flags(words, kind, expected):
    _, optimizer = network_and_optimizer(read(f"--decay .3 --optim {words}"))
    expected = {"lr": 0.2, "weight_decay": 0.3, **expected}
    assert type(optimizer).__name__ == kind and {name: optimizer.param_groups[0][name] for name in expected} == expected


class Watching:
    metric = "nmi"

    def higher_is_better(self, metric):
        return True

    def value(self, scores):
        return scores["val"]["nmi"]


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("step", [0.5, 0.4, None, 0.45], [0.1, 0.05, 0.05, 0.05]),
        ("none", [0.5, 0.4, None, 0.45], [0.1] * 4),
        ("cosine", [0.5, 0.4, None, 0.45], [0.0853553, 0.05, 0.0146447, 0.0]),
        ("plateau", [0.5, 0.4, None, 0.45], [0.1, 0.05, 0.05, 0.025]),
        # passes over NaN
        ("plateau", [math.nan, 0.5, math.nan, math.nan, 0.6, 0.4], [0.1] * 5 + [0.05]),
    ],
)
def test_schedules(name, values, expected):
    opt = options(scheduler=name)
    _, optimizer = network_and_optimizer(opt)
    schedule = build_scheduler(optimizer, opt, Watching())
    rates = []
    for nmi in values:
        optimizer.step()
        scores = {} if nmi is None else {"val": {"nmi": nmi}}
        schedule.step(scores)
        rates.append(optimizer.param_groups[0]["lr"])
        fresh = build_scheduler(optimizer, opt, Watching())
        optimizer.param_groups[0]["lr"] = rates[-1]
        # as a resume does at every epoch
        fresh.load_state_dict(schedule.state_dict())
        schedule = fresh
    assert rates == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("scheduler", ["step", "cosine", "plateau"])
def test_another_optimiser_goes_on_at_the_rate_of_now(scheduler):
    """Restored with twice the rate and epochs: as if these flags had been there from the start."""

    def built(optim, **flags):
        opt = options(optim=optim, scheduler=scheduler, tau=[1], **flags)
        _, optimizer = network_and_optimizer(opt)
        return optimizer, build_scheduler(optimizer, opt, Watching())

    def rate_after(optimizer, schedule, scores):
        for nmi in scores:
            optimizer.step()
            schedule.step({"val": {"nmi": nmi}})
        return optimizer.param_groups[0]["lr"]

    after = {"lr": 0.2, "n_epochs": 4}
    optimizer, schedule = built("adam", lr=0.1, n_epochs=2)
    rate_after(optimizer, schedule, [0.5, 0.4])
    resumed_optimizer, resumed_schedule = built("rmsprop", **after)
    with keeping_rates(resumed_optimizer, resumed_schedule):
        resumed_optimizer.load_state_dict(fitting(optimizer.state_dict(), resumed_optimizer))
        resumed_schedule.load_state_dict(schedule.state_dict())
    expected = rate_after(*built("rmsprop", **after), [0.5, 0.4])
    (group,) = resumed_optimizer.param_groups
    assert group["lr"] == pytest.approx(expected) == 0.1 and group["alpha"] == 0.99 and not resumed_optimizer.state


def rates_of(*flags, epochs, batches):
    """The rate of each step, which is what is recorded."""
    opt = read(f"--n_epochs {epochs}", *flags)
    _, optimizer = network_and_optimizer(opt)
    schedule = build_scheduler(optimizer, opt, None)
    factor = build_step_factor(opt, batches)
    rates = []
    for epoch in range(1, epochs + 1):
        factor.start_epoch(epoch)
        for _ in range(batches):
            with factor.step(optimizer):
                rates.append(optimizer.param_groups[0]["lr"])
                optimizer.step()
            assert learning_rates(optimizer) == {"rate/network": rates[-1]}
        schedule.step({})
    return rates


def rates_of_torch(scheduler, count, **settings):
    """The rates of so many steps by a schedule of torch."""
    twin = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.2)
    schedule = scheduler(twin, **settings)
    rates = []
    for number in range(count):
        rates.append(twin.param_groups[0]["lr"])
        twin.step()
        if number + 1 < count:
            schedule.step()
    return rates


@pytest.mark.parametrize(("epochs", "batches", "rise"), [(4, 5, 0.3), (1, 30, 0.1)])
def test_onecycle_is_that_of_torch(epochs, batches, rise):
    flags = f"--scheduler onecycle --onecycle_rise {rise} --min_lr 0.002"
    rates = rates_of(flags, epochs=epochs, batches=batches)
    assert rates == pytest.approx(
        rates_of_torch(
            torch.optim.lr_scheduler.OneCycleLR,
            len(rates),
            max_lr=0.2,
            total_steps=epochs * batches,
            pct_start=rise,
            final_div_factor=0.2 / 25 / 0.002,
            cycle_momentum=False,
        ),
        rel=1e-9,
    )


LONGER = {"n_epochs": 20, "min_lr": 0.0, "lr": 1.0, "flat_share": 0.5, "onecycle_rise": 0.25, "gamma": 0.3, "tau": [5]}


def test_what_more_epochs_change_in_a_schedule_over_all_of_them_is_told():
    def note(before, epoch, **flags):
        return change_of_length(Namespace(**{**LONGER, **flags}), before, epoch)

    line = note(10, 10, scheduler="cosine")
    assert line.startswith(
        "--n_epochs 20 (before: 10): --scheduler cosine spans all epochs, so after epoch 10 the learning rates are 0.5 "
        "of their full value, not 0."
    )
    assert "are 0.854 of their full value, not 0.5." in note(10, 5, scheduler="cosine")
    assert "are 1 of their full value, not 0.1." in note(10, 10, scheduler="flat_cosine", min_lr=0.1)
    assert "are 0.75 of their full value, not 0." in note(10, 10, scheduler="onecycle")
    assert all(note(10, 10, scheduler=scheduler) is None for scheduler in ("step", "plateau", "none"))
    assert note(20, 10, scheduler="cosine") is None and note(10, 0, scheduler="cosine") is None


def test_a_longer_schedule_that_changes_no_past_rate_is_not_told():
    """The first epoch of a cosine, and the flat part of flat_cosine, have the full rate whatever the length."""
    for scheduler, last_alike in (("cosine", 1), ("flat_cosine", 6), ("onecycle", 0)):
        opt = Namespace(scheduler=scheduler, **LONGER)
        assert change_of_length(opt, 10, last_alike) is None
        line = change_of_length(opt, 10, last_alike + 1)
        assert line.endswith(f"would have differed from epoch {last_alike + 1} on"), line


def test_cosines_end_at_a_rate_and_begin_late_and_onecycle_may_only_fall():
    rates = rates_of("--scheduler cosine --min_lr 0.02", epochs=4, batches=1)
    assert rates == pytest.approx(
        rates_of_torch(torch.optim.lr_scheduler.CosineAnnealingLR, len(rates), T_max=4, eta_min=0.02)
    )
    late = rates_of("--scheduler flat_cosine --flat_share 0.5 --min_lr 0.02", epochs=8, batches=1)
    # FastReID: full rate for DELAY_EPOCHS, then the cosine over the others
    assert late == pytest.approx([0.2] * 4 + rates)
    falling = rates_of("--scheduler onecycle --onecycle_rise 0 --min_lr 0.002", epochs=3, batches=3)
    assert falling == sorted(falling, reverse=True) and max(falling) <= 0.2 and falling[-1] == pytest.approx(0.002)


@pytest.mark.parametrize("schedule", ["none", "step --tau 1 --gamma .5", "cosine"])
def test_the_warm_up_multiplies_the_schedule(schedule):
    plain, by_steps, by_epochs = (
        rates_of(f"--scheduler {schedule}", flags, epochs=3, batches=4)
        for flags in ("", "--warmup_steps 5 --warmup_start 0.1", "--warmup_epochs 2")
    )
    assert by_steps == pytest.approx([rate * (0.1 + 0.9 * min(step / 5, 1)) for step, rate in enumerate(plain, 1)])
    assert by_epochs == pytest.approx([rate * min(step / 8, 1) for step, rate in enumerate(plain, 1)])
    assert by_epochs[8:] == plain[8:], "to the bit"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--nesterov", "--nesterov has no effect with --optim adam: take --optim sgd, or leave --nesterov out"),
        ("--optim sgd --momentum 0 --nesterov", "Nesterov needs a momentum"),
        (
            "--min_lr .1 --lr .2",
            "--min_lr 0.1 has no effect with --scheduler step: take --scheduler cosine, flat_cosine or onecycle",
        ),
        ("--scheduler cosine --min_lr .1 --lr .01", "above --lr"),
        ("--warmup_start .1", "has no effect without --warmup_epochs or --warmup_steps"),
        ("--warmup_steps 3 --warmup_epochs 1", "leave one out"),
        ("--scheduler onecycle --warmup_steps 3", "its own warm-up"),
        ("--clip_grad_norm 1 --clip_grad_each 1", "leave one out"),
        ("--freeze_backbone_steps 3 --warmup_head_epochs 1", "leave one out"),
        ("--freeze_backbone_steps 3 --freeze_backbone", "leave one out"),
    ],
)
def test_rates_that_contradict_are_refused(flags, message, capsys):
    with pytest.raises((UserError, SystemExit)) as error:
        parameters.read(["--dataset", "glyphs", *flags.split()])
    assert message in str(error.value) + capsys.readouterr().err


def test_a_group_that_was_never_trained_and_is_gone_is_left_out():
    """A cascade's embedding layer was in the optimiser until version 0.2.1, without a gradient."""

    def optimizer_of(names, parts):
        groups = [{"params": [parts[name]], "name": name, "initial_lr": 0.1} for name in names]
        return torch.optim.Adam(groups, lr=0.1)

    def trained(names, parts):
        optimizer = optimizer_of(names, parts)
        for _ in range(2):
            optimizer.zero_grad()
            (parts["backbone"].square().sum() + parts["levels"].square().sum()).backward()
            optimizer.step()
        return optimizer

    names = ("backbone", "last_linear", "levels")
    parts = {name: torch.nn.Parameter(torch.full((2,), float(number))) for number, name in enumerate(names, start=1)}
    before = trained(names, parts)
    present = optimizer_of(["backbone", "levels"], parts)
    present.load_state_dict(fitting(before.state_dict(), present))
    for name in ("backbone", "levels"):
        for key, value in before.state[parts[name]].items():
            assert torch.equal(present.state[parts[name]][key], value)
    one_more = trained(names, parts)
    one_more.state[parts["last_linear"]] = {"step": torch.tensor(1.0)}
    # trained: kept, and refused by torch
    assert fitting(one_more.state_dict(), present)["param_groups"] == one_more.state_dict()["param_groups"]
