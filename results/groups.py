"""Groups of runs that differ by seed alone: what counts, what is left out and why, which settings groups share."""

import re
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from results import columns, statistics
from results.collect import CONCATENATED, NOT_COMPARED, SEPARATED, Run
from results.columns import Column

HOW_MEASURED = NOT_COMPARED | {"evaltypes"}  # of an ensemble: which metrics of which embeddings, not their values
METHOD = re.compile(r"(loss|batch_mining|mine_pairs|loss_(?!decay$).+|miner_.+)")  # what a group is, not a setting it shares
# Printed with every table, in this order; all others are in the table of settings, and are marked where a group differs.
PRINTED = {
    "data": ("dataset", "images"),
    "split": (
        "split_scheme", "use_tv_split", "tv_split_by_samples", "tv_split_perc", "split_test_size", "split_test_start", "split_partitions",
        "split_sets", "split_file", "split_shuffle",
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
UNUSED = "not used"  # of a flag of another --split_scheme
UNSET = ("None", "False", "", UNUSED)  # not worth printing where all share it
DATASET_PREFIX = re.compile(r"^(?:MLRC_)?(?:cub200|cub256|cub|cars196|cars|car|online_products|sop|glyphs)(reg)?[_-]", re.IGNORECASE)


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
    about_meta: list[str] = field(default_factory=list)  # what is amiss with the results over folds
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
    def folds(self) -> list[int]:
        """The folds that each seed is averaged over; empty where the runs are no cross-validations."""
        return sorted({run.fold for run in self.counted if run.fold is not None}) if self.n_folds > 1 else []

    @property
    def n_folds(self) -> int:
        """How many folds the split scheme makes; 0 where the runs are no cross-validations."""
        there = [run for run in self.counted or self.runs if run.fold is not None]
        if not there:
            return 0
        flags = there[0].flags
        return 1 if flags.get("split_scheme") == "predefined" else int(flags.get("split_sets") or 1 + max(run.fold for run in there))

    @property
    def n_run(self) -> int:
        """How many seeds were run, whether they count or not."""
        return len({run.seed for run in self.runs})

    @property
    def seeds_text(self) -> str:
        """How many seeds count, of how many there are; of cross-validations also over how many folds each."""
        count = f"{len(self.seeds)}" + (f" of {self.n_run}" if len(self.seeds) < self.n_run else "")
        return count + (f" x {_folds_text(len(self.folds))}" if self.folds else "")

    @property
    def remarks(self) -> list[str]:
        """What a table has to say beside the group: what is mean of what, why it is not averaged, what was left out, what differs."""
        folded = (
            f"the mean of {_folds_text(len(self.folds))}, separated; intervals, concatenated embeddings: {self.dataset}_cross_validation"
        )
        return [f"cross-validation: a seed's number is {folded}"] * bool(self.folds) + self.own_remarks

    @property
    def own_remarks(self) -> list[str]:
        """The same where it goes without saying what a cross-validation is."""
        apart = [f"unlike the others: {'; '.join(self.differs)}"] * bool(self.differs)
        if self.refused:
            return [f"not averaged: {self.refused}", *apart]
        there = ", ".join(map(str, self.folds))
        missing = [f"of {self.n_folds} folds, counted from 0, only {there}"] if 0 < len(self.folds) < self.n_folds else []
        return [f"left out: {run.name} ({reason})" for run, reason in self.left_out] + missing + apart

    def joined(self, column: Column) -> np.ndarray:
        """One printed number a seed, of the concatenated embeddings of its folds; NaN where it was not measured at the selected epochs."""
        return np.array([_joined_value(runs, column) for runs in self.seeds.values()], dtype=np.float64)

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

    def fewer(self, estimates: list[tuple[str, statistics.Estimate]]) -> list[str]:
        """Which numbers of a row, by their titles, are means of fewer seeds than count: some have none at the epoch in question."""
        titles = {}
        for title, estimate in estimates:
            if 0 < estimate.count < len(self.seeds):
                titles.setdefault(estimate.count, []).append(title)
        return [f"{', '.join(names)}: mean of {count} of {len(self.seeds)} seeds" for count, names in titles.items()]

    def epochs(self, how: str, ddof: int = 1) -> statistics.Estimate:
        """Mean and deviation over the seeds of the selected epoch, itself the mean over the folds."""
        return statistics.estimate([np.mean([columns.epoch(run, how) for run in runs]) for runs in self.seeds.values()], ddof)


def _folds_text(count: int) -> str:
    return f"{count} fold{'s' * (count != 1)}"


def _joined_value(runs: list[Run], column: Column) -> float:
    content = runs[0].meta.get(CONCATENATED, {})
    value = content.get("values", {}).get(column.split, {}).get(column.metric, {}).get("mean")
    return float("nan") if value is None or _stale(runs, content) else float(value) * column.scale


def _stale(runs: list[Run], content: dict) -> bool:
    """Whether results over folds are of other folds or epochs than those that count."""
    return [(run.fold, columns.epoch(run, columns.SELECTED)) for run in runs] != list(
        zip(content.get("folds") or [], content.get("epochs") or [], strict=False)
    )


def build(runs: list[Run], defaults: dict | None = None) -> list[Group]:
    """Group by data set and `group`, decide what counts, and say where settings differ.

    Args:
        defaults: flag -> default, for flags that some runs were recorded without; None where a flag has none.
    """
    members = {}
    for run in runs:
        members.setdefault((run.dataset, run.group), []).append(run)
    groups = []
    known = {flag: (defaults or {}).get(flag) for run in runs for flag in run.flags}
    for (dataset, name), found in sorted(members.items()):
        group = Group(dataset, name, sorted(found, key=lambda run: (run.seed is None, run.seed or 0, run.fold or 0, run.name)))
        _count(group, known)
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
    group.about_meta = [note for runs in group.seeds.values() for note in _check_meta(runs)]
    group.settings = _together([settings(run, defaults) for run in group.counted or group.runs])


def _check_meta(runs: list[Run]) -> list[str]:
    """Where the results over folds are not those of the rows, or were measured in another way than the folds themselves."""
    notes = []
    for kind, content in runs[0].meta.items():
        path = f"{runs[0].whole}/meta/{kind}.json"
        if _stale(runs, content):
            way_out = "--aggregate_only" if kind == SEPARATED else "--evaluate_ensemble"
            notes.append(f"{path} is of other folds or epochs than the rows of metrics.csv, and not used; main.py {way_out} makes it anew")
            continue
        differing = [
            f"{flag} {_shown(value)} (folds: {_shown(runs[0].flags[flag])})" for flag, value in sorted((content.get("flags") or {}).items())
            if flag not in HOW_MEASURED and flag in runs[0].flags and _shown(value) != _shown(runs[0].flags[flag])
        ]  # fmt: skip
        if differing:
            notes.append(f"{path} was measured with {', '.join(differing)}")
    return notes


def _unselectable(run: Run) -> str | None:
    if run.flags.get("n_epochs") == 0:
        return None
    if np.isnan(columns.epoch(run, columns.SELECTED)):
        return f"failed: no finite {columns.selection_metric(run)} on {columns.selection_split(run)}, which selects the epoch"
    chosen = run.selected_epoch
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
            holders.setdefault(_shown(run.flags.get(flag, defaults.get(flag))), []).append(run.name)
        if len(holders) > 1:
            found.append(f"{flag}: " + ", ".join(f"{value} ({_few(names)})" for value, names in holders.items()))
    return found


def _few(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _shown(value) -> str:
    if isinstance(value, (list, tuple)):
        return " ".join(map(_shown, value))
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def lacking(runs: list[Run]) -> bool:
    """Whether a run was recorded without a flag that another one has: only then `build` needs defaults."""
    flags = {frozenset(run.flags) for run in runs if run.flags}
    return len(flags) > 1


def _unused(flags: dict) -> set[str]:
    """The split flags that steer nothing under the run's own --split_scheme."""
    scheme = flags.get("split_scheme", "half")
    if scheme == "half":
        return OF_FILE | OF_FOLDS | (set() if flags.get("use_tv_split") else OF_VALIDATION)
    return OF_HALF | OF_VALIDATION | (OF_FOLDS if scheme == "predefined" else OF_FILE)


def settings(run: Run, defaults: dict | None = None) -> dict[str, str]:
    """Everything a run shares, or should share, with the runs it is compared with: flags, data, versions, hardware.

    Args:
        defaults: flag -> default, for flags that the run was recorded without.
    """
    flags = {**(defaults or {}), **run.flags} if run.flags else {}
    found = {flag: _shown(value) for flag, value in flags.items() if flag not in NOT_COMPARED and not METHOD.fullmatch(flag)}
    found |= {flag: UNUSED for flag in _unused(flags) & set(found)}
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


def _together(found: list[dict[str, str]]) -> dict[str, str]:
    """One value a setting; where runs differ (versions, hardware) all of them."""
    names = {name: None for one in found for name in one}
    return {name: " | ".join(sorted({one.get(name, "unknown") for one in found})) for name in names}


def shared_settings(groups: list[Group]) -> dict[str, str]:
    """Each setting's value in most of the groups that recorded it, in the order of printing."""
    names = list({name: None for group in groups for name in group.settings})
    order = [name for part in PRINTED.values() for name in part]
    names.sort(key=lambda name: (order.index(name) if name in order else len(order), name))
    return {name: Counter(g.settings[name] for g in groups if name in g.settings).most_common(1)[0][0] for name in names}


def setting(group: Group, name: str, shared: str) -> str:
    """A group's own value of a setting; of one that was not recorded `unknown`, but None where the others have None: the two are alike."""
    return group.settings.get(name, "None" if shared == "None" else "unknown")


def _mark_differences(groups: list[Group]) -> None:
    shared = shared_settings(groups)
    for group in groups:
        group.differs = [
            f"{name} {own} (others: {value})"
            for name, value in shared.items()
            if (own := setting(group, name, value)) not in (value, UNUSED)  # that a scheme does not use a flag follows from the scheme
        ]


def printed_settings(groups: list[Group]) -> str:
    """The settings that groups share, in one sentence for a table; a setting in which one differs is so in most of them."""
    shared = shared_settings(groups)
    parts = []
    for title, names in PRINTED.items():
        values = [
            f"{name} {shared[name]}" for name in names
            if name in shared and (shared[name] not in UNSET or (name, shared[name]) == ("use_tv_split", "False"))
        ]  # fmt: skip
        if values:
            parts.append(f"{title}: {', '.join(values)}")
    return "; ".join(parts)


def twins(groups: list[Group]) -> list[tuple[Group, Group]]:
    """Pairs that differ in the miner alone: `distance`, and its regularised form `rho_distance`. In the order of `groups`."""
    of_miner = {"distance": {}, "rho_distance": {}}
    for group in groups:
        flags = (group.counted or group.runs)[0].flags
        if group.counted and str(flags.get("batch_mining")) in of_miner:
            others = {
                f: _shown(v) for f, v in flags.items() if f not in NOT_COMPARED and f != "batch_mining" and not f.startswith("miner_")
            }
            of_miner[flags["batch_mining"]].setdefault((group.dataset, *sorted(others.items())), []).append(group)
    pairs = []
    for alike, regularised in of_miner["rho_distance"].items():
        plain = of_miner["distance"].get(alike, [])
        for group in regularised if plain else []:
            named = [other for other in plain if other.label == group.label.removeprefix("R-")]  # of several alike that of the same name
            pairs.append(((named or plain)[0], group))
    return pairs


def datasets(groups: list[Group]) -> list[str]:
    """The data sets of groups, in the order in which papers print them."""
    usual = ["cub200", "cars196", "online_products"]
    return sorted({group.dataset for group in groups}, key=lambda name: (usual.index(name) if name in usual else len(usual), name))


def label_alike(groups: list[Group]) -> dict[tuple[str, str], str]:
    """(data set, group) -> label for shared tables; a label that two groups of a data set would share gives way to their names."""
    times = Counter((group.dataset, group.label) for group in groups)
    return {(g.dataset, g.name): g.label if times[g.dataset, g.label] == 1 else g.name for g in groups}
