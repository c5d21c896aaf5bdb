"""The optimiser of network and criterion together, and the schedule of its rates."""

import contextlib
import functools
import math
from collections.abc import Callable

import torch
from torch.optim import lr_scheduler

from utilities import shards
from utilities.console import say
from utilities.errors import UserError
from utilities.parameter_groups import criterion_groups

OVER_ALL_EPOCHS = ("cosine", "flat_cosine", "onecycle")  # schedules whose rates depend on --n_epochs
STEPS = 1000  # an epoch, for a rate of onecycle in a message
CYCLE_START = 1 / 25  # first factor of onecycle, as torch's


def parameter_groups(model, criterion, opt, trainer_groups=()) -> list[dict]:
    """Optimiser groups of network, criterion and trainer. Raises UserError for a parameter in two groups."""
    if hasattr(model, "param_groups"):
        groups = model.param_groups(opt)
    else:
        groups = [{"params": list(model.parameters()), "name": "network"}]
    if opt.no_decay_on_bias_and_norm:
        groups = _without_decay(groups)
        trainer_groups = _without_decay(trainer_groups)
    groups = [group for group in (*groups, *criterion_groups(criterion, opt), *trainer_groups) if group["params"]]
    if not groups:
        raise UserError(
            "there is nothing to train: with --freeze_backbone and --embed_dim 0, choose a loss or trainer with "
            "parameters of its own"
        )
    seen = set()
    for group in groups:
        for parameter in group["params"]:
            if id(parameter) in seen:
                raise UserError(
                    f"a parameter of optimiser group {group['name']!r} is in another group already: check "
                    "optim_dict_list"
                )
            seen.add(id(parameter))
    return groups


def _without_decay(groups) -> list[dict]:
    """Split each group in two: parameters of at most one dimension (biases, norm layers) get no weight decay."""
    split_groups = []
    for group in groups:
        matrices = []
        vectors = []
        for parameter in group["params"]:
            kind = matrices if parameter.ndim > 1 else vectors
            kind.append(parameter)
        name = f"{group.get('name', 'group')}_no_decay"
        split_groups.append({**group, "params": matrices})
        split_groups.append({**group, "params": vectors, "name": name, "weight_decay": 0.0})
    return split_groups


def build_optimizer(model, criterion, opt, trainer_groups=()) -> torch.optim.Optimizer:
    """`--optim` over `parameter_groups`."""
    kinds = {
        "adam": torch.optim.Adam,
        "amsgrad": functools.partial(torch.optim.Adam, amsgrad=True),
        "adamw": torch.optim.AdamW,
        "radam": functools.partial(torch.optim.RAdam, decoupled_weight_decay=True),
        "sgd": functools.partial(torch.optim.SGD, momentum=opt.momentum, nesterov=opt.nesterov),
        "rmsprop": functools.partial(torch.optim.RMSprop, momentum=opt.momentum),
    }
    groups = parameter_groups(model, criterion, opt, trainer_groups)
    optimizer = kinds[opt.optim](groups, lr=opt.lr, weight_decay=opt.decay)
    for group in optimizer.param_groups:
        # all schedulers set it but plateau
        group["initial_lr"] = group["lr"]
    shards.save_whole(optimizer)
    return optimizer


@contextlib.contextmanager
def keeping_rates(optimizer: torch.optim.Optimizer, schedule: "Schedule"):
    """Restore the states of optimiser and schedule inside; afterwards rates and hyperparameters are those of the flags.

    A rate is the schedule's for that epoch and the present flags. Under `plateau`, which depends on past scores, it is
    the restored rate times the flag's new value over its old one.
    """
    flags_of_groups = []
    for group in optimizer.param_groups:
        flags_of_groups.append({name: value for name, value in group.items() if name not in ("params", "lr")})
    yield
    for group, flags in zip(optimizer.param_groups, flags_of_groups, strict=True):
        rate = flags["initial_lr"]
        saved_rate = group["initial_lr"]
        if not saved_rate:
            group["lr"] = rate
        elif rate != saved_rate:
            group["lr"] = group["lr"] * rate / saved_rate
        group.update(flags)
    schedule.follow_flags()


