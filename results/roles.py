"""How the tables treat a flag: compare it within a group, count it as setting or method, hold it against a published
one, print it.

One function per question. The roles (utilities/roles.py) come from Result_Evaluations.py, which calls `use`.
"""

import functools
import re
from argparse import Namespace

import datasets
from utilities.flags import has_folds
from utilities.roles import DATA, EVALUATION, METHOD, Roles

_declared = Roles()
OF_METHOD = re.compile(
    r"(loss|batch_mining|mine_pairs|loss_(?!(?:decay|weights)$).+|miner_.+)"
)  # a group's method, not a setting
# weights may be a local copy of the published ones; precision decides how fast; decode_once draws the same distribution
# of crops
ALSO_FREE = {"weights", "precision", "decode_once"}
OUTPUTS = {"evaltypes"}  # which outputs are evaluated: their values have names of their own
# Printed with every table, title -> settings, in this order. All others are in the table of settings, and are marked
# where a group differs.
PRINTED = {
    "data": (
        "dataset",
        "images",
        "roles",
        "cub_boxes",
        "vehicleid_protocol",
        "vehicleid_list",
        "market1501_distractors",
        "msmt17_combined",
        "eval_skip_unmatched",
    ),
    "split": (
        "split_scheme",
        "use_tv_split",
        "tv_split_by_samples",
        "tv_split_perc",
        "split_test_size",
        "split_test_start",
        "split_partitions",
        "split_sets",
        "split_file",
        "split_shuffle",
        "oodml_file",
        "oodml_id",
    ),
    "network": ("arch", "weights"),
    "embedding": ("embed_dim", "embed_hidden"),
    "batch": ("bs", "data_sampler", "samples_per_class", "iterations_per_epoch"),
    "augmentation": ("augmentation",),
    "optimiser": ("optim", "lr", "fc_lr", "decay", "scheduler", "gamma", "tau", "precision"),
    "epochs": ("n_epochs", "patience", "selection"),
    "versions": ("torch", "torchvision", "cuda", "commit"),
    "GPU": ("GPU",),
}
OF_HALF = {"use_tv_split"}
OF_VALIDATION = {"tv_split_by_samples", "tv_split_perc"}
OF_FILE = {"split_file"}
OF_FOLDS = {"split_test_size", "split_test_start", "split_partitions", "split_sets"}


def use(roles: Roles) -> None:
    """Use these roles. A flag without one, such as that of another clone's plug-in, has the role of the method."""
    _declared.clear()
    _declared.update(roles)


def is_saved(name: str) -> bool:
    """Whether a flag is saved with a run: commands and keys are not."""
    return _declared[name].saved


def compared(flags: dict) -> dict:
    """The flags in which the runs of a group must agree."""
    return {name: value for name, value in flags.items() if _declared[name].compared}


def of_data(flags: dict) -> dict:
    """The compared flags that decide a run's data and how they are split."""
    return {name: value for name, value in compared(flags).items() if _declared[name].name == DATA.name}


def of_evaluation(flags: dict, defaults: dict) -> dict:
    """The flags, not at their default, by which a run's values are measured otherwise than by plain distances of all
    its embeddings.
    """
    off = [
        flag
        for flag, plain in (("rerank", None), ("eval_space", "euclidean"), ("eval_scales", [1]), ("eval_whiten", None))
        if flags.get(flag) in (None, plain)
    ]
    idle = {name for name in flags for flag in off if name.startswith(f"{flag}_")}
    found = {name: value for name, value in compared(flags).items() if _declared[name].name == EVALUATION.name}
    plain = defaults | datasets.REGISTRY.derived(
        flags.get("dataset"), Namespace(**flags)
    )  # re-identification leaves out queries without a match
    return {name: value for name, value in found.items() if name not in idle | OUTPUTS and value != plain.get(name)}


def of_training(flags: dict) -> dict:
    """The compared flags by which a network is trained, without those of its loss and miner and what a published figure
    leaves open.
    """
    found = {name: value for name, value in settings(flags).items() if _declared[name].name == METHOD.name}
    return {name: value for name, value in found.items() if name not in ALSO_FREE}


def settings(flags: dict) -> dict:
    """The compared flags that are not part of the method: groups share them, or are marked where they differ."""
    return {name: value for name, value in compared(flags).items() if not OF_METHOD.fullmatch(name)}


def method(flags: dict) -> dict:
    """The compared flags of the loss and the miner that the run used."""
    own = (f"loss_{flags.get('loss')}_", f"miner_{flags.get('batch_mining')}_")
    return {
        name: value
        for name, value in compared(flags).items()
        if OF_METHOD.fullmatch(name) and (name in ("loss", "batch_mining", "mine_pairs") or name.startswith(own))
    }


def measured(flags: dict) -> dict:
    """The flags that decide the values of a measurement."""
    return {
        name: value for name, value in flags.items() if _declared[name].compared and _declared[name].fixed != "first"
    }


def published(flags: dict) -> dict:
    """The flags that a published protocol fixes."""
    return {
        name: value
        for name, value in compared(flags).items()
        if _declared[name].name != "selection" and name not in ALSO_FREE
    }


@functools.cache
def _owners() -> dict[str, str]:
    return datasets.flags_of_one()


def without_effect(flags: dict) -> set[str]:
    """The flags of data and split that the run's own --dataset and --split_scheme do not read."""
    unread = {name for name, owner in _owners().items() if flags.get("dataset") != owner}
    if not has_folds(flags):
        return unread | OF_FILE | OF_FOLDS | (set() if flags.get("use_tv_split") else OF_VALIDATION)
    return unread | OF_HALF | OF_VALIDATION | (OF_FOLDS if flags["split_scheme"] == "predefined" else OF_FILE)
