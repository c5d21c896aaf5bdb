"""Groups as tables: built once, written as .tex, .md and .csv, shown as HTML."""

import csv
import html
import io
import math
import re
from dataclasses import dataclass, field
from pathlib import Path

from results import columns, groups, published, statistics
from results.columns import BEST_ON_TEST, SELECTED, SELECTIONS, Column
from results.groups import Group
from utilities.files import replacing

STRUCTURE_DIGITS, EPOCH_DIGITS = 3, 1
SETTINGS_NOTE = "Settings ("


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

    def add(self, cells: list[Cell], remarks: list[str] = ()) -> None:
        """Append a row."""
        self.rows.append(cells)
        self.remarks.append(list(remarks))

    def write(self, folder: Path) -> None:
        """Write the .tex, .md and .csv files."""
        for ending, text in (("tex", to_tex(self)), ("md", to_markdown(self)), ("csv", to_csv(self))):
            with replacing(folder / f"{self.name}.{ending}") as file:
                file.write(text)


def _cell(estimate: statistics.Estimate, column: Column, mark: str = "") -> Cell:
    return Cell(estimate.mean, estimate.deviation, mark, column.digits)


def _text(text: str) -> Cell:
    return Cell(text=text)


def _notes(found: list[Group], how: str, ddof: int, ranked: bool = True) -> list[str]:
    """What every table says: seeds, selection, deviation, significance, shared settings."""
    rules = groups.shared_settings(found).get("selection", "")
    selection = f"{SELECTIONS[how]}; selected: {rules}" if how == SELECTED else SELECTIONS[how]
    counts = sorted({len(group.seeds) for group in found if group.seeds})
    seeds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}" if counts else "no"
    notes = [
        f"Epochs: {selection}.",
        f"Mean and standard deviation (ddof {ddof}) over {seeds} seed{'' if counts == [1] else 's'} a group; no deviation where there is one seed only.",
    ]
    if ranked:
        notes.append(
            f"Bold: best mean of the column. Underlined: not significantly worse than it (two-sided Welch's t-test, Holm-corrected over the column's groups, p >= {statistics.ALPHA}); a group of one seed cannot be tested."
        )
    for dataset in groups.datasets(found):
        part = [group for group in found if group.dataset == dataset]
        notes.append(f"{SETTINGS_NOTE}{dataset}) of all groups but those marked: {groups.printed_settings(part)}.")
    return notes


def single(found: list[Group], shown: list[Column], how: str, ddof: int) -> Table:
    """The table of one data set: groups x metrics."""
    dataset = found[0].dataset
    table = Table(
        f"{dataset}_{how}", f"{dataset}: {SELECTIONS[how].partition(':')[0]}", ["group", "seeds", *(_head(c) for c in shown), "epoch"]
    )
    marks = {c: statistics.marks([g.estimate(c, how) for g in found], c.higher) for c in shown}
    for i, group in enumerate(found):
        epochs = group.epochs(how, ddof)
        numbers = [_cell(group.estimate(c, how, ddof), c, marks[c][i]) for c in shown]
        table.add(
            [_text(group.name), _text(group.seeds_text), *numbers, Cell(epochs.mean, epochs.deviation, digits=EPOCH_DIGITS)], group.remarks
        )
    table.notes = _notes(found, how, ddof)
    return table


def structure(found: list[Group], shown: list[Column], ddof: int) -> Table:
    """The structure of the embedding space at the selected epoch: distances within and between classes, spectrum."""
    dataset = found[0].dataset
    table = Table(f"{dataset}_structure", f"{dataset}: structure of the embedding space", ["group", "seeds", *(_head(c) for c in shown)])
    for group in found:
        table.add(
            [_text(group.name), _text(group.seeds_text), *(_cell(group.estimate(c, SELECTED, ddof), c) for c in shown)], group.remarks
        )
    table.notes = _notes(found, SELECTED, ddof, ranked=False)
    return table