def fitting(state: dict, optimizer: torch.optim.Optimizer) -> dict:
    """The saved optimiser `state`, changed where it does not fit `optimizer`; a printed line says so.

    Where the names of the groups have changed, nothing is kept; where the kind of optimiser has, the rates alone.
    """
    state = _without_untrained(state, optimizer)
    saved_groups = state["param_groups"]
    groups = optimizer.param_groups
    fresh = {**optimizer.state_dict(), "state": {}}
    if _are_renamed(saved_groups, groups):
        say("the optimiser's groups have changed: its means over gradients and its rates begin anew")
        return fresh
    if len(saved_groups) != len(groups):
        return state
    if all(_kind(saved) == _kind(group) for saved, group in zip(saved_groups, groups, strict=True)):
        return state
    say("--optim has changed: its means over gradients begin anew")
    for group, saved in zip(fresh["param_groups"], saved_groups, strict=True):
        group.update(lr=saved["lr"], initial_lr=saved["initial_lr"])
    return fresh


def _are_renamed(saved_groups: list[dict], groups: list[dict]) -> bool:
    """Whether groups with other names hold the same parameters."""
    saved_names = [group.get("name") for group in saved_groups]
    names = [group.get("name") for group in groups]
    if saved_names == names or None in saved_names + names:
        return False
    numbers = []
    for group in saved_groups:
        numbers += group["params"]
    size = sum(len(group["params"]) for group in groups)
    return sorted(numbers) == list(range(size))


def _without_untrained(state: dict, optimizer: torch.optim.Optimizer) -> dict:
    """The saved `state` without groups that have no place in `optimizer` and were never trained.

    A cascade's `last_linear` was such a group until version 0.2.1.
    """
    present_names = [group.get("name") for group in optimizer.param_groups]
    known_groups = [group for group in state["param_groups"] if group.get("name") in present_names]
    if [group.get("name") for group in known_groups] != present_names:
        return state
    numbers = set()
    for group in known_groups:
        numbers.update(group["params"])
    if not set(state["state"]) <= numbers:
        return state
    return {**state, "param_groups": known_groups}


def check_state(optimizer: torch.optim.Optimizer) -> None:
    """Raise ValueError where the restored state of a parameter is not what the optimiser keeps.

    torch would fail only in its next step.
    """
    for group in optimizer.param_groups:
        needed = _state_names(group)
        for parameter in group["params"]:
            state = optimizer.state.get(parameter) or {}
            if state and not all(isinstance(state.get(name), torch.Tensor) for name in needed):
                raise ValueError(f"the state of a parameter lacks one of {', '.join(sorted(needed))}")
            for name, value in state.items():
                shape = () if name == "step" else parameter.shape
                if isinstance(value, torch.Tensor) and value.shape != shape:
                    raise ValueError(
                        f"{name} has the shape {tuple(value.shape)}, its parameter {tuple(parameter.shape)}"
                    )


