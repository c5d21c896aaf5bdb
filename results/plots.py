"""Figures, each as PDF and PNG: relations and correlations of metrics, recall against rho, ranked groups, both selections, progressions."""

import math
from pathlib import Path

import numpy as np

from results import columns, groups, inference, tables
from results.columns import BEST_ON_TEST, ON_VALIDATION, OPTIMISM, SELECTED, Column
from results.formats import file_name
from results.groups import Group
from results.labels import place_labels
from results.progression import Method
from results.splits import Splits

BASE, REGULARISED = "#2b6ca3", "#c2571a"  # colours of plain methods, and of those with rho_distance
DPI = 130
BESIDE_TITLE = {"loc": "lower right", "bbox_to_anchor": (1.0, 1.0), "ncols": 2, "borderaxespad": 0.2}
FEWER = "*"  # after the label of a mean of fewer seeds than were run

STYLE = {
    "pdf.fonttype": 42, "font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True, "grid.color": "0.88",
    "text.parse_math": False,  # names are literal: matplotlib reads text between dollar signs as a formula
}  # fmt: skip


def _figure(width: float, height: float):
    """An empty figure of that many inches, without pyplot and its global state."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    matplotlib.rcParams.update(STYLE)
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure


def save(figure, folder: Path, name: str) -> str:
    """Write `name`.pdf and `name`.png. Returns the name made safe for files."""
    name = file_name(name)
    figure.savefig(folder / f"{name}.pdf")
    figure.savefig(folder / f"{name}.png", dpi=DPI)
    return name


def _room(figure, left: float = 0.75, right: float = 0.2, bottom: float = 0.6, top: float = 0.45) -> None:
    """Set margins in inches: a tight bounding box or a layout engine would draw every figure twice."""
    width, height = figure.get_size_inches()
    figure.subplots_adjust(left=left / width, right=1 - right / width, bottom=bottom / height, top=1 - top / height)


def _width(texts: list[str], size: float) -> float:
    """About how wide the longest text is, in inches."""
    return max(map(len, texts)) * size * 0.6 / 72


def _points(found: list[Group], x: Column, y: Column):
    """(group, its estimates in x and y) of the groups that have both."""
    pairs = [(g, g.estimate(x, SELECTED), g.estimate(y, SELECTED)) for g in found]
    return [(g, a, b) for g, a, b in pairs if math.isfinite(a.mean) and math.isfinite(b.mean)]


def _labels(found: list[Group], shown: list[tuple]) -> tuple[list[str], bool]:
    """Labels of `shown`, (group, its estimates ...), marked where a mean is of fewer seeds than were run; and whether any is."""
    labels = groups.label_alike(found)
    marked = [_is_partial(*one) for one in shown]
    return [labels[g.dataset, g.name] + FEWER * mark for (g, *_), mark in zip(shown, marked, strict=True)], any(marked)


def _is_partial(group: Group, *estimates) -> bool:
    """Whether a mean is of fewer seeds than were run."""
    return min(estimate.count for estimate in estimates) < group.n_run


def _explain(figure, marked: bool, sign: str = FEWER) -> None:
    """Say what the mark of labels or points means, where one has it."""
    if marked:
        x, y = 1 - 0.1 / figure.get_figwidth(), 0.08 / figure.get_figheight()
        figure.text(x, y, f"{sign} fewer seeds than were run", fontsize=8, ha="right")


def _colour(group: Group) -> str:
    return REGULARISED if group.flags.get("batch_mining") == "rho_distance" else BASE


def _scatter(axis, points) -> None:
    """Means with bars of one deviation, hollow if of fewer seeds than were run, and the least-squares line."""
    xs, ys = np.array([x.mean for _, x, _ in points]), np.array([y.mean for _, _, y in points])
    spreads = np.nan_to_num([(x.deviation, y.deviation) for _, x, y in points])
    colours = np.array([_colour(group) for group, *_ in points])
    for colour in (BASE, REGULARISED):
        here = colours == colour
        if here.any():
            bars = {"xerr": spreads[here, 0], "yerr": spreads[here, 1], "ecolor": "0.7", "elinewidth": 1}
            axis.errorbar(xs[here], ys[here], fmt="o", color=colour, markersize=5, zorder=3, **bars)
    for group, x, y in points:
        if _is_partial(group, x, y):
            axis.plot(x.mean, y.mean, "o", color=_colour(group), markerfacecolor="white", markersize=5, zorder=3.2)
    if len(points) >= inference.GROUPS_TO_CORRELATE and np.ptp(xs) > 0:
        slope, offset = np.polyfit(xs, ys, 1)
        ends = np.array([xs.min(), xs.max()])
        axis.plot(ends, slope * ends + offset, color="0.4", linestyle="--", linewidth=1, zorder=2)
    axis.grid(True)


def _legend(axis, colours, **where) -> None:
    """Legend of the two colours, where both occur. It is beside the title: inside the axes it would cover a point or an error bar."""
    if set(colours) == {BASE, REGULARISED}:
        for colour, name in ((BASE, "as it is"), (REGULARISED, "with rho_distance")):
            axis.plot([], [], "o", color=colour, label=name, markersize=5)
        axis.legend(fontsize=9, frameon=False, **BESIDE_TITLE | where)


def _coefficient(result: inference.Correlation) -> str:
    """Pearson's r as text; none for few groups, where it would mean nothing."""
    n = f"{result.count} group{'s' * (result.count != 1)}"
    if math.isfinite(result.pearson):
        return f"r = {result.pearson:+.2f} over {n}"
    return f"{n}: too few for r" if result.count < inference.GROUPS_TO_CORRELATE else f"{n}, r not defined"


