"""What a flag is to the tables: does it have to agree within a group, is it a setting or the method, was it published, is it printed.

Each question has one function here; the sets behind them are asked nowhere else.
"""

import re

from runs.configuration import NEVER_A_CHANGE

# Flags that may differ within a group: names, places, records, and which part of a protocol a process ran.
NOT_COMPARED = NEVER_A_CHANGE | {
    "seed", "savename", "group", "project", "no_records", "weights_cache", "evaluation_metrics", "no_train_metrics", "allow_partial_dataset",
    "splits_to_eval", "eval_bs",
}  # fmt: skip
HOW_MEASURED = NOT_COMPARED | {"evaltypes"}  # of an ensemble: which metrics of which embeddings, not their values
METHOD = re.compile(r"(loss|batch_mining|mine_pairs|loss_(?!decay$).+|miner_.+)")  # what a group is, not a setting it shares
# Flags of our own that change what is recorded or how fast, never what the published protocol did.
NOT_PUBLISHED = NOT_COMPARED | {"check_untrained_accuracy", "save_interval", "storage_metrics", "weights", "evaluate_on_gpu", "precision"}
# Printed with every table, in this order; all others are in the table of settings, and are marked where a group differs.
PRINTED = {
    "data": ("dataset", "images"),
    "split": (
        "split_scheme", "use_tv_split", "tv_split_by_samples", "tv_split_perc", "split_test_size", "split_test_start", "split_partitions",
        "split_sets", "split_file",
    ),
    "network": ("arch", "weights"),
    "embedding": ("embed_dim", "embed_hidden"),
    "batch": ("bs", "data_sampler", "samples_per_class", "iterations_per_epoch"),
    "augmentation": ("augmentation",),
    "optimiser": ("optim", "lr", "fc_lr", "decay", "scheduler", "gamma", "tau", "precision"),
    "epochs": ("n_epochs", "patience", "selection"),
    "versions": ("torch", "torchvision", "cuda", "commit"),
    "GPU": ("GPU",),
}  # fmt: skip
OF_HALF, OF_VALIDATION = {"use_tv_split"}, {"tv_split_by_samples", "tv_split_perc"}
OF_FILE, OF_FOLDS = {"split_file"}, {"split_test_size", "split_test_start", "split_partitions", "split_sets"}


def compared(flags: dict) -> dict:
    """The flags in which the runs of a group must agree."""
    return {name: value for name, value in flags.items() if name not in NOT_COMPARED}


def settings(flags: dict) -> dict:
    """Of the compared flags those that groups share, or are marked for."""
    return {name: value for name, value in compared(flags).items() if not METHOD.fullmatch(name)}


def method(flags: dict) -> dict:
    """Of the compared flags those of the loss and the miner that the run used."""
    own = (f"loss_{flags.get('loss')}_", f"miner_{flags.get('batch_mining')}_")
    return {
        name: value
        for name, value in compared(flags).items()
        if METHOD.fullmatch(name) and (name in ("loss", "batch_mining", "mine_pairs") or name.startswith(own))
    }


def measured(flags: dict) -> dict:
    """The flags that decide the values of a measurement."""
    return {name: value for name, value in flags.items() if name not in HOW_MEASURED}


def published(flags: dict) -> dict:
    """The flags that a published protocol fixes."""
    return {name: value for name, value in flags.items() if name not in NOT_PUBLISHED}


def printed(title: str | None = None) -> tuple[str, ...]:
    """The settings printed with every table, under one of the `titles` or under all."""
    return PRINTED[title] if title else tuple(name for names in PRINTED.values() for name in names)


def titles() -> tuple[str, ...]:
    """Under what the printed settings stand, in order."""
    return tuple(PRINTED)


def without_effect(flags: dict) -> set[str]:
    """The split flags that the run's own --split_scheme does not read."""
    scheme = flags.get("split_scheme", "half")
    if scheme == "half":
        return OF_FILE | OF_FOLDS | (set() if flags.get("use_tv_split") else OF_VALIDATION)
    return OF_HALF | OF_VALIDATION | (OF_FOLDS if scheme == "predefined" else OF_FILE)
