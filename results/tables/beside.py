"""Our values beside published ones.

`comparison` puts groups beside the runs of the ICML paper or the Reality Check that they repeat, `from_ledger` beside
all figures of the ledger with the same conditions; figures of other conditions are listed with what differs.
"""

import math

from results import columns, inference, ledger, published
from results.columns import BEST_ON_TEST, ON_VALIDATION, OPTIMISM, SELECTED, Column
from results.formats import Cell, Table
from results.groups import Group, counted_runs
from results.tables import notes
from results.tables.notes import head, number, text

RHO_DIGITS = 3
LEDGER_HEADS = [
    *("group", "seeds", "metric", "ours", "published", "value", "difference", "t", "df"),
    *("conditions that differ", "source"),
]
WELCH = (
    "t, df: Welch's t and its degrees of freedom, from deviations with ddof 1; - if a side has one seed, or no "
    "deviation is published."
)
OTHER_CODE = "If a row's note says that the published code differed, the test compares two different losses."
RHO = "rho published: over D - 1 singular values (the paper's CPU code), ours over D, so the two differ a little."


def comparison(matches: list[published.Match], source: str, dataset_groups: list[Group] | None = None) -> Table:
    """Groups beside their published counterparts.

    Args:
        dataset_groups: all groups of the data set, whose shared settings the table prints; unset: those of the matches.
    """
    dataset_groups = dataset_groups or [match.group for match in matches]
    dataset = dataset_groups[0].dataset
    most_figures = max((match.published.figures for match in matches), key=len)
    value_columns = [figure.column for figure in most_figures]
    other_columns = _other_selection(matches, value_columns, source)
    with_rho = any(math.isfinite(match.published.rho) for match in matches)
    heads = ["group", "method", "seeds"]
    for c in value_columns:
        heads += [f"{c.title} {side}" for side in ("ours [%]", "published [%]", "difference", "t", "df")]
    if with_rho:
        heads += ["rho ours", "rho published"]
    heads += map(head, other_columns)
    table = Table(f"{dataset}_{source}", f"{dataset}: compared with the published values", heads)
    for match in matches:
        _row(table, match, value_columns, with_rho, other_columns)
    table.notes = [published.NOTES[source] + ".", WELCH]
    if source == "published":
        table.notes.append(OTHER_CODE)
    if with_rho:
        table.notes.append(RHO)
    how = BEST_ON_TEST if source == "published" else SELECTED
    table.notes += notes.of_numbers(dataset_groups, how, 0)
    return table


def _other_selection(matches: list[published.Match], value_columns: list[Column], source: str) -> list[Column]:
    """Our test values by the selection that the published ones did not use, and the optimism, if we have both."""
    runs = counted_runs([match.group for match in matches])
    if not any(map(columns.has_both, runs)):
        return []
    other_rule = BEST_ON_TEST
    if source == "published":
        other_rule = ON_VALIDATION
    other_columns = []
    for c in value_columns:
        if c.split == "test":
            other_columns += [columns.selected_by(c, other_rule), columns.selected_by(c, OPTIMISM)]
    return other_columns


def _row(
    table: Table, match: published.Match, value_columns: list[Column], with_rho: bool, other_columns: list[Column]
) -> None:
    """Add a group's row."""
    group = match.group
    cells = [text(group.name), text(match.published.method), text(group.seeds_text)]
    estimates = []
    remarks = [f"unlike the published run: {difference}" for difference in match.differences]
    lacks_joined = False
    figure_of = {figure.column: figure for figure in match.published.figures}
    for c in value_columns:
        figure = figure_of.get(c)
        if figure is None:
            cells += [Cell()] * 5
            continue
        ours, against = published.compare(group, figure)
        estimates.append((c.title, ours))
        lacks_joined |= bool(published.is_joined(figure) and group.folds and not published.joined(group, figure))
        cells += [number(ours, c), *_against(figure, against)]
    if with_rho:
        # the epoch is the best on test, as in the paper
        rho = group.estimate(columns.column("train", "rho_spectrum@2"), BEST_ON_TEST)
        estimates.append(("rho", rho))
        cells += [Cell(rho.mean, digits=RHO_DIGITS), Cell(match.published.rho, digits=RHO_DIGITS)]
    for c in other_columns:
        ours = group.estimate(c, SELECTED, 0)
        estimates.append((c.title, ours))
        cells.append(number(ours, c))
    if lacks_joined:
        remarks.append("ours on test: separated, concatenated was not measured")
    if match.published.note:
        remarks.append(match.published.note)
    table.add(cells, group.remarks + group.fewer(estimates) + remarks)


