"""Notes below tables: selection, seeds, significance, clustering noise, shared settings; and small parts of tables."""

from results import columns, groups, inference, settings
from results.columns import SELECTED, SELECTIONS, Column
from results.formats import MARKED_NOTE, SETTINGS_NOTE, SMALL, Cell, Table
from results.groups import Group

TOO_SMALL = f"{SMALL} A difference so small that the seeds there, were it the true one, would show it with a chance of less than {inference.POWER:.0%}."
RANKING = (
    "Bold: best mean of the {where}. In brackets: 95 % interval of the difference to it (Welch's t). Underlined: not significantly worse "
    f"(two-sided Welch's t-test, Holm-corrected over these tests, p >= {inference.ALPHA}), tested where both have {inference.SEEDS_TO_UNDERLINE} "
    "seeds or more; one without a line need not be worse: see its interval. A mean of one seed is never the best and has no interval. "
    + TOO_SMALL
)
CLUSTERING = (
    "† of one k-means start, seeded as the run: the deviation over seeds holds clustering noise. --eval_kmeans_starts N averages it out."
)
AVERAGED = "† the mean over {} k-means starts with the same seeds in every run."
MIXED = "† of one k-means start, seeded as the run, or of several: see --eval_kmeans_starts in the settings."


def number(estimate: inference.Estimate, column: Column, place: inference.Place = inference.Place()) -> Cell:  # noqa: B008
    """A mean with its deviation, and its place among the others."""
    is_gap = column.how == columns.OPTIMISM
    return Cell(estimate.mean, estimate.deviation, place.mark, column.digits, sign=is_gap, interval=place.interval, is_small=place.is_small)


def text(words: str) -> Cell:
    """A cell of words."""
    return Cell(text=words)


def head(column: Column) -> str:
    """A column's head, with its unit."""
    if column.how == columns.OPTIMISM:
        return column.title
    return f"{column.title} [%]" if column.percent else column.title


def about(found: list[Group], how: str, ddof: int, where: str | None = "column") -> list[str]:
    """Notes on a table's numbers: epochs, seeds and deviation; if it ranks, significance; shared settings.

    Args:
        where: what the table ranks within, such as `column`; None where it does not rank.
    """
    selection = f"{SELECTIONS[how]}; selected: {rules(found)}" if how == SELECTED else SELECTIONS[how]
    folded = any(group.folds for group in found)
    if folded and how != SELECTED:
        selection += "; - where test was not measured throughout, as in cross-validations, which measure it at the selected epoch alone"
    return [
        f"Epochs: {selection}.",
        f"Mean and standard deviation (ddof {ddof}) over {seeds(found)} a group; no deviation where a number is of one seed only."
        + " A cross-validation of several folds counts as one seed." * folded,
        *[RANKING.format(where=where)] * (where is not None),
        *shared_settings(found),
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
        f"{SETTINGS_NOTE}{name}) of all groups but those marked: {settings.printed([group.settings for group in there])}."
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
    return group.fewer([(c.title, group.estimate(c, how)) for c in shown])


def marked(found: list[Group], shown: list[Column]) -> list[str]:
    """The remarks of groups that have no row of their own, one note per remark."""
    holders = {}
    for group in found:
        for remark in group.remarks + fewer(group, shown, SELECTED):
            holders.setdefault(remark, []).append(group.name)
    return [f"{MARKED_NOTE}{', '.join(names)}: {remark}." for remark, names in holders.items()]
