"""One HTML page with everything in it: tables that sort, figures, learning curves, links to the runs. No other file is needed."""

import base64
import math
import os
from html import escape
from pathlib import Path

import numpy as np

from pictures.text import SPLIT_COLOURS
from results import columns
from results.columns import Column
from results.formats import Table, file_name
from results.groups import Group, of_datasets
from results.html_tables import to_html
from utilities.files import replacing

WIDTH, HEIGHT, LEFT, BOTTOM = 300, 170, 34, 18  # of the drawing of learning curves, in SVG units

STYLE, SCRIPT = (Path(__file__).with_suffix(ending).read_text(encoding="utf-8") for ending in (".css", ".js"))


def write(
    path: Path, tables: dict[str, list[Table]], figures: dict[str, list[tuple[str, str]]], found: list[Group], curves: dict[str, Column],
    notes: list[str],
) -> None:  # fmt: skip
    """Write the page.

    Args:
        tables: part of the page -> its tables. Parts named after data sets also hold their figures and curves.
        figures: part -> (file name without ending, caption); the PNG lies beside the page and goes into it.
        curves: data set -> the metric of its learning curves; a data set without numbers is absent.
        notes: warnings at the top of the page: skipped folders, groups that are not averaged.
    """
    parts = [part for part in tables if tables[part]]
    runs = [run for group in found for run in group.runs]
    left_out = sum(len(group.left_out) for group in found)
    absent = f"; {left_out} runs are in no mean" if left_out else ""
    head = f"{len(runs)} runs in {len(found)} groups on {', '.join(of_datasets(found))}{absent}"
    body = []

    def address(where: str) -> str:
        """A run's location relative to the page, or its address at W&B."""
        return where if "://" in where else Path(os.path.relpath(where, path.parent)).as_posix()

    for part in parts:
        body.append(f'<h2 id="part-{escape(file_name(part))}">{escape(part)}</h2>')
        body += [to_html(table, address) for table in tables[part] if not table.name.endswith("_settings")]
        if figures.get(part):
            body.append('<div class="figures">' + "".join(_figure(path.parent, *figure) for figure in figures[part]) + "</div>")
        of = [group for group in found if group.dataset == part]
        if of:
            body.append(_curves(of, curves[part]) if part in curves else "")
            body.append(_run_list(of, address))
        body += [to_html(table, address) for table in tables[part] if table.name.endswith("_settings")]
    warning = '<div class="warning"><ul>' + "".join(f"<li>{escape(note)}</li>" for note in notes) + "</ul></div>" if notes else ""
    links = "".join(f'<a href="#part-{escape(file_name(part))}">{escape(part)}</a>' for part in parts)
    with replacing(path) as file:
        file.write(
            f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
            f'<title>Results</title><link rel="icon" href="data:,"><style>\n{STYLE}</style></head><body><header><h1>Results</h1><p>{escape(head)}. '
            f"A click on a column's head sorts by it.</p><nav>{links}</nav>{warning}</header><main>{''.join(body)}</main><script>\n{SCRIPT}</script></body></html>\n"
        )


def _figure(folder: Path, name: str, caption: str) -> str:
    data = base64.b64encode((folder / f"{name}.png").read_bytes()).decode()
    wide = ' class="wide"' if name.endswith("_relations") else ""
    return f'<figure{wide}><img alt="{escape(caption)}" src="data:image/png;base64,{data}"><figcaption>{escape(caption)} (<a href="{escape(name)}.pdf">PDF</a>)</figcaption></figure>'


def _run_list(found: list[Group], address) -> str:
    lines = []
    for group in found:
        reasons = {id(run): reason for run, reason in group.left_out}
        links = ", ".join(
            f'<a href="{escape(address(run.where))}">{escape(run.name)}</a>' + (f" ({escape(reasons[id(run)])})" if id(run) in reasons else "")
            + (f" [{escape('; '.join(run.notes))}]" if run.notes else "")
            for run in group.runs
        )  # fmt: skip
        lines.append(f"<li><b>{escape(group.name)}</b>: {links}</li>")
    return f'<details><summary>All runs of {escape(found[0].dataset)}</summary><ul class="notes">{"".join(lines)}</ul></details>'


def _curves(found: list[Group], curve: Column) -> str:
    """One small plot per group, all on the same scale: one line per run and split, a dot at the selected epoch."""
    series = [run.series for group in found for run in group.runs]
    splits = [split for split in SPLIT_COLOURS if any((split, curve.metric) in one.keys for one in series)]
    everything = np.concatenate([[], *(one.of(split, curve.metric) for one in series for split in splits)])
    finite = everything[np.isfinite(everything)] * curve.scale
    if not len(finite):
        return ""
    low, high = float(finite.min()), float(finite.max())
    high = high if high > low else low + 1
    drawings = "".join(_drawing(group, curve.metric, curve.scale, splits, low, high) for group in found)
    key = "".join(f'<span style="background:{SPLIT_COLOURS[split]}"></span>{split}' for split in splits)
    title = columns.title(curve.metric) + " in %" * curve.percent
    return (
        f'<h3>Learning curves: {escape(title)} over the epochs</h3><p class="key">One line a run; a dot at the selected epoch of {"validation" if "val" in splits else "test"}.{key}</p>'
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
        style = f'fill="none" stroke="{SPLIT_COLOURS[split]}" stroke-width="1.2" stroke-linejoin="round" opacity=".75"'
        shapes.append(f'<path d="{"".join(paths)}" {style}/>')
    for run in group.runs:
        chosen, split = columns.epoch(run, columns.SELECTED), columns.selection_split(run)
        if math.isfinite(chosen) and split in splits:
            value = run.series.of(split, metric)[int(np.searchsorted(run.series.epochs, chosen))] * scale
            if math.isfinite(value):
                shapes.append(
                    f'<circle cx="{float(x(chosen)):.1f}" cy="{float(y(value)):.1f}" r="2.6" fill="{SPLIT_COLOURS[split]}"><title>{escape(run.name)}: {value:.2f} at epoch {chosen:g}</title></circle>'
                )
    marks = [(f"{level:.3g}", float(y(level))) for level in np.linspace(low, high, 3)]
    axis = "".join(
        f'<path d="M{LEFT} {py:.1f}H{WIDTH - 6}" stroke="#dfe3e8"/><text x="{LEFT - 4}" y="{py + 3:.1f}" text-anchor="end">{text}</text>'
        for text, py in marks
    )
    axis += f'<text x="{LEFT}" y="{HEIGHT - 4}">{first}</text><text x="{WIDTH - 6}" y="{HEIGHT - 4}" text-anchor="end">epoch {last}</text>'
    state = "not averaged" if group.refused else f"seeds: {group.seeds_text}"
    return (
        f'<figure><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="learning curves of {escape(group.name)}">{axis}{"".join(shapes)}</svg>'
        f"<figcaption><b>{escape(group.name)}</b>, {state}</figcaption></figure>"
    )
