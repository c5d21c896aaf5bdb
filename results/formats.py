"""A table of cells, and its text as Markdown, CSV and for the console; latex.py writes it as LaTeX, page.html shows it
on the page.
"""

import itertools
import math
import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from results.latex import to_tex
from results.texts import brief
from utilities.console import aligned, wrapped
from utilities.files import write_file
from utilities.markdown import escaped

SEEDS = "seeds"  # head of the number of seeds
NOISY = "†"  # after a heading: the column's numbers contain clustering noise
TEXT_MARKS = {"best": ("*", "best"), "close": ("~", "not shown to be worse than the best")}
MARKS_NOTE = "Bold: "  # beginning of the note on the marks of .md and .tex
# beginnings of notes that the page folds
SETTINGS_NOTE = "Settings ("
MARKED_NOTE = "Marked: "


@dataclass
class Cell:
    """A number with its deviation, or a text.

    `mark`: `best`, `close` (not shown to be worse), or empty. `interval`: of the difference to the best, in the
    number's unit.
    """

    value: float = math.nan
    deviation: float | None = None  # None: no deviation
    mark: str = ""
    digits: int = 2
    text: str | None = None
    sign: bool = False
    link: str = ""  # HTML only
    interval: tuple[float, float] | None = None
    tex: str | None = None  # in place of the text in LaTeX

    @property
    def is_number(self) -> bool:
        """Whether the cell is sorted by its value, such as one that prints <0.001."""
        return math.isfinite(self.value)

    @property
    def mean_text(self) -> str:
        """The number alone."""
        if self.text is not None:
            return self.text
        return "-" if not math.isfinite(self.value) else f"{self.value:{'+' if self.sign else ''}.{self.digits}f}"

    @property
    def latex_text(self) -> str:
        """The number or text as LaTeX shows it, without absolute paths."""
        if self.text is None:
            return self.mean_text
        return brief(self.text) if self.tex is None else self.tex

    @property
    def deviation_text(self) -> str:
        """The deviation alone, empty where there is none."""
        return (
            f"{self.deviation:.{self.digits}f}" if self.deviation is not None and math.isfinite(self.deviation) else ""
        )

    @property
    def interval_text(self) -> str:
        """The interval alone, as `[-2.90, -1.92]`; empty where there is none."""
        return f"[{', '.join(f'{bound:+.{self.digits}f}' for bound in self.interval)}]" if self.interval else ""


@dataclass
class Table:
    """`rows` are lists of cells under `head`; `remarks` holds the footnotes of each row, `notes` the text below the
    table.

    `parts` names the part of the table that each row belongs to; rows of one part are consecutive.
    """

    name: str  # stem of its files
    title: str
    head: list[str]
    rows: list[list[Cell]] = field(default_factory=list)
    remarks: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    spread: str = "deviation"  # what the number after ± is
    parts: list[str] = field(default_factory=list)
    noisy: set[str] = field(default_factory=set)  # heads that are marked by `NOISY`
    apart: set[str] = field(default_factory=set)  # heads of columns that only the page and the .csv show
    wide: set[str] = field(default_factory=set)  # heads of columns of long texts, which LaTeX breaks into lines
    aside: set[str] = field(default_factory=set)  # heads of columns that LaTeX leaves out
    folded: list[int] = field(default_factory=list)  # rows folded on the page and put in a note of .md and .tex
    folded_title: str = ""

    def add(self, cells: list[Cell], remarks: list[str] = (), part: str = "") -> None:
        """Append a row."""
        self.rows.append(cells)
        self.remarks.append(list(remarks))
        self.parts.append(part)

    def write(self, folder: Path, plain: bool = False) -> None:
        """Write the .tex, .md and .csv files; `plain`: the .tex holds rows, means and deviations alone."""
        for ending, text in (("tex", to_tex(self, plain)), ("md", to_markdown(self)), ("csv", to_csv(self))):
            write_file(folder / f"{file_name(self.name)}.{ending}", text)

    @property
    def printed(self) -> "Table":
        """The table as .md and .tex show it: without the `apart` columns, and with the folded rows in a note."""
        columns = [i for i, name in enumerate(self.head) if name not in self.apart]
        pairs = ", ".join(f"{self.rows[i][0].mean_text} {self.rows[i][1].mean_text}" for i in self.folded)
        table = self._with_columns(columns)
        return replace(table, notes=self.notes + ([f"{self.folded_title}: {pairs}."] if pairs else []))

    def in_latex(self, plain: bool) -> "Table":
        """The table as .tex shows it: without the `apart` and `aside` columns, the folded rows, the long notes on
        settings, absolute paths.

        Args:
            plain: also without the number of seeds.
        """
        left_out = self.apart | self.aside | ({SEEDS} if plain else set())
        table = self._with_columns([i for i, name in enumerate(self.head) if name not in left_out or i == 0])
        notes = [brief(note) for note in table.notes if not note.startswith((SETTINGS_NOTE, MARKED_NOTE))]
        remarks = [[brief(remark) for remark in of_row] for of_row in table.remarks]
        noisy = set() if plain else table.noisy
        return replace(table, notes=notes, remarks=remarks, parts=[brief(part) for part in table.parts], noisy=noisy)

    def _with_columns(self, columns: list[int]) -> "Table":
        """The table with these columns and without the folded rows."""
        there = [i for i in range(len(self.rows)) if i not in self.folded]
        return replace(
            self,
            head=[self.head[i] for i in columns],
            rows=[[self.rows[row][i] for i in columns] for row in there],
            remarks=[self.remarks[row] for row in there],
            parts=[self.parts[row] for row in there],
            folded=[],
        )

    @property
    def letters(self) -> dict[str, str]:
        """Remark -> the letter that stands for it beside the rows."""
        return {
            remark: _letter(i) for i, remark in enumerate(dict.fromkeys(r for remarks in self.remarks for r in remarks))
        }

    def is_text(self, column: int) -> bool:
        """Whether all cells of a column are texts."""
        return all(row[column].text is not None for row in self.rows)

    @property
    def shown_blocks(self) -> list[tuple[str, list[int]]]:
        """`blocks` without the folded rows."""
        return [(part, [row for row in rows if row not in self.folded]) for part, rows in self.blocks()]

    def blocks(self) -> list[tuple[str, list[int]]]:
        """(part, indices of its rows), in order."""
        return [
            (part, list(rows)) for part, rows in itertools.groupby(range(len(self.rows)), lambda row: self.parts[row])
        ]


