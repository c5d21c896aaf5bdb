"""Our values beside published ones."""

import math

from results import published
from results.columns import BEST_ON_TEST, SELECTED
from results.formats import Cell, Table
from results.groups import Group
from results.tables import notes
from results.tables.notes import number, text

RHO_DIGITS = 3


def comparison(matches: list[published.Match], source: str, found: list[Group] | None = None) -> Table:
    """Groups beside their published counterparts.

    Args:
        found: all groups of the data set, whose shared settings the table prints; unset: those of the matches.
    """
    found = found or [match.group for match in matches]
    dataset = found[0].dataset
    values = [(v.column, v.how) for v in max((m.published.values for m in matches), key=len)]
    with_rho = any(math.isfinite(m.published.rho) for m in matches)
    heads = [f"{c.title} {what}" for c, _ in values for what in ("ours [%]", "published [%]", "difference", "z")]
    heads += ["rho ours", "rho published"] * with_rho
    table = Table(f"{dataset}_{source}", f"{dataset}: beside the published values", ["group", "method", "seeds", *heads])
    is_assumed = [_row(table, match, [c for c, _ in values], with_rho) for match in matches]
    table.notes = [
        published.ABOUT[source] + ".",
        f"z = difference / sqrt(s1^2/n1 + s2^2/n2), with the deviations as ddof 1{', of one seed with the published deviation' * any(is_assumed)}; "
        "- where no deviation is published.",
        *["Where a row's note says that the published code differed, z compares two different losses."] * (source == "published"),
        *["rho published is over D - 1 singular values (the paper's CPU code), ours over D: the two differ a little for that alone."]
        * with_rho,
        *notes.about(found, BEST_ON_TEST if source == "published" else SELECTED, 0, None),
    ]
    return table


def _row(table: Table, match: published.Match, shown: list, with_rho: bool) -> bool:
    """Add a group's row. Returns whether a z-score assumes the published deviation."""
    group, cells, estimates, remarks, assumed = match.group, [], [], [], False
    theirs = {value.column: value for value in match.published.values}
    for column in shown:
        value = theirs.get(column)
        if value is None:
            cells += [Cell()] * 4
            continue
        ours, against = published.compare(group, value)
        estimates.append((column.title, ours))
        assumed |= against.assumed
        if value.joined and group.folds and not published.joined(group, value):
            remarks = ["ours on test: separated, concatenated was not measured"]
        cells += [
            number(ours, column), Cell(value.mean, value.deviation, digits=column.digits),
            Cell(against.difference, digits=column.digits, sign=True), Cell(against.z, digits=2, sign=True),
        ]  # fmt: skip
    if with_rho:
        rho = published.our_rho(group)
        estimates.append(("rho", rho))
        cells += [Cell(rho.mean, digits=RHO_DIGITS), Cell(match.published.rho, digits=RHO_DIGITS)]
    unlike = [f"unlike the published run: {difference}" for difference in match.differences]
    noted = [match.published.note] * bool(match.published.note)
    about = [text(group.name), text(match.published.method), text(group.seeds_text)]
    table.add([*about, *cells], group.remarks + group.fewer(estimates) + unlike + remarks + noted)
    return assumed
