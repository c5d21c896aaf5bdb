"""Groups of runs that differ by seed alone: what counts, what is left out and why, which groups may be ranked with each
other.
"""

import re
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

import datasets
from results import columns, inference, roles, settings
from results.columns import SELECTED, Column
from results.recorded import OverFolds, RecordedRun
from results.texts import brief
from runs.meta import CONCATENATED, SEPARATED
from utilities.counts import count_of

UNTRAINED = {-1: "untrained backbone", 0: "untrained network"}  # epochs of --check_untrained_accuracy
OF_NETWORK = {-1: ("arch", "weights", "not_pretrained", "last_stride")}  # flags that make it
OF_NETWORK[0] = (*OF_NETWORK[-1], "embed_dim", "embed_hidden", "pool", "neck", "lora_rank", "prompts")
OF_TEST = (
    "split_scheme",
    "split_test_size",
    "split_test_start",
    "split_file",
    "split_shuffle",
    "oodml_file",
    "oodml_id",
)  # settings that decide the test classes


@dataclass(eq=False)
class Group:
    """Runs of one configuration on one data set.

    `seeds` holds the runs that count: seed -> one run per fold. `left_out` holds (run, reason). `refused` says why
    nothing is averaged.
    """

    dataset: str
    name: str
    runs: list[RecordedRun]
    seeds: dict[int | None, list[RecordedRun]] = field(default_factory=dict)
    left_out: list[tuple[RecordedRun, str]] = field(default_factory=list)
    refused: str | None = None
    settings: dict[str, str] = field(default_factory=dict)
    # Flags whose value follows from other flags, here as in most groups: no differences.
    derived: set[str] = field(default_factory=set)
    differs: list[str] = field(default_factory=list)  # settings unlike those that most groups share
    about_meta: list[str] = field(default_factory=list)  # problems of the results over folds
    method: str = ""  # as published, for shared tables and plots
    miner: str | None = (
        None  # `-` where the loss mines nothing, whatever --batch_mining says; None: as --batch_mining says
    )
    _known: dict = field(
        default_factory=dict, repr=False
    )  # values by column and rule: tables and figures ask for them many times

    def reason(self, run: RecordedRun) -> str:
        """Why a run is in no mean; empty where it is."""
        return next((reason for left_out, reason in self.left_out if left_out is run), "")

    @property
    def counted(self) -> list[RecordedRun]:
        """The runs that are averaged."""
        return [run for runs in self.seeds.values() for run in runs]

    @property
    def flags(self) -> dict:
        """The flags of its first run that counts, or of its first run if none does."""
        return (self.counted or self.runs)[0].flags

    @property
    def has_both(self) -> bool:
        """Whether every run that counts has an epoch chosen on validation and one chosen on test."""
        return bool(self.counted) and all(map(columns.has_both, self.counted))

    @property
    def label(self) -> str:
        """A name that is the same on every data set."""
        names = "|".join([*datasets.names_in_groups(), re.escape(self.dataset.partition("_")[0])])
        return self.method or re.sub(
            rf"^(?:MLRC_)?(?:{names})(reg)?[_-]", lambda m: "R-" if m[1] else "", self.name, flags=re.IGNORECASE
        )

    @property
    def folds(self) -> list[int]:
        """The folds that each seed is averaged over; empty unless the runs are cross-validations."""
        return sorted({run.fold for run in self.counted if run.fold is not None}) if self.n_folds > 1 else []

    @property
    def n_folds(self) -> int:
        """How many folds the split scheme makes; 0 unless the runs are cross-validations."""
        there = [run for run in self.counted or self.runs if run.fold is not None]
        if not there:
            return 0
        flags = there[0].flags
        return (
            1
            if flags.get("split_scheme") == "predefined"
            else int(flags.get("split_sets") or 1 + max(run.fold for run in there))
        )

    @property
    def n_run(self) -> int:
        """How many seeds were run, whether they count or not."""
        return len({run.seed for run in self.runs})

    @property
    def seeds_text(self) -> str:
        """How many seeds count, out of how many were run; for cross-validations also the number of folds."""
        count = f"{len(self.seeds)}" + (f" of {self.n_run}" if len(self.seeds) < self.n_run else "")
        return count + (f" x {count_of(len(self.folds), 'fold')}" if self.folds else "")

    @property
    def remarks(self) -> list[str]:
        """Footnotes of the group in a table: that folds were averaged, why it is not averaged, what was left out, what
        differs.
        """
        mean = f"the mean of {count_of(len(self.folds), 'fold')}, separated"
        folded = f"{mean}; intervals, concatenated embeddings: {self.dataset}_cross_validation"
        return ([f"cross-validation: a seed's number is {folded}"] if self.folds else []) + self.own_remarks

    @property
    def own_remarks(self) -> list[str]:
        """The remarks without the one on averaged folds, for the table of cross-validations."""
        apart = [f"unlike the others: {'; '.join(self.differs)}"] if self.differs else []
        if self.refused:
            return [f"not averaged: {self.refused}", *apart]
        there = ", ".join(map(str, self.folds))
        missing = (
            [f"of {self.n_folds} folds, counted from 0, only {there}"] if 0 < len(self.folds) < self.n_folds else []
        )
        return [f"left out: {run.name} ({reason})" for run, reason in self.left_out] + missing + apart

    def joined(self, column: Column) -> np.ndarray:
        """One printed number per seed, for the concatenated embeddings of its folds; NaN where not measured at the
        selected epochs.
        """
        over = [runs[0].meta.get(CONCATENATED) for runs in self.seeds.values()]
        used = [
            content and not _is_stale(runs, content) for runs, content in zip(self.seeds.values(), over, strict=True)
        ]
        key = (column.split, column.metric)
        return np.array(
            [o.means.get(key, np.nan) * column.scale if use else np.nan for o, use in zip(over, used, strict=True)]
        )

    def values(self, column: Column, how: str) -> np.ndarray:
        """One printed number per seed, the mean over its folds; NaN where a run has none."""
        if (column, how) not in self._known:
            recorded = [
                [columns.value(run, column, how) * column.scale for run in runs] for runs in self.seeds.values()
            ]
            self._known[column, how] = np.array([np.mean(values) for values in recorded])
        return self._known[column, how]

    def estimate(self, column: Column, how: str, ddof: int = 1) -> inference.Estimate:
        """Mean and deviation over the seeds."""
        if (column, how, ddof) not in self._known:
            self._known[column, how, ddof] = inference.estimate(self.values(column, how), ddof)
        return self._known[column, how, ddof]

    def fewer(self, estimates: list[tuple[str, inference.Estimate]]) -> list[str]:
        """Remarks that name which of a row's numbers, (title, estimate), are means of fewer seeds than the group
        counts.
        """
        titles = {}
        for title, estimate in estimates:
            if 0 < estimate.count < len(self.seeds):
                titles.setdefault(estimate.count, []).append(title)
        return [
            f"{', '.join(names)}: mean of {count} of {count_of(len(self.seeds), 'seed')}"
            for count, names in titles.items()
        ]

    def undefined(self, shown: list[Column]) -> list[str]:
        """A remark that names the columns that every run recorded and that are NaN in all of them."""
        runs = self.counted
        recorded = [c for c in shown if runs and all((c.split, c.metric) in run.series.keys for run in runs)]
        is_defined = [any(np.isfinite(run.series.of(c.split, c.metric)).any() for run in runs) for c in recorded]
        titles = [c.title for c, defined in zip(recorded, is_defined, strict=True) if not defined]
        return [f"{', '.join(titles)}: NaN in all runs, not defined (no query counts)"] if titles else []

    def epochs(self, how: str, ddof: int = 1, of: Column | None = None) -> inference.Estimate:
        """Mean and deviation over the seeds of the selected epoch, as `columns.epoch` takes it; each seed's is the mean
        over its folds.
        """
        return inference.estimate(
            [np.mean([columns.epoch(run, how, of) for run in runs]) for runs in self.seeds.values()], ddof
        )