def shared(found: list[Group], shown: dict[str, list[Column]], how: str, ddof: int) -> Table:
    """The table over all data sets: methods x (data set, metric).

    Args:
        shown: data set -> its columns.
    """
    names = groups.datasets(found)
    labels = groups.label_alike(found)
    heads = [f"{dataset} {_head(c)}" for dataset in names for c in shown[dataset]]
    table = Table(f"shared_{how}", f"All data sets: {SELECTIONS[how].partition(':')[0]}", ["method", "seeds", *heads])
    of = {dataset: [group for group in found if group.dataset == dataset] for dataset in names}
    marks = {
        (dataset, c): dict(
            zip((g.name for g in of[dataset]), statistics.marks([g.estimate(c, how) for g in of[dataset]], c.higher), strict=True)
        )
        for dataset in names
        for c in shown[dataset]
    }
    rows = {}
    for group in found:
        rows.setdefault(labels[group.dataset, group.name], {})[group.dataset] = group
    for label in sorted(rows, key=lambda name: (name.startswith("R-"), name.lower())):
        here = rows[label]
        cells = []
        for dataset in names:
            group = here.get(dataset)
            cells += [
                _cell(group.estimate(c, how, ddof), c, marks[dataset, c][group.name]) if group else Cell() for c in shown[dataset]
            ]  # fmt: skip
        seeds = list(dict.fromkeys(group.seeds_text for group in here.values()))
        remarks = [f"{dataset}: {remark}" for dataset, group in here.items() for remark in group.remarks]
        table.add([_text(label), _text(" / ".join(seeds)), *cells], remarks)
    table.notes = _notes(found, how, ddof)
    return table


def comparison(matches: list[published.Match], source: str) -> Table:
    """Our groups beside their published counterparts."""
    first = matches[0]
    dataset = first.group.dataset
    values = [(v.column, v.how) for v in max((m.published.values for m in matches), key=len)]
    with_rho = any(math.isfinite(m.published.rho) for m in matches)
    heads = [f"{c.title} {what}" for c, _ in values for what in ("ours [%]", "published [%]", "difference", "z")]
    table = Table(
        f"{dataset}_{source}",
        f"{dataset}: beside the published values",
        ["group", "method", "seeds", *heads, *(["rho ours", "rho published"] * with_rho)],
    )
    assumed = False
    for m in matches:
        cells = []
        theirs = {v.column: v for v in m.published.values}
        for c, _ in values:
            value = theirs.get(c)
            if value is None:
                cells += [Cell()] * 4
                continue
            ours, against = published.compare(m.group, value)
            assumed |= against.assumed
            cells += [
                _cell(ours, c), Cell(value.mean, value.deviation, digits=c.digits), Cell(against.difference, digits=c.digits, sign=True),
                Cell(against.z, digits=2, sign=True),
            ]  # fmt: skip
        if with_rho:
            cells += [Cell(published.our_rho(m.group), digits=STRUCTURE_DIGITS), Cell(m.published.rho, digits=STRUCTURE_DIGITS)]
        remarks = [r for r in m.group.remarks if r not in m.group.differs] + [f"unlike the published run: {d}" for d in m.differences]
        table.add(
            [_text(m.group.name), _text(m.published.method), _text(m.group.seeds_text), *cells],
            remarks + [m.published.note] * bool(m.published.note),
        )
    table.notes = [
        published.ABOUT[source] + ".",
        "z = difference / sqrt(s1^2/n1 + s2^2/n2), with the deviations as ddof 1"
        + (", of one seed with the published deviation" if assumed else "")
        + "; - where no deviation is published.",
        *_notes([m.group for m in matches], BEST_ON_TEST if source == "published" else SELECTED, 0, ranked=False)[1:],
    ]
    return table


def left_out(found: list[Group], shown: list[Column]) -> Table | None:
    """Runs that no mean holds, one by one, with what they recorded; None where there are none."""
    rows = [(group, run, reason) for group in found for run, reason in group.left_out]
    if not rows:
        return None
    table = Table("left_out", "Runs that are in no mean", ["run", "group", "data set", "seed", "why", "epochs", *(_head(c) for c in shown)])
    for group, run, reason in rows:
        last = str(run.series.epochs[-1]) if len(run.series.epochs) else "0"
        numbers = [Cell(columns.value(run, c, SELECTED) * c.scale, digits=c.digits) for c in shown]
        cells = [_text(run.name), _text(group.name), _text(run.dataset), _text(str(run.seed)), _text(reason), _text(last), *numbers]
        cells[0].link = run.where
        table.add(cells, run.notes)
    refused = [f"{group.dataset}/{group.name}: {group.refused}." for group in found if group.refused]
    table.notes = ["Each line is one run with its selected epoch; nothing here is averaged."] + refused
    return table


