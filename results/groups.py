"""Groups of runs that differ by seed alone: what counts, what is left out and why, what may be ranked.

`build` sorts runs by data set and --group. A run counts unless it failed or is short, its flags differ from those of
the others, its seed occurs twice, or it lacks a fold. `pools` divides the groups of a data set into those that a table
may rank: the same selection of the epoch, the same images, the same test classes. `twins` are the pairs of groups that
differ in the miner alone.
"""

import itertools
import re
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

import datasets
from results import columns, inference, settings
from results.columns import SELECTED, Column
from results.recorded import OverFolds, RecordedRun
from results.roles import FlagRoles
from results.settings import flag_texts
from results.texts import brief
from runs.meta import CONCATENATED, SEPARATED
from utilities.counts import count_of

# settings that decide the test classes
OF_TEST = (
    "split_scheme",
    "split_test_size",
    "split_test_start",
    "split_file",
    "split_shuffle",
    "split_groups",
    "burst_seconds",
    "split_time",
    "split_time_end",
    "split_unknown",
    "oodml_file",
    "oodml_id",
)


@dataclass(eq=False)
class Group:
    """Runs of one configuration on one data set.

    Attributes:
        seeds: the runs that count, seed -> one run per fold.
        left_out: (run, reason) of the others.
        refused: the reason why nothing is averaged, None if something is.
    """

    dataset: str
    name: str
    runs: list[RecordedRun]
    seeds: dict[int | None, list[RecordedRun]] = field(default_factory=dict)
    left_out: list[tuple[RecordedRun, str]] = field(default_factory=list)
    refused: str | None = None
    settings: dict[str, str] = field(default_factory=dict)
    # Flags whose value follows from other flags, as in most groups: no differences.
    derived: set[str] = field(default_factory=set)
    differs: list[str] = field(default_factory=list)  # settings unlike those that most groups share
    about_meta: list[str] = field(default_factory=list)  # problems of the results over folds
    method: str = ""  # as published, for shared tables and plots
    miner: str | None = None  # `-`: the loss mines nothing, whatever --batch_mining is; None: that of --batch_mining
    # Values by column and rule: tables and figures need them many times.
    _computed: dict = field(default_factory=dict, repr=False)

    def reason(self, run: RecordedRun) -> str:
        """Why a run is excluded from the means; empty if it is not."""
        for left_out, reason in self.left_out:
            if left_out is run:
                return reason
        return ""

    def leave_out(self, runs: list[RecordedRun], reason: str) -> None:
        """Exclude runs from the means."""
        for run in runs:
            self.left_out.append((run, reason))

    @property
    def roles(self) -> FlagRoles:
        """Which of its flags count for which purpose."""
        return self.runs[0].roles

    @property
    def counted(self) -> list[RecordedRun]:
        """The runs that are averaged."""
        return list(itertools.chain.from_iterable(self.seeds.values()))

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
        if self.method:
            return self.method
        names = "|".join([*datasets.names_in_groups(), re.escape(self.dataset.partition("_")[0])])
        pattern = rf"^(?:MLRC_)?(?:{names})(reg)?[_-]"
        return re.sub(pattern, lambda match: "R-" if match[1] else "", self.name, flags=re.IGNORECASE)

    @property
    def folds(self) -> list[int]:
        """The folds that each seed is averaged over; empty unless the runs are cross-validations."""
        if self.n_folds < 2:
            return []
        return sorted({run.fold for run in self.counted} - {None})

    @property
    def n_folds(self) -> int:
        """How many folds the split scheme makes; 0 unless the runs are cross-validations."""
        fold_runs = [run for run in self.counted or self.runs if run.fold is not None]
        if not fold_runs:
            return 0
        flags = fold_runs[0].flags
        if flags.get("split_scheme") == "predefined":
            return 1
        last = max(run.fold for run in fold_runs)
        return int(flags.get("split_sets") or last + 1)

    @property
    def n_run(self) -> int:
        """How many seeds were run, whether they count or not."""
        return len({run.seed for run in self.runs})

    @property
    def seeds_text(self) -> str:
        """How many seeds count, out of how many were run; for cross-validations also the number of folds."""
        count = str(len(self.seeds))
        if len(self.seeds) < self.n_run:
            count += f" of {self.n_run}"
        if self.folds:
            count += f" x {count_of(len(self.folds), 'fold')}"
        return count

    @property
    def remarks(self) -> list[str]:
        """Footnotes in a table: averaged folds, why nothing is averaged, what was left out, what differs."""
        if not self.folds:
            return self.own_remarks
        mean = f"the mean of {count_of(len(self.folds), 'fold')}, separated"
        details = f"intervals, concatenated embeddings: {self.dataset}_cross_validation"
        return [f"cross-validation: a seed's number is {mean}; {details}", *self.own_remarks]

    @property
    def own_remarks(self) -> list[str]:
        """The remarks without the one on averaged folds, for the table of cross-validations."""
        if self.refused:
            remarks = [f"not averaged: {self.refused}"]
        else:
            remarks = [f"left out: {run.name} ({reason})" for run, reason in self.left_out]
            if 0 < len(self.folds) < self.n_folds:
                present = ", ".join(map(str, self.folds))
                remarks.append(f"of {self.n_folds} folds, counted from 0, only {present}")
        if self.differs:
            remarks.append(f"unlike the others: {'; '.join(self.differs)}")
        for run in self.counted:
            remarks += [f"warning in {run.name}: {warning}" for warning in run.warnings]
        return remarks

    def joined(self, column: Column) -> np.ndarray:
        """One printed number per seed, for the concatenated embeddings of its folds.

        NaN if not measured at the selected epochs.
        """
        numbers = []
        for runs in self.seeds.values():
            over_folds = runs[0].meta.get(CONCATENATED)
            if over_folds and not _is_stale(runs, over_folds):
                numbers.append(over_folds.means.get((column.split, column.metric), np.nan) * column.scale)
            else:
                numbers.append(np.nan)
        return np.array(numbers)

    def values(self, column: Column, how: str) -> np.ndarray:
        """One printed number per seed, the mean over its folds; NaN if a run has none."""
        if (column, how) not in self._computed:
            means = []
            for runs in self.seeds.values():
                over_folds = [columns.value(run, column, how) * column.scale for run in runs]
                means.append(np.mean(over_folds))
            self._computed[column, how] = np.array(means)
        return self._computed[column, how]

    def estimate(self, column: Column, how: str, ddof: int = 1) -> inference.Estimate:
        """Mean and deviation over the seeds."""
        if (column, how, ddof) not in self._computed:
            self._computed[column, how, ddof] = inference.estimate(self.values(column, how), ddof)
        return self._computed[column, how, ddof]

    def fewer(self, estimates: list[tuple[str, inference.Estimate]]) -> list[str]:
        """Remarks that name which of a row's numbers are means of fewer seeds than the group counts.

        `estimates`: (title, estimate).
        """
        titles = {}
        for title, estimate in estimates:
            if 0 < estimate.count < len(self.seeds):
                titles.setdefault(estimate.count, []).append(title)
        n_seeds = count_of(len(self.seeds), "seed")
        return [f"{', '.join(names)}: mean of {count} of {n_seeds}" for count, names in titles.items()]

    def undefined(self, table_columns: list[Column]) -> list[str]:
        """A remark that names the columns that every run recorded and that are NaN in all of them."""
        if not self.counted:
            return []
        titles = [c.title for c in table_columns if all(map(c.is_undefined, self.counted))]
        if not titles:
            return []
        return [f"{', '.join(titles)}: NaN in all runs, not defined (no query counts)"]

    def epochs(self, how: str, ddof: int = 1, column: Column | None = None) -> inference.Estimate:
        """Mean and deviation over the seeds of the selected epoch, see `columns.epoch`.

        A seed's epoch is the mean over its folds.
        """
        means = []
        for runs in self.seeds.values():
            over_folds = [columns.epoch(run, how, column) for run in runs]
            means.append(np.mean(over_folds))
        return inference.estimate(means, ddof)