def _lines(found: list[Group], rows: list[tuple], places, count: int):
    """A figure of `count` lines, the lowest first, with label and end text of each of `rows`, (group, its estimates ..., end text).

    Returns figure and axis.
    """
    names, marked = _labels(found, [row[:-1] for row in rows])
    figure = _figure(6.2 + _width(names, 9), 0.27 * count + 1.1)
    axis = figure.subplots()
    _room(figure, _width(names, 9) + 0.2, right=0.55)  # room for the end texts
    for place, (*_, text) in zip(places, rows, strict=True):
        axis.annotate(text, (1, place), xycoords=("axes fraction", "data"), xytext=(4, 0), textcoords="offset points", fontsize=8, va="center", annotation_clip=False)  # fmt: skip
    axis.set_yticks(places, names, fontsize=9)
    axis.set_ylim(-0.6, count - 0.4)
    axis.grid(True)
    _explain(figure, marked)
    return figure, axis


def relations(found: list[Group], y: Column, xs: list[Column], folder: Path) -> str | None:
    """One panel per quantity: `y` against each of `xs`, with Pearson's coefficient. None where no group has both."""
    panels = [(x, points) for x in xs if (points := _points(found, x, y))]
    if not panels:
        return None
    figure = _figure(3.1 * len(panels) + 0.6, 3.6)
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)
    for axis, (x, points) in zip(axes[0], panels, strict=True):
        _scatter(axis, points)
        axis.set_xlabel(x.unit)
        axis.set_title(_coefficient(tables.correlation(found, x, y)), fontsize=10)
    axes[0, 0].set_ylabel(y.unit)
    colours = [_colour(group) for _, points in panels for group, *_ in points]
    # Below all panels: a figure of one panel has no room beside its title.
    _legend(axes[0, 0], colours, loc="lower left", bbox_to_anchor=(0.0, 0.0), bbox_transform=figure.transFigure)
    figure.suptitle(f"{found[0].dataset}: {y.title} against the structure of the space", x=0.02, ha="left", fontsize=11)
    _explain(figure, any(_is_partial(*point) for _, points in panels for point in points), "hollow:")
    _room(figure, top=0.65, bottom=0.8)
    figure.subplots_adjust(wspace=0.08)
    return save(figure, folder, f"{found[0].dataset}_relations")


def matrix(found: list[Group], shown: list[Column], folder: Path) -> str | None:
    """Pearson's coefficients of all pairs of columns over the groups' means, twins counted once. None where there are too few groups."""
    shown = [c for c in shown if any(math.isfinite(g.estimate(c, SELECTED).mean) for g in found)]
    means = np.array([[g.estimate(c, SELECTED).mean for c in shown] for g in found]).reshape(len(found), -1)
    units, size = groups.units(found), len(shown)
    results = [[inference.correlation(means[:, a], means[:, b], units) for b in range(size)] for a in range(size)]
    values = np.array([[result.pearson for result in row] for row in results])
    if size < 2 or not np.isfinite(values).any():
        return None
    count = max(result.count for row in results for result in row)
    side = 0.62 * size
    names = [c.title for c in shown]
    around = _width(names, 10)
    figure = _figure(side + around + 1.6, side + 0.75 * around + 0.7)
    axis = figure.subplots()
    # Not imshow, which enlarges the few values to an array of the figure's pixels: 30 MB of memory.
    edges = np.arange(size + 1) - 0.5
    picture = axis.pcolormesh(edges, edges, np.ma.masked_invalid(values), vmin=-1, vmax=1, cmap="RdBu_r")
    axis.invert_yaxis()
    axis.set_aspect("equal")
    axis.set_xticks(range(size), names, rotation=45, ha="right")
    axis.set_yticks(range(size), names)
    axis.spines[:].set_visible(False)
    for a, b in np.argwhere(np.isfinite(values)).tolist():
        ink = "white" if abs(values[a, b]) > 0.6 else "black"
        axis.text(b, a, f"{values[a, b]:.2f}", ha="center", va="center", fontsize=8, color=ink)
    _room(figure, around + 0.2, 1.4, 0.75 * around + 0.2, 0.5)
    bar = figure.add_axes((1 - 1.1 / (side + around + 1.6), 0.35, 0.02, 0.4))
    figure.colorbar(picture, cax=bar, label="Pearson's r")
    axis.set_title(f"{found[0].dataset}: correlation over {count} groups", loc="left", fontsize=11)
    return save(figure, folder, f"{found[0].dataset}_metric_correlations")


