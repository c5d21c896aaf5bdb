"""A table of cells, and its text as Markdown, CSV and for the console.

A `Table` has rows of `Cell`s (a number with deviation, mark and interval, or a text), footnotes of rows, notes below,
and parts. The same table is written in all formats; a few columns and rows are left out of some. latex.py writes it as
LaTeX, page.html shows it on the page.
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
# beginning of the note on the marks of .md and .tex
MARKS_NOTE = "Bold: "
# beginnings of notes that the page folds
SETTINGS_NOTE = "Settings ("
MARKED_NOTE = "Marked: "


@dataclass
class Cell:
    """A number with its deviation, or a text.

    Attributes:
        mark: `best`, `close` (not shown to be worse), or empty.
        interval: of the difference to the best, in the number's unit.
        sign: whether a positive number has its sign.
        link: address, on the page only.
        tex: the text in LaTeX, if it is another.
    """

    value: float = math.nan
    deviation: float | None = None
    mark: str = ""
    digits: int = 2
    text: str | None = None
    sign: bool = False
    link: str = ""
    interval: tuple[float, float] | None = None
    tex: str | None = None

    @property
    def is_number(self) -> bool:
        """Whether the cell is sorted by its value, such as one that prints <0.001."""
        return math.isfinite(self.value)

    @property
    def mean_text(self) -> str:
        """The number alone."""
        if self.text is not None:
            return self.text
        if not math.isfinite(self.value):
            return "-"
        sign = "+" if self.sign else ""
        return f"{self.value:{sign}.{self.digits}f}"

    @property
    def latex_text(self) -> str:
        """The number or text as LaTeX shows it, without absolute paths."""
        if self.text is None:
            return self.mean_text
        if self.tex is not None:
            return self.tex
        return brief(self.text)

    @property
    def deviation_text(self) -> str:
        """The deviation alone, empty if there is none."""
        if self.deviation is None or not math.isfinite(self.deviation):
            return ""
        return f"{self.deviation:.{self.digits}f}"

    @property
    def interval_text(self) -> str:
        """The interval alone, such as `[-2.90, -1.92]`; empty if there is none."""
        if not self.interval:
            return ""
        low, high = self.interval
        return f"[{low:+.{self.digits}f}, {high:+.{self.digits}f}]"


@dataclass
class Table:
    """A table and all that is printed with it.

    Attributes:
        name: stem of its files.
        head: titles of the columns.
        rows: lists of cells, one per title.
        remarks: footnotes of each row.
        notes: sentences below the table.
        spread: what the number after ± is.
        parts: the part of the table that each row belongs to; rows of one part are consecutive.
        noisy: heads that `NOISY` marks.
        page_only: heads of columns that only the page and the .csv have.
        wide: heads of columns of long texts, which LaTeX breaks into lines.
        not_in_latex: heads of columns that LaTeX leaves out.
        folded: rows that are folded on the page and put into a note of .md and .tex.
        folded_title: the title of these rows.
    """

    name: str
    title: str
    head: list[str]
    rows: list[list[Cell]] = field(default_factory=list)
    remarks: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    spread: str = "deviation"
    parts: list[str] = field(default_factory=list)
    noisy: set[str] = field(default_factory=set)
    page_only: set[str] = field(default_factory=set)
    wide: set[str] = field(default_factory=set)
    not_in_latex: set[str] = field(default_factory=set)
    folded: list[int] = field(default_factory=list)
    folded_title: str = ""

    def add(self, cells: list[Cell], remarks: list[str] = (), part: str = "") -> None:
        """Append a row."""
        self.rows.append(cells)
        self.remarks.append(list(remarks))
        self.parts.append(part)

    def write(self, folder: Path, plain: bool = False) -> None:
        """Write the .tex, .md and .csv files; `plain`: the .tex holds rows, means and deviations alone."""
        stem = file_name(self.name)
        write_file(folder / f"{stem}.tex", to_tex(self, plain))
        write_file(folder / f"{stem}.md", to_markdown(self))
        write_file(folder / f"{stem}.csv", to_csv(self))

    @property
    def printed(self) -> "Table":
        """The table as .md and .tex show it: without the `page_only` columns, and with the folded rows in a note."""
        table = self._without_columns(self.page_only)
        if not self.folded:
            return table
        pairs = [f"{self.rows[i][0].mean_text} {self.rows[i][1].mean_text}" for i in self.folded]
        return replace(table, notes=[*self.notes, f"{self.folded_title}: {', '.join(pairs)}."])

    def in_latex(self, plain: bool) -> "Table":
        """The table as .tex shows it.

        That is without the `page_only` and `not_in_latex` columns, the folded rows,
        the long notes on settings, absolute paths.

        Args:
            plain: also without the number of seeds.
        """
        left_out = self.page_only | self.not_in_latex
        noisy = self.noisy
        if plain:
            left_out.add(SEEDS)
            noisy = set()
        table = self._without_columns(left_out - {self.head[0]})
        notes = [brief(note) for note in table.notes if not note.startswith((SETTINGS_NOTE, MARKED_NOTE))]
        remarks = [list(map(brief, row_remarks)) for row_remarks in table.remarks]
        return replace(table, notes=notes, remarks=remarks, parts=list(map(brief, table.parts)), noisy=noisy)

    def _without_columns(self, left_out: set[str]) -> "Table":
        """The table without the columns of these heads, and without the folded rows."""
        columns = [i for i, name in enumerate(self.head) if name not in left_out]
        table = replace(self, head=[self.head[i] for i in columns], rows=[], remarks=[], parts=[], folded=[])
        for number, row in enumerate(self.rows):
            if number not in self.folded:
                table.add([row[i] for i in columns], self.remarks[number], self.parts[number])
        return table

    @property
    def letters(self) -> dict[str, str]:
        """Remark -> the letter that stands for it beside the rows."""
        different = dict.fromkeys(itertools.chain.from_iterable(self.remarks))
        return {remark: _letter(i) for i, remark in enumerate(different)}

    def is_text(self, column: int) -> bool:
        """Whether all cells of a column are texts."""
        return all(row[column].text is not None for row in self.rows)

    @property
    def visible_blocks(self) -> list[tuple[str, list[int]]]:
        """`blocks` without the folded rows."""
        visible = []
        for part, rows in self.blocks():
            visible.append((part, [row for row in rows if row not in self.folded]))
        return visible

    def blocks(self) -> list[tuple[str, list[int]]]:
        """(part, indices of its rows), in order."""
        grouped = itertools.groupby(range(len(self.rows)), lambda row: self.parts[row])
        return [(part, list(rows)) for part, rows in grouped]


def file_name(name: str) -> str:
    """A name made safe for paths and URLs: it contains the name of the data set, which users choose."""
    return re.sub(r"[^\w.$-]+", "-", name)


def to_markdown(table: Table) -> str:
    """As GitHub's Markdown: best bold, not significantly worse underlined, remarks as lettered notes below."""
    table = table.printed
    letters = table.letters
    head = [escaped(name) for name in _heads(table)]
    lines = [f"## {escaped(table.title)}", "", _pipes(head), _pipes(["-"] * len(table.head))]
    for part, rows in table.blocks():
        if part:
            lines.append(_pipes([f"*{escaped(part)}*"] + [""] * (len(table.head) - 1)))
        for row in rows:
            cells = [_markdown_cell(cell) for cell in table.rows[row]]
            row_letters = ",".join(map(letters.get, table.remarks[row]))
            if row_letters:
                cells[0] += f" <sup>{row_letters}</sup>"
            lines.append(_pipes(cells))
    lines.append("")
    for remark, letter in letters.items():
        lines.append(f"- <sup>{letter}</sup> {escaped(remark)}")
    for note in table.notes:
        lines.append(f"- {escaped(note)}")
    return "\n".join(lines) + "\n"


