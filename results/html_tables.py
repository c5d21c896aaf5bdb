"""A table as a sortable HTML table."""

import html
import math

from results.formats import NOISY, SMALL, Cell, Table, file_name, lettered

SETTINGS_NOTE, MARKED_NOTE = "Settings (", "Marked: "  # beginnings of notes that the page folds
SHORT = 14  # a text cell of at most so many characters is not wrapped
LONG = 200  # characters of a remark that are shown before it is unfolded


def to_html(table: Table, address) -> str:
    """The table with its remarks and notes. Numbers carry their full value to sort by; each part is sorted by itself.

    Args:
        address: a run's location -> its address relative to the page.
    """
    letters = lettered(table)
    name = html.escape(file_name(table.name))
    files = " ".join(f'<a href="{name}.{ending}">.{ending}</a>' for ending in ("tex", "md", "csv"))
    shown = [(part, [row for row in rows if row not in table.folded]) for part, rows in table.blocks()]
    folded = f"<details><summary>{html.escape(table.folded_title)} ({len(table.folded)})</summary>{_grid(table, [('', table.folded)], letters, address)}</details>"
    remarks = "".join(_remark(letter, remark) for remark, letter in letters.items())
    return (
        f'<section id="{name}"><h3>{html.escape(table.title)} <small>{files}</small></h3>{_grid(table, shown, letters, address)}'
        f'{folded if table.folded else ""}<ul class="remarks">{remarks}</ul>{_notes(table)}</section>'
    )


def _grid(table: Table, blocks: list[tuple[str, list[int]]], letters: dict[str, str], address) -> str:
    """Head and rows of the named parts."""
    words = [all(row[i].text is not None for row in table.rows) for i in range(len(table.head))]
    head = "".join(
        f'<th scope="col"{_kind("text" * word, "apart" * (name in table.apart))}><button type="button">{html.escape(name)}{f"<sup>{NOISY}</sup>" * (name in table.noisy)}</button></th>'
        for name, word in zip(table.head, words, strict=True)
    )
    bodies = []
    for part, rows in blocks:
        title = f'<tr class="part"><th colspan="{len(table.head)}" scope="rowgroup"><span>{html.escape(part)}</span></th></tr>' * bool(part)
        lines = [_row(table, row, [(letters[remark], remark) for remark in table.remarks[row]], address) for row in rows]
        bodies.append(f"<tbody>{title}{''.join(lines)}</tbody>")
    return f'<div class="scroll"><table class="sortable"><thead><tr>{head}</tr></thead>{"".join(bodies)}</table></div>'


def _row(table: Table, row: int, remarks: list[tuple[str, str]], address) -> str:
    beside = ",".join(f'<abbr title="{html.escape(remark)}">{letter}</abbr>' for letter, remark in remarks)
    first, *others = table.rows[row]
    begin = f'<th scope="row">{_shown(first, address, True)}' + f"<sup>{beside}</sup>" * bool(beside) + "</th>"
    cells = (_cell(cell, address, name in table.apart) for cell, name in zip(others, table.head[1:], strict=True))
    return f"<tr>{begin}{''.join(cells)}</tr>"


def _notes(table: Table) -> str:
    """The notes below a table, those on settings folded."""
    is_folded = [note.startswith((SETTINGS_NOTE, MARKED_NOTE)) for note in table.notes]
    said, folded = ("".join(f"<li>{html.escape(n)}</li>" for n, f in zip(table.notes, is_folded, strict=True) if f == state) for state in (False, True))  # fmt: skip
    summary = "Settings that the groups share" + ", and what is marked" * any(note.startswith(MARKED_NOTE) for note in table.notes)
    below = f'<details><summary>{summary}</summary><ul class="notes">{folded}</ul></details>' if folded else ""
    return f'<ul class="notes">{said}</ul>{below}'


def _remark(letter: str, remark: str) -> str:
    """A remark below its table; of a long one only the beginning is shown until it is unfolded."""
    text = html.escape(remark)
    if len(remark) <= LONG:
        return f"<li><sup>{letter}</sup> {text}</li>"
    begin = html.escape(remark[:LONG].rpartition(" ")[0])
    return f'<li><details><summary><sup>{letter}</sup> <span class="begin">{begin} …</span></summary>{text}</details></li>'


def _cell(cell: Cell, address, is_apart: bool) -> str:
    """Any cell of a body row but the first; numbers carry their value to sort by."""
    key = f' data-value="{float(cell.value)!r}"' if cell.text is None and math.isfinite(cell.value) else ""
    words = "" if cell.text is None else "text short" if len(cell.text) <= SHORT else "text"
    return f"<td{key}{_kind(words, 'apart' * is_apart)}>{_shown(cell, address, False)}</td>"


def _kind(*classes: str) -> str:
    return f' class="{" ".join(filter(None, classes))}"' if any(classes) else ""


def _shown(cell: Cell, address, breaks: bool) -> str:
    """The content of a cell; `breaks`: a long name may wrap after its underscores on a narrow screen."""
    text = html.escape(cell.mean_text)
    text = text.replace("_", "_<wbr>") if breaks else text
    if cell.link:
        text = f'<a href="{html.escape(address(cell.link))}">{text}</a>'
    if cell.mark:
        text = f"<strong>{text}</strong>" if cell.mark == "best" else f"<u>{text}</u>"
    if cell.deviation_text:
        text += f' <span class="deviation">± {cell.deviation_text}</span>'
    text += f"<sup>{SMALL}</sup>" * cell.is_small
    return text + f'<small class="interval">{cell.interval_text}</small>' * bool(cell.interval_text)
