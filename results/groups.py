"""Groups of runs that differ by seed alone: what counts, what is left out and why, which settings groups share."""

import re
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from results import columns, statistics
from results.collect import Run
from results.columns import Column
from utilities.run import NEVER_A_CHANGE

# Flags that may differ within a group: names, places, records, and which part of a protocol a process ran.
NOT_COMPARED = NEVER_A_CHANGE | {
    "seed", "savename", "group", "project", "no_records", "weights_cache", "folds", "aggregate_only", "final_test", "evaluation_metrics",
    "no_train_metrics", "allow_partial_dataset", "splits_to_eval", "eval_bs", "reproduce_results",
}  # fmt: skip
METHOD = re.compile(r"(loss|batch_mining|mine_pairs|loss_(?!decay$).+|miner_.+)")  # what a group is, not a setting it shares
# Printed with every table, in this order; all others are in the table of settings, and are marked where a group differs.
PRINTED = {
    "data": ("dataset", "images"),
    "split": ("split_scheme", "use_tv_split", "tv_split_perc", "tv_split_by_samples"),
    "network": ("arch", "weights"),
    "embedding": ("embed_dim", "embed_hidden"),
    "batch": ("bs", "data_sampler", "samples_per_class", "iterations_per_epoch"),
    "augmentation": ("augmentation",),
    "optimiser": ("optim", "lr", "fc_lr", "decay", "scheduler", "gamma", "tau", "precision"),
    "epochs": ("n_epochs", "patience", "selection"),
    "versions": ("torch", "torchvision", "cuda", "commit"),
    "GPU": ("GPU",),
}
UNSET = ("None", "False", "")  # not worth printing where all share it
DATASET_PREFIX = re.compile(r"^(?:MLRC_)?(?:cub200|cub256|cub|cars196|cars|car|online_products|sop)(reg)?[_-]", re.IGNORECASE)


@dataclass
class Group:
    """Runs of one configuration on one data set.

    `seeds` holds what counts: seed -> its runs, one a fold. `left_out` holds (run, reason). `refused` says why nothing is averaged.
    """

    dataset: str
    name: str
    runs: list[Run]
    seeds: dict[int | None, list[Run]] = field(default_factory=dict)
    left_out: list[tuple[Run, str]] = field(default_factory=list)
    refused: str | None = None
    settings: dict[str, str] = field(default_factory=dict)
    differs: list[str] = field(default_factory=list)  # from the settings most groups share
    method: str = ""  # as published, for shared tables and plots
    _known: dict = field(default_factory=dict, repr=False)  # values by column and rule: tables and figures ask for them many times

    @property
    def counted(self) -> list[Run]:
        """The runs that are averaged."""
        return [run for runs in self.seeds.values() for run in runs]

    @property
    def label(self) -> str:
        """A name that is the same on every data set."""
        return self.method or DATASET_PREFIX.sub(lambda match: "R-" if match[1] else "", self.name)

    @property
    def seeds_text(self) -> str:
        """How many seeds count, of how many there are."""
        there = len({run.seed for run in self.runs})
        folds = len({run.fold for run in self.counted})
        count = f"{len(self.seeds)}" + (f" of {there}" if len(self.seeds) < there else "")
        return count + (f" x {folds} folds" if folds > 1 else "")

    @property
    def remarks(self) -> list[str]:
        """What a table has to say beside the group: why it is not averaged, what was left out, what differs."""
        if self.refused:
            return [f"not averaged: {self.refused}", *self.differs]
        return [f"left out: {run.name} ({reason})" for run, reason in self.left_out] + self.differs

    def values(self, column: Column, how: str) -> np.ndarray:
        """One printed number a seed, the mean over its folds; NaN where a run has none."""
        if (column, how) not in self._known:
            self._known[column, how] = np.array(
                [np.mean([columns.value(run, column, how) * column.scale for run in runs]) for runs in self.seeds.values()]
            )
        return self._known[column, how]

    def estimate(self, column: Column, how: str, ddof: int = 1) -> statistics.Estimate:
        """Mean and deviation over the seeds."""
        return statistics.estimate(self.values(column, how), ddof)

    def epochs(self, how: str, ddof: int = 1) -> statistics.Estimate:
        """Mean and deviation of the selected epoch."""
        return statistics.estimate([columns.epoch(run, how) for run in self.counted], ddof)


def build(runs: list[Run], defaults: dict | None = None) -> list[Group]:
    """Group by data set and `group`, decide what counts, and say where settings differ.

    Args:
        defaults: flag -> default, for flags that some runs were recorded without.
    """
    members = {}
    for run in runs:
        members.setdefault((run.dataset, run.group), []).append(run)
    groups = []
    for (dataset, name), found in sorted(members.items()):
        group = Group(dataset, name, sorted(found, key=lambda run: (run.seed is None, run.seed or 0, run.fold or 0, run.name)))
        _count(group, defaults or {})
        groups.append(group)
    for dataset in {group.dataset for group in groups}:
        _mark_differences([group for group in groups if group.dataset == dataset])
    return groups


