"""Notes below tables: selection, seeds, significance, clustering noise, shared settings; and small parts of tables."""

import math

from results import columns, groups, inference, settings
from results.columns import SELECTED, SELECTIONS, Column
from results.formats import MARKED_NOTE, MARKS_NOTE, SETTINGS_NOTE, Cell, Table
from results.groups import Group

CLUSTERING = (
    "† of one k-means start, seeded as the run: the deviation over seeds holds clustering noise. --eval_kmeans_starts "
    "N averages it out."
)
AVERAGED = "† the mean over {} k-means starts with the same seeds in every run."
MIXED = "† of one k-means start, seeded as the run, or of several: see --eval_kmeans_starts in the settings."


def number(estimate: inference.Estimate, column: Column, place: inference.Place = inference.Place()) -> Cell:  # noqa: B008
    """A mean with its deviation, and its place among the others."""
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


def about(found: list[Group], how: str, ddof: int) -> list[str]:
    """Notes on a table's numbers: epochs; seeds and deviation; shared settings."""
    selection = f"{SELECTIONS[how]}; selected: {rules(found)}" if how == SELECTED else SELECTIONS[how]
    folded = any(group.folds for group in found)
    if folded and how != SELECTED:
        selection += (
            "; - where test was not measured throughout, as in cross-validations, which measure it at the selected "
            "epoch alone"
        )
    return [
        f"Epochs: {selection}.",
        f"Mean and standard deviation (ddof {ddof}) over {seeds(found)} per group; no deviation of a single seed."
        + " A cross-validation of several folds counts as one seed." * folded,
        *shared_settings(found),
    ]


def ranking(table: Table, where: str) -> list[str]:
    """The note on bold and underlined numbers and on intervals, as far as the table has any; `where`: what it ranks
    within, such as `column`.
    """
    cells = [cell for row in table.rows for cell in row]
    if not any(cell.mark for cell in cells):
        return []
    sentences = [f"{MARKS_NOTE}best mean of the {where}. A mean of one seed is never the best."]
    if any(cell.interval for cell in cells):
        sentences += [
            "In brackets: interval of the difference to it; all of them hold together with 95 % "
            f"(Dunnett's T3, below {inference.SEEDS_FOR_T3} seeds Bonferroni's).",
            "Underlined: the interval contains 0, so the group is not shown to be worse.",
        ]
    else:
        sentences.append(f"No intervals: they need {inference.SEEDS_TO_COMPARE} seeds.")
    return [" ".join([*sentences, "See docs/statistics.md."])]


def least_marked(found: list[Group], c: Column, how: str) -> list[str]:
    """The difference to the best that so many seeds would mark in a column, in words; nothing where there are too
    few.
    """
    estimates = [group.estimate(c, how) for group in found]
    least = inference.least_marked(estimates)
    unit = " points" * c.percent
    if math.isnan(least) or c.higher is None:
        return []
    seeds = min(e.count for e in estimates if e.count >= inference.SEEDS_TO_COMPARE)
    return [
        (
            f"With {seeds} seeds per group a true difference of {least:.{c.digits}f}{unit} in {c.title} to the best "
            f"is marked with {inference.POWER:.0%} power."
        )
    ]


def rules(found: list[Group]) -> str:
    """How the epoch was selected, in words; for each data set where they differ."""
    of = {}
    for dataset, there in groups.of_datasets(found).items():
        of.setdefault(settings.shared([group.settings for group in there]).get("selection", ""), []).append(dataset)
    return next(iter(of)) if len(of) == 1 else "; ".join(f"{rule} ({', '.join(names)})" for rule, names in of.items())


def seeds(found: list[Group]) -> str:
    """`5 seeds`, `2 to 5 seeds`."""
    counts = sorted({len(group.seeds) for group in found if group.seeds})
    count = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}" if counts else "no"
    return f"{count} seed{'' if counts == [1] else 's'}"


def shared_settings(found: list[Group]) -> list[str]:
    """One note per data set: the settings that its groups share."""
    return [
        (
            f"{SETTINGS_NOTE}{name}) of all groups but those marked: "
            f"{settings.printed([group.settings for group in there])}."
        )
        for name, there in groups.of_datasets(found).items()
    ]


def mark_noise(table: Table, found: list[Group], heads: dict[str, Column]) -> None:
    """Mark the columns that measure a k-means clustering, and note how many starts they average.

    Args:
        heads: head -> its column.
    """
    table.noisy = {name for name, column in heads.items() if columns.is_clustered(column.metric)}
    if table.noisy:
        starts = {run.flags.get("eval_kmeans_starts") for group in found for run in group.counted}
        one = starts <= {None}
        table.notes.insert(2, CLUSTERING if one else MIXED if len(starts) > 1 else AVERAGED.format(*starts))


def fewer(group: Group, shown: list[Column], how: str) -> list[str]:
    """Remarks that name which of a group's means are of fewer seeds than the group counts."""
    return group.undefined(shown) + group.fewer([(c.title, group.estimate(c, how)) for c in shown])


def marked(found: list[Group], shown: list[Column]) -> list[str]:
    """The remarks of groups that have no row of their own, one note per remark."""
    holders = {}
    for group in found:
        for remark in group.remarks + fewer(group, shown, SELECTED):
            holders.setdefault(remark, []).append(group.name)
    return [f"{MARKED_NOTE}{', '.join(names)}: {remark}." for remark, names in holders.items()]
