"""Training methods: one file a method, the file name is the value of `--trainer`.

A module's class is `Trainer(opt, network, criterion)`, a subclass of `trainers.Base` or of that shape. It defines a
training step in two
halves: `outputs(images)` for each image, `losses(outputs, batch)` for the whole batch. Layers whose outputs are
evaluated beside the network's embeddings are made by `build_heads` (`_heads.Heads`).
"""

from types import MethodType

import torch

from trainers import _classifier, _heads
from trainers._averaging import MovingAverage
from trainers._heads import Heads
from trainers._subset import MaximumLoss
from trainers._trainer import HEADS, METRIC_LOSS, TrainerState, build_added_losses, evaluated_embeddings, views, width
from trainers._trainer import Trainer as Base
from utilities.errors import UserError
from utilities.registry import Registry

REGISTRY = Registry("trainers", "trainer")

__all__ = [
    "METRIC_LOSS",
    "REGISTRY",
    "Base",
    "Heads",
    "TrainerState",
    "average_of",
    "check",
    "evaluated_embeddings",
    "evaluated_network",
    "select",
    "views",
    "width",
]


def average_of(network, opt) -> MovingAverage | None:
    """The moving average of the network's weights, and of BatchNorm's statistics, that `--ema_decay` asks for."""
    return None if opt.ema_decay is None else MovingAverage(network, opt.ema_decay, buffers=True)


def select(name: str, opt, network, criterion, **flags):
    """The trainer `name` of a network and a criterion.

    Args:
        opt: the shared namespace; what it lacks takes its declared default.
        flags: single flags that override `opt`.

    Raises:
        UnknownName: no such trainer. UserError: an unknown flag, or a network or criterion that the method cannot
        train.
    """
    opt = REGISTRY.options(opt, name, **flags)
    trainer = REGISTRY.module(name).Trainer(opt, network, criterion)
    if not hasattr(trainer, "added_losses"):  # a user's plain module
        trainer.added_losses = build_added_losses(opt, network, criterion)
    for call in ("VIEWS", "LABELS", "WEIGHTS", "LOSSES", "once_a_chunk"):
        if not hasattr(trainer, call):
            setattr(trainer, call, getattr(Base, call))
    if not isinstance(trainer, Base):
        trainer.VIEWS = getattr(opt, "views", None) or trainer.VIEWS
    if type(trainer).forward is torch.nn.Module.forward:
        trainer.forward = MethodType(Base.forward, trainer)
    for call in ("param_groups", "start_epoch", "after_step", "own_parameters", "evaluated", "once", "metric_loss"):
        if not hasattr(trainer, call):
            setattr(trainer, call, MethodType(getattr(Base, call), trainer))
    trainer.subset = MaximumLoss.from_flags(opt)
    return trainer


def check(opt) -> None:
    """Refuse flags that the method cannot honour, by its module's `check(opt)`, before loading. Raises UserError,
    UnknownName.
    """
    module = REGISTRY.module(opt.trainer)
    getattr(module, "check", lambda opt: None)(opt)
    if not getattr(opt, "repeats", False):  # a run of an older version may have such flags
        _classifier.check_use(opt, module)
    if opt.views > 1 and opt.augmentation == "none":
        raise UserError(
            f"--views {opt.views} with --augmentation none: the views of an image would be equal. Choose an "
            "augmentation"
        )


def evaluated_network(opt, network: torch.nn.Module, state: dict | None, evaltypes: list[str]) -> torch.nn.Module:
    """A saved run's network for evaluation, with the heads of its trainer where `evaltypes` need them.

    Args:
        opt: the run's flags, and `n_classes`.
        state: the trainer's own state in the checkpoint; None where it has none.

    Raises:
        UnknownName: no such trainer. RuntimeError: the state does not fit.
    """
    prefix = f"{HEADS}."
    state = {name.removeprefix(prefix): value for name, value in (state or {}).items() if name.startswith(prefix)}
    build = getattr(REGISTRY.module(opt.trainer).Trainer, "build_heads", None) if state else None
    heads = None if build is None else build(REGISTRY.options(opt), network)
    if heads is not None:
        heads.load_state_dict(state)
    return _heads.evaluated(network, heads, evaltypes)