def labelled(found: list[Group], x: Column, y: Column, folder: Path, name: str) -> str | None:
    """`y` against `x` with every group's label, no label over another or over a point. None where no group has both."""
    points = _points(found, x, y)
    if not points:
        return None
    (texts, marked), colours = _labels(found, points), [_colour(group) for group, *_ in points]
    coefficient = _coefficient(tables.correlation([group for group, *_ in points], x, y))
    for scale in (1.0, 1.3, 1.7, 2.2, 3.0):  # more room until all labels find a place
        figure = _figure(8.6 * scale, 6.0 * scale)
        axis = figure.subplots()
        _scatter(axis, points)
        _room(figure)
        axis.margins(0.12)
        axis.set(xlabel=x.unit, ylabel=y.unit)
        axis.set_title(f"{found[0].dataset}: {coefficient}", loc="left", fontsize=11)
        _legend(axis, colours)
        _explain(figure, marked)
        if place_labels(axis, [(a.mean, b.mean) for _, a, b in points], texts, colours):
            break
    return save(figure, folder, name)


def ranked(found: list[Group], of: Column, folder: Path) -> str | None:
    """Means of one metric with deviations, best on top, in separate parts where groups must not be ranked together. None where none has it.

    Dots, not bars: their axis need not start at 0, where differences of a few points in sixty could not be seen.
    """
    parts, rows = groups.pools(found, SELECTED), []
    for part, members in reversed(parts.items()):
        here = [(group, estimate) for group in members if math.isfinite((estimate := group.estimate(of, SELECTED)).mean)]
        rows += sorted(here, key=lambda row: row[1].mean, reverse=of.higher is False)
        rows += [part] if here and len(parts) > 1 else []
    dots = [row for row in rows if isinstance(row, tuple)]
    if not dots:
        return None
    places = [i for i, row in enumerate(rows) if isinstance(row, tuple)]
    figure, axis = _lines(found, [(group, e, f"{e.mean:.{of.digits}f}") for group, e in dots], places, len(rows))
    for place, (group, estimate) in zip(places, dots, strict=True):
        deviation = None if math.isnan(estimate.deviation) else estimate.deviation  # no bar: a cap at the mean would read as 0
        colours = {"color": _colour(group), "ecolor": "0.45"}
        axis.errorbar(estimate.mean, place, xerr=deviation, fmt="o", elinewidth=1, capsize=2, markersize=5, **colours)
    for place, row in enumerate(rows):
        if isinstance(row, str):
            axis.axhline(place - 0.5, color="0.6", linewidth=0.8)
            axis.annotate(row, (0, place), xycoords=("axes fraction", "data"), xytext=(3, -4), textcoords="offset points", fontsize=8.5, style="italic")  # fmt: skip
    axis.set_xlabel(f"{of.unit}, selected epoch; bars: one deviation")
    axis.set_title(f"{found[0].dataset}: {of.title}", loc="left", fontsize=11)
    _legend(axis, [_colour(group) for group, _ in dots])
    return save(figure, folder, f"{found[0].dataset}_ranked")


