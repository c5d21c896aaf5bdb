r"""A table as LaTeX that fits its page: `to_tex`.

It needs the package booktabs alone. Widths are estimated (tex_text.py) for the text width of `article` at 10 pt. A
table that is too wide is set in a smaller font, then divided into blocks of columns, one below the other, that repeat
the names of the rows; a long one goes on in further floats. Long texts become columns of wrapped lines, and part titles
rows of their own.
"""

import math
import re
from typing import NamedTuple

from results.tex_text import BOLD, escaped, width, wrapped

RAGGED = r"\raggedright\let\\\tabularnewline "  # \raggedright takes \\ for the end of a line of text: give it back
LONG_TEXT = r"p{.22\linewidth}"  # column of wrapped text
LONG_SHARE = 0.22
# Points: somewhat less than \textwidth of article at 10 pt (345), the narrowest relative to its font.
TEXT_WIDTH = 332.0
# points between two columns: twice \tabcolsep
WIDE_GAP = 12.0
GAP = 6.0
COMPACT = r"\footnotesize\setlength{\tabcolsep}{3pt}"
# Points of the font, points between two columns, and the commands that set them; from the largest to the smallest.
SIZES = (
    (10.0, WIDE_GAP, ""),
    (9.0, WIDE_GAP, r"\small"),
    (8.0, WIDE_GAP, r"\footnotesize"),
    (8.0, GAP, COMPACT),
)
SMALLEST = 8.0
# points of \scriptsize, in which intervals are set
SCRIPT = 7.0
# points: wider names of rows, and wider texts, are wrapped
MOST_NAME = 130.0
MOST_TEXT = 110.0
PAGE_HEIGHT = 410.0  # points of a float, its caption left out: fits a page of `article` at 10 to 12 pt
BASELINES = {10.0: 12.0, 9.0: 11.0, 8.0: 9.5}  # size of a font -> points from line to line
RULES = 20.0  # points of a tabular's rules and of the gap above it
MOST_HEAD = 62.0  # points: longer titles of columns are stacked
# points that wrapped columns need in a large font and in the smallest
MOST_SHARED = 100.0
LEAST_SHARED = 60.0
SHORT_TEXT = 20  # characters of a text that is never wrapped
REMARK = 200  # characters of a remark; the .md has it whole
LINE = 80  # characters of a line below the table
SUPERSCRIPT = 0.7


class Block(NamedTuple):
    """Lines of LaTeX, and about how many points of the page they take."""

    lines: list[str]
    height: float