def settings(found: list[Group]) -> Table:
    """All settings of a data set's groups: the value most share, and the groups that differ."""
    dataset = found[0].dataset
    table = Table(f"{dataset}_settings", f"{dataset}: settings", ["setting", "value", "groups that differ"])
    for name, value in groups.shared_settings(found).items():
        others = [f"{group.name}: {group.settings.get(name, 'unknown')}" for group in found if group.settings.get(name, "unknown") != value]
        table.add([_text(name), _text(value), _text("; ".join(others) or "none")])
    table.notes = [f"Shared by {len(found)} group{'s' * (len(found) != 1)} but those named."]
    return table


def correlations(found: list[Group], of: Column, with_: list[Column]) -> Table:
    """Correlation over a data set's groups of one metric with others, at the selected epoch."""
    dataset = found[0].dataset
    table = Table(
        f"{dataset}_correlations", f"{dataset}: correlation of {of.title} with", ["quantity", "Pearson", "p", "Spearman", "groups"]
    )
    for c in with_:
        result = correlation(found, of, c)
        table.add(
            [
                _text(c.title),
                Cell(result.pearson, sign=True),
                Cell(result.p, text="<0.0001" if result.p < 1e-4 else None, digits=4),
                Cell(result.spearman, sign=True),
                Cell(result.count, digits=0),
            ]
        )
    table.notes = [f"Over the groups' means. {_notes(found, SELECTED, 1, ranked=False)[0]}", *_notes(found, SELECTED, 1, ranked=False)[2:]]
    return table


def correlation(found: list[Group], a: Column, b: Column) -> statistics.Correlation:
    """Correlation of two columns over the groups' means at the selected epoch."""
    return statistics.correlation([g.estimate(a, SELECTED).mean for g in found], [g.estimate(b, SELECTED).mean for g in found])


def values(found: list[Group], shown: dict[str, list[Column]], folder: Path) -> None:
    """Write runs.csv: every run, every selection, every column of its data set, as recorded (0 to 1), in full precision."""
    with replacing(folder / "runs.csv") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(
            [
                "dataset",
                "group",
                "run",
                "seed",
                "fold",
                "counted",
                "why_not",
                "selection",
                "split",
                "metric",
                "value",
                "selected_epoch",
                "where",
            ]
        )
        for group in found:
            reasons = {id(run): reason for run, reason in group.left_out}
            for run in group.runs:
                for how in SELECTIONS:
                    for c in shown[group.dataset]:
                        value = columns.value(run, c, how)
                        if math.isnan(value):
                            continue
                        reason = reasons.get(id(run), "")
                        writer.writerow([
                            group.dataset, group.name, run.name, run.seed, "" if run.fold is None else run.fold, not reason, reason, how, c.split, c.metric,
                            repr(value), f"{columns.epoch(run, how):g}", run.where,
                        ])  # fmt: skip


def _head(column: Column) -> str:
    return f"{column.title} [%]" if column.percent else column.title


# ------------------------------------------------------------------ formats


def to_markdown(table: Table) -> str:
    """As GitHub's Markdown: best bold, not significantly worse underlined, remarks in a last column."""
    with_remarks = any(table.remarks)
    head = table.head + ["remarks"] * with_remarks
    lines = [f"## {table.title}", "", _pipes(head), _pipes(["-"] * len(head))]
    for cells, remarks in zip(table.rows, table.remarks, strict=True):
        lines.append(_pipes([_markdown_cell(cell) for cell in cells] + [_escaped("; ".join(remarks))] * with_remarks))
    return "\n".join(lines + [""] + [f"- {_escaped(note)}" for note in table.notes]) + "\n"


