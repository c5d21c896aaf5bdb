"""A table of cells, and its text as Markdown, CSV, LaTeX and HTML."""

import csv
import html
import io
import math
import re
from dataclasses import dataclass, field
from pathlib import Path

from utilities.files import replacing

SETTINGS_NOTE, MARKED_NOTE = "Settings (", "Marked: "
SHORT = 14  # characters of a cell that are never broken
LONG = 200  # characters of a remark that the page shows unasked


@dataclass
class Cell:
    """A number with its deviation, or a text. `mark`: `best`, `close` (not significantly worse), or empty."""

    value: float = math.nan
    deviation: float | None = None  # None: a number that has none
    mark: str = ""
    digits: int = 2
    text: str | None = None
    sign: bool = False
    link: str = ""  # HTML only

    @property
    def mean_text(self) -> str:
        """The number alone."""
        if self.text is not None:
            return self.text
        return "-" if not math.isfinite(self.value) else f"{self.value:{'+' if self.sign else ''}.{self.digits}f}"

    @property
    def deviation_text(self) -> str:
        """The deviation alone, empty where there is none."""
        return f"{self.deviation:.{self.digits}f}" if self.deviation is not None and math.isfinite(self.deviation) else ""


@dataclass
class Table:
    """`rows` are lists of cells under `head`; `remarks` holds, for each row, what stands beside it; `notes` what stands below."""

    name: str  # of its files
    title: str
    head: list[str]
    rows: list[list[Cell]] = field(default_factory=list)
    remarks: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    spread: str = "deviation"  # what stands behind a number's ±

    def add(self, cells: list[Cell], remarks: list[str] = ()) -> None:
        """Append a row."""
        self.rows.append(cells)
        self.remarks.append(list(remarks))

    def write(self, folder: Path) -> None:
        """Write the .tex, .md and .csv files."""
        for ending, text in (("tex", to_tex(self)), ("md", to_markdown(self)), ("csv", to_csv(self))):
            with replacing(folder / f"{self.name}.{ending}") as file:
                file.write(text)


def to_markdown(table: Table) -> str:
    """As GitHub's Markdown: best bold, not significantly worse underlined, remarks as lettered notes below."""
    letters = _lettered(table)
    lines = [f"## {table.title}", "", _pipes(map(_escaped, table.head)), _pipes(["-"] * len(table.head))]
    for cells, remarks in zip(table.rows, table.remarks, strict=True):
        first, *others = map(_markdown_cell, cells)
        beside = f" <sup>{','.join(letters[remark] for remark in remarks)}</sup>" * bool(remarks)
        lines.append(_pipes([first + beside, *others]))
    below = [f"- <sup>{letter}</sup> {_escaped(remark)}" for remark, letter in letters.items()]
    return "\n".join(lines + [""] + below + [f"- {_escaped(note)}" for note in table.notes]) + "\n"


def _pipes(cells) -> str:
    return "| " + " | ".join(cells) + " |"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def _markdown_cell(cell: Cell) -> str:
    shown = _escaped(cell.mean_text)
    if cell.mark:
        shown = f"**{shown}**" if cell.mark == "best" else f"<u>{shown}</u>"
    return shown + (f" ± {cell.deviation_text}" if cell.deviation_text else "")


def to_csv(table: Table) -> str:
    """One column a number: mean, deviation (or what stands behind ±) and mark apart; remarks and notes in the last columns."""
    spread = [any(row[i].deviation is not None for row in table.rows) for i in range(len(table.head))]
    marked = [any(row[i].mark for row in table.rows) for i in range(len(table.head))]
    head = []
    for i, name in enumerate(table.head):
        head += [name] + [f"{name} {table.spread}"] * spread[i] + [f"{name} mark"] * marked[i]
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*head, "remarks", "notes"])
    for cells, remarks in zip(table.rows, table.remarks, strict=True):
        line = []
        for i, cell in enumerate(cells):
            shown = cell.mean_text
            line += ["" if shown == "-" else shown] + [cell.deviation_text] * spread[i] + [cell.mark] * marked[i]
        writer.writerow([*line, "; ".join(remarks), " ".join(table.notes)])
    return file.getvalue()


