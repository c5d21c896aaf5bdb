"""Columns of the tables: metric, split, title, unit, direction; the value of a run by a selection rule.

A `Column` is one metric on one split. `performance`, `structure`, `by_domain` and `parse` choose columns from what runs
recorded. `value` and `epoch` take a run's number at the epoch that a rule selects: `selected` (by its
--storage_metrics, on validation if there is any), `last`, or `best_on_test` (each metric's own best epoch on test). A
column may have a rule of its own, see `selected_by`.
"""

import functools
import math
from argparse import Namespace
from dataclasses import dataclass, replace

import numpy as np

import metrics
from results.recorded import RecordedRun
from runs.names import domain_of, mean_of, named, plain, split_name
from runs.records import SPLIT_TITLES
from runs.run import Selection
from utilities import evaltypes
from utilities.errors import UserError
from utilities.numbers import is_whole
from utilities.registry import unknown

# the ICML paper's quantities
STRUCTURE = ("dists@intra", "dists@inter", "dists@intra_over_inter", "rho_spectrum@2")
TITLES = {
    "nmi": "NMI",
    "ami": "AMI",
    "f1": "F1",
    "map_r": "MAP@R",
    "r_precision": "RP",
    "mrr": "MRR",
    "inp": "mINP",
    "ap_trapezoid": "mAP by trapezoids",
    "dists@intra": "intra",
    "dists@inter": "inter",
    "dists@intra_over_inter": "intra/inter",
    "rho_spectrum@2": "rho",
}
# of head@number
OF_NUMBER = {
    "e_recall": "R@{}",
    "c_recall": "cR@{}",
    "precision": "P@{}",
    "map": "MAP@{}",
    "mp": "mP@{}",
    "mmp": "mMP@{}",
    "rho_spectrum": "rho({})",
}

SELECTED = "selected"
LAST = "last"
BEST_ON_TEST = "best_on_test"
SELECTIONS = {
    SELECTED: "values of the selected epoch",
    LAST: "values of the last epoch",
    BEST_ON_TEST: (
        "best epoch on test: each metric's own best epoch, chosen on the test set itself (the field's habit; "
        "optimistic)"
    ),
}


# rules of single columns, never of a whole table; `with_both` makes a column of each of RULES
ON_VALIDATION = "on_validation"
OPTIMISM = "optimism"
RULES = {ON_VALIDATION: " chosen on validation", BEST_ON_TEST: " chosen on test", OPTIMISM: " optimism"}


@dataclass(frozen=True)
class Column:
    """One metric on one split.

    `higher` is None if neither direction is better; `how` overrides the table's selection rule: another rule, or a
    number that is derived from values by two of them, such as the optimism.
    """

    split: str
    metric: str
    higher: bool | None
    percent: bool
    how: str | None = None

    @property
    def title(self) -> str:
        """The column's heading; it names the split unless that is test."""
        return title(self.metric) + self.place + RULES.get(self.how, "")

    @property
    def place(self) -> str:
        """The split in brackets; empty for test."""
        return "" if self.split == "test" else f" ({self.split})"

    @property
    def unit(self) -> str:
        """The title with its unit."""
        return f"{self.title} in %" if self.percent else self.title

    @property
    def scale(self) -> float:
        """Factor from recorded to printed numbers."""
        return 100.0 if self.percent else 1.0

    def is_undefined(self, run: RecordedRun) -> bool:
        """Whether a run recorded the metric, and it is NaN at all epochs."""
        is_recorded = (self.split, self.metric) in run.series.keys
        return is_recorded and not np.isfinite(run.series.get(self.split, self.metric)).any()

    @property
    def digits(self) -> int:
        """Printed decimals."""
        if not self.percent:
            return 3
        # the variances of `opis` are some hundredths of a percent, and need more decimals
        is_variance = plain(self.metric).removeprefix("c_").startswith("opis")
        return 4 if is_variance else 2


def title(metric: str) -> str:
    """A metric's name in tables: `e_recall@1` -> `R@1`."""
    above, name = split_name(metric)
    if above in ("criterion", "miner", "rate"):
        return metric
    # a name such as `e_recall@1@d64` ends in its prefix
    name, at, prefix = name.partition("@d")
    head, _, number = name.partition("@")
    short = name
    if head in OF_NUMBER and is_whole(number.lstrip("-")):
        short = OF_NUMBER[head].format(number)
    heading = TITLES.get(name, short) + at + prefix
    if above:
        heading += f" [{above}]"
    return heading


@functools.cache
def direction(metric: str) -> bool | None:
    """Whether higher is better; None for quantities that are no metric of an embedding space, such as a loss."""
    try:
        return metrics.higher_is_better(plain(metric))
    except UserError:
        return None