def _pipes(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def _markdown_cell(cell: Cell) -> str:
    shown = _escaped(cell.mean_text)
    if cell.mark:
        shown = f"**{shown}**" if cell.mark == "best" else f"<u>{shown}</u>"
    return shown + (f" ± {cell.deviation_text}" if cell.deviation_text else "")


def to_csv(table: Table) -> str:
    """One column a number: mean, deviation and mark apart; remarks and notes in the last columns."""
    spread = [any(row[i].deviation is not None for row in table.rows) for i in range(len(table.head))]
    marked = [any(row[i].mark for row in table.rows) for i in range(len(table.head))]
    head = []
    for i, name in enumerate(table.head):
        head += [name] + [f"{name} deviation"] * spread[i] + [f"{name} mark"] * marked[i]
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


TEX_ESCAPES = {
    "\\": r"\textbackslash{}",
    "^": r"\^{}",
    "~": r"\~{}",
    "±": r"$\pm$",
    "<": r"$<$",
    ">": r"$>$",
    "|": r"$|$",
    **{c: "\\" + c for c in "&%$#_{}"},
}


def tex_escaped(text: str) -> str:
    """Text that LaTeX prints as it is."""
    return re.sub("[" + re.escape("".join(TEX_ESCAPES)) + "]", lambda found: TEX_ESCAPES[found[0]], text)


def to_tex(table: Table) -> str:
    """As a LaTeX table (package booktabs): best bold, not significantly worse underlined, remarks as lettered notes below."""
    letters = _lettered(table)
    footnotes = [f"$^{{{letter}}}$~{tex_escaped(remark)}." for remark, letter in letters.items()]
    lines = [
        r"\begin{table*}[t]", r"\centering", rf"\caption{{{tex_escaped(table.title)}}}", rf"\label{{tab:{table.name.replace('_', '-')}}}",
        rf"\begin{{tabular}}{{l{'c' * (len(table.head) - 1)}}}", r"\toprule", " & ".join(map(tex_escaped, table.head)) + r" \\", r"\midrule",
    ]  # fmt: skip
    for cells, remarks in zip(table.rows, table.remarks, strict=True):
        shown = [_tex_cell(cell) for cell in cells]
        if remarks:
            shown[0] += f"$^{{{','.join(letters[r] for r in remarks)}}}$"
        lines.append(" & ".join(shown) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}", r"\par\smallskip\footnotesize\raggedright"]
    lines += [tex_escaped(note) + r" \\" for note in table.notes] + footnotes
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
    lettered = "".join(f"<li><sup>{letter}</sup> {html.escape(remark)}</li>" for remark, letter in letters.items())
    said = "".join(f"<li>{html.escape(note)}</li>" for note in table.notes if not note.startswith(SETTINGS_NOTE))
    settings_notes = "".join(f"<li>{html.escape(note)}</li>" for note in table.notes if note.startswith(SETTINGS_NOTE))
    files = " ".join(f'<a href="{html.escape(table.name)}.{ending}">.{ending}</a>' for ending in ("tex", "md", "csv"))
    return (
        f'<section id="{html.escape(table.name)}"><h3>{html.escape(table.title)} <small>{files}</small></h3><div class="scroll"><table class="sortable"><thead><tr>{head}</tr></thead>'
        f'<tbody>{"".join(body)}</tbody></table></div><ul class="remarks">{lettered}</ul><ul class="notes">{said}</ul>'
        + (
            f'<details><summary>Settings that the groups share</summary><ul class="notes">{settings_notes}</ul></details>'
            if settings_notes
            else ""
        )
        + "</section>"
    )


def _html_cell(cell: Cell, position: int, beside: str, address) -> str:
    text = html.escape(cell.mean_text)
    if cell.link:
        text = f'<a href="{html.escape(address(cell.link))}">{text}</a>'
    if cell.mark:
        text = f"<strong>{text}</strong>" if cell.mark == "best" else f"<u>{text}</u>"
    if cell.deviation_text:
        text += f' <span class="deviation">± {cell.deviation_text}</span>'
    if position == 0:
        return f'<th scope="row">{text}' + (f"<sup>{beside}</sup>" if beside else "") + "</th>"
    key = f' data-value="{cell.value!r}"' if cell.text is None and math.isfinite(cell.value) else ""
    return f"<td{key}{'' if cell.text is None else ' class=text'}>{text}</td>"
