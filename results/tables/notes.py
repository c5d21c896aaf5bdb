"""Notes below tables: selection, seeds, significance, clustering noise, shared settings; and small parts of tables."""

import itertools
import math

from results import columns, groups, inference, settings
from results.columns import SELECTED, SELECTIONS, Column
from results.formats import MARKED_NOTE, MARKS_NOTE, SETTINGS_NOTE, Cell, Table
from results.groups import Group
from utilities.counts import count_of

CLUSTERING = (
    "† computed from a single k-means start: the deviation over seeds includes clustering noise, which "
    "--eval_kmeans_starts N averages out."
)
AVERAGED = "† mean over {} k-means starts, with the same seeds in every run."
MIXED = "† computed from one k-means start or several: see --eval_kmeans_starts in the settings."


UNPLACED = inference.Place()


def number(estimate: inference.Estimate, column: Column, place: inference.Place = UNPLACED) -> Cell:
    """A mean with its deviation, and its place in the ranking."""
    is_gap = column.how == columns.OPTIMISM
    return Cell(estimate.mean, estimate.deviation, place.mark, column.digits, sign=is_gap, interval=place.interval)


def text(words: str) -> Cell:
    """A cell of words."""
    return Cell(text=words)


def head(column: Column) -> str:
    """A column's head, with its unit."""
    if column.how == columns.OPTIMISM:
        return column.title
    return f"{column.title} [%]" if column.percent else column.title


def of_numbers(table_groups: list[Group], how: str, ddof: int) -> list[str]:
    """Notes on a table's numbers: epochs; seeds and deviation; shared settings."""
    has_folds = any(group.folds for group in table_groups)
    selection = SELECTIONS[how]
    if how == SELECTED:
        selection += f"; selected: {rules(table_groups)}"
    elif has_folds:
        selection += "; - if test was measured at the selected epoch only, as in cross-validations"
    deviation = f"Mean and standard deviation (ddof {ddof}) over {seeds(table_groups)} per group"
    deviation += "; none for a single seed."
    if has_folds:
        deviation += " A cross-validation of several folds counts as one seed."
    return [f"Epochs: {selection}.", deviation, *shared_settings(table_groups)]


def ranking(table: Table, ranked_within: str) -> list[str]:
    """The note on bold and underlined numbers and on intervals, as far as the table has any.

    Args:
        ranked_within: what the numbers are ranked within, such as `column`.
    """
    cells = list(itertools.chain.from_iterable(table.rows))
    if not any(cell.mark for cell in cells):
        return []
    sentences = [f"{MARKS_NOTE}best mean of the {ranked_within}, never of a single seed."]
    if any(cell.interval for cell in cells):
        sentences += [
            "In brackets: simultaneous 95 % intervals of the difference to it (Dunnett's T3 with squeezed variances; "
            f"Bonferroni below {inference.SEEDS_TO_SQUEEZE} seeds).",
            f"Underlined: not significantly worse (step-down test from {inference.SEEDS_TO_SQUEEZE} seeds on).",
        ]
    else:
        sentences.append(f"No intervals: they need {inference.SEEDS_TO_COMPARE} seeds.")
    return [" ".join([*sentences, "See docs/statistics.md."])]


def least_marked(ranked_groups: list[Group], c: Column, how: str) -> list[str]:
    """A note on the difference to the best that so many seeds would mark in a column; none for too few seeds."""
    estimates = [group.estimate(c, how) for group in ranked_groups]
    least = inference.least_marked(estimates)
    if math.isnan(least) or c.higher is None:
        return []
    unit = " points" if c.percent else ""
    seeds = min(e.count for e in estimates if e.count >= inference.SEEDS_TO_COMPARE)
    return [
        f"With {seeds} seeds per group a true difference of {least:.{c.digits}f}{unit} in {c.title} to the best "
        f"is detected with {inference.POWER:.0%} power."
    ]


def rules(table_groups: list[Group]) -> str:
    """How the epoch was selected; for each data set if they differ."""
    # rule -> data sets
    datasets_of = {}
    for dataset, dataset_groups in groups.of_datasets(table_groups).items():
        common = settings.shared([group.settings for group in dataset_groups])
        datasets_of.setdefault(common.get("selection", ""), []).append(dataset)
    if len(datasets_of) == 1:
        return next(iter(datasets_of))
    return "; ".join(f"{rule} ({', '.join(names)})" for rule, names in datasets_of.items())


def seeds(table_groups: list[Group]) -> str:
    """`5 seeds`, `2 to 5 seeds`."""
    counts = sorted({len(group.seeds) for group in table_groups if group.seeds})
    if not counts:
        return "no seeds"
    if len(counts) == 1:
        return count_of(counts[0], "seed")
    return f"{counts[0]} to {counts[-1]} seeds"


def shared_settings(table_groups: list[Group]) -> list[str]:
    """One note per data set: the settings that its groups share."""
    lines = []
    for name, dataset_groups in groups.of_datasets(table_groups).items():
        shared = settings.printed([group.settings for group in dataset_groups])
        lines.append(f"{SETTINGS_NOTE}{name}), unless marked: {shared}.")
    return lines


def mark_noise(table: Table, table_groups: list[Group], heads: dict[str, Column]) -> None:
    """Mark the columns that measure a k-means clustering, and note how many starts they average.

    Args:
        heads: head -> its column.
    """
    table.noisy = {name for name, column in heads.items() if columns.is_clustered(column.metric)}
    if not table.noisy:
        return
    starts = {run.flags.get("eval_kmeans_starts") for run in groups.counted_runs(table_groups)}
    if starts <= {None}:
        note = CLUSTERING
    elif len(starts) > 1:
        note = MIXED
    else:
        note = AVERAGED.format(*starts)
    table.notes.insert(2, note)


def fewer(group: Group, table_columns: list[Column], how: str) -> list[str]:
    """Remarks that name which of a group's means are of fewer seeds than the group counts."""
    return group.undefined(table_columns) + group.fewer([(c.title, group.estimate(c, how)) for c in table_columns])


def marked(table_groups: list[Group], table_columns: list[Column]) -> list[str]:
    """The remarks of groups that have no row of their own, one note per remark."""
    holders = {}
    for group in table_groups:
        for remark in group.remarks + fewer(group, table_columns, SELECTED):
            holders.setdefault(remark, []).append(group.name)
    return [f"{MARKED_NOTE}{', '.join(names)}: {remark}." for remark, names in holders.items()]