def _is_stale(runs: list[RecordedRun], joined: OverFolds) -> bool:
    """Whether the results over folds come from other folds or epochs than the runs that count."""
    measured = list(zip(joined.folds, joined.epochs, strict=False))
    return measured != [(run.fold, columns.epoch(run, SELECTED)) for run in runs]


def build(runs: list[RecordedRun], defaults: dict | None = None) -> list[Group]:
    """Group by data set and `group`, decide what counts, and compare the settings of each group with the others'.

    Args:
        defaults: flag -> default, for flags that some runs were recorded without; None for a flag without default.
    """
    runs_of = {}
    for run in runs:
        runs_of.setdefault((run.dataset, run.group), []).append(run)
    groups = []
    default_of = {}
    for run in runs:
        for flag in run.flags:
            default_of[flag] = (defaults or {}).get(flag)
    for (dataset, name), members in sorted(runs_of.items()):
        members.sort(key=lambda run: (run.seed is None, run.seed or 0, run.fold or 0, run.name))
        group = Group(dataset, name, members)
        _count(group, default_of)
        groups.append(group)
    for members in of_datasets(groups).values():
        common = settings.shared([group.settings for group in members])
        usual = settings.usually_derived([(group.settings, group.derived) for group in members], common)
        for group in members:
            group.derived &= usual
            group.differs = settings.differences(group.settings, common, group.derived)
    return groups


