"""What the figures of groups show, each saved as PDF and PNG: relations and correlations of metrics, ranked groups,
both selections, progressions.
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


def _dots(found: list[Group], rows: list[tuple]) -> list[Dot]:
    """The dots of `rows`, (group, its estimates ...), named so that no two of `found` look alike."""
    labels = groups.label_alike(found)
    return [
        Dot(
            labels[group.dataset, group.name],
            group.flags.get("batch_mining") == "rho_distance",
            min(estimate.count for estimate in estimates) < group.n_run,
            tuple(Value(estimate.mean, estimate.deviation) for estimate in estimates),
        )
        for group, *estimates in rows
    ]


def _panel(found: list[Group], x: Column, y: Column, prefix: str = "") -> Panel | None:
    """The groups that have both metrics, titled by Pearson's coefficient, after `prefix`.

    None where fewer than two have both.
    """
    pairs = [(g, g.estimate(x, SELECTED), g.estimate(y, SELECTED)) for g in found]
    points = [(g, a, b) for g, a, b in pairs if math.isfinite(a.mean) and math.isfinite(b.mean)]
    if len(points) < 2:
        return None
    title = prefix + _coefficient(tables.correlation(found, x, y))
    return Panel(_dots(found, points), x.unit, title, len(points) >= inference.GROUPS_TO_CORRELATE)


def _coefficient(result: inference.Correlation) -> str:
    """Pearson's r as text; none for few groups, where it would mean nothing."""
    n = count_of(result.count, "group")
    if math.isfinite(result.pearson):
        return f"r = {result.pearson:+.2f} over {n}"
    return f"{n}: too few for r" if result.count < inference.GROUPS_TO_CORRELATE else f"{n}, r not defined"


def relations(found: list[Group], y: Column, xs: list[Column], folder: Path) -> str | None:
    """One panel per quantity: `y` against each of `xs`, with Pearson's coefficient. None where fewer than two groups
    have both.
    """
    panels = [panel for x in xs if (panel := _panel(found, x, y))]
    title = f"{found[0].dataset}: {y.title} against the structure of the space"
    return save(pictures.relations(panels, y.unit, title), folder, f"{found[0].dataset}_relations") if panels else None


def matrix(found: list[Group], shown: list[Column], folder: Path) -> str | None:
    """Pearson's coefficients of all pairs of columns over the groups' means, twins counted once. None where there are
    too few groups.
    """
    shown = [c for c in shown if any(math.isfinite(g.estimate(c, SELECTED).mean) for g in found)]
    means = np.array([[g.estimate(c, SELECTED).mean for c in shown] for g in found]).reshape(len(found), -1)
    units = groups.units(found)
    size = len(shown)
    results = [[inference.correlation(means[:, a], means[:, b], units) for b in range(size)] for a in range(size)]
    values = np.array([[result.pearson for result in row] for row in results])
    if size < 2 or not np.isfinite(values).any():
        return None
    count = max(result.count for row in results for result in row)
    figure = pictures.matrix(
        values, [c.title for c in shown], f"{found[0].dataset}: correlation over {count_of(count, 'group')}"
    )
    return save(figure, folder, f"{found[0].dataset}_metric_correlations")


def labelled(found: list[Group], x: Column, y: Column, folder: Path, name: str) -> str | None:
    """`y` against `x` with every group's label. None where fewer than two groups have both."""
    panel = _panel(found, x, y, f"{found[0].dataset}: ")
    return save(pictures.labelled(panel, y.unit), folder, name) if panel else None


def ranked(found: list[Group], of: Column, folder: Path) -> str | None:
    """Means of one metric with deviations, best on top, in separate parts where groups must not be ranked together.
    None where none has it.
    """
    parts = groups.pools(found, SELECTED)
    rows = []
    for part, members in reversed(parts.items()):
        here = [
            (group, estimate) for group in members if math.isfinite((estimate := group.estimate(of, SELECTED)).mean)
        ]
        rows += _dots(found, sorted(here, key=lambda row: row[1].mean, reverse=of.higher is False))
        rows += [part] if here and len(parts) > 1 else []
    if not rows:
        return None
    figure = pictures.ranked(
        rows, of.digits, f"{of.unit}, selected epoch; bars: one deviation", f"{found[0].dataset}: {of.title}"
    )
    return save(figure, folder, f"{found[0].dataset}_ranked")


def optimism(found: list[Group], of: Column, folder: Path) -> str | None:
    """The test values of both selections, joined by a line per group, the best on top. None where no group has both."""
    rules = [columns.selected_by(of, rule) for rule in (ON_VALIDATION, BEST_ON_TEST, OPTIMISM)]
    rows = [(group, *(group.estimate(rule, SELECTED) for rule in rules)) for group in found if group.has_both]
    rows = sorted(
        (row for row in rows if math.isfinite(row[3].mean)), key=lambda row: row[1].mean, reverse=of.higher is False
    )
    if not rows:
        return None
    mean = np.mean([row[3].mean for row in rows])
    xlabel = f"{of.unit} on test; at the right the optimism, on average {mean:+.{of.digits}f}"
    figure = pictures.optimism(_dots(found, rows), of.digits, xlabel, f"{found[0].dataset}: {of.title}")
    return save(figure, folder, f"{found[0].dataset}_optimism")


def by_split(of: Splits, c: Column, folder: Path) -> str:
    """A line a method over the splits: its mean less that of all methods on the split, with one deviation of the
    seeds.
    """
    means = of.means(c, SELECTED)
    spreads = [[one.std(ddof=1) if len(one) > 1 else 0.0 for one in row] for row in of.values(c, SELECTED)]
    ylabel = f"{c.unit} less the split's mean"
    title = f"{of.dataset}: {c.title}"
    figure = pictures.by_split(means - means.mean(0), spreads, of.methods, of.splits, ylabel, title)
    return save(figure, folder, f"{of.dataset}_splits_{c.metric}")


def progressed(name: str, methods: list[Method], of: Column, folder: Path) -> str:
    """A metric against the FID of the splits of an out-of-distribution progression, one line per method with a band of
    one deviation.
    """
    curves = []
    for method in methods:
        splits = sorted(method.groups, key=method.fids.get)
        estimates = [method.groups[split].estimate(of, SELECTED) for split in splits]
        curves.append(
            (method.name, [method.fids[split] for split in splits], [Value(e.mean, e.deviation) for e in estimates])
        )
    figure = pictures.progressed(curves, of.unit, f"{name}: {of.title} out of distribution; bands: one deviation")
    return save(figure, folder, f"{name}_progression")


def relation(found: list[Group], x: Column, y: Column, folder: Path) -> str | None:
    """Any two metrics against each other, labelled."""
    names = [c.split + "_" + c.metric.replace("/", "_") for c in (x, y)]
    return labelled(found, x, y, folder, f"{found[0].dataset}_relation_{names[1]}_against_{names[0]}")


def rho(found: list[Group], y: Column, quantities: list[Column], folder: Path) -> str | None:
    """Recall against rho with labels, where rho is among the recorded quantities."""
    quantity = next((c for c in quantities if c.metric == "rho_spectrum@2"), None)
    return quantity and labelled(found, quantity, y, folder, f"{found[0].dataset}_recall_against_rho")
