"""Every parameter in exactly one group, with its own rate and decay; schedules."""

from argparse import Namespace

import pytest
import torch

import parameters
from training.optimisers import build_optimizer, build_scheduler, build_step_factor, parameter_groups
from utilities.errors import UserError


def options(**flags):
    defaults = {"lr": 0.1, "decay": 0.01, "loss_decay": 0.0, "momentum": 0.9, "optim": "sgd", "scheduler": "step", "tau": [2], "gamma": 0.5,
                "n_epochs": 4, "plateau_patience": 0}  # fmt: skip
    return Namespace(**{**defaults, **flags})


class WithGroups(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(3))
        self.optim_dict_list = [{"params": self.a, "lr": 0.5, "weight_decay": 0}]


def test_a_criterions_parameters_are_all_covered_once():
    groups = parameter_groups(torch.nn.Linear(2, 2), WithGroups(), options(loss_decay=0.3))
    assert [len(group["params"]) for group in groups] == [2, 1, 1]
    assert groups[1]["lr"] == 0.5 and groups[1]["weight_decay"] == 0
    assert groups[2]["lr"] == 0.1 and groups[2]["weight_decay"] == 0.3


def test_lr_serves_where_there_is_no_list():
    criterion = torch.nn.Linear(2, 2)
    criterion.lr = 7.0
    assert parameter_groups(torch.nn.Linear(2, 2), criterion, options())[1]["lr"] == 7.0


def test_a_parameter_in_two_groups_is_refused():
    criterion = WithGroups()
    criterion.optim_dict_list *= 2
    with pytest.raises(UserError, match="optim_dict_list"):
        parameter_groups(torch.nn.Linear(2, 2), criterion, options())


@pytest.mark.parametrize("name", ["adam", "adamw", "radam", "sgd", "rmsprop"])
def test_optimisers_step(name):
    model = torch.nn.Linear(2, 1)
    optimizer = build_optimizer(model, torch.nn.Identity(), options(optim=name))
    before = model.weight.detach().clone()
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    assert not torch.equal(before, model.weight)


class Watching:
    metric = "nmi"

    def higher_is_better(self, metric):
        return True

    def value(self, scores):
        return scores["val"]["nmi"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("step", [0.1, 0.05, 0.05, 0.05]), ("none", [0.1] * 4), ("cosine", [0.0853553, 0.05, 0.0146447, 0.0]),
     ("plateau", [0.1, 0.05, 0.05, 0.025])],
)  # fmt: skip
def test_schedules(name, expected):
    model = torch.nn.Linear(2, 1)
    optimizer = build_optimizer(model, torch.nn.Identity(), options())
    schedule, rates = build_scheduler(optimizer, options(scheduler=name), Watching()), []
    for nmi in (0.5, 0.4, None, 0.45):
        optimizer.step()
        schedule.step({} if nmi is None else {"val": {"nmi": nmi}})
        rates.append(optimizer.param_groups[0]["lr"])
        fresh = build_scheduler(optimizer, options(scheduler=name), Watching())
        optimizer.param_groups[0]["lr"] = rates[-1]
        fresh.load_state_dict(schedule.state_dict())  # as a resume does at every epoch
        schedule = fresh
    assert rates == pytest.approx(expected, abs=1e-6)


def rates_of(*flags, epochs, batches):
    """The rate of each step; and the optimiser."""
    opt = parameters.read(["--dataset", "glyphs", "--optim", "sgd", "--lr", "0.2", "--n_epochs", str(epochs), *flags])
    optimizer = build_optimizer(torch.nn.Linear(2, 1), torch.nn.Identity(), opt)
    schedule, factor, found = build_scheduler(optimizer, opt, None), build_step_factor(opt, batches), []
    for epoch in range(1, epochs + 1):
        factor.start_epoch(epoch)
        for _ in range(batches):
            with factor.step(optimizer):
                found.append(optimizer.param_groups[0]["lr"])
                optimizer.step()
        schedule.step({})
    return found, optimizer


@pytest.mark.parametrize(("epochs", "batches", "rise"), [(4, 5, 0.3), (1, 30, 0.1), (3, 3, 0.0)])
def test_onecycle_is_that_of_torch(epochs, batches, rise):
    found, optimizer = rates_of("--scheduler", "onecycle", "--onecycle_rise", str(rise), "--min_lr", "0.002", epochs=epochs, batches=batches)
    twin = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = torch.optim.lr_scheduler.OneCycleLR(
        twin, max_lr=0.2, total_steps=epochs * batches, pct_start=rise, div_factor=25, final_div_factor=0.2 / 25 / 0.002, cycle_momentum=False
    ) if rise else None  # fmt: skip
    for number, rate in enumerate(found):
        if theirs:
            assert rate == pytest.approx(twin.param_groups[0]["lr"], rel=1e-9), number
            twin.step()
            theirs.step() if number + 1 < len(found) else None
    assert found[-1] == pytest.approx(0.002) and max(found) <= 0.2


def test_cosines_end_at_a_rate_and_begin_late():
    found, _ = rates_of("--scheduler", "cosine", "--min_lr", "0.02", epochs=4, batches=1)
    twin = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.2)
    theirs = torch.optim.lr_scheduler.CosineAnnealingLR(twin, T_max=4, eta_min=0.02)
    for rate in found:
        assert rate == pytest.approx(twin.param_groups[0]["lr"])
        twin.step()
        theirs.step()
    late, _ = rates_of("--scheduler", "flat_cosine", "--flat_share", "0.5", "--min_lr", "0.02", epochs=8, batches=1)
    assert late[:4] == [0.2] * 4 and late[4:] == pytest.approx(found), "FastReID: full rate for DELAY_EPOCHS, then the cosine over the others"


def test_the_warm_up_by_steps_and_its_start():
    found, _ = rates_of("--scheduler", "none", "--warmup_steps", "5", "--warmup_start", "0.1", epochs=2, batches=4)
    assert found == pytest.approx([0.2 * (0.1 + 0.9 * min(step / 5, 1)) for step in range(1, 9)])


def test_nesterov_and_no_momentum():
    (group,) = rates_of("--nesterov", "--momentum", "0.99", epochs=1, batches=1)[1].param_groups
    assert group["nesterov"] and group["momentum"] == 0.99
    (group,) = rates_of("--momentum", "0", epochs=1, batches=1)[1].param_groups
    assert not group["nesterov"] and group["momentum"] == 0


@pytest.mark.parametrize(("flags", "told"), [
    ("--nesterov", "--nesterov is a form"), ("--optim sgd --momentum 0 --nesterov", "--nesterov is a form"), ("--min_lr .1 --lr .2", "has no effect"),
    ("--scheduler cosine --min_lr .1 --lr .01", "above --lr"), ("--warmup_start .1", "has no effect"), ("--warmup_steps 3 --warmup_epochs 1", "leave one out"),
    ("--scheduler onecycle --warmup_steps 3", "rise of its own"), ("--clip_grad_norm 1 --clip_grad_each 1", "leave one out"),
    ("--freeze_backbone_steps 3 --warmup_head_epochs 1", "leave one out"), ("--freeze_backbone_steps 3 --freeze_backbone", "leave one out"),
])  # fmt: skip
def test_rates_that_contradict_are_refused(flags, told, capsys):
    with pytest.raises((UserError, SystemExit)) as error:
        parameters.read(["--dataset", "glyphs", *flags.split()])
    assert told in str(error.value) + capsys.readouterr().err
