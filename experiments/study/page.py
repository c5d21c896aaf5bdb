"""What the pages of the study share: the columns that they show, and the marks between which results are written."""

from pathlib import Path

from results import columns, formats
from results.formats import Table
from utilities.errors import UserError

R_AT_1 = columns.column("test", "e_recall@1")
MAP_R = columns.column("test", "map_r")
RHO = columns.column("train", "rho_spectrum@2")
# The lines around the results of a data set, or of a script, on their page.
MARKS = (
    "<!-- results of {}: written by experiments/study/tables.py -->",
    "<!-- end of the results of {} -->",
)


def markdown(table: Table) -> str:
    """A table of a page: its heading is two levels below the page's."""
    return "##" + formats.to_markdown(table)


def p_text(value: float) -> str:
    """A p in three digits: `p 0.014`."""
    if value < 0.0005:
        return "p < 0.001"
    return f"p {value:.3f}"


def put(page: Path, name: str, results: str, marks: tuple[str, str] = MARKS) -> None:
    """Write the results of `name` between its marks on the page. Raises UserError where it has none."""
    before = page.read_text(encoding="utf-8") if page.exists() else ""
    start, end = (mark.format(name) for mark in marks)
    if not before.count(start) == before.count(end) == 1:
        raise UserError(
            f"--write {page}: the page holds no lines {start} and {end}: add them where the results are to stand"
        )
    above, old_results = before.split(start)
    below = old_results.split(end)[1]
    page.write_text(f"{above}{start}\n\n{results}\n\n{end}{below}", encoding="utf-8")
