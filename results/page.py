"""One HTML page with everything in it: tables that sort, figures, learning curves, links to the runs. No other file is
needed.

page.html is its template.
"""

import base64
import math
import os
from pathlib import Path
from urllib.parse import quote

import numpy as np

from pictures.text import SPLIT_COLOURS
from results import columns
from results.columns import Column
from results.formats import MARKED_NOTE, NOISY, SETTINGS_NOTE, Table, file_name
from results.groups import Group, of_datasets
from utilities.counts import count_of
from utilities.files import write_file

# of the drawing of learning curves, in SVG units
WIDTH = 300
HEIGHT = 170
LEFT = 34
BOTTOM = 18


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
        curves: data set -> the metric of its learning curves; a data set without numbers is absent.
        notes: warnings at the top of the page: skipped folders, groups that are not averaged.
    """

    def address(where: str) -> str:
        """A run's location relative to the page, or its address at W&B."""
        return where if "://" in where else quote(Path(os.path.relpath(where, path.parent)).as_posix())

    def embedded(name: str) -> str:
        return base64.b64encode((path.parent / f"{name}.png").read_bytes()).decode()

    left_out = sum(len(group.left_out) for group in found)
    n_runs = count_of(sum(len(group.runs) for group in found), "run")
    parts = []
    for name in (part for part in tables if tables[part]):
        groups = [group for group in found if group.dataset == name]
        parts.append(
            {
                "name": name,
                "groups": groups,
                "curves": _curves(groups, curves[name]) if groups and name in curves else None,
                "tables": [table for table in tables[name] if not table.name.endswith("_settings")],
                "settings": [table for table in tables[name] if table.name.endswith("_settings")],
                "figures": [(figure, caption, embedded(figure)) for figure, caption in figures.get(name, [])],
            }
        )
    text = template().render(
        head=f"{n_runs} in {count_of(len(found), 'group')} on {', '.join(of_datasets(found))}; {in_no_mean(left_out)}",
        parts=parts,
        notes=notes,
        address=address,
        **{
            name: Path(__file__).with_suffix(ending).read_text(encoding="utf-8")
            for name, ending in (("style", ".css"), ("script", ".js"))
        },
    )
    write_file(path, text + "\n")


def in_no_mean(count: int) -> str:
    """How many runs are in no mean, in words."""
    if not count:
        return "all runs are in the means"
    return f"{count_of(count, 'run')} {'is' if count == 1 else 'are'} in no mean"


def template():
    """The page's template, with what it reads of this program."""
    import jinja2

    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True)
    environment.filters["file_name"] = file_name
    environment.tests["startswith_any"] = str.startswith
    environment.globals |= {
        "NOISY": NOISY,
        "FOLDED_NOTES": (SETTINGS_NOTE, MARKED_NOTE),
        "MARKED_NOTE": MARKED_NOTE,
        "COLOURS": SPLIT_COLOURS,
        "WIDTH": WIDTH,
        "HEIGHT": HEIGHT,
        "LEFT": LEFT,
    }
    return environment.get_template("page.html")


def _curves(found: list[Group], curve: Column) -> dict | None:
    """One small plot per group, all on the same scale: one line per run and split, a dot at the selected epoch; None
    without numbers.
    """
    series = [run.series for group in found for run in group.runs]
    splits = [split for split in SPLIT_COLOURS if any((split, curve.metric) in one.keys for one in series)]
    everything = np.concatenate([[], *(one.of(split, curve.metric) for one in series for split in splits)])
    finite = everything[np.isfinite(everything)] * curve.scale
    if not len(finite):
        return None
    low = float(finite.min())
    high = float(finite.max())
    high = high if high > low else low + 1
    return {
        "title": columns.title(curve.metric) + (" in %" if curve.percent else ""),
        "splits": splits,
        "selected_on": " or ".join(
            sorted({columns.selection_split(run) for group in found for run in group.counted})
        ).replace("val", "validation")
        or "test",
        "drawings": [_drawing(group, curve.metric, curve.scale, splits, low, high) for group in found],
    }


def _drawing(group: Group, metric: str, scale: float, splits: list[str], low: float, high: float) -> dict:
    """A plot's levels (text, y), lines (split, SVG path), dots (split, x, y, text), first and last epoch."""
    first = min((int(run.series.epochs[0]) for run in group.runs if len(run.series.epochs)), default=0)
    last = max((int(run.series.epochs[-1]) for run in group.runs if len(run.series.epochs)), default=1)

    def x(epochs):
        return LEFT + (np.asarray(epochs) - first) / max(last - first, 1) * (WIDTH - LEFT - 6)

    def y(values):
        return 6 + (high - np.asarray(values)) / (high - low) * (HEIGHT - BOTTOM - 6)

    lines = []
    dots = []
    for run in group.runs:
        for split in splits:
            values = run.series.of(split, metric) * scale
            there = np.isfinite(values)
            points = np.stack([x(run.series.epochs[there]), y(values[there])], axis=1)
            if len(points):
                lines.append((split, "M" + "L".join(f"{px:.0f} {py:.1f}" for px, py in points)))
        chosen = columns.epoch(run, columns.SELECTED)
        split = columns.selection_split(run)
        if math.isfinite(chosen) and split in splits:
            value = run.series.of(split, metric)[int(np.searchsorted(run.series.epochs, chosen))] * scale
            if math.isfinite(value):
                dots.append((split, float(x(chosen)), float(y(value)), f"{run.name}: {value:.2f} at epoch {chosen:g}"))
    levels = [(f"{level:.3g}", float(y(level))) for level in np.linspace(low, high, 3)]
    lines.sort(key=lambda line: splits.index(line[0]))
    return {"group": group, "levels": levels, "lines": lines, "dots": dots, "first": first, "last": last}
