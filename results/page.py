"""One HTML page with everything in it: tables that sort, figures, learning curves, links to the runs. No other file is needed."""

import base64
import html
import math
import os
from pathlib import Path

import numpy as np

from results import columns
from results.columns import Column
from results.formats import Table, file_name
from results.groups import Group, of_datasets
from results.html_tables import to_html
from runs.plots import SPLIT_COLOURS
from utilities.files import replacing

WIDTH, HEIGHT, LEFT, BOTTOM = 300, 170, 34, 18  # of a curve's drawing, in its own units

STYLE = """
:root { --ink: #1c2430; --soft: #5d6673; --line: #dfe3e8; --accent: #2b6ca3; --shade: #f5f7f9; }
* { box-sizing: border-box; }
body { margin: 0; color: var(--ink); background: #fff; font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main, header { max-width: 1260px; margin: 0 auto; padding: 0 16px; }
header { padding-top: 20px; }
h1 { font-size: 1.5rem; margin: 0 0 4px; }
h2 { font-size: 1.25rem; margin: 36px 0 8px; padding-top: 8px; border-top: 2px solid var(--line); }
h3 { font-size: 1.02rem; margin: 26px 0 8px; }
h3 small { font-weight: normal; margin-left: 6px; }
a { color: var(--accent); }
nav { margin: 10px 0 0; display: flex; flex-wrap: wrap; gap: 4px 14px; }
.scroll { display: inline-block; max-width: 100%; overflow-x: auto; border: 1px solid var(--line); border-radius: 6px; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .86rem; }
th, td { padding: 5px 6px; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
tbody tr:last-child > * { border-bottom: 0; }
tbody tr:hover > * { background: var(--shade); }
thead th { background: var(--shade); position: sticky; top: 0; }
thead th { white-space: normal; vertical-align: bottom; min-width: 4.2em; }
th:first-child, td.text, thead th.text { text-align: left; }
tbody th { position: sticky; left: 0; background: #fff; font-weight: 600; }
thead th:first-child { position: sticky; left: 0; z-index: 1; }
.remarks { list-style: none; margin: 6px 0; padding: 0; color: #8a3b0b; font-size: .82rem; overflow-wrap: anywhere; }
.remarks:empty { display: none; } sup { color: #8a3b0b; font-weight: normal; margin-left: 2px; } abbr { text-decoration: none; cursor: help; }
td.text { white-space: normal; overflow-wrap: break-word; max-width: 34em; }
td.short { white-space: nowrap; } .remarks details { font-size: inherit; } .remarks summary { color: inherit; } .remarks details[open] .begin { display: none; }
thead button { all: unset; cursor: pointer; font-weight: 600; }
thead button:focus-visible { outline: 2px solid var(--accent); }
th[aria-sort=ascending] button::after { content: " \\25B2"; } th[aria-sort=descending] button::after { content: " \\25BC"; }
.deviation { color: var(--soft); font-size: .9em; }
.interval { display: block; color: var(--soft); font-size: .8em; }
tr.part th { text-align: left; font-weight: normal; font-style: italic; color: var(--soft); background: var(--shade); }
tr.part span { position: sticky; left: 6px; }
.notes { color: var(--soft); font-size: .82rem; margin: 6px 0; padding-left: 18px; overflow-wrap: anywhere; }
details { font-size: .85rem; } summary { cursor: pointer; color: var(--accent); }
.warning { border-left: 4px solid #c2571a; background: #fdf4ee; padding: 8px 12px; margin: 12px 0; }
.figures { margin-top: 22px; display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 460px), 1fr)); gap: 16px; align-items: start; }
.wide { grid-column: 1 / -1; }
figure { margin: 0; border: 1px solid var(--line); border-radius: 6px; padding: 8px; }
figure img { width: 100%; height: auto; display: block; }
figcaption { font-size: .82rem; color: var(--soft); }
.curves { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 270px), 1fr)); gap: 12px; }
.curves figcaption { overflow-wrap: anywhere; } .curves b { color: var(--ink); }
svg { width: 100%; height: auto; display: block; } svg text { font-size: 9px; fill: #5d6673; }
.key span { display: inline-block; width: 1.4em; height: 3px; vertical-align: middle; margin: 0 4px 0 12px; }
@media (max-width: 480px) { .apart { display: none; } .wide { overflow-x: auto; } .wide img { width: 760px; } td.text:nth-child(n+3):not(.short) { min-width: 15em; } body { font-size: 14px; } th, td { padding: 4px 7px; } tbody th, thead th:first-child { min-width: 36vw; max-width: 44vw; white-space: normal; overflow-wrap: anywhere; } }
"""