TEX_SYMBOLS = (  # a character, and its command in math
    "α alpha β beta γ gamma δ delta ε epsilon ζ zeta η eta θ theta ι iota κ kappa λ lambda μ mu ν nu ξ xi π pi ρ rho ς varsigma σ sigma τ tau "
    "υ upsilon φ phi χ chi ψ psi ω omega Γ Gamma Δ Delta Θ Theta Λ Lambda Ξ Xi Π Pi Σ Sigma Υ Upsilon Φ Phi Ψ Psi Ω Omega ← leftarrow → to "
    "↔ leftrightarrow ⇐ Leftarrow ⇒ Rightarrow ⇔ Leftrightarrow ↑ uparrow ↓ downarrow × times · cdot ± pm … dots ≤ le ≥ ge ≠ ne ≈ approx "
    "∼ sim ∈ in ∞ infty √ surd µ mu"
)
TEX_ESCAPES = {
    "\\": r"\textbackslash{}",
    "^": r"\^{}",
    "~": r"\~{}",
    **{c: "\\" + c for c in "&%$#_{}"},
    **{c: f"${c}$" for c in "<>|"},
    **{c: f"$\\{name}$" for c, name in re.findall(r"(\S) (\w+)", TEX_SYMBOLS)},
    **{"−": "$-$", "°": r"$^\circ$", "²": "$^2$", "³": "$^3$"},
    **dict(zip("ΑΒΕΖΗΙΚΜΝΟΡΤΧο", "ABEZHIKMNOPTXo", strict=True)),  # Greek letters that LaTeX has no command for, because they look Latin
}


def tex_escaped(text: str) -> str:
    """Text that LaTeX prints as it is."""
    return re.sub("[" + re.escape("".join(TEX_ESCAPES)) + "]", lambda found: TEX_ESCAPES[found[0]], text)


def _line(text: str) -> str:
    r"""A line after `\\` or a rule, which would take a bracket or a star at its beginning for their own."""
    return "{}" * text.lstrip().startswith(("[", "*")) + text


def to_tex(table: Table) -> str:
    """As a LaTeX table (package booktabs): best bold, not significantly worse underlined, remarks as lettered notes below."""
    letters = _lettered(table)
    footnotes = [f"$^{{{letter}}}$~{tex_escaped(remark)}." for remark, letter in letters.items()]
    lines = [
        r"\begin{table*}[t]", r"\centering", rf"\caption{{{tex_escaped(table.title)}}}", rf"\label{{tab:{re.sub('[^A-Za-z0-9:]', '-', table.name)}}}",
        rf"\begin{{tabular}}{{l{'c' * (len(table.head) - 1)}}}", r"\toprule", " & ".join(map(tex_escaped, table.head)) + r" \\", r"\midrule",
    ]  # fmt: skip
    for cells, remarks in zip(table.rows, table.remarks, strict=True):
        shown = [_tex_cell(cell) for cell in cells]
        if remarks:
            shown[0] += f"$^{{{','.join(letters[r] for r in remarks)}}}$"
        lines.append(_line(" & ".join(shown)) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}", r"\par\smallskip\footnotesize\raggedright"]
    lines += [_line(tex_escaped(note)) + r" \\" for note in table.notes] + footnotes
    return "\n".join(lines + [r"\end{table*}", ""])


def _lettered(table: Table) -> dict[str, str]:
    """Remark -> the letter that stands for it beside the rows."""
    return {remark: _letter(i) for i, remark in enumerate(dict.fromkeys(r for remarks in table.remarks for r in remarks))}


