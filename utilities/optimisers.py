"""The optimiser of network and criterion together, and the schedule of its rates."""

import contextlib
import functools

import torch

from utilities.errors import UserError


def parameter_groups(model, criterion, opt) -> list[dict]:
    """Optimiser groups in which every trainable parameter stands exactly once.

    The network answers `param_groups(opt)`. A criterion gives `optim_dict_list`, or `lr`; what neither covers trains at `--lr`.
    The criterion's weight decay is `--loss_decay` unless its group says otherwise. Raises UserError for a parameter in two groups.
    """
    groups = model.param_groups(opt) if hasattr(model, "param_groups") else [{"params": list(model.parameters()), "name": "network"}]
    own = [dict(group) for group in getattr(criterion, "optim_dict_list", None) or []]
    for group in own:
        group["params"] = [group["params"]] if isinstance(group["params"], torch.Tensor) else list(group["params"])
    covered = {id(p) for group in own for p in group["params"]}
    rest = [p for p in criterion.parameters() if id(p) not in covered and p.requires_grad]
    if rest:
        own.append({"params": rest, "lr": getattr(criterion, "lr", opt.lr)})
    for number, group in enumerate(own):
        group.setdefault("weight_decay", opt.loss_decay)
        group.setdefault("name", "criterion" if len(own) == 1 else f"criterion_{number}")
    groups = [group for group in groups + own if group["params"]]
    seen = set()
    for group in groups:
        for parameter in group["params"]:
            if id(parameter) in seen:
                raise UserError(f"a parameter of optimiser group {group['name']!r} is in another group already: check optim_dict_list")
            seen.add(id(parameter))
    return groups


def build_optimizer(model, criterion, opt) -> torch.optim.Optimizer:
    """`--optim` over `parameter_groups`."""
    kinds = {
        "adam": torch.optim.Adam,
        "adamw": torch.optim.AdamW,
        "sgd": functools.partial(torch.optim.SGD, momentum=opt.momentum),
        "rmsprop": functools.partial(torch.optim.RMSprop, momentum=opt.momentum),
    }
    optimizer = kinds[opt.optim](parameter_groups(model, criterion, opt), lr=opt.lr, weight_decay=opt.decay)
    for group in optimizer.param_groups:
        group["initial_lr"] = group["lr"]  # schedulers set it, all but plateau
    return optimizer


# What a scheduler's state holds that a flag decides.
BY_FLAGS = {"gamma", "T_max", "base_lrs", "patience", "factor", "mode"}


@contextlib.contextmanager
def keeping_rates(optimizer: torch.optim.Optimizer):
    """Inside, an optimiser's state is restored; rates and decays that the flags changed since then stay as the flags say.

    A changed rate is the restored one, lowered by the schedule so far, times how much the flag changed.
    """
    wanted = [{name: value for name, value in group.items() if name not in ("params", "lr")} for group in optimizer.param_groups]
    yield
    for group, flags in zip(optimizer.param_groups, wanted, strict=True):
        if flags["initial_lr"] != group["initial_lr"]:
            group["lr"] = group["lr"] * flags["initial_lr"] / group["initial_lr"] if group["initial_lr"] else flags["initial_lr"]
        group.update(flags)


class Schedule:
    """The learning-rate schedule; `step(scores)` once an epoch. Only `plateau` looks at the scores."""

    def __init__(self, scheduler, watch=None):
        self.scheduler = scheduler
        self.watch = watch  # the `Selection` whose metric is looked at, or None

    def step(self, scores: dict) -> None:
        """End an epoch. `scores`: split -> {metric: value}, empty where the epoch was not evaluated."""
        if self.watch is None:
            self.scheduler.step()
            return
        if scores:
            self.scheduler.step(self.watch.value(scores))

    def state_dict(self) -> dict:
        """How far the schedule is; what it does stands in the flags, so that a run may go on with others."""
        return {
            name: value
            for name, value in self.scheduler.state_dict().items()
            if name not in BY_FLAGS and isinstance(value, (int, float, str, list, bool, type(None)))
        }

    def load_state_dict(self, state: dict) -> None:
        """Restore what `state_dict` gave."""
        self.scheduler.load_state_dict(state)


def build_scheduler(optimizer, opt, selection) -> Schedule:
    """`--scheduler`: step and multistep at `--tau`, cosine over `--n_epochs`, plateau on the metric of `selection`, or none."""
    from torch.optim import lr_scheduler

    if opt.scheduler in ("step", "multistep"):
        return Schedule(lr_scheduler.MultiStepLR(optimizer, milestones=sorted(opt.tau), gamma=opt.gamma))
    if opt.scheduler == "cosine":
        return Schedule(lr_scheduler.CosineAnnealingLR(optimizer, T_max=max(opt.n_epochs, 1)))
    if opt.scheduler == "plateau":
        mode = "max" if selection.higher_is_better(selection.metric) else "min"
        plateau = lr_scheduler.ReduceLROnPlateau(optimizer, mode=mode, factor=opt.gamma, patience=opt.plateau_patience)
        return Schedule(plateau, watch=selection)
    return Schedule(lr_scheduler.LambdaLR(optimizer, lambda epoch: 1.0))
