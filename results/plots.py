"""What the figures of groups show, each saved as PDF and PNG.

Each function chooses groups and values (relations and correlations of metrics, ranked groups, both selections, splits,
progressions) and returns the file's name, or None if there is too little to show. pictures/groups.py draws them.
"""

import math
from pathlib import Path

import numpy as np

from pictures import groups as pictures
from pictures.groups import Dot, Panel, Value
from results import columns, groups, inference, tables
from results.columns import BEST_ON_TEST, ON_VALIDATION, OPTIMISM, SELECTED, Column
from results.formats import file_name
from results.groups import Group
from results.progression import Method
from results.splits import Splits
from utilities.counts import count_of


def save(figure, folder: Path, name: str) -> str:
    """Write `name`.pdf and `name`.png. Returns the name made safe for files."""
    name = file_name(name)
    pictures.save(figure, folder, name)
    return name


def _dots(dataset_groups: list[Group], rows: list[tuple]) -> list[Dot]:
    """The dots of `rows`, (group, its estimates ...), named so that no two of `dataset_groups` have the same name."""
    labels = groups.label_alike(dataset_groups)
    dots = []
    for group, *estimates in rows:
        label = labels[group.dataset, group.name]
        is_regularised = group.flags.get("batch_mining") == "rho_distance"
        has_fewer = min(estimate.count for estimate in estimates) < group.n_run
        values = tuple(Value(estimate.mean, estimate.deviation) for estimate in estimates)
        dots.append(Dot(label, is_regularised, has_fewer, values))
    return dots


def _panel(dataset_groups: list[Group], x: Column, y: Column, prefix: str = "") -> Panel | None:
    """The groups that have both metrics, titled by Pearson's coefficient, after `prefix`.

    None if fewer than two have both.
    """
    points = []
    for group in dataset_groups:
        of_x = group.estimate(x, SELECTED)
        of_y = group.estimate(y, SELECTED)
        if math.isfinite(of_x.mean) and math.isfinite(of_y.mean):
            points.append((group, of_x, of_y))
    if len(points) < 2:
        return None
    title = prefix + _coefficient(tables.correlation(dataset_groups, x, y))
    return Panel(_dots(dataset_groups, points), x.unit, title, len(points) >= inference.GROUPS_TO_CORRELATE)


def _coefficient(result: inference.Correlation) -> str:
    """Pearson's r as text; none for few groups, where it would mean nothing."""
    n = count_of(result.count, "group")
    if math.isfinite(result.pearson):
        return f"r = {result.pearson:+.2f} over {n}"
    if result.count < inference.GROUPS_TO_CORRELATE:
        return f"{n}: too few for r"
    return f"{n}, r not defined"


def relations(dataset_groups: list[Group], y: Column, xs: list[Column], folder: Path) -> str | None:
    """One panel per quantity: `y` against each of `xs`, with Pearson's coefficient.

    None if fewer than two groups have both.
    """
    panels = [_panel(dataset_groups, x, y) for x in xs]
    panels = [panel for panel in panels if panel]
    if not panels:
        return None
    dataset = dataset_groups[0].dataset
    title = f"{dataset}: {y.title} against the structure of the space"
    return save(pictures.relations(panels, y.unit, title), folder, f"{dataset}_relations")


def matrix(dataset_groups: list[Group], table_columns: list[Column], folder: Path) -> str | None:
    """Pearson's coefficients of all pairs of columns over the groups' means, twins counted once.

    None if there are too few groups.
    """
    dataset = dataset_groups[0].dataset
    titles = []
    means = []
    for c in table_columns:
        values = [group.estimate(c, SELECTED).mean for group in dataset_groups]
        if np.isfinite(values).any():
            titles.append(c.title)
            means.append(values)
    if len(means) < 2:
        return None
    units = groups.units(dataset_groups)
    coefficients = np.empty((len(means), len(means)))
    count = 0
    for row, first in enumerate(means):
        for column, second in enumerate(means):
            result = inference.correlation(first, second, units)
            coefficients[row, column] = result.pearson
            count = max(count, result.count)
    if not np.isfinite(coefficients).any():
        return None
    figure = pictures.matrix(coefficients, titles, f"{dataset}: correlation over {count_of(count, 'group')}")
    return save(figure, folder, f"{dataset}_metric_correlations")


