"""Text for a terminal: lines that break between words, and tables with aligned columns.

Output that is written to a file or a pipe keeps its lines whole, so that programs can read it; the variable COLUMNS
sets a width there too.
"""

import os
import shlex
import shutil
import sys
import textwrap
from collections.abc import Container
from pathlib import Path

from utilities.programs import as_typed

# columns: no text is broken into narrower lines
LEAST_WIDTH = 40


def width() -> int | None:
    """Columns of the terminal; None where the output is none and COLUMNS is not set."""
    if not os.environ.get("COLUMNS", "").isdigit() and not sys.stdout.isatty():
        return None
    return max(shutil.get_terminal_size().columns, LEAST_WIDTH)


def wrapped(text: str, indent: int = 0) -> str:
    """The text with lines that are too long for the terminal broken between words; further lines are indented."""
    text = as_typed(text)
    columns = width()
    if columns is None:
        return text
    return "\n".join(_broken(line, indent, columns) for line in text.split("\n"))


def _broken(line: str, indent: int, columns: int) -> str:
    lead = len(line) - len(line.lstrip())
    whole_words = {"break_long_words": False, "break_on_hyphens": False}
    wrapper = textwrap.TextWrapper(columns, " " * lead, " " * max(indent, lead), **whole_words)
    return line if len(line) <= columns else wrapper.fill(line.strip())


def joined(parts: list[str], separator: str = "  ", indent: int = 4) -> str:
    """Parts, such as `test e_recall@1 0.4387`, in one line.

    Where the terminal is too narrow, in several, each part whole.
    """
    columns = width()
    lines = list(parts[:1])
    for part in parts[1:]:
        longer = f"{lines[-1]}{separator}{part}"
        if columns is not None and len(longer) > columns:
            lines.append(" " * indent + part)
        else:
            lines[-1] = longer
    return "\n".join(lines)


def say(text: str) -> None:
    """Print a note, its further lines indented."""
    print(wrapped(text, 2), flush=True)


def warn(text: str) -> None:
    """Print a note on standard error, its further lines indented."""
    print(wrapped(text, 2), file=sys.stderr, flush=True)


def propose(*words, file=None) -> None:
    """Print the command to type next, the words of its line, which stays whole so that it can be copied."""
    print(as_typed(f"next: {shlex.join(map(str, words))}"), file=file or sys.stdout, flush=True)


def propose_view(path: Path, file=None) -> None:
    """Print the command that opens a page or picture."""
    propose("python", "-m", "webbrowser", path.resolve().as_uri(), file=file)


def without_flags(words: list[str], n_values: dict[str, int]) -> list[str]:
    """The words of a command without some flags. `n_values`: flag,
    with its dashes -> number of its values, which go too.
    """
    remaining = []
    skipped = 0
    for word in words:
        flag, equals, _ = word.partition("=")
        if skipped:
            skipped -= 1
        elif flag in n_values:
            skipped = 0 if equals else n_values[flag]
        else:
            remaining.append(word)
    return remaining


def aligned(rows: list[list[str]], left_columns: Container[int] = (0,), fitted: bool = False) -> list[str]:
    """The lines of a table with a rule below its first row.

    The `left_columns` are left-aligned, the others right-aligned.

    A row of a single cell is a heading over the rows below it, and does not widen the first column.
    `fitted`: columns that the terminal has no room for come in further blocks below, each with the first column again.
    """
    full_rows = [row for row in rows if len(row) == len(rows[0])]
    widths = [max(map(len, column)) for column in zip(*full_rows, strict=True)]
    rule = ["-" * size for size in widths]
    blocks = [list(range(len(widths)))]
    if fitted:
        blocks = _blocks(widths)
    lines = []
    for columns in blocks:
        if lines:
            lines.append("")
        for row in (rows[0], rule, *rows[1:]):
            is_heading = len(row) != len(widths)
            row_columns = [0] if is_heading else columns
            cells = [_padded(row[column], widths[column], column in left_columns) for column in row_columns]
            lines.append("  ".join(cells).rstrip())
    return lines


def _padded(cell: str, size: int, to_left: bool) -> str:
    return cell.ljust(size) if to_left else cell.rjust(size)


def _blocks(widths: list[int]) -> list[list[int]]:
    """Columns of a table in groups that fit the terminal, each with the first one."""
    room = width()
    blocks = [[0]]
    for column in range(1, len(widths)):
        block = [*blocks[-1], column]
        block_width = sum(widths[i] + 2 for i in block) - 2
        if room is not None and len(block) > 2 and block_width > room:
            blocks.append([0, column])
        else:
            blocks[-1] = block
    return blocks