def _count(group: Group, defaults: dict) -> None:
    """Sort the runs of a group into those that count and those that do not."""
    sound = []
    for run in group.runs:
        reason = run.problem or _unselectable(run)
        group.left_out += [(run, reason)] if reason else []
        sound += [] if reason else [run]
    differing = differing_flags(sound, defaults)
    if differing:
        group.refused = "runs of this group differ in " + "; ".join(differing)
        group.left_out += [(run, "flags differ within the group") for run in sound]
        sound = []
    times = Counter((run.seed, run.fold) for run in sound)
    twice = [run for run in sound if times[run.seed, run.fold] > 1]
    for run in twice:
        again = ", ".join(other.name for other in twice if other is not run and (other.seed, other.fold) == (run.seed, run.fold))
        group.left_out.append((run, f"seed {run.seed} occurs twice: also {again}"))
    for run in sound:
        if run not in twice:
            group.seeds.setdefault(run.seed, []).append(run)
    folds = {run.fold for run in group.counted}
    for seed, members in list(group.seeds.items()):
        missing = folds - {run.fold for run in members}
        if missing:
            group.left_out += [(run, f"seed {seed} lacks folds {', '.join(map(str, sorted(missing)))}") for run in members]
            del group.seeds[seed]
    group.settings = _joined([settings(run) for run in group.counted or group.runs])


def _unselectable(run: Run) -> str | None:
    if run.flags.get("n_epochs") == 0:
        return None
    if np.isnan(columns.epoch(run, columns.SELECTED)):
        return f"failed: no finite {columns.selection_metric(run)} on {columns.selection_split(run)}, which selects the epoch"
    chosen = (run.summary.get("selected") or {}).get("epoch")
    if chosen is not None and chosen != columns.epoch(run, columns.SELECTED):
        run.notes.append(
            f"summary.json names epoch {chosen}, the rows of metrics.csv epoch {columns.epoch(run, columns.SELECTED):g}: the tables follow the rows"
        )
    return None


def differing_flags(runs: list[Run], defaults: dict) -> list[str]:
    """The flags in which runs differ, with values and seeds; a flag that a run was recorded without has its default."""
    found = []
    for flag in sorted({flag for run in runs for flag in run.flags} - NOT_COMPARED):
        holders = {}
        for run in runs:
            holders.setdefault(_shown(run.flags.get(flag, defaults.get(flag, "absent"))), []).append(run.name)
        if len(holders) > 1:
            found.append(f"{flag}: " + ", ".join(f"{value} ({_few(names)})" for value, names in holders.items()))
    return found


def _few(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _shown(value) -> str:
    if isinstance(value, (list, tuple)):
        return " ".join(map(_shown, value))
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def settings(run: Run) -> dict[str, str]:
    """Everything a run shares, or should share, with the runs it is compared with: flags, data, versions, hardware."""
    found = {flag: _shown(value) for flag, value in run.flags.items() if flag not in NOT_COMPARED and not METHOD.fullmatch(flag)}
    found["selection"] = columns.rule(run)
    environment = run.environment
    packages = environment.get("packages") or {}
    found |= {name: str(packages[name]) for name in ("torch", "torchvision", "faiss-gpu", "faiss-cpu", "scikit-learn") if name in packages}
    for name, key in (("cuda", "cuda"), ("python", "python"), ("commit", "git_commit"), ("weights", "weights")):
        if environment.get(key):
            found[name] = str(environment[key])[:12] if key == "git_commit" else str(environment[key])
    if environment:
        found["GPU"] = str(environment.get("gpu") or environment.get("device") or "unknown")
    data = environment.get("data") or {}
    counts = data.get("counts") or {}
    if counts:
        found["images"] = ", ".join(
            f"{split} {count.get('images')} of {count.get('classes')} classes" for split, count in counts.items() if count
        )
    for split, transform in (data.get("transforms") or {}).items():
        found[f"transforms, {split}"] = str(transform)
    return found


def _joined(found: list[dict[str, str]]) -> dict[str, str]:
    """One value a setting; where runs differ (versions, hardware) all of them."""
    names = {name: None for one in found for name in one}
    return {name: " | ".join(sorted({one.get(name, "unknown") for one in found})) for name in names}


def shared_settings(groups: list[Group]) -> dict[str, str]:
    """Each setting's value in most of the groups, in the order of printing."""
    names = list({name: None for group in groups for name in group.settings})
    order = [name for part in PRINTED.values() for name in part]
    names.sort(key=lambda name: (order.index(name) if name in order else len(order), name))
    return {name: Counter(group.settings.get(name, "unknown") for group in groups).most_common(1)[0][0] for name in names}


def _mark_differences(groups: list[Group]) -> None:
    shared = shared_settings(groups)
    for group in groups:
        group.differs = [
            f"{name} {group.settings.get(name, 'unknown')} (others: {value})"
            for name, value in shared.items()
            if group.settings.get(name, "unknown") != value
        ]


def printed_settings(groups: list[Group]) -> str:
    """The settings that groups share, in one sentence for a table; a setting in which one differs is so in most of them."""
    shared = shared_settings(groups)
    parts = []
    for title, names in PRINTED.items():
        if title == "split" and shared.get("use_tv_split") == "False":
            names = [name for name in names if not name.startswith("tv_split")]  # of a split that is not made
        values = [f"{name} {shared[name]}" for name in names if name in shared and (shared[name] not in UNSET or name == "use_tv_split")]
        if values:
            parts.append(f"{title}: {', '.join(values)}")
    return "; ".join(parts)


def datasets(groups: list[Group]) -> list[str]:
    """The data sets of groups, in the order in which papers print them."""
    usual = ["cub200", "cars196", "online_products"]
    return sorted({group.dataset for group in groups}, key=lambda name: (usual.index(name) if name in usual else len(usual), name))


def label_alike(groups: list[Group]) -> dict[tuple[str, str], str]:
    """(data set, group) -> label for shared tables; a label that two groups of a data set would share gives way to their names."""
    times = Counter((group.dataset, group.label) for group in groups)
    return {(g.dataset, g.name): g.label if times[g.dataset, g.label] == 1 else g.name for g in groups}
