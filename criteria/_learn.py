"""Learnable hyperparameters: a float of a criterion's formula becomes a parameter (`--loss_learn margin`)."""

import argparse
import functools
import math

import torch
from torch.nn.utils import parametrize

from options.flags import plug_ins
from utilities.errors import UserError
from utilities.numbers import Range, number


def add_arguments(group) -> None:
    """Declare the flags of learnable hyperparameters."""
    group.add_argument(
        "--loss_learn",
        nargs="*",
        default=[],
        metavar="NAME",
        help=(
            "hyperparameters of --loss that are learned from their value on, by their flags' names without the "
            "prefix, such as margin"
        ),
    )
    group.add_argument(
        "--loss_learn_lr", type=number(0), default=0.0005, help="their learning rate; they have no weight decay"
    ).needs = "loss_learn"
    group.add_argument(
        "--loss_learn_per_class",
        action="store_true",
        help="learn one value per class; that of the anchor's class is used",
    ).needs = "loss_learn"


class Positive(torch.nn.Module):
    """Softplus parametrisation of a positive value: the trained number starts at 0, where the value is exactly `start`.

    Args:
        start: above `least`.
        least: the value never falls below it.
    """

    def __init__(self, start: float, least: float):
        super().__init__()
        self.start = start
        self.least = least

    def forward(self, raw: torch.Tensor) -> torch.Tensor:
        """The value, of the shape of `raw`."""
        growth = torch.nn.functional.softplus(raw) / torch.nn.functional.softplus(torch.zeros_like(raw))
        return (self.start * growth).clamp(min=self.least)


class Within(torch.nn.Module):
    """Sigmoid parametrisation of a value between two bounds: the trained number starts at 0,
    where the value is exactly `start`.

    Args:
        start: above `lower` and below `upper`, between which the value stays.
    """

    def __init__(self, start: float, lower: float, upper: float):
        super().__init__()
        self.start = start
        self.lower = lower
        self.upper = upper

    def forward(self, raw: torch.Tensor) -> torch.Tensor:
        """The value, of the shape of `raw`."""
        span = self.upper - self.lower
        place = raw.new_full((), (self.start - self.lower) / span).logit()
        growth = torch.sigmoid(raw + place) / torch.sigmoid(torch.zeros_like(raw) + place)
        return (self.lower + (self.start - self.lower) * growth).clamp(
            self.lower + 1e-6 * span, self.upper - 1e-6 * span
        )


def hyperparameters(name: str, module, criterion: torch.nn.Module) -> dict[str, Range]:
    """The learnable hyperparameters of a criterion: its float flags, by the flag's name without the prefix.

    The criterion holds each in the attribute of that name, or of the name that the flag's `attribute` or the module's
    `ATTRIBUTES` gives.
    Learning rates are not among them, nor are the module's `FIXED`, by which the formula has no true derivative: it
    uses them in comparisons, in constants or in random draws.
    """
    parser = argparse.ArgumentParser()
    prefix = f"loss_{name}_"
    plug_ins.declare(module, parser)
    floats = {
        action.dest.removeprefix(prefix): action.type
        for action in parser._actions
        if getattr(action.type, "kind", None) is float
    }
    return {
        hyper: its_range
        for hyper, its_range in floats.items()
        if not hyper.endswith(("lr", "lrmulti"))
        and hyper not in getattr(module, "FIXED", ())
        and isinstance(vars(criterion).get(attribute(module, hyper)), int | float)
    }


def attribute(module, hyper: str) -> str:
    """The criterion's attribute that holds a hyperparameter."""
    flag = getattr(module, "FLAGS", {}).get(hyper)
    named = None if flag is None else flag.attribute
    return named or getattr(module, "ATTRIBUTES", {}).get(hyper, hyper)


def make_learnable(name: str, module, criterion: torch.nn.Module, opt) -> None:
    """Turn the hyperparameters `--loss_learn` of the criterion `name` into parameters, recorded among its `stats`.

    Raises UserError for an unknown name, for a value that is infinite or at its bound, and for a value per class where
    the formula has no anchors whose class could decide.
    """
    learnable = hyperparameters(name, module, criterion)
    per_class = getattr(module, "PER_CLASS", ())
    learned = []
    names = list(dict.fromkeys(opt.loss_learn))
    for hyper in names:
        if hyper in getattr(module, "FIXED", ()):
            raise UserError(
                f"--loss_learn {hyper}: --loss {name} has no derivative by it: it is used in comparisons, "
                "constants or random draws"
            )
        if hyper not in learnable:
            raise UserError(
                f"--loss_learn {hyper}: --loss {name} has no such number to learn; it has "
                f"{', '.join(sorted(learnable)) or 'none'}"
            )
        if opt.loss_learn_per_class and hyper not in per_class:
            able = f"these have: {', '.join(per_class)}" if per_class else "none of its hyperparameters has"
            raise UserError(f"--loss_learn_per_class: {hyper} of --loss {name} has no value per anchor; {able}")
        size = (opt.n_classes,) if opt.loss_learn_per_class else ()
        learned.append(_parameter(criterion, attribute(module, hyper), learnable[hyper], size))
    criterion.optim_dict_list = [
        *(getattr(criterion, "optim_dict_list", None) or []),
        {"params": learned, "lr": opt.loss_learn_lr, "weight_decay": 0, "name": "hyperparameters"},
    ]
    if opt.loss_learn_per_class:
        criterion.several_labels = False
        criterion.expect_classes(opt.n_classes)
    criterion.register_forward_hook(functools.partial(_note, {hyper: attribute(module, hyper) for hyper in names}))


def _parameter(criterion: torch.nn.Module, hyper: str, its_range: Range, size: tuple) -> torch.nn.Parameter:
    """Replace the number `hyper` of a criterion by a parameter of `size`, which keeps to its range where that begins at
    0 or above.
    """
    start = float(vars(criterion).pop(hyper))
    lower = its_range.least if its_range.least is not None else its_range.above
    if not math.isfinite(start):
        raise UserError(f"--loss_learn {hyper}: it is {start:g}, from where nothing is learned")
    if lower is None or lower < 0:
        criterion.register_parameter(hyper, torch.nn.Parameter(torch.full(size, start)))
        return getattr(criterion, hyper)
    upper = its_range.most if its_range.most is not None else its_range.below
    if start <= lower or (upper is not None and start >= upper):
        bound, direction = (lower, "larger") if start <= lower else (upper, "smaller")
        raise UserError(
            f"--loss_learn {hyper}: it starts at its bound {bound:g} and could not move: give it a {direction} value"
        )
    criterion.register_parameter(hyper, torch.nn.Parameter(torch.zeros(size)))
    within = Positive(start, max(lower, 1e-6)) if upper is None else Within(start, lower, upper)
    parametrize.register_parametrization(criterion, hyper, within, unsafe=True)
    return criterion.parametrizations[hyper].original


def _note(attributes: dict, criterion: torch.nn.Module, args, loss) -> None:
    """Forward hook: adds the learned values (their mean where there is one per class) to the criterion's `stats`."""
    values = {name: getattr(criterion, held).detach().mean() for name, held in attributes.items()}
    criterion.stats = {**getattr(criterion, "stats", {}), **values}
