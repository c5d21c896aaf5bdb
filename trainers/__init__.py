"""Training methods: one file per method, the file name is the value of `--trainer`.

A module's class is `Trainer(opt, network, criterion)`, a subclass of `trainers.Base` or a plain `torch.nn.Module`. It
defines a training step in two halves: `outputs(images)` for each image, `losses(outputs, batch)` for the whole batch.
Layers whose outputs are evaluated beside the network's embeddings are made by `build_heads` (`_heads.Heads`).
"""

import argparse
from collections.abc import Collection

import torch

import criteria
from trainers import _classifier, _distill, _guide, _heads
from trainers._averaging import MovingAverage
from trainers._heads import Heads, width
from trainers._subset import MaximumLoss
from trainers._trainer import (
    HEADS,
    METRIC_LOSS,
    PlainTrainer,
    TrainerState,
    build_added_losses,
    evaluated_embeddings,
    groups_of,
    views,
)
from trainers._trainer import Trainer as Base
from utilities.criterion import check_relevance
from utilities.errors import UserError
from utilities.registry import Registry

REGISTRY = Registry("trainers", "trainer")
# What trainers read of other folders: the values for programs that read no command line.
OF_OTHER_FOLDERS = {
    "evaltypes": [],
    "neck_feature": "after",
    "crop_size": None,
    "separate_classifiers": False,
    "n_classes": None,
    "class_names": None,
    "loaded_teacher": None,
    "loaded_guide": None,
    "repeats": False,
    "loss_class_weights": None,
    "loss_learn": [],
}
# Flags that go by one label per image, and with which value; None: with any.
ONE_LABEL = {
    "subset_mining": None,
    "noise_filter": None,
    "metrix": None,
    "language_vectors": None,
    "weight_regularizer": "anticollapse",
}

__all__ = [
    "METRIC_LOSS",
    "REGISTRY",
    "Base",
    "Heads",
    "TrainerState",
    "average_of",
    "check",
    "check_several_labels",
    "evaluated_embeddings",
    "evaluated_network",
    "groups_of",
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
        UnknownName: no such trainer. UserError: an unknown flag,
        or a network or criterion that the method cannot train.
    """
    opt = _complete(REGISTRY.options(opt, name, **flags))
    kind = REGISTRY.module(name).Trainer
    if issubclass(kind, Base):
        trainer = kind(opt, network, criterion)
    else:
        trainer = _adapted(kind)(opt, network, criterion)
        if not hasattr(trainer, "added_losses"):
            trainer.added_losses = build_added_losses(opt, network, criterion)
        trainer.VIEWS = opt.views or trainer.VIEWS
    trainer.subset = MaximumLoss.from_flags(opt)
    return trainer


def _complete(opt):
    """`opt` with a value for everything that trainers read."""
    missing = {name: value for name, value in OF_OTHER_FOLDERS.items() if not hasattr(opt, name)}
    if not missing:
        return opt
    return opt.but(**missing) if hasattr(opt, "but") else argparse.Namespace(**vars(opt), **missing)


def _adapted(kind: type[torch.nn.Module]) -> type[Base]:
    """A user's class that is a plain module, as a trainer: what it does not define is the base's."""

    class Adapter(kind, PlainTrainer):
        """The user's class first in the order in which a name is looked up."""

    return Adapter


def check(opt) -> None:
    """Refuse flags that the method cannot honour, by its module's `check(opt)`, before anything is loaded.

    Raises UserError, UnknownName.
    """
    module = REGISTRY.module(opt.trainer)
    if hasattr(module, "check"):
        module.check(opt)
    if opt.noise_filter and getattr(module.Trainer, "losses", Base.losses) is not Base.losses:
        raise UserError(
            f"--noise_filter {opt.noise_filter}: --trainer {opt.trainer} has losses of its own, which it does not "
            "reach: take --trainer metric_only"
        )
    _guide.check(opt, module.Trainer)
    _distill.check(opt, has_logits=issubclass(module.Trainer, _classifier.ClassifyingTrainer))
    if opt.views > 1 and opt.augmentation == "none":
        raise UserError(
            f"--views {opt.views} with --augmentation none: the views of an image would be equal. Choose an "
            "augmentation"
        )


def check_several_labels(trainer, opt) -> None:
    """Refuse what goes by one label per image, for training images that have several. Raises UserError."""
    check_relevance(trainer.criterion)
    if type(trainer).losses is not Base.losses:
        raise UserError(
            f"--trainer {opt.trainer}: images have several labels, which its losses do not reach: take --trainer "
            "metric_only"
        )
    for flag in ONE_LABEL:
        value = getattr(opt, flag)
        if value and ONE_LABEL[flag] in (None, value):
            raise UserError(f"--{flag} {value} goes by one label per image, and these have several: leave it out")


def inner_losses(opt) -> list[str]:
    """The flags of the losses inside `--loss` and `--trainer`, and inside these, see `INNER_LOSS` in
    criteria/__init__.py.
    """
    flags = []
    modules = [criteria.REGISTRY.module(opt.loss), REGISTRY.module(opt.trainer)]
    while modules:
        flag = getattr(modules.pop(0), "INNER_LOSS", None)
        if flag is not None and flag not in flags:
            flags.append(flag)
            modules.append(criteria.REGISTRY.module(getattr(opt, flag)))
    return flags


def losses(opt) -> list[str]:
    """The names of the losses of a run: `--loss`, those inside it and inside the trainer, and those that it names."""
    names = [getattr(opt, flag) for flag in ("loss", *inner_losses(opt))]
    module = REGISTRY.module(opt.trainer)
    if hasattr(module, "named_losses"):
        names += module.named_losses(opt).values()
    return names


def without_classifier(opt, flags: Collection[str]) -> list[str]:
    """A line on the first of these flags that is of a classifier, where the trainer has none."""
    return _classifier.without_effect(opt, REGISTRY.module(opt.trainer), flags)


def evaluated_network(opt, network: torch.nn.Module, state: dict | None, evaltypes: list[str]) -> torch.nn.Module:
    """A saved run's network for evaluation, with the heads of its trainer where `evaltypes` need them.

    Args:
        opt: the run's flags, and `n_classes`.
        state: the trainer's own state in the checkpoint; None if it has none.

    Raises:
        UnknownName: no such trainer. RuntimeError: the state does not fit.
    """
    prefix = f"{HEADS}."
    state = {name.removeprefix(prefix): value for name, value in (state or {}).items() if name.startswith(prefix)}
    heads = None
    if state:
        trainer_class = REGISTRY.module(opt.trainer).Trainer
        build_heads = getattr(trainer_class, "build_heads", Base.build_heads)
        heads = build_heads(_complete(REGISTRY.options(opt)), network)
    if heads is not None:
        heads.load_state_dict(state)
    return _heads.evaluated(network, heads, evaltypes)
