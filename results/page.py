"""One HTML page: tables that sort, figures, learning curves, links to the runs. It needs no other file.

page.html is its template, page.css and page.js go into it, figures as data addresses. Learning curves are SVG paths
(`_drawing`), all groups of a data set on the same scale.
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
from results.groups import Group, all_runs, counted_runs, of_datasets
from utilities.counts import count_of
from utilities.files import write_file

# ending of the names of tables of settings
SETTINGS = "_settings"
# of the drawing of learning curves, in SVG units
WIDTH = 300
HEIGHT = 170
LEFT = 34
BOTTOM = 18


def write(
    path: Path,
    tables: dict[str, list[Table]],
    figures: dict[str, list[tuple[str, str]]],
    all_groups: list[Group],
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

    def address(location: str) -> str:
        """A run's location relative to the page, or its address at W&B."""
        if "://" in location:
            return location
        return quote(Path(os.path.relpath(location, path.parent)).as_posix())

    def embedded(name: str) -> str:
        return base64.b64encode((path.parent / f"{name}.png").read_bytes()).decode()

    parts = []
    for name, part_tables in tables.items():
        if not part_tables:
            continue
        groups = [group for group in all_groups if group.dataset == name]
        part = {"name": name, "groups": groups, "curves": None, "tables": [], "settings": [], "figures": []}
        if groups and name in curves:
            part["curves"] = _curves(groups, curves[name])
        for table in part_tables:
            kind = "settings" if table.name.endswith(SETTINGS) else "tables"
            part[kind].append(table)
        for figure, caption in figures.get(name, []):
            part["figures"].append((figure, caption, embedded(figure)))
        parts.append(part)
    n_runs = count_of(len(all_runs(all_groups)), "run")
    counts = f"{n_runs} in {count_of(len(all_groups), 'group')} on {', '.join(of_datasets(all_groups))}"
    left_out = in_no_mean(sum(len(group.left_out) for group in all_groups))
    text = template().render(
        head=f"{counts}; {left_out}",
        parts=parts,
        notes=notes,
        address=address,
        style=Path(__file__).with_suffix(".css").read_text(encoding="utf-8"),
        script=Path(__file__).with_suffix(".js").read_text(encoding="utf-8"),
    )
    write_file(path, text + "\n")


def in_no_mean(count: int) -> str:
    """How many runs are excluded from the means, as text."""
    if not count:
        return "all runs are included in the means"
    verb = "is" if count == 1 else "are"
    return f"{count_of(count, 'run')} {verb} excluded from the means"


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


def _curves(dataset_groups: list[Group], curve: Column) -> dict | None:
    """One small plot per group, all on the same scale; None without numbers.

    A plot has one line per run and split, and a dot at the selected epoch.
    """
    recorded = set()
    values = [[]]
    for run in all_runs(dataset_groups):
        for split in SPLIT_COLOURS:
            if (split, curve.metric) in run.series.keys:
                recorded.add(split)
                values.append(run.series.get(split, curve.metric))
    splits = [split for split in SPLIT_COLOURS if split in recorded]
    values = np.concatenate(values)
    finite = values[np.isfinite(values)] * curve.scale
    if not len(finite):
        return None
    low = float(finite.min())
    high = float(finite.max())
    if high <= low:
        high = low + 1
    selecting = set(map(columns.selection_split, counted_runs(dataset_groups)))
    title = columns.title(curve.metric)
    if curve.percent:
        title += " in %"
    return {
        "title": title,
        "splits": splits,
        "selected_on": " or ".join(sorted(selecting)).replace("val", "validation") or "test",
        "drawings": [_drawing(group, curve, splits, low, high) for group in dataset_groups],
    }


def _drawing(group: Group, curve: Column, splits: list[str], low: float, high: float) -> dict:
    """A plot's levels (text, y), lines (split, SVG path), dots (split, x, y, text), first and last epoch."""
    epochs = np.concatenate([run.series.epochs for run in group.runs])
    first = int(epochs.min()) if len(epochs) else 0
    last = int(epochs.max()) if len(epochs) else 1

    def x(epochs):
        return LEFT + (np.asarray(epochs) - first) / max(last - first, 1) * (WIDTH - LEFT - 6)

    def y(values):
        return 6 + (high - np.asarray(values)) / (high - low) * (HEIGHT - BOTTOM - 6)

    lines = []
    dots = []
    for run in group.runs:
        for split in splits:
            values = run.series.get(split, curve.metric) * curve.scale
            is_finite = np.isfinite(values)
            points = zip(x(run.series.epochs[is_finite]), y(values[is_finite]), strict=True)
            path = "L".join([f"{px:.0f} {py:.1f}" for px, py in points])
            if path:
                lines.append((split, f"M{path}"))
        chosen = columns.epoch(run, columns.SELECTED)
        split = columns.selection_split(run)
        if math.isfinite(chosen) and split in splits:
            row = int(np.searchsorted(run.series.epochs, chosen))
            value = run.series.get(split, curve.metric)[row] * curve.scale
            if math.isfinite(value):
                dots.append((split, float(x(chosen)), float(y(value)), f"{run.name}: {value:.2f} at epoch {chosen:g}"))
    levels = [(f"{level:.3g}", float(y(level))) for level in np.linspace(low, high, 3)]
    lines.sort(key=lambda line: splits.index(line[0]))
    return {"group": group, "levels": levels, "lines": lines, "dots": dots, "first": first, "last": last}