def is_structure(metric: str) -> bool:
    """Whether a metric describes the space rather than rates it: dists, rho, alignment, uniformity."""
    return metrics.group(plain(metric)) in ("dists", "rho_spectrum", "alignment", "uniformity")


def is_clustered(metric: str) -> bool:
    """Whether a metric measures a k-means clustering, and so depends on its random start."""
    # a metric of a prefix is one, too: `nmi@d32`
    return plain(metric).removeprefix("c_").partition("@")[0] in ("nmi", "ami", "f1")


def column(split: str, metric: str) -> Column:
    """The column of a recorded metric."""
    higher = None if is_structure(metric) else direction(metric)
    return Column(split, metric, higher, percent=higher is not None and _is_share(metric))


@functools.cache
def _is_share(metric: str) -> bool:
    """Whether a metric lies between 0 and 1; one that this clone does not know is taken to."""
    try:
        return metrics.is_share(plain(metric))
    except UserError:
        return True


def recorded(runs: list[RecordedRun]) -> dict[tuple[str, str], bool]:
    """The (split, metric) pairs that any run recorded, in this order, and whether each is of one domain."""
    pairs = {}
    for run in runs:
        for split, metric in run.series.keys:
            pairs[split, metric] = (split, mean_of(metric)) in run.series.keys
    return pairs


def performance(available) -> list[Column]:
    """The columns that rate a space: on test, else on validation, else on training data.

    Of several domains these are their means.
    """
    # split -> evaltype, in the order of --evaltypes, -> columns
    ratings = {}
    for split, metric in _rating(available):
        if not available[split, metric]:
            evaltype, _ = split_name(metric)
            ratings.setdefault(split, {}).setdefault(evaltype, []).append(column(split, metric))
    for split in ("test", "val", "train"):
        if split in ratings:
            columns = []
            for of_evaltype in ratings[split].values():
                columns += sorted(of_evaltype, key=lambda c: _order(c.metric))
            return columns
    return []


def by_domain(available) -> dict[str, list[Column]]:
    """Domain -> its columns on test, else on validation."""
    domains = {}
    for split in ("test", "val"):
        for s, metric in _rating(available):
            if s == split and available[s, metric]:
                domains.setdefault(domain_of(metric), []).append(column(s, metric))
        if domains:
            break
    return domains


def _rating(available) -> list[tuple[str, str]]:
    pairs = []
    for split, metric in available:
        if not is_structure(metric) and direction(metric) is not None:
            pairs.append((split, metric))
    return pairs


def _order(metric: str):
    """e_recall@1, @2, @4, @10, then the others as they came."""
    head, _, number = plain(metric).partition("@")
    if head == "e_recall" and is_whole(number):
        return 0, int(number)
    return 1, 0


def structure(available) -> list[Column]:
    """All columns that describe the space, the ICML paper's first, without single domains.

    They are on training data as in that paper, else on test, else on validation.
    """
    order = {metric: i for i, metric in enumerate(STRUCTURE)}
    for split in ("train", "test", "val"):
        names = []
        for (s, metric), is_of_domain in available.items():
            if s == split and is_structure(metric) and not is_of_domain:
                names.append(metric)
        if names:
            names.sort(key=lambda metric: order.get(plain(metric), len(order)))
            return [column(split, metric) for metric in names]
    return []


def principal(quantities: list[Column]) -> list[Column]:
    """The ICML paper's columns among those that describe the space, else the first few; others are redundant."""
    return [c for c in quantities if plain(c.metric) in STRUCTURE] or quantities[: len(STRUCTURE)]


def parse(name: str, available) -> Column:
    """The column that `metric` or `split/metric` names. Without a split: test, else validation, else training.

    Raises:
        UserError: no run recorded it; the message names those recorded.
    """
    head, _, tail = name.partition("/")
    if head in SPLIT_TITLES:
        splits = (head,)
        metric = tail
        on_split = f" on {head}"
    else:
        splits = ("test", "val", "train")
        metric = name
        on_split = ""
    for split in splits:
        if (split, metric) in available:
            return column(split, metric)
    if direction(metric) is not None:
        recorded_names = ", ".join(_names(available)) or "nothing"
        raise UserError(
            f"metric {name!r} exists, but none of these runs recorded it{on_split}. Recorded: {recorded_names}"
        )
    raise unknown("metric", name, _names(available))


def _names(available) -> list[str]:
    recorded = sorted({metric for _, metric in available})
    rating = [metric for metric in recorded if direction(metric) is not None]
    return rating or recorded


def _selecting(run: RecordedRun) -> Namespace:
    """The flags that name the metric by which the epoch is selected."""
    return Namespace(
        evaltypes=run.flags.get("evaltypes") or [evaltypes.MAIN],
        storage_metrics=run.flags.get("storage_metrics") or ["e_recall@1"],
    )