def labelled(dataset_groups: list[Group], x: Column, y: Column, folder: Path, name: str) -> str | None:
    """`y` against `x` with every group's label. None if fewer than two groups have both."""
    panel = _panel(dataset_groups, x, y, f"{dataset_groups[0].dataset}: ")
    if not panel:
        return None
    return save(pictures.labelled(panel, y.unit), folder, name)


def ranked(dataset_groups: list[Group], column: Column, folder: Path) -> str | None:
    """Means of one metric with deviations, best on top; None if no group has it.

    Groups that must not be ranked together are in separate parts.
    """
    dataset = dataset_groups[0].dataset
    parts = groups.pools(dataset_groups, SELECTED)
    rows = []
    for part, members in reversed(parts.items()):
        estimates = []
        for group in members:
            estimate = group.estimate(column, SELECTED)
            if math.isfinite(estimate.mean):
                estimates.append((group, estimate))
        estimates.sort(key=lambda row: row[1].mean, reverse=column.higher is False)
        rows += _dots(dataset_groups, estimates)
        if estimates and len(parts) > 1:
            rows.append(part)
    if not rows:
        return None
    xlabel = f"{column.unit}, selected epoch; bars: one deviation"
    figure = pictures.ranked(rows, column.digits, xlabel, f"{dataset}: {column.title}")
    return save(figure, folder, f"{dataset}_ranked")


def optimism(dataset_groups: list[Group], column: Column, folder: Path) -> str | None:
    """The test values of both selections, joined by a line per group, the best on top. None if no group has both."""
    dataset = dataset_groups[0].dataset
    rules = [columns.selected_by(column, rule) for rule in (ON_VALIDATION, BEST_ON_TEST, OPTIMISM)]
    rows = []
    for group in dataset_groups:
        estimates = [group.estimate(rule, SELECTED) for rule in rules]
        if group.has_both and math.isfinite(estimates[2].mean):
            rows.append((group, *estimates))
    rows.sort(key=lambda row: row[1].mean, reverse=column.higher is False)
    if not rows:
        return None
    mean = np.mean([row[3].mean for row in rows])
    xlabel = f"{column.unit} on test; at the right the optimism, on average {mean:+.{column.digits}f}"
    figure = pictures.optimism(_dots(dataset_groups, rows), column.digits, xlabel, f"{dataset}: {column.title}")
    return save(figure, folder, f"{dataset}_optimism")


def by_split(grid: Splits, c: Column, folder: Path) -> str:
    """A line per method over the splits, with one deviation of the seeds.

    Its height is its mean less that of all methods on the split.
    """
    means = grid.means(c, SELECTED)
    spreads = np.zeros_like(means)
    for m, row in enumerate(grid.values(c, SELECTED)):
        for k, seeds in enumerate(row):
            if len(seeds) > 1:
                spreads[m, k] = seeds.std(ddof=1)
    ylabel = f"{c.unit} less the split's mean"
    title = f"{grid.dataset}: {c.title}"
    figure = pictures.by_split(means - means.mean(0), spreads, grid.methods, grid.splits, ylabel, title)
    return save(figure, folder, f"{grid.dataset}_splits_{c.metric}")


def progressed(name: str, methods: list[Method], column: Column, folder: Path) -> str:
    """A metric against the FID of a progression's splits, a line per method with a band of one deviation."""
    curves = []
    for method in methods:
        splits = sorted(method.groups, key=method.fids.get)
        fids = [method.fids[split] for split in splits]
        estimates = [method.groups[split].estimate(column, SELECTED) for split in splits]
        curves.append((method.name, fids, [Value(e.mean, e.deviation) for e in estimates]))
    figure = pictures.progressed(
        curves, column.unit, f"{name}: {column.title} out of distribution; bands: one deviation"
    )
    return save(figure, folder, f"{name}_progression")


def relation(dataset_groups: list[Group], x: Column, y: Column, folder: Path) -> str | None:
    """Any two metrics against each other, labelled."""
    x_name = f"{x.split}_{x.metric.replace('/', '_')}"
    y_name = f"{y.split}_{y.metric.replace('/', '_')}"
    return labelled(dataset_groups, x, y, folder, f"{dataset_groups[0].dataset}_relation_{y_name}_against_{x_name}")


def rho(dataset_groups: list[Group], y: Column, quantities: list[Column], folder: Path) -> str | None:
    """Recall against rho with labels, where rho is among the recorded quantities."""
    for c in quantities:
        if c.metric == "rho_spectrum@2":
            return labelled(dataset_groups, c, y, folder, f"{dataset_groups[0].dataset}_recall_against_rho")
    return None