def _is_stale(runs: list[RecordedRun], joined: OverFolds) -> bool:
    """Whether the results over folds come from other folds or epochs than the runs that count."""
    return [(run.fold, columns.epoch(run, SELECTED)) for run in runs] != list(
        zip(joined.folds, joined.epochs, strict=False)
    )


def build(runs: list[RecordedRun], defaults: dict | None = None) -> list[Group]:
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
        group = Group(
            dataset, name, sorted(found, key=lambda run: (run.seed is None, run.seed or 0, run.fold or 0, run.name))
        )
        _count(group, known)
        groups.append(group)
    for found in of_datasets(groups).values():
        common = settings.shared([group.settings for group in found])
        usual = settings.usually_derived([(group.settings, group.derived) for group in found], common)
        for group in found:
            group.derived &= usual
            group.differs = settings.differences(group.settings, common, group.derived)
    return groups


def _count(group: Group, defaults: dict) -> None:
    """Sort the runs of a group into those that count and those that do not."""
    sound = []
    for run in group.runs:
        reason = run.problem or _unselectable(run)
        group.left_out += [(run, reason)] if reason else []
        sound += [] if reason else [run]
    differing = settings.differing_flags(sound, defaults)
    if differing:
        group.refused = "runs of this group differ in " + "; ".join(differing)
        group.left_out += [(run, "flags differ within the group") for run in sound]
        sound = []
    times = Counter((run.seed, run.fold) for run in sound)
    doubled = {
        seed for (seed, _), count in times.items() if count > 1
    }  # of a cross-validation all folds, or those of two would be mixed
    twice = [run for run in sound if run.seed in doubled]
    for run in twice:
        again = ", ".join(
            dict.fromkeys(other.name for other in twice if other.seed == run.seed and other.whole != run.whole)
        )
        group.left_out.append((run, f"seed {run.seed} occurs twice: also {again}"))
    for run in sound:
        if run not in twice:
            group.seeds.setdefault(run.seed, []).append(run)
    folds = {run.fold for run in group.counted}
    for seed, members in list(group.seeds.items()):
        missing = folds - {run.fold for run in members}
        if missing:
            group.left_out += [
                (run, f"seed {seed} lacks folds {', '.join(map(str, sorted(missing)))}") for run in members
            ]
            del group.seeds[seed]
    group.about_meta = [note for runs in group.seeds.values() for note in _check_meta(runs)]
    members = group.counted or group.runs
    group.settings = settings.together([settings.of_run(run, defaults) for run in members])
    group.derived = set.intersection(*(run.derived for run in members))