def _state_names(group: dict) -> set[str]:
    """The tensors that an optimiser keeps for each parameter of a group, of those that it always keeps."""
    if group.get("amsgrad"):
        return {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"}
    # adam, adamw, radam
    if "betas" in group:
        return {"step", "exp_avg", "exp_avg_sq"}
    # sgd
    if "alpha" not in group:
        return set()
    names = {"step", "square_avg"}
    if group.get("momentum"):
        names.add("momentum_buffer")
    return names


def _kind(group: dict) -> tuple:
    """A key that is equal for optimisers of the same state.

    adam and adamw have the same one, amsgrad keeps a maximum too, rmsprop has another with momentum.
    """
    keeps_momentum = bool(group.get("momentum")) and "alpha" in group
    return {"betas", "alpha", "dampening"} & set(group), keeps_momentum, bool(group.get("amsgrad"))


class StepFactor:
    """In each step, the rates are the schedule's times `factor(step)`.

    Steps count from 1 over all epochs, of `batches` steps each.

    Between steps the rates are the schedule's own; `optimizer.step_factor` is the latest factor, for the records.
    """

    def __init__(self, batches: int = 0, factor: Callable[[int], float] = lambda step: 1.0):
        self.batches = batches
        self.factor = factor
        self.steps = 0

    def start_epoch(self, epoch: int) -> None:
        """Begin an epoch, counted from 1."""
        self.steps = (epoch - 1) * self.batches

    @contextlib.contextmanager
    def step(self, optimizer: torch.optim.Optimizer):
        """Inside, the optimiser has the rates of the next step."""
        self.steps += 1
        optimizer.step_factor = self.factor(self.steps)
        rates = [group["lr"] for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * optimizer.step_factor
        yield
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate


def build_step_factor(opt, batches: int) -> StepFactor:
    """The warm-up, or `--scheduler onecycle`, with `batches` steps per epoch.

    The warm-up is that of `--warmup_epochs` or `--warmup_steps`.
    """
    if opt.scheduler == "onecycle":
        total = opt.n_epochs * batches
        return StepFactor(batches, functools.partial(one_cycle, total=total, rise=opt.onecycle_rise, end=_floor(opt)))
    total = opt.warmup_steps or opt.warmup_epochs * batches
    start = opt.warmup_start
    return StepFactor(batches, functools.partial(warm_up, total=total, start=start))


def warm_up(step: int, total: int, start: float) -> float:
    """The factor of a step, counted from 1: it rises linearly from `start` to 1 at step `total`."""
    if not total:
        return 1.0
    return start + (1 - start) * min(step / total, 1.0)


def one_cycle(step: int, total: int, rise: float, end: float) -> float:
    """The factor of a step, counted from 1, of `total`, by half cosines.

    It rises from `CYCLE_START` in the share `rise` of the steps, then it falls to `end`.

    Smith and Topin (arXiv 1708.07120), with the phases of torch's OneCycleLR; momentum stays as it is.
    """
    place = min(step, total) - 1
    top = rise * total - 1
    last = total - 1
    if top > 0 and place <= top:
        return _half_cosine(CYCLE_START, 1.0, place / top)
    if place <= top:
        return 1.0
    return _half_cosine(1.0, end, (place - top) / (last - top))


def _half_cosine(first: float, second: float, share: float) -> float:
    """From `first` at share 0 to `second` at share 1."""
    return second + (first - second) * (1 + math.cos(math.pi * share)) / 2


def _floor(opt) -> float:
    """`--min_lr` as a factor of `--lr`: all rates end at this share of theirs."""
    return opt.min_lr / opt.lr if opt.min_lr else 0.0


class Schedule:
    """The learning-rate schedule; `step(scores)` once an epoch.

    `scheduler`: `LambdaLR`, the rates of the flags times a factor of the epoch; or `ReduceLROnPlateau` on the metric of
    `watch`, a `Selection`.
    """

    def __init__(self, scheduler, watch=None):
        self.scheduler = scheduler
        self.watch = watch

    def step(self, scores: dict) -> None:
        """End an epoch. `scores`: split -> {metric: value}, empty where the epoch was not evaluated.

        An epoch whose watched metric is NaN, where no query counts, is no worse one: a plateau schedule passes over it.
        """
        if self.watch is None:
            self.scheduler.step()
        elif scores and not math.isnan(self.watch.value(scores)):
            self.scheduler.step(self.watch.value(scores))

    def state_dict(self) -> dict:
        """The schedule's progress.

        Settings that the flags decide are left out, so that a run may go on with other flags.
        """
        state = self.scheduler.state_dict()
        if self.watch is None:
            return {"last_epoch": state["last_epoch"]}
        names = set(state) - {"factor", "patience", "mode"}
        plain_types = (int, float, str, list, bool, type(None))
        return {name: state[name] for name in names if isinstance(state[name], plain_types)}

    def after(self, state: dict, epoch: int) -> dict:
        """The state of a plateau schedule, for this schedule to load after `epoch`."""
        if self.watch is not None:
            return state
        return {**state, "last_epoch": epoch}

    def load_state_dict(self, state: dict) -> None:
        """Restore a `state_dict`, also that of another schedule. Raises ValueError or KeyError for anything else."""
        present = vars(self.scheduler)
        for name, value in state.items():
            if name in present and _shape(value) != _shape(present[name]):
                raise ValueError(f"{name} cannot be {str(value)[:60]}")
        if self.watch is None:
            self.scheduler.last_epoch = state["last_epoch"]
        else:
            self.scheduler.load_state_dict({name: value for name, value in state.items() if name in present})

    def follow_flags(self) -> None:
        """Set the rates of the epoch that the schedule is at, as they would be with the same flags from the start."""
        if self.watch is None:
            scheduler = self.scheduler
            for group, rate, factor in zip(
                scheduler.optimizer.param_groups, scheduler.base_lrs, scheduler.lr_lambdas, strict=True
            ):
                group["lr"] = rate * factor(scheduler.last_epoch)


def _shape(value):
    """The kind of an entry of a schedule's state; a restored value must be of the same kind as the present one."""
    if isinstance(value, list):
        return list(map(_shape, value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "number"
    return type(value)


def build_scheduler(optimizer, opt, selection) -> Schedule:
    """`--scheduler` by epochs.

    step: at `--tau`; cosine: over `--n_epochs`; flat_cosine: over those after `--flat_share`;
    plateau: on the metric of `selection`.

    Under `none` and `onecycle` (`build_step_factor`) it leaves the rates alone.
    """
    if opt.scheduler == "plateau":
        mode = "max" if selection.higher_is_better(selection.metric) else "min"
        plateau = lr_scheduler.ReduceLROnPlateau(optimizer, mode=mode, factor=opt.gamma, patience=opt.plateau_patience)
        return Schedule(plateau, watch=selection)
    # Not MultiStepLR and CosineAnnealingLR: they compute each rate from the previous one, so a run that is extended
    # would go on from 0.
    return Schedule(lr_scheduler.LambdaLR(optimizer, functools.partial(_epoch_factor, opt, opt.n_epochs)))


def _epoch_factor(opt, n_epochs: int, epoch: int) -> float:
    """The factor of the rates after `epoch` of `n_epochs`, of all schedules but `plateau`."""
    share = min(epoch / max(n_epochs, 1), 1)
    if opt.scheduler == "step":
        return opt.gamma ** sum(tau <= epoch for tau in opt.tau)
    if opt.scheduler == "cosine":
        return _half_cosine(1.0, _floor(opt), share)
    if opt.scheduler == "flat_cosine":
        return _half_cosine(1.0, _floor(opt), _after(opt.flat_share, share))
    return 1.0


def change_of_length(opt, before: int, epoch: int) -> str | None:
    """A line on what `--n_epochs` in place of `before` epochs changes for a run that goes on after `epoch`.

    None where no rate depends on it, or only rates that are still to come.
    """
    if opt.scheduler not in OVER_ALL_EPOCHS or before == opt.n_epochs:
        return None
    # Under onecycle each step has another rate, so that all past epochs have changed.
    changed = list(range(epoch))
    if opt.scheduler != "onecycle":
        changed = [past for past in changed if len(set(_factors_at(opt, before, past))) > 1]
    if not changed:
        return None
    factor, planned = _factors_at(opt, before, epoch)
    return (
        f"--n_epochs {opt.n_epochs} (before: {before}): --scheduler {opt.scheduler} spans all epochs, so after epoch "
        f"{epoch} the learning rates are {factor:.3g} of their full value, not {planned:.3g}. These weights are not "
        f"those of {opt.n_epochs} epochs without a break, whose rates would have differed from epoch {changed[0] + 1} "
        "on"
    )


def _factors_at(opt, before: int, epoch: int) -> list[float]:
    """The factors of the rates after `epoch`, of a schedule over `--n_epochs` and over `before` epochs."""
    lengths = (opt.n_epochs, before)
    if opt.scheduler != "onecycle":
        return [_epoch_factor(opt, n_epochs, epoch) for n_epochs in lengths]
    step = epoch * STEPS + 1
    rise = opt.onecycle_rise
    floor = _floor(opt)
    return [one_cycle(step, n_epochs * STEPS, rise, floor) for n_epochs in lengths]


def _after(flat: float, share: float) -> float:
    """The share of what comes after `flat`."""
    return max(share - flat, 0.0) / (1 - flat)
