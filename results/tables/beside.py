"""Our values beside published ones."""

import math

from results import columns, inference, ledger, published
from results.columns import BEST_ON_TEST, ON_VALIDATION, OPTIMISM, SELECTED, Column
from results.formats import Cell, Table
from results.groups import Group
from results.tables import notes
from results.tables.notes import head, number, text

RHO_DIGITS = 3
WELCH = (
    "t: Welch's, difference / sqrt(s1^2/n1 + s2^2/n2), of df degrees of freedom; the deviations as ddof 1. No test (-) "
    "where a side has one seed, "
    "or no deviation is published."
)


def comparison(matches: list[published.Match], source: str, found: list[Group] | None = None) -> Table:
    """Groups beside their published counterparts.

    Args:
        found: all groups of the data set, whose shared settings the table prints; unset: those of the matches.
    """
    found = found or [match.group for match in matches]
    dataset = found[0].dataset
    values = [figure.column for figure in max((m.published.figures for m in matches), key=len)]
    both = _other_selection(matches, values, source)
    with_rho = any(math.isfinite(m.published.rho) for m in matches)
    heads = [f"{c.title} {what}" for c in values for what in ("ours [%]", "published [%]", "difference", "t", "df")]
    heads += ["rho ours", "rho published"] * with_rho + [head(c) for c in both]
    table = Table(
        f"{dataset}_{source}", f"{dataset}: beside the published values", ["group", "method", "seeds", *heads]
    )
    for match in matches:
        _row(table, match, values, with_rho, both)
    table.notes = [
        published.ABOUT[source] + ".",
        WELCH,
        *["Where a row's note says that the published code differed, the test compares two different losses."]
        * (source == "published"),
        *[
            (
                "rho published is over D - 1 singular values (the paper's CPU code), ours over D: the two differ a "
                "little for that alone."
            )
        ]
        * with_rho,
        *notes.about(found, BEST_ON_TEST if source == "published" else SELECTED, 0),
    ]
    return table


def _other_selection(matches: list[published.Match], values: list[Column], source: str) -> list[Column]:
    """Our test values by the selection that the published ones did not use, and the optimism, where we have both."""
    runs = [run for match in matches for run in match.group.counted]
    rules = (ON_VALIDATION if source == "published" else BEST_ON_TEST, OPTIMISM)
    return [columns.selected_by(c, rule) for c in values for rule in rules if c.split == "test"] * any(
        map(columns.has_both, runs)
    )


def _row(table: Table, match: published.Match, shown: list[Column], with_rho: bool, both: list[Column]) -> None:
    """Add a group's row."""
    group = match.group
    cells = []
    estimates = []
    remarks = []
    theirs = {figure.column: figure for figure in match.published.figures}
    for column in shown:
        figure = theirs.get(column)
        if figure is None:
            cells += [Cell()] * 5
            continue
        ours, against = published.compare(group, figure)
        estimates.append((column.title, ours))
        if published.is_joined(figure) and group.folds and not published.joined(group, figure):
            remarks = ["ours on test: separated, concatenated was not measured"]
        cells += [
            number(ours, column),
            Cell(figure.value, figure.deviation, digits=column.digits),
            Cell(against.difference, digits=column.digits, sign=True),
            *_test(against),
        ]
    if with_rho:
        rho = group.estimate(columns.column("train", "rho_spectrum@2"), BEST_ON_TEST)  # as in the paper
        estimates.append(("rho", rho))
        cells += [Cell(rho.mean, digits=RHO_DIGITS), Cell(match.published.rho, digits=RHO_DIGITS)]
    for c in both:
        ours = group.estimate(c, SELECTED, 0)
        estimates.append((c.title, ours))
        cells.append(number(ours, c))
    unlike = [f"unlike the published run: {difference}" for difference in match.differences]
    noted = [match.published.note] if match.published.note else []
    about = [text(group.name), text(match.published.method), text(group.seeds_text)]
    table.add([*about, *cells], group.remarks + group.fewer(estimates) + unlike + remarks + noted)


def _test(against: inference.Comparison) -> list[Cell]:
    return [Cell(against.t, digits=2, sign=True), Cell(against.freedom, digits=1)]


def _cited(figure: ledger.Figure) -> str:
    """The figure's source without the place in it, which docs/ledger.md gives."""
    return figure.source.partition(":")[0]


def from_ledger(made: ledger.Comparison, found: list[Group]) -> Table:
    """The groups of a data set beside the published figures that share their conditions; and the other figures, with
    what differs.

    Args:
        found: all groups of the data set.
    """
    dataset = found[0].dataset
    heads = [
        "group",
        "seeds",
        "metric",
        "ours",
        "published",
        "value",
        "difference",
        "t",
        "df",
        "conditions that differ",
        "source",
    ]
    wide = {"published", "conditions that differ", "source"}
    table = Table(f"{dataset}_ledger", f"{dataset}: beside the ledger of published figures", heads, wide=wide)
    for group, figure, silent in sorted(made.beside, key=lambda row: bool(row[2])):  # parts are of rows in a row
        ours, against = published.compare(group, figure)
        c = figure.column
        cells = [
            text(group.name),
            text(group.seeds_text),
            text(head(c)),
            number(ours, c),
            text(figure.method),
            Cell(figure.value, figure.deviation, digits=c.digits),
            Cell(against.difference, digits=c.digits, sign=True),
            *_test(against),
            text("none"),
            text(_cited(figure)),
        ]
        unstated = [f"not stated by the source, so perhaps other: {', '.join(silent)}"] if silent else []
        remarks = group.remarks + group.fewer([(c.title, ours)]) + ([figure.note] if figure.note else []) + unstated
        table.add(cells, remarks, "no condition that differs; some not stated" if silent else "the same conditions")
    for one in made.refused:
        c = one.figures[0].column
        everyone = len(one.groups) == len(found)
        who = f"all groups ({len(found)})" if everyone else ", ".join(group.name for group in one.groups)
        figures = ", ".join(f"{figure.method} {figure.text}" for figure in one.figures)
        remarks = list(dict.fromkeys(figure.note for figure in one.figures if figure.note))
        conditions = "; ".join(one.differences)
        source = _cited(one.figures[0])
        cells = [
            text(who),
            text(""),
            text(head(c)),
            Cell(),
            text(figures),
            *[Cell()] * 4,
            text(conditions),
            text(source),
        ]
        table.add(cells, remarks, "other conditions: not to be compared")
    table.notes = [
        f"A group stands beside figures of the same conditions alone ({', '.join(ledger.CONDITIONS.values())}; flags "
        "of evaluation and training): that of its own method where there is one, "
        "else all. Of the other figures it is said what differs, and no difference is given; what a source does not "
        "state is named with the row. "
        "Every figure with its conditions: docs/ledger.md.",
        f"Ours: the epoch selected as the published one was, deviations with ddof 0. {WELCH}",
        *notes.shared_settings(found),
    ]
    return table