def _check_meta(runs: list[RecordedRun]) -> list[str]:
    """Notes on results over folds that are stale, or were measured with other flags than the folds."""
    notes = []
    for kind, content in runs[0].meta.items():
        path = f"{runs[0].whole}/meta/{kind}.json"
        if _is_stale(runs, content):
            way_out = "--aggregate_only" if kind == SEPARATED else "--evaluate_ensemble"
            notes.append(
                f"{path} is of other folds or epochs than the rows of metrics.csv, and not used; main.py "
                f"{way_out} makes it anew"
            )
            continue
        shown = settings.shown
        theirs = runs[0].flags
        differing = [
            f"{flag} {shown(value)} (folds: {shown(theirs[flag])})"
            for flag, value in sorted(roles.measured(content.flags).items())
            if flag in theirs and shown(value) != shown(theirs[flag])
        ]
        if differing:
            notes.append(f"{path} was measured with {', '.join(differing)}")
    return notes


def _unselectable(run: RecordedRun) -> str | None:
    """Why no epoch of the run can be selected; None where one can."""
    if run.flags.get("n_epochs") == 0:
        return None
    selected = columns.epoch(run, SELECTED)
    if np.isnan(selected):
        return (
            f"failed: no finite {columns.selection_metric(run)} on {columns.selection_split(run)}, which selects the "
            "epoch"
        )
    if run.selected_epoch not in (None, selected):
        theirs = f"summary.json names epoch {run.selected_epoch}"
        run.notes.append(f"{theirs}, the rows of metrics.csv epoch {selected:g}: the tables follow the rows")
    return None


def of_datasets(groups: list[Group]) -> dict[str, list[Group]]:
    """Data set -> its groups, in the order in which papers print the data sets."""
    return {
        name: [group for group in groups if group.dataset == name]
        for name in usual_order({group.dataset for group in groups})
    }


def usual_order(names) -> list[str]:
    """Names of data sets in the order in which papers print them."""
    return sorted(names, key=lambda name: (datasets.table_order(name), name))


def pools(found: list[Group], how: str) -> dict[str, list[Group]]:
    """Title -> the groups of one data set that may be ranked with each other, the largest part first.

    Kept apart are groups selected on validation from those selected on test (where `how` is `selected`), and groups
    with different image counts or other test classes; what is unrecorded is taken to be the most frequent. Groups
    without a run that counts are in the first part.
    """
    counted = [group for group in found if group.counted]
    there = {
        name: Counter(group.settings[name] for group in counted if name in group.settings)
        for name in ("images", *OF_TEST)
    }
    usual = {name: values.most_common(1)[0][0] for name, values in there.items() if values}
    varying = [name for name in OF_TEST if len(there[name]) > 1]
    members = {}
    for group in counted:
        split = columns.selection_split(group.counted[0]) if how == SELECTED else ""
        classes = ", ".join(f"{name} {group.settings.get(name, usual[name])}" for name in varying)
        members.setdefault((split, group.settings.get("images", usual.get("images", "")), classes), []).append(group)
    order = sorted(members, key=lambda key: (-len(members[key]), key[0] != "val", *key[1:]))
    splits, counts = ({key[i] for key in order} for i in (0, 1))
    parts = {}
    is_brief = len({brief(classes) for _, _, classes in order}) == len({classes for _, _, classes in order})
    for split, count, classes in order:
        of_classes = brief(classes) if is_brief else classes
        titles = (
            [f"selected on {split}"] * (len(splits) > 1)
            + [f"images: {count}"] * (len(counts) > 1)
            + [of_classes] * bool(classes)
        )
        title = "; ".join(titles)
        parts[title] = [g for g in found if g in members[split, count, classes] or (not g.counted and not parts)]
    return parts or {"": found}