class Layout:
    """The columns of a table: font, widths, which of them stand in one block.

    Args:
        table: a `formats.Table`, as its `in_latex` gives it.
        plain: without letters of remarks and intervals.
    """

    def __init__(self, table, plain: bool):
        self.table = table
        self.plain = plain
        self.letters = {} if plain else table.letters
        columns = range(len(table.head))
        for size, self.gap, self.command in SIZES:
            self.size = size
            naturals = list(map(self._natural, columns))
            self.wrapped = [column for column in columns if self._is_long(column, naturals[column])]
            least = LEAST_SHARED
            if size > SMALLEST:
                least = MOST_SHARED
            self.widths = self._shared(naturals, least)
            if sum(self.widths) + self.gap * len(self.widths) <= TEXT_WIDTH:
                break

    def _natural(self, column: int) -> float:
        """Points of a column in which nothing is wrapped."""
        if self._is_wide(column):
            return LONG_SHARE * TEXT_WIDTH
        points = self._cells_width(column)
        for line in self._head_lines(column):
            points = max(points, width(line, self.size))
        return points

    def _is_wide(self, column: int) -> bool:
        """Whether the table says that the column's texts are long."""
        return self.table.head[column] in self.table.wide

    def _cells_width(self, column: int) -> float:
        points = 0.0
        for row in range(len(self.table.rows)):
            points = max(points, self._cell_width(row, column))
        return points

    def _head_lines(self, column: int) -> list[str]:
        """A column's title as lines of at most `MOST_HEAD` points, in the narrowest layout no wider than its cells."""
        name = self.table.head[column]
        lines = []
        widest = MOST_HEAD
        if self.gap == GAP:
            widest = min(MOST_HEAD, self._cells_width(column))
        for word in name.split(" "):
            if lines and width(f"{lines[-1]} {word}", self.size) <= widest:
                lines[-1] += f" {word}"
            else:
                lines.append(word)
        if name in self.table.noisy:
            lines[-1] += "†"
        return lines

    def _is_long(self, column: int, natural: float) -> bool:
        """Whether the texts of a column are broken into lines."""
        if self._is_wide(column):
            return True
        if column == 0:
            return natural > MOST_NAME
        longest = max((len(row[column].text or "") for row in self.table.rows), default=0)
        return natural > MOST_TEXT and longest > SHORT_TEXT

    def _shared(self, naturals: list[float], least: float) -> list[float]:
        """The widths of all columns: wrapped ones share what the others leave, if that is `least` or more for each."""
        flexible = [column for column in self.wrapped if not self._is_wide(column)]
        widths = list(naturals)
        if not flexible:
            return widths
        fixed = sum(natural for column, natural in enumerate(naturals) if column not in flexible)
        share = (TEXT_WIDTH - self.gap * len(naturals) - fixed) / len(flexible)
        for column in flexible:
            widest = MOST_TEXT
            if share >= least:
                widest = share
            elif column == 0:
                widest = MOST_NAME
            widths[column] = min(naturals[column], widest)
        return widths

    def _cell_width(self, row: int, column: int) -> float:
        cell = self.table.rows[row][column]
        text = cell.latex_text
        if cell.deviation_text:
            text += f"±{cell.deviation_text}"
        points = width(text, self.size)
        if cell.mark == "best":
            points *= BOLD
        if not self.plain:
            points = max(points, width(cell.interval_text, SCRIPT))
            if column == 0:
                points += SUPERSCRIPT * width(self._row_letters(row), self.size)
        return points

    def _row_letters(self, row: int) -> str:
        """The letters of a row's remarks."""
        if self.plain:
            return ""
        return ",".join(map(self.letters.get, self.table.remarks[row]))

    def form(self, column: int) -> str:
        """The column's letter in the head of a tabular."""
        if self._is_wide(column):
            return LONG_TEXT
        if column in self.wrapped:
            return f"p{{{self.widths[column]:.0f}pt}}"
        return "l" if column == 0 else "c"

    @property
    def n_names(self) -> int:
        """How many columns are repeated in each block: the name of a row, and what follows it of the `seeds`."""
        has_seeds = self.table.head[1:2] == ["seeds"] and len(self.table.head) > 2
        return 1 + has_seeds

    def blocks(self) -> list[list[int]]:
        """The columns of each block, the names first; each block fits the page's width."""
        names = list(range(min(self.n_names, len(self.table.head))))
        names_width = sum(self.widths[i] + self.gap for i in names)
        blocks = [[]]
        width_so_far = names_width
        for column in range(len(names), len(self.table.head)):
            needed = self.widths[column] + self.gap
            if blocks[-1] and width_so_far + needed > TEXT_WIDTH:
                blocks.append([])
                width_so_far = names_width
            blocks[-1].append(column)
            width_so_far += needed
        return [names + block for block in blocks]

    def block_width(self, block: list[int]) -> float:
        """Points of a block's text, without the outer gaps."""
        return sum(self.widths[column] + self.gap for column in block) - self.gap

    # -------------------------------------------------------------------------------------------------------------
    # cells
    def head(self, column: int) -> str:
        """The title of a column."""
        name = self.table.head[column]
        if column in self.wrapped:
            return wrapped(name, 10)
        lines = [_line(escaped(line)) for line in self._head_lines(column)]
        if len(lines) == 1:
            return lines[0]
        stacked = r"\\ ".join(lines)
        return rf"\shortstack{{{stacked}}}"

    def head_height(self, block: list[int]) -> float:
        """Points of the row of titles."""
        return self.baseline * max(len(self._head_lines(column)) for column in block)

    @property
    def baseline(self) -> float:
        """Points from line to line."""
        return BASELINES[self.size]

    def cell(self, row: int, column: int) -> str:
        """A cell's text or number."""
        cell = self.table.rows[row][column]
        if not _is_text(cell):
            content = _number(cell, self.plain)
        elif column in self.wrapped and len(cell.latex_text) > SHORT_TEXT:
            content = RAGGED + wrapped(cell.latex_text, 10)
        else:
            content = escaped(cell.latex_text)
        letters = self._row_letters(row)
        if letters and column == 0:
            content += f"$^{{{letters}}}$"
        return content

    def rows(self, rows: list[int], block: list[int]) -> list[Block]:
        """The lines of some rows in a block's columns."""
        blocks = []
        for row in rows:
            cells = []
            intervals = []
            n_lines = 1.0
            for column in block:
                cells.append(self.cell(row, column))
                intervals.append(_small(self.table.rows[row][column].interval_text))
                n_lines = max(n_lines, self._lines_of(row, column))
            lines = [_line(_joined(cells))]
            height = self.baseline * n_lines
            # intervals are on a separate line: beside the numbers they would not fit the page
            if any(intervals) and not self.plain:
                lines.append(_joined(intervals))
                height += self.baseline
            blocks.append(Block(lines, height))
        return blocks

    def _lines_of(self, row: int, column: int) -> float:
        if column not in self.wrapped:
            return 1.0
        return math.ceil(1.45 * width(self.table.rows[row][column].latex_text, self.size) / self.widths[column])

    def part(self, title: str, block: list[int]) -> Block:
        """The row with the title of a part, over all columns of a block."""
        available = self.block_width(block)
        lines = math.ceil(width(title, self.size) / available)
        form = "l"
        text = rf"\emph{{{escaped(title)}}}"
        if lines > 1:
            form = f"p{{{available:.0f}pt}}"
            text = rf"{RAGGED}\emph{{{wrapped(title)}}}"
        return Block([rf"\multicolumn{{{len(block)}}}{{{form}}}{{{text}}} \\"], lines * self.baseline)


