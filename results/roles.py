"""How the tables treat a flag: compared in a group, setting or method, fixed by a publication, printed.

`FlagRoles` is made once, from the roles that parameters.py and the plug-ins declare (options/flags/roles.py), and
handed to what reads runs; each run carries it. `PRINTED` lists the settings that stand below every table.
"""

import functools
import re
from argparse import Namespace

import datasets
from options.flags.roles import DATA, EVALUATION, METHOD, SELECTION, Roles
from options.flags.shared import has_folds

# a group's method, not a setting
OF_METHOD = re.compile(r"(loss|batch_mining|mine_pairs|loss_(?!(?:decay|weights)$).+|miner_.+)")
# flags that choose loss and miner
CHOICES = ("loss", "batch_mining", "mine_pairs")
# Of published protocols: weights may be a local copy of the published ones; precision decides how fast; decode_once
# draws the same distribution of crops.
ALSO_FREE = {"weights", "precision", "decode_once"}
# flag -> value of an evaluation by plain distances; with it, flags that begin with its name have no effect
PLAIN_EVALUATION = {
    "rerank": None,
    "rerank_pairs": None,
    "eval_space": "euclidean",
    "eval_scales": [1],
    "eval_whiten": None,
}
RERANKING_ALONE = {"rerank_dba", "rerank_pairs"}  # they act without --rerank
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
        "split_groups",
        "burst_seconds",
        "split_time",
        "split_time_end",
        "split_unknown",
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
OF_SCHEMES = {"split_time": ["time_cutoff"], "split_time_end": ["time_cutoff"], "split_unknown": ["open_set"]}
OF_FOLDS = {"split_test_size", "split_test_start", "split_partitions", "split_sets"}


class FlagRoles:
    """Which flags count for which purpose, one method per question; each takes flags and returns those that count.

    Args:
        declared: flag -> role. A flag without one, such as that of another clone's plug-in, has the role of the method.
    """

    def __init__(self, declared: Roles):
        self._declared = declared

    def _filtered(self, flags: dict, counts) -> dict:
        """The flags for which `counts(name, role)` is true."""
        return {name: value for name, value in flags.items() if counts(name, self._declared[name])}

    def saved(self, flags: dict) -> dict:
        """The flags that are saved with a run: commands and keys are not."""
        return self._filtered(flags, lambda name, role: role.saved)

    def compared(self, flags: dict) -> dict:
        """The flags in which the runs of a group must agree."""
        return self._filtered(flags, lambda name, role: role.compared)

    def of_data(self, flags: dict) -> dict:
        """The compared flags that decide a run's data and how they are split."""
        return self._filtered(self.compared(flags), lambda name, role: role.name == DATA.name)

    def of_evaluation(self, flags: dict, defaults: dict) -> dict:
        """The flags, not at their default, that change how values are measured.

        The default are plain distances of all embeddings.
        """
        # the flags of an option that is not used
        unused = tuple(f"{flag}_" for flag, plain in PLAIN_EVALUATION.items() if flags.get(flag) in (None, plain))
        # re-identification leaves out queries without a match
        usual = defaults | datasets.REGISTRY.derived(flags.get("dataset"), Namespace(**flags))

        def changes_values(name, role):
            is_unused = name.startswith(unused) and name not in RERANKING_ALONE
            has_effect = name not in OUTPUTS and not is_unused
            return role.name == EVALUATION.name and has_effect and flags[name] != usual.get(name)

        return self._filtered(self.compared(flags), changes_values)

    def of_training(self, flags: dict) -> dict:
        """The compared flags by which a network is trained.

        Without those of its loss and miner and those that a published figure leaves open.
        """
        return self._filtered(
            self.settings(flags), lambda name, role: role.name == METHOD.name and name not in ALSO_FREE
        )

    def settings(self, flags: dict) -> dict:
        """The compared flags that are not part of the method: groups share them, or are marked where they differ."""
        return self._filtered(self.compared(flags), lambda name, role: not OF_METHOD.fullmatch(name))

    def method(self, flags: dict) -> dict:
        """The compared flags of the loss and the miner that the run used."""
        prefixes = (f"loss_{flags.get('loss')}_", f"miner_{flags.get('batch_mining')}_")

        def is_used(name, role):
            return OF_METHOD.fullmatch(name) and (name in CHOICES or name.startswith(prefixes))

        return self._filtered(self.compared(flags), is_used)

    def measured(self, flags: dict) -> dict:
        """The flags that decide the values of a measurement."""
        return self._filtered(self.compared(flags), lambda name, role: role.fixed != "first")

    def published(self, flags: dict) -> dict:
        """The flags that a published protocol fixes."""
        return self._filtered(
            self.compared(flags), lambda name, role: role.name != SELECTION.name and name not in ALSO_FREE
        )


@functools.cache
def _owners() -> dict[str, str]:
    return datasets.flags_of_one()


def without_effect(flags: dict) -> set[str]:
    """The flags of data and split that the run's own --dataset and --split_scheme do not read."""
    unread = {name for name, owner in _owners().items() if flags.get("dataset") != owner}
    scheme = flags.get("split_scheme", "half")
    for name, schemes in OF_SCHEMES.items():
        if scheme not in schemes:
            unread.add(name)
    if "burst" not in (flags.get("split_groups") or ()):
        unread.add("burst_seconds")
    if not has_folds(flags):
        unread |= OF_FILE | OF_FOLDS - {"split_test_size"}
        if scheme not in ("time_proportion", "open_set"):
            unread.add("split_test_size")
        if not flags.get("use_tv_split"):
            unread |= OF_VALIDATION
        return unread
    unread |= OF_HALF | OF_VALIDATION
    if flags["split_scheme"] == "predefined":
        return unread | OF_FOLDS
    return unread | OF_FILE