def selection_metric(run: RecordedRun) -> str:
    """The first of --storage_metrics, as it is named in files."""
    opt = _selecting(run)
    return named(opt.evaltypes[0], opt.storage_metrics[0], opt.evaltypes)


def selection_split(run: RecordedRun) -> str:
    """Validation where the run recorded it, else test."""
    has_validation = ("val", selection_metric(run)) in run.series.keys
    return "val" if has_validation else "test"


def rule(run: RecordedRun) -> str:
    """How the run's epoch was selected, in the words of its own summary.json."""
    return Selection(_selecting(run), lambda metric: direction(metric) is not False, selection_split(run)).rule


def best_row(run: RecordedRun, split: str, metric: str) -> int | None:
    """Row of the first best epoch of a metric by its direction; untrained states and non-finite values never count."""
    values = run.series.get(split, metric)
    eligible = np.flatnonzero((run.series.epochs > 0) & np.isfinite(values))
    if not len(eligible):
        return None
    best = np.argmin if direction(metric) is False else np.argmax
    return int(eligible[best(values[eligible])])


def selected_by(source: Column, how: str) -> Column:
    """The same metric by its own rule: `on_validation`, `best_on_test`, or `optimism`.

    Optimism: by how much the second is better than the first.
    """
    plain_column = column(source.split, source.metric)
    higher = None if how == OPTIMISM else plain_column.higher
    return replace(plain_column, how=how, higher=higher)


def has_both(run: RecordedRun) -> bool:
    """Whether a run has an epoch chosen on validation, and test values from which one can be chosen on test.

    Test must have been measured as often as validation.
    """
    return selection_split(run) == "val" and _tested_throughout(run)


def first_on_test(table_columns: list[Column]) -> Column | None:
    """The first column that rates the space on test."""
    for c in table_columns:
        if c.split == "test" and c.higher is not None:
            return c
    return None


def with_both(table_columns: list[Column], runs: list[RecordedRun], how: str) -> list[Column]:
    """The columns; the first test column is followed by its values by the other rules and the optimism.

    Only if a run has both selections.
    """
    first = first_on_test(table_columns)
    if first is None or not any(map(has_both, runs)):
        return table_columns
    at = table_columns.index(first) + 1
    table_rule = {SELECTED: ON_VALIDATION}.get(how, how)
    by_other_rules = [selected_by(first, rule) for rule in RULES if rule != table_rule]
    return table_columns[:at] + by_other_rules + table_columns[at:]


def _tested_throughout(run: RecordedRun) -> bool:
    """Whether test was measured as often as the selecting split.

    --final_test measures it once: then there is no best epoch on test.
    """
    return _n_measured(run, "test") >= max(_n_measured(run, selection_split(run)), 1)


def _n_measured(run: RecordedRun, split: str) -> int:
    """At how many trained epochs the selecting metric was measured on a split."""
    values = run.series.get(split, selection_metric(run))
    return int(np.isfinite(values[run.series.epochs > 0]).sum())


@functools.cache
def _row(run: RecordedRun, how: str, target: Column | None = None) -> int | None:
    """The row of the epoch that a rule selects, see `epoch`."""
    metric = selection_metric(run)
    split = selection_split(run)
    if how == ON_VALIDATION and split != "val":
        return None
    if how in (SELECTED, ON_VALIDATION):
        return best_row(run, split, metric)
    if how == BEST_ON_TEST:
        if not _tested_throughout(run):
            return None
        if target is not None and target.split == "test" and target.higher is not None:
            metric = target.metric
        return best_row(run, "test", metric)
    evaluated = np.flatnonzero(np.isfinite(run.series.get(split, metric)))
    trained = evaluated[run.series.epochs[evaluated] > 0]
    if len(trained):
        evaluated = trained
    return int(evaluated[-1]) if len(evaluated) else None


def epoch(run: RecordedRun, how: str, target: Column | None = None) -> float:
    """The epoch that the rule `how` selects by the run's selection metric; NaN if there is none.

    On test it is selected by the metric of the column `target`.
    """
    row = _row(run, how, target)
    if row is None:
        return math.nan
    return float(run.series.epochs[row])


def value(run: RecordedRun, target: Column, how: str) -> float:
    """A run's recorded value in a column, by the column's own rule, else by `how`; NaN if there is none."""
    how = target.how or how
    if how == OPTIMISM:
        gap = value(run, selected_by(target, BEST_ON_TEST), how) - value(run, selected_by(target, ON_VALIDATION), how)
        if direction(target.metric) is False:
            gap = -gap
        return gap
    row = _row(run, how, target)
    if row is None:
        return math.nan
    return float(run.series.get(target.split, target.metric)[row])