def optimism(found: list[Group], of: Column, folder: Path) -> str | None:
    """The test values of both selections, joined by a line per group, the best on top. None where no group has both."""
    rules = [columns.selected_by(of, rule) for rule in (ON_VALIDATION, BEST_ON_TEST, OPTIMISM)]
    rows = [(group, *(group.estimate(rule, SELECTED) for rule in rules)) for group in found if group.has_both]
    rows = sorted((row for row in rows if math.isfinite(row[3].mean)), key=lambda row: row[1].mean, reverse=of.higher is False)
    if not rows:
        return None
    figure, axis = _lines(found, [(*row, f"{row[3].mean:+.{of.digits}f}") for row in rows], range(len(rows)), len(rows))
    for place, (_, chosen, best, _) in enumerate(rows):
        axis.plot([chosen.mean, best.mean], [place, place], color="0.7", linewidth=2, zorder=2)
    for column, (colour, name) in enumerate(((BASE, "chosen on validation"), (REGULARISED, "on test")), start=1):
        axis.plot([row[column].mean for row in rows], range(len(rows)), "o", color=colour, markersize=5, label=name, zorder=3)
    mean = np.mean([row[3].mean for row in rows])
    axis.set_xlabel(f"{of.unit} on test; at the right the optimism, on average {mean:+.{of.digits}f}")
    axis.set_title(f"{found[0].dataset}: {of.title}", loc="left", fontsize=11)
    axis.legend(fontsize=9, frameon=False, **BESIDE_TITLE)
    return save(figure, folder, f"{found[0].dataset}_optimism")


def by_split(of: Splits, c: Column, folder: Path) -> str:
    """A line a method over the splits: its mean less that of all methods on the split, with one deviation of the seeds."""
    import matplotlib

    figure = _figure(max(4.5, 0.9 * len(of.splits) + 2.2), 3.4)
    _room(figure, right=1.5)
    axis = figure.add_subplot()
    means, seeds = of.means(c, SELECTED), of.values(c, SELECTED)
    around = means - means.mean(0)
    for m in np.argsort(-around.mean(1)):
        places = np.arange(len(of.splits)) + 0.04 * (m - len(of.methods) / 2)  # beside each other, so that bars are seen
        spread = [one.std(ddof=1) if len(one) > 1 else 0.0 for one in seeds[m]]
        axis.errorbar(places, around[m], spread, marker="o", markersize=4, linewidth=1.2, elinewidth=0.8, label=of.methods[m], color=matplotlib.colormaps["tab10"](m % 10))
    axis.axhline(0, color="0.7", linewidth=0.8, zorder=0)
    axis.set_xticks(range(len(of.splits)), of.splits)
    axis.set_ylabel(f"{c.unit} less the split's mean")
    axis.set_title(f"{of.dataset}: {c.title}", loc="left", fontsize=11)
    axis.legend(fontsize=9, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return save(figure, folder, f"{of.dataset}_splits_{c.metric}")


def progressed(name: str, methods: list[Method], of: Column, folder: Path) -> str:
    """A metric against the FID of the splits of an out-of-distribution progression, one line per method with a band of one deviation."""
    import matplotlib

    figure = _figure(7.6, 4.4 + 0.2 * (len(methods) // 3))
    axis, colours = figure.subplots(), matplotlib.colormaps["tab10" if len(methods) <= 10 else "tab20"].colors
    for i, method in enumerate(methods):
        splits = sorted(method.groups, key=method.fids.get)
        estimates = [method.groups[split].estimate(of, SELECTED) for split in splits]
        fids, means = [method.fids[split] for split in splits], np.array([e.mean for e in estimates])
        spreads, colour = np.nan_to_num([e.deviation for e in estimates]), colours[i % len(colours)]
        axis.fill_between(fids, means - spreads, means + spreads, color=colour, alpha=0.15, linewidth=0)
        axis.plot(fids, means, "osD^v"[i // len(colours) % 5] + "-", color=colour, markersize=4, linewidth=1.4, label=method.name)
    lines = math.ceil(len(methods) / 3)
    _room(figure, bottom=0.75 + 0.2 * lines)
    axis.set(xlabel="FID of the split: how far its test classes are from those of training", ylabel=of.unit)
    axis.set_title(f"{name}: {of.title} out of distribution; bands: one deviation", loc="left", fontsize=11)
    axis.grid(True)
    figure.legend(fontsize=8, frameon=False, loc="lower center", ncols=3)
    return save(figure, folder, f"{name}_progression")


def relation(found: list[Group], x: Column, y: Column, folder: Path) -> str | None:
    """Any two metrics against each other, labelled."""
    names = [c.split + "_" + c.metric.replace("/", "_") for c in (x, y)]
    return labelled(found, x, y, folder, f"{found[0].dataset}_relation_{names[1]}_against_{names[0]}")


def rho(found: list[Group], y: Column, quantities: list[Column], folder: Path) -> str | None:
    """Recall against rho with labels, where rho is among the recorded quantities."""
    quantity = next((c for c in quantities if c.metric == "rho_spectrum@2"), None)
    return quantity and labelled(found, quantity, y, folder, f"{found[0].dataset}_recall_against_rho")