def _against(figure: ledger.Figure, against: inference.Comparison) -> list[Cell]:
    """The published value, and the test of ours against it."""
    digits = figure.column.digits
    return [
        Cell(figure.value, figure.deviation, digits=digits),
        Cell(against.difference, digits=digits, sign=True),
        Cell(against.t, digits=2, sign=True),
        Cell(against.freedom, digits=1),
    ]


def _cited(figure: ledger.Figure) -> str:
    """The figure's source without the place in it, which docs/ledger.md gives."""
    return figure.source.partition(":")[0]


def from_ledger(comparison: ledger.Comparison, dataset_groups: list[Group]) -> Table:
    """The groups beside the published figures that share their conditions.

    The other figures follow, with what differs.

    Args:
        dataset_groups: all groups of the data set.
    """
    dataset = dataset_groups[0].dataset
    wide = {"published", "conditions that differ", "source"}
    table = Table(
        f"{dataset}_ledger", f"{dataset}: compared with the ledger of published figures", LEDGER_HEADS, wide=wide
    )
    # The rows of a part follow each other: first those whose source states all conditions.
    for group, figure, silent in sorted(comparison.comparable, key=lambda row: bool(row[2])):
        _comparable_row(table, group, figure, silent)
    for refused in comparison.refused:
        _refused_row(table, refused, dataset_groups)
    table.notes = [
        f"A group is compared only with figures of the same conditions ({', '.join(ledger.CONDITIONS.values())}; flags "
        "of evaluation and training): that of its own method if there is one, else all. For other figures the "
        "conditions that differ are listed. Conditions that a source does not state are named in the row. All figures: "
        "docs/ledger.md.",
        f"Ours: epoch selected as for the published figure, deviations with ddof 0. {WELCH}",
        *notes.shared_settings(dataset_groups),
    ]
    return table


def _comparable_row(table: Table, group: Group, figure: ledger.Figure, silent: list[str]) -> None:
    """Add a group beside a figure of the same conditions.

    Args:
        silent: the conditions that the figure's source does not state.
    """
    ours, against = published.compare(group, figure)
    c = figure.column
    remarks = group.remarks + group.fewer([(c.title, ours)])
    if figure.note:
        remarks.append(figure.note)
    part = "the same conditions"
    if silent:
        remarks.append(f"not stated by the source, so perhaps other: {', '.join(silent)}")
        part = "no condition that differs; some not stated"
    cells = [text(group.name), text(group.seeds_text), text(head(c)), number(ours, c), text(figure.method)]
    table.add([*cells, *_against(figure, against), text("none"), text(_cited(figure))], remarks, part)


def _refused_row(table: Table, refused: ledger.Refused, dataset_groups: list[Group]) -> None:
    """Add figures that some groups must not be compared with, and what differs."""
    if len(refused.groups) == len(dataset_groups):
        names = f"all groups ({len(dataset_groups)})"
    else:
        names = ", ".join(group.name for group in refused.groups)
    first = refused.figures[0]
    figures = ", ".join(f"{figure.method} {figure.text}" for figure in refused.figures)
    cells = [text(names), text(""), text(head(first.column)), Cell(), text(figures), *[Cell()] * 4]
    cells += [text("; ".join(refused.differences)), text(_cited(first))]
    remarks = dict.fromkeys(figure.note for figure in refused.figures if figure.note)
    table.add(cells, list(remarks), "other conditions: not to be compared")