def _count(group: Group, defaults: dict) -> None:
    """Sort the runs of a group into those that count and those that do not."""
    sound = []
    for run in group.runs:
        reason = run.problem or _unselectable(run)
        if reason:
            group.left_out.append((run, reason))
        else:
            sound.append(run)
    differing = settings.differing_flags(sound, defaults)
    if differing:
        group.refused = "runs of this group differ in " + "; ".join(differing)
        group.leave_out(sound, "flags differ within the group")
        sound = []
    for run in _without_duplicates(group, sound):
        group.seeds.setdefault(run.seed, []).append(run)
    folds = {run.fold for run in group.counted}
    for seed, members in list(group.seeds.items()):
        missing = folds - {run.fold for run in members}
        if missing:
            group.leave_out(members, f"seed {seed} lacks folds {', '.join(map(str, sorted(missing)))}")
            del group.seeds[seed]
    for runs in group.seeds.values():
        group.about_meta += _check_meta(runs)
    members = group.counted or group.runs
    group.settings = settings.together([settings.of_run(run, defaults) for run in members])
    group.derived = set.intersection(*(run.derived for run in members))


def _without_duplicates(group: Group, runs: list[RecordedRun]) -> list[RecordedRun]:
    """The runs whose seed occurs once; the others are left out of the group.

    Of a cross-validation all folds are left out: else the folds of two would be mixed.
    """
    times = Counter((run.seed, run.fold) for run in runs)
    seeds = {seed for (seed, _), count in times.items() if count > 1}
    duplicated = [run for run in runs if run.seed in seeds]
    for run in duplicated:
        # names of the other runs with this seed, each once
        names = {}
        for candidate in duplicated:
            if candidate.seed == run.seed and candidate.cross_validation != run.cross_validation:
                names[candidate.name] = None
        group.left_out.append((run, f"seed {run.seed} occurs twice: also {', '.join(names)}"))
    return [run for run in runs if run not in duplicated]


def _check_meta(runs: list[RecordedRun]) -> list[str]:
    """Notes on results over folds that are stale, or were measured with other flags than the folds."""
    notes = []
    for kind, content in runs[0].meta.items():
        path = f"{runs[0].cross_validation}/meta/{kind}.json"
        if _is_stale(runs, content):
            command = "--aggregate_only" if kind == SEPARATED else "--evaluate_ensemble"
            notes.append(
                f"{path} is of other folds or epochs than the rows of metrics.csv, and not used; main.py "
                f"{command} makes it anew"
            )
            continue
        fold_flags = flag_texts(runs[0].flags)
        differing = []
        for flag, text in sorted(flag_texts(runs[0].roles.measured(content.flags)).items()):
            if flag in fold_flags and text != fold_flags[flag]:
                differing.append(f"{flag} {text} (folds: {fold_flags[flag]})")
        if differing:
            notes.append(f"{path} was measured with {', '.join(differing)}")
    return notes


def _unselectable(run: RecordedRun) -> str | None:
    """Why no epoch of the run can be selected; None if one can."""
    if run.flags.get("n_epochs") == 0:
        return None
    selected = columns.epoch(run, SELECTED)
    if np.isnan(selected):
        metric = f"{columns.selection_metric(run)} on {columns.selection_split(run)}"
        return f"failed: no finite {metric}, which selects the epoch"
    if run.selected_epoch not in (None, selected):
        run.notes.append(
            f"summary.json names epoch {run.selected_epoch}, the rows of metrics.csv epoch {selected:g}: the tables "
            "follow the rows"
        )
    return None


def all_runs(groups: list[Group]) -> list[RecordedRun]:
    """The runs of some groups, whether they count or not."""
    return list(itertools.chain.from_iterable(group.runs for group in groups))


def counted_runs(groups: list[Group]) -> list[RecordedRun]:
    """The runs of some groups that are averaged."""
    return list(itertools.chain.from_iterable(group.counted for group in groups))


