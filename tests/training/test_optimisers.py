"""Every parameter in exactly one group, with its own rate and decay; schedules."""

from argparse import Namespace

import pytest
import torch

from training.optimisers import build_optimizer, build_scheduler, parameter_groups
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


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd", "rmsprop"])
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