SCRIPT = """
document.querySelectorAll("table.sortable").forEach(table => {
  const key = (row, i) => { const cell = row.cells[i], v = cell.dataset.value; return v !== undefined ? +v : cell.textContent.trim(); };
  const rank = v => typeof v === "number" ? 0 : (v === "" || v === "-") ? 2 : 1;
  table.tHead.querySelectorAll("th").forEach((head, i) => head.querySelector("button").addEventListener("click", () => {
    const falling = head.getAttribute("aria-sort") === "ascending" || (!head.hasAttribute("aria-sort") && table.querySelector(`td:nth-child(${i + 1})[data-value]`) !== null);
    table.tHead.querySelectorAll("th").forEach(other => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", falling ? "descending" : "ascending");
    for (const body of table.tBodies) {
      const rows = [...body.rows].filter(row => !row.classList.contains("part")).map(row => [key(row, i), row]);
      rows.sort(([a], [b]) => rank(a) - rank(b) || (falling ? -1 : 1) * (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), undefined, { numeric: true })));
      rows.forEach(([, row]) => body.append(row));
    }
  }));
});
"""


def write(
    path: Path,
    tables: dict[str, list[Table]],
    figures: dict[str, list[tuple[str, str]]],
    found: list[Group],
    curves: dict[str, Column],
    notes: list[str],
) -> None:
    """Write the page.

    Args:
        tables: part of the page -> its tables. Parts named after data sets also hold their figures and curves.
        figures: part -> (file name without ending, caption); the PNG lies beside the page and goes into it.
        curves: data set -> the metric whose course over the epochs is drawn for every group; none of a data set without numbers.
        notes: what a reader has to know first: skipped folders, groups that are not averaged.
    """
    parts = [part for part in tables if tables[part]]
    runs = [run for group in found for run in group.runs]
    left_out = sum(len(group.left_out) for group in found)
    head = f"{len(runs)} runs in {len(found)} groups on {', '.join(of_datasets(found))}" + (
        f"; {left_out} runs are in no mean" if left_out else ""
    )
    body = []

    def address(where):
        return _address(where, path.parent)

    for part in parts:
        body.append(f'<h2 id="part-{html.escape(file_name(part))}">{html.escape(part)}</h2>')
        body += [to_html(table, address) for table in tables[part] if not table.name.endswith("_settings")]
        if figures.get(part):
            body.append('<div class="figures">' + "".join(_figure(path.parent, *figure) for figure in figures[part]) + "</div>")
        of = [group for group in found if group.dataset == part]
        if of:
            body.append(_curves(of, curves[part]) if part in curves else "")
            body.append(_run_list(of, path.parent))
        body += [to_html(table, address) for table in tables[part] if table.name.endswith("_settings")]
    warning = '<div class="warning"><ul>' + "".join(f"<li>{html.escape(note)}</li>" for note in notes) + "</ul></div>" if notes else ""
    links = "".join(f'<a href="#part-{html.escape(file_name(part))}">{html.escape(part)}</a>' for part in parts)
    with replacing(path) as file:
        file.write(
            f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
            f'<title>Results</title><link rel="icon" href="data:,"><style>{STYLE}</style></head><body><header><h1>Results</h1><p>{html.escape(head)}. '
            f"A click on a column's head sorts by it.</p><nav>{links}</nav>{warning}</header><main>{''.join(body)}</main><script>{SCRIPT}</script></body></html>\n"
        )


def _figure(folder: Path, name: str, caption: str) -> str:
    data = base64.b64encode((folder / f"{name}.png").read_bytes()).decode()
    wide = ' class="wide"' if name.endswith("_relations") else ""
    return f'<figure{wide}><img alt="{html.escape(caption)}" src="data:image/png;base64,{data}"><figcaption>{html.escape(caption)} (<a href="{html.escape(name)}.pdf">PDF</a>)</figcaption></figure>'


def _address(where: str, folder: Path) -> str:
    """A run's place, seen from the page: a relative path, or its address at W&B."""
    return where if "://" in where else Path(os.path.relpath(where, folder)).as_posix()