def _heads(table: Table) -> list[str]:
    """The titles of the columns, those of clustering marked."""
    heads = list(table.head)
    for i, name in enumerate(heads):
        if name in table.noisy:
            heads[i] += f" {NOISY}"
    return heads


def _pipes(cells) -> str:
    return "| " + " | ".join(cells) + " |"


def _markdown_cell(cell: Cell) -> str:
    text = escaped(cell.mean_text)
    if cell.mark == "best":
        text = f"**{text}**"
    elif cell.mark:
        text = f"<u>{text}</u>"
    if cell.deviation_text:
        text += f" ± {cell.deviation_text}"
    if cell.interval_text:
        text += f"<br><sub>{cell.interval_text}</sub>"
    return text


def to_text(table: Table) -> str:
    """Aligned columns for the console, in several blocks if it is too narrow: texts left, numbers right.

    A sign after a number is its mark, see `TEXT_MARKS`. Remarks and notes are below.
    """
    table = table.printed
    letters = table.letters
    rows = [_heads(table)]
    for part, indices in table.blocks():
        if part:
            rows.append([part])
        for row in indices:
            cells = list(map(_text_cell, table.rows[row]))
            row_letters = ",".join(map(letters.get, table.remarks[row]))
            if row_letters:
                cells[0] += f" [{row_letters}]"
            rows.append(cells)
    texts = set(filter(table.is_text, range(len(table.head))))
    lines = [table.title, "", *aligned(rows, left_columns={0} | texts, fitted=True), ""]
    for remark, letter in letters.items():
        lines.append(wrapped(f"[{letter}] {remark}", 4))
    for note in table.notes:
        if note.startswith(MARKS_NOTE):
            lines.append("; ".join(f"{sign} {meaning}" for sign, meaning in TEXT_MARKS.values()))
        else:
            lines.append(wrapped(note, 2))
    return "\n".join(lines) + "\n"