@dataclass
class Untrained:
    """The networks of some groups before training, at one epoch of `UNTRAINED`."""

    title: str
    epoch: int
    runs: list[RecordedRun]

    def estimate(self, column: Column, ddof: int = 1) -> inference.Estimate:
        """Mean and deviation over the seeds; a seed that several groups share counts once, with the mean over its runs.

        Empty for a column with a selection rule of its own: before training there is no epoch to select.
        """
        seeds = {}
        for run in self.runs if column.how is None else ():
            at = np.flatnonzero(run.series.epochs == self.epoch)
            value = run.series.of(column.split, column.metric)[at[0]] if len(at) else np.nan
            if np.isfinite(value):
                seeds.setdefault(run.seed, []).append(value * column.scale)
        return inference.estimate([np.mean(values) for values in seeds.values()], ddof)


def untrained(found: list[Group]) -> list[Untrained]:
    """Measurements of --check_untrained_accuracy in the runs that count, one entry per epoch and per network, data and
    way to measure.
    """
    members = {epoch: {} for epoch in UNTRAINED}
    for run in (run for group in found for run in group.counted):
        measured = {
            name: settings.shown(value)
            for name, value in {**roles.of_data(run.flags), **roles.of_evaluation(run.flags, {})}.items()
        }
        for epoch in UNTRAINED:
            if (run.series.epochs == epoch).any():
                key = {**{name: settings.shown(run.flags.get(name)) for name in OF_NETWORK[epoch]}, **measured}
                members[epoch].setdefault(tuple(sorted(key.items())), []).append(run)
    states = []
    for epoch, of_epoch in members.items():
        varying = {pair for key in of_epoch for pair in key if not all(pair in other for other in of_epoch)}
        for key, runs in sorted(of_epoch.items()):
            of = dict(key)
            others = "".join(
                f", {name} {brief(value)}"
                for name, value in key
                if (name, value) in varying and name not in ("arch", "embed_dim")
            )
            network = f", {of['arch']}" + f", {of.get('embed_dim')} dimensions" * (epoch == 0)
            states.append(Untrained(UNTRAINED[epoch] + network * (len(of_epoch) > 1) + others, epoch, runs))
    return states


def twins(groups: list[Group]) -> list[tuple[Group, Group]]:
    """Pairs that differ in the miner alone: `distance`, and its regularised form `rho_distance`. In the order of
    `groups`.
    """
    of_miner = {"distance": {}, "rho_distance": {}}
    for group in groups:
        miner = group.flags.get("batch_mining")
        if group.counted and str(miner) in of_miner:
            others = {
                flag: settings.shown(value)
                for flag, value in roles.compared(group.flags).items()
                if not flag.startswith("miner_")
            }
            others.pop("batch_mining", None)
            of_miner[miner].setdefault((group.dataset, *sorted(others.items())), []).append(group)
    pairs = []
    for alike, regularised in of_miner["rho_distance"].items():
        plain = of_miner["distance"].get(alike, [])
        for group in regularised if plain else []:
            named = [
                other for other in plain if other.label == group.label.removeprefix("R-")
            ]  # of several, that of the same name
            pairs.append(((named or plain)[0], group))
    return pairs


def units(found: list[Group]) -> list[int]:
    """One number per group, the same for twins: a method with and without rho_distance is not two independent
    observations.
    """
    numbers = list(range(len(found)))
    for plain, regularised in twins(found):
        numbers[found.index(regularised)] = numbers[found.index(plain)]
    return numbers


def label_alike(groups: list[Group]) -> dict[tuple[str, str], str]:
    """(data set, group) -> label for shared tables; groups of one data set whose labels would coincide are shown by
    their names.
    """
    times = Counter((group.dataset, group.label) for group in groups)
    return {(g.dataset, g.name): g.label if times[g.dataset, g.label] == 1 else g.name for g in groups}