def of_datasets(groups: list[Group]) -> dict[str, list[Group]]:
    """Data set -> its groups, in the order in which papers print the data sets."""
    by_dataset = {}
    for group in groups:
        by_dataset.setdefault(group.dataset, []).append(group)
    return {name: by_dataset[name] for name in usual_order(by_dataset)}


def usual_order(names) -> list[str]:
    """Names of data sets in the order in which papers print them."""
    return sorted(names, key=lambda name: (datasets.table_order(name), name))


def pools(dataset_groups: list[Group], how: str) -> dict[str, list[Group]]:
    """Title -> the groups of one data set that may be ranked with each other, the largest part first.

    Kept separate are groups selected on validation from those selected on test (if `how` is `selected`), and groups
    with different image counts or other test classes; what is unrecorded is taken to be the most frequent. Groups
    without a run that counts are in the first part.
    """
    counted = [group for group in dataset_groups if group.counted]
    values_of = {}
    for name in ("images", *OF_TEST):
        values_of[name] = Counter(group.settings[name] for group in counted if name in group.settings)
    usual = {name: values.most_common(1)[0][0] for name, values in values_of.items() if values}
    varying = [name for name in OF_TEST if len(values_of[name]) > 1]
    members = {}  # (split that selects, number of images, test classes) -> groups
    for group in counted:
        split = ""
        if how == SELECTED:
            split = columns.selection_split(group.counted[0])
        images = group.settings.get("images", usual.get("images", ""))
        classes = ", ".join(f"{name} {group.settings.get(name, usual[name])}" for name in varying)
        members.setdefault((split, images, classes), []).append(group)
    if not members:
        return {"": dataset_groups}
    parts = {}
    titles = _pool_titles(list(members))
    for key in sorted(members, key=lambda key: (-len(members[key]), key[0] != "val", *key[1:])):
        is_first = not parts
        parts[titles[key]] = [g for g in dataset_groups if g in members[key] or (not g.counted and is_first)]
    return parts


def _pool_titles(keys: list[tuple[str, str, str]]) -> dict[tuple[str, str, str], str]:
    """(split, images, classes) -> a title that names what distinguishes it from the others."""
    all_splits, all_images, all_classes = map(set, zip(*keys, strict=True))
    is_brief = len(set(map(brief, all_classes))) == len(all_classes)
    titles = {}
    for split, images, classes in keys:
        parts = []
        if len(all_splits) > 1:
            parts.append(f"selected on {split}")
        if len(all_images) > 1:
            parts.append(f"images: {images}")
        if classes and is_brief:
            parts.append(brief(classes))
        elif classes:
            parts.append(classes)
        titles[split, images, classes] = "; ".join(parts)
    return titles


def twins(groups: list[Group]) -> list[tuple[Group, Group]]:
    """Pairs that differ in the miner alone: `distance` and `rho_distance`, in the order of `groups`."""
    # miner -> all other flags -> groups
    of_miner = {"distance": {}, "rho_distance": {}}
    for group in groups:
        miner = str(group.flags.get("batch_mining"))
        if group.counted and miner in of_miner:
            other_flags = []
            for flag, text in sorted(flag_texts(group.roles.compared(group.flags)).items()):
                if flag != "batch_mining" and not flag.startswith("miner_"):
                    other_flags.append((flag, text))
            of_miner[miner].setdefault((group.dataset, *other_flags), []).append(group)
    pairs = []
    for other_flags, regularised in of_miner["rho_distance"].items():
        candidates = of_miner["distance"].get(other_flags)
        if not candidates:
            continue
        for group in regularised:
            namesakes = [plain for plain in candidates if plain.label == group.label.removeprefix("R-")]
            pairs.append(((namesakes or candidates)[0], group))
    return pairs


def units(dataset_groups: list[Group]) -> list[int]:
    """One number per group, the same for twins.

    A method with and without rho_distance is not two independent observations.
    """
    numbers = list(range(len(dataset_groups)))
    for plain, regularised in twins(dataset_groups):
        numbers[dataset_groups.index(regularised)] = numbers[dataset_groups.index(plain)]
    return numbers


def label_alike(groups: list[Group]) -> dict[tuple[str, str], str]:
    """(data set, group) -> label for shared tables.

    Groups of one data set whose labels would coincide are shown by their names.
    """
    times = Counter((group.dataset, group.label) for group in groups)
    labels = {}
    for group in groups:
        is_unique = times[group.dataset, group.label] == 1
        labels[group.dataset, group.name] = group.label if is_unique else group.name
    return labels