def file_name(name: str) -> str:
    """A name made safe for paths and URLs: it contains the name of the data set, which users choose."""
    return re.sub(r"[^\w.$-]+", "-", name)


def to_markdown(table: Table) -> str:
    """As GitHub's Markdown: best bold, not significantly worse underlined, remarks as lettered notes below."""
    table = table.printed
    letters = table.letters
    head = [escaped(name) + f" {NOISY}" * (name in table.noisy) for name in table.head]
    lines = [f"## {escaped(table.title)}", "", _pipes(head), _pipes(["-"] * len(table.head))]
    for part, rows in table.blocks():
        lines += [_pipes([f"*{escaped(part)}*"] + [""] * (len(table.head) - 1))] if part else []
        for row in rows:
            first, *others = (_markdown_cell(cell) for cell in table.rows[row])
            beside = f" <sup>{','.join(letters[remark] for remark in table.remarks[row])}</sup>" * bool(
                table.remarks[row]
            )
            lines.append(_pipes([first + beside, *others]))
    below = [f"- <sup>{letter}</sup> {escaped(remark)}" for remark, letter in letters.items()]
    return "\n".join(lines + [""] + below + [f"- {escaped(note)}" for note in table.notes]) + "\n"


def _pipes(cells) -> str:
    return "| " + " | ".join(cells) + " |"


def _markdown_cell(cell: Cell) -> str:
    shown = escaped(cell.mean_text)
    if cell.mark:
        shown = f"**{shown}**" if cell.mark == "best" else f"<u>{shown}</u>"
    shown += f" ± {cell.deviation_text}" if cell.deviation_text else ""
    return shown + (f"<br><sub>{cell.interval_text}</sub>" if cell.interval_text else "")


def to_text(table: Table) -> str:
    """Aligned columns for the console, in several blocks where it is too narrow for all: texts to the left, numbers to
    the right.

    A sign after a number is its mark, see `TEXT_MARKS`. Remarks and notes are below.
    """
    table = table.printed
    rows = [[f"{name} {NOISY}" if name in table.noisy else name for name in table.head]]
    for part, indices in table.blocks():
        if part:
            rows.append([part])
        for row in indices:
            letters = ",".join(table.letters[remark] for remark in table.remarks[row])
            first, *others = map(_text_cell, table.rows[row])
            rows.append([f"{first} [{letters}]" if letters else first, *others])
    texts = [column for column in range(len(table.head)) if table.is_text(column)]
    lines = [table.title, "", *aligned(rows, left={0, *texts}, fitted=True), ""]
    lines += [wrapped(f"[{letter}] {remark}", 4) for remark, letter in table.letters.items()]
    marks = "; ".join(f"{sign} {meaning}" for sign, meaning in TEXT_MARKS.values())
    for note in table.notes:
        lines.append(marks if note.startswith(MARKS_NOTE) else wrapped(note, 2))
    return "\n".join(lines) + "\n"


def _text_cell(cell: Cell) -> str:
    deviation = f" ± {cell.deviation_text}" if cell.deviation_text else ""
    return cell.mean_text + deviation + (TEXT_MARKS[cell.mark][0] if cell.mark else "")


def to_csv(table: Table) -> str:
    """One value per column: mean, deviation (or what follows ±), mark and interval are separate; part, remarks and
    notes come last.
    """
    made = []  # (head, cell of each row as text)
    for i in sorted(
        range(len(table.head)), key=lambda i: table.head[i] in table.apart
    ):  # columns that .md and .tex also have come first
        name = table.head[i]
        cells = [row[i] for row in table.rows]
        made.append((name, ["" if cell.mean_text == "-" else cell.mean_text for cell in cells]))
        if any(cell.deviation is not None for cell in cells):
            made.append((f"{name} {table.spread}", [cell.deviation_text for cell in cells]))
        if any(cell.mark for cell in cells):
            made.append((f"{name} mark", [cell.mark for cell in cells]))
        if any(cell.interval for cell in cells):
            for end, word in enumerate(("low", "high")):
                made.append(
                    (f"{name} to best {word}", [f"{c.interval[end]:.{c.digits}f}" if c.interval else "" for c in cells])
                )
    if any(table.parts):
        made.append(("part", table.parts))
    made.append(("remarks", ["; ".join(remarks) for remarks in table.remarks]))
    made.append(("notes", [" ".join(table.notes)] * len(table.rows)))
    import pandas

    heads, columns = zip(*made, strict=True)
    return pandas.DataFrame(list(zip(*columns, strict=True)), columns=heads).to_csv(index=False, lineterminator="\n")


def _letter(number: int) -> str:
    """a … z, aa, ab …"""
    return (_letter(number // 26 - 1) if number >= 26 else "") + chr(ord("a") + number % 26)
