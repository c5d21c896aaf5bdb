"""Training methods: one file a method, the file name is the value of `--trainer`.

A module's class is `Trainer(opt, network, criterion)`, a subclass of `trainers.Base` or of that shape; it says what happens in a step,
in two halves: `outputs(images)` for each image, `losses(outputs, batch)` for the whole batch.
"""

from types import MethodType

import torch

from trainers._averaging import MovingAverage
from trainers._trainer import OwnState, further_losses
from trainers._trainer import Trainer as Base
from utilities.registry import Registry

REGISTRY = Registry("trainers", "trainer")

__all__ = ["REGISTRY", "Base", "OwnState", "average_of", "select"]


def average_of(network, opt) -> MovingAverage | None:
    """The moving average of the network's weights, and of BatchNorm's statistics, that `--ema_decay` asks for."""
    return None if opt.ema_decay is None else MovingAverage(network, opt.ema_decay, buffers=True)


def select(name: str, opt, network, criterion, **flags):
    """The trainer `name` of a network and a criterion.

    Args:
        opt: the shared namespace; what it lacks takes its declared default.
        flags: single flags that override `opt`.

    Raises:
        UnknownName: no such trainer. UserError: an unknown flag, or a network or criterion that the method cannot train.
    """
    opt = REGISTRY.options(opt, **flags)
    trainer = REGISTRY.module(name).Trainer(opt, network, criterion)
    if not hasattr(trainer, "further"):  # a user's plain module
        trainer.further = further_losses(opt, network, criterion)
    for call in ("VIEWS", "WEIGHTS", "LOSSES", "once_a_chunk"):
        if not hasattr(trainer, call):
            setattr(trainer, call, getattr(Base, call))
    if type(trainer).forward is torch.nn.Module.forward:
        trainer.forward = MethodType(Base.forward, trainer)
    for call in ("param_groups", "start_epoch", "after_step", "own_parameters", "once"):
        if not hasattr(trainer, call):
            setattr(trainer, call, MethodType(getattr(Base, call), trainer))
    return trainer