def _run_list(found: list[Group], folder: Path) -> str:
    lines = []
    for group in found:
        reasons = {id(run): reason for run, reason in group.left_out}
        links = ", ".join(
            f'<a href="{html.escape(_address(run.where, folder))}">{html.escape(run.name)}</a>' + (f" ({html.escape(reasons[id(run)])})" if id(run) in reasons else "")
            + (f" [{html.escape('; '.join(run.notes))}]" if run.notes else "")
            for run in group.runs
        )  # fmt: skip
        lines.append(f"<li><b>{html.escape(group.name)}</b>: {links}</li>")
    return f'<details><summary>All runs of {html.escape(found[0].dataset)}</summary><ul class="notes">{"".join(lines)}</ul></details>'


def _curves(found: list[Group], curve: Column) -> str:
    """One small drawing a group, all on the same scale: a line a run and split, a dot at the selected epoch."""
    splits = [split for split in SPLIT_COLOURS if any((split, curve.metric) in run.series.keys for group in found for run in group.runs)]
    if not splits:
        return ""
    everything = [run.series.of(split, curve.metric) for group in found for run in group.runs for split in splits]
    finite = np.concatenate([values[np.isfinite(values)] for values in everything]) * curve.scale
    if not len(finite):
        return ""
    low, high = float(finite.min()), float(finite.max())
    high = high if high > low else low + 1
    drawings = "".join(_drawing(group, curve.metric, curve.scale, splits, low, high) for group in found)
    key = "".join(f'<span style="background:{SPLIT_COLOURS[split]}"></span>{split}' for split in splits)
    title = columns.title(curve.metric) + (" in %" if curve.percent else "")
    return (
        f'<h3>Learning curves: {html.escape(title)} over the epochs</h3><p class="key">One line a run; a dot at the selected epoch of {"validation" if "val" in splits else "test"}.{key}</p>'
        f'<div class="curves">{drawings}</div>'
    )


def _drawing(group: Group, metric: str, scale: float, splits: list[str], low: float, high: float) -> str:
    first = min((int(run.series.epochs[0]) for run in group.runs if len(run.series.epochs)), default=0)
    last = max((int(run.series.epochs[-1]) for run in group.runs if len(run.series.epochs)), default=1)

    def x(epochs):
        return LEFT + (np.asarray(epochs) - first) / max(last - first, 1) * (WIDTH - LEFT - 6)

    def y(values):
        return 6 + (high - np.asarray(values)) / (high - low) * (HEIGHT - BOTTOM - 6)

    shapes = []
    for split in splits:
        paths = []
        for run in group.runs:
            values = run.series.of(split, metric) * scale
            there = np.isfinite(values)
            if there.any():
                points = np.stack([x(run.series.epochs[there]), y(values[there])], axis=1)
                paths.append("M" + "L".join(f"{px:.0f} {py:.1f}" for px, py in points))
        shapes.append(
            f'<path d="{"".join(paths)}" fill="none" stroke="{SPLIT_COLOURS[split]}" stroke-width="1.2" stroke-linejoin="round" opacity=".75"/>'
        )
    for run in group.runs:
        chosen, split = columns.epoch(run, columns.SELECTED), columns.selection_split(run)
        if math.isfinite(chosen) and split in splits:
            value = run.series.of(split, metric)[int(np.searchsorted(run.series.epochs, chosen))] * scale
            if math.isfinite(value):
                shapes.append(
                    f'<circle cx="{float(x(chosen)):.1f}" cy="{float(y(value)):.1f}" r="2.6" fill="{SPLIT_COLOURS[split]}"><title>{html.escape(run.name)}: {value:.2f} at epoch {chosen:g}</title></circle>'
                )
    marks = [(f"{level:.3g}", float(y(level))) for level in np.linspace(low, high, 3)]
    axis = "".join(
        f'<path d="M{LEFT} {py:.1f}H{WIDTH - 6}" stroke="#dfe3e8"/><text x="{LEFT - 4}" y="{py + 3:.1f}" text-anchor="end">{text}</text>'
        for text, py in marks
    )
    axis += f'<text x="{LEFT}" y="{HEIGHT - 4}">{first}</text><text x="{WIDTH - 6}" y="{HEIGHT - 4}" text-anchor="end">epoch {last}</text>'
    state = "not averaged" if group.refused else f"seeds: {group.seeds_text}"
    return (
        f'<figure><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="learning curves of {html.escape(group.name)}">{axis}{"".join(shapes)}</svg>'
        f"<figcaption><b>{html.escape(group.name)}</b>, {state}</figcaption></figure>"
    )