def _letter(number: int) -> str:
    """a … z, aa, ab …"""
    return (_letter(number // 26 - 1) if number >= 26 else "") + chr(ord("a") + number % 26)


def _tex_cell(cell: Cell) -> str:
    if cell.text is not None or not math.isfinite(cell.value):
        return tex_escaped(cell.mean_text)
    mean = (
        rf"\mathbf{{{cell.mean_text}}}"
        if cell.mark == "best"
        else rf"\underline{{{cell.mean_text}}}"
        if cell.mark == "close"
        else cell.mean_text
    )
    return f"${mean}" + (rf"\pm{cell.deviation_text}" if cell.deviation_text else "") + "$"


def to_html(table: Table, address) -> str:
    """As a sortable table of the page: numbers carry their full value to sort by.

    Args:
        address: a run's place -> its address seen from the page.
    """
    letters = _lettered(table)
    words = [all(row[i].text is not None for row in table.rows) for i in range(len(table.head))]
    head = "".join(
        f'<th scope="col"{" class=text" if word else ""}><button type="button">{html.escape(name)}</button></th>'
        for name, word in zip(table.head, words, strict=True)
    )
    body = []
    for cells, remarks in zip(table.rows, table.remarks, strict=True):
        beside = ",".join(f'<abbr title="{html.escape(r)}">{letters[r]}</abbr>' for r in remarks)
        body.append("<tr>" + "".join(_html_cell(cell, i, beside, address) for i, cell in enumerate(cells)) + "</tr>")
    lettered = "".join(_html_remark(letter, remark) for remark, letter in letters.items())
    folded = [note for note in table.notes if note.startswith((SETTINGS_NOTE, MARKED_NOTE))]
    said, settings_notes = (
        "".join(f"<li>{html.escape(note)}</li>" for note in table.notes if (note in folded) == is_folded) for is_folded in (False, True)
    )
    files = " ".join(f'<a href="{html.escape(table.name)}.{ending}">.{ending}</a>' for ending in ("tex", "md", "csv"))
    summary = "Settings that the groups share" + ", and what is marked" * any(note.startswith(MARKED_NOTE) for note in folded)
    return (
        f'<section id="{html.escape(table.name)}"><h3>{html.escape(table.title)} <small>{files}</small></h3><div class="scroll"><table class="sortable"><thead><tr>{head}</tr></thead>'
        f'<tbody>{"".join(body)}</tbody></table></div><ul class="remarks">{lettered}</ul><ul class="notes">{said}</ul>'
        + (f'<details><summary>{summary}</summary><ul class="notes">{settings_notes}</ul></details>' if folded else "")
        + "</section>"
    )


def _html_remark(letter: str, remark: str) -> str:
    """A remark below its table; of a long one the beginning, and all of it when asked for."""
    text = html.escape(remark)
    if len(remark) <= LONG:
        return f"<li><sup>{letter}</sup> {text}</li>"
    begin = html.escape(remark[:LONG].rpartition(" ")[0])
    return f'<li><details><summary><sup>{letter}</sup> <span class="begin">{begin} …</span></summary>{text}</details></li>'


def _html_cell(cell: Cell, position: int, beside: str, address) -> str:
    text = html.escape(cell.mean_text)
    if position == 0:
        text = text.replace("_", "_<wbr>")  # where a name may break on a narrow screen
    if cell.link:
        text = f'<a href="{html.escape(address(cell.link))}">{text}</a>'
    if cell.mark:
        text = f"<strong>{text}</strong>" if cell.mark == "best" else f"<u>{text}</u>"
    if cell.deviation_text:
        text += f' <span class="deviation">± {cell.deviation_text}</span>'
    if position == 0:
        return f'<th scope="row">{text}' + (f"<sup>{beside}</sup>" if beside else "") + "</th>"
    key = f' data-value="{cell.value!r}"' if cell.text is None and math.isfinite(cell.value) else ""
    kind = "" if cell.text is None else ' class="text short"' if len(cell.text) <= SHORT else " class=text"
    return f"<td{key}{kind}>{text}</td>"