def _joined(cells: list[str]) -> str:
    """A row of a tabular."""
    return " & ".join(cells) + r" \\"


def _small(text: str) -> str:
    """An interval in a small font; empty if there is none."""
    return rf"{{\scriptsize ${text}$}}" if text else ""


def _is_text(cell) -> bool:
    return cell.text is not None or not math.isfinite(cell.value)


def _number(cell, plain: bool) -> str:
    mean = cell.mean_text
    if cell.mark == "best":
        mean = rf"\mathbf{{{mean}}}"
    elif cell.mark == "close" and not plain:
        mean = rf"\underline{{{mean}}}"
    if cell.deviation_text:
        mean += rf"\pm{cell.deviation_text}"
    return f"${mean}$"


def _line(text: str) -> str:
    r"""A line after `\\` or a rule; `{}` keeps LaTeX from reading a bracket or star at its beginning as an argument."""
    if text.lstrip().startswith(("[", "*")):
        return "{}" + text
    return text


def to_tex(table, plain: bool = False) -> str:
    """A `formats.Table` as LaTeX: best bold, not shown to be worse underlined, remarks as lettered notes below.

    Args:
        plain: rows, means and deviations, the best bold; no remarks, intervals, notes.
    """
    table = table.in_latex(plain)
    layout = Layout(table, plain)
    tabulars = []
    for block in layout.blocks():
        tabulars += _tabulars(layout, block)
    notes = [] if plain else _below(table, layout.letters)
    return "\n".join(_floats(table, layout, tabulars, notes)) + "\n"


def _tabulars(layout: Layout, block: list[int]) -> list[Block]:
    """The tabulars of a block of columns; several where the rows do not fit a page."""
    pieces = []
    for title, rows in layout.table.blocks():
        row_blocks = layout.rows(rows, block)
        # a title is not the last line of a page
        if title and row_blocks:
            heading = layout.part(title, block)
            first = row_blocks[0]
            row_blocks[0] = Block(heading.lines + first.lines, heading.height + first.height)
        pieces += row_blocks
    groups = [[]]
    height = 0.0
    for piece in pieces:
        if groups[-1] and height + piece.height > PAGE_HEIGHT - RULES - layout.head_height(block):
            groups.append([])
            height = 0.0
        groups[-1].append(piece)
        height += piece.height
    return [_tabular(layout, block, group) for group in groups]


def _tabular(layout: Layout, block: list[int], rows: list[Block]) -> Block:
    head = _line(_joined(list(map(layout.head, block))))
    form = "".join(map(layout.form, block))
    lines = [rf"\begin{{tabular}}{{{form}}}", r"\toprule", head, r"\midrule"]
    height = 0.0
    for row in rows:
        lines += row.lines
        height += row.height
    lines += [r"\bottomrule", r"\end{tabular}"]
    return Block(lines, height + layout.head_height(block) + RULES)


def _below(table, letters: dict[str, str]) -> list[Block]:
    """Notes and lettered remarks, without the settings that the .md lists."""
    lines = [(_line(wrapped(note)), note) for note in table.notes]
    for remark, letter in letters.items():
        lines.append((f"$^{{{letter}}}$~{wrapped(_cut(remark))}.", _cut(remark)))
    blocks = []
    for i, (line, text) in enumerate(lines):
        if i < len(lines) - 1:
            line += r" \\"
        blocks.append(Block([line], BASELINES[SMALLEST] * math.ceil(len(text) / LINE)))
    return blocks


def _cut(remark: str) -> str:
    """A remark of at most `REMARK` characters."""
    if len(remark) <= REMARK:
        return remark
    return remark[:REMARK].rpartition(" ")[0].rstrip(";,") + " …"


def _floats(table, layout: Layout, tabulars: list[Block], notes: list[Block]) -> list[str]:
    """The lines of all floats: tabulars below each other, then notes, as many as fit a page each."""
    # tabulars and notes of each page
    pages = [([], [])]
    height = 0.0
    for kind, blocks in enumerate((tabulars, notes)):
        for block in blocks:
            if any(pages[-1]) and height + block.height > PAGE_HEIGHT:
                pages.append(([], []))
                height = 0.0
            pages[-1][kind].append(block)
            height += block.height
    label = re.sub("[^A-Za-z0-9:]", "-", table.name)
    lines = []
    for number, page in enumerate(pages):
        caption = wrapped(table.title)
        if number:
            caption += " (continued)"
        lines += [r"\begin{table*}[t]", r"\centering", rf"\caption{{{caption}}}"]
        if not number:
            lines.append(rf"\label{{tab:{label}}}")
        if layout.command:
            lines.append(layout.command)
        lines += _page(*page)
        lines.append(r"\end{table*}")
    return lines


def _page(tabulars: list[Block], notes: list[Block]) -> list[str]:
    lines = []
    for i, tabular in enumerate(tabulars):
        if i:
            lines.append(r"\par\medskip")
        lines += tabular.lines
    if notes:
        lines.append(r"\par\smallskip\footnotesize\raggedright")
        for note in notes:
            lines += note.lines
    return lines