def _text_cell(cell: Cell) -> str:
    text = cell.mean_text
    if cell.deviation_text:
        text += f" ± {cell.deviation_text}"
    if cell.mark:
        text += TEXT_MARKS[cell.mark][0]
    return text


def to_csv(table: Table) -> str:
    """One value per column: mean, deviation (or what follows ±), mark and interval are separate.

    Part, remarks and notes come last.
    """
    import pandas

    heads = []
    # for each head, the texts of all rows
    columns = []
    # columns that .md and .tex also have come first
    for i in sorted(range(len(table.head)), key=lambda i: table.head[i] in table.page_only):
        for suffix, texts in _csv_columns([row[i] for row in table.rows], table.spread):
            heads.append(table.head[i] + suffix)
            columns.append(texts)
    if any(table.parts):
        heads.append("part")
        columns.append(table.parts)
    heads += ["remarks", "notes"]
    columns.append(["; ".join(remarks) for remarks in table.remarks])
    columns.append([" ".join(table.notes)] * len(table.rows))
    frame = pandas.DataFrame(list(zip(*columns, strict=True)), columns=heads)
    return frame.to_csv(index=False, lineterminator="\n")


def _csv_columns(cells: list[Cell], spread: str) -> list[tuple[str, list[str]]]:
    """The columns that a column of cells becomes: (what follows the title in the head, texts)."""
    means = []
    deviations = []
    marks = []
    lows = []
    highs = []
    for cell in cells:
        mean = cell.mean_text
        if mean == "-":
            mean = ""
        means.append(mean)
        deviations.append(cell.deviation_text)
        marks.append(cell.mark)
        bounds = ("", "")
        if cell.interval:
            bounds = [f"{bound:.{cell.digits}f}" for bound in cell.interval]
        lows.append(bounds[0])
        highs.append(bounds[1])
    columns = [("", means)]
    if any(cell.deviation is not None for cell in cells):
        columns.append((f" {spread}", deviations))
    if any(marks):
        columns.append((" mark", marks))
    if any(cell.interval for cell in cells):
        columns += [(" to best low", lows), (" to best high", highs)]
    return columns


def _letter(number: int) -> str:
    """a … z, aa, ab …"""
    letter = chr(ord("a") + number % 26)
    return letter if number < 26 else _letter(number // 26 - 1) + letter
