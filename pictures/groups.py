"""Figures of groups of runs, each group a dot or a line with its deviation.

results/plots.py decides what is shown and hands over dots (`Dot`), panels and texts; here they are drawn. A
figure is made without pyplot and its global state. `relations` and `labelled` show one metric against another,
`matrix` correlations, `ranked` means in order, `optimism` both selections of the epoch, `by_split` and
`progressed` a line per method.
"""

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pictures.fonts import save_figure
from pictures.labels import place_labels
from pictures.text import MARGIN, set_suptitle, set_title, title_that_fits

# colours of plain methods, and of those with rho_distance
BASE = "#2b6ca3"
REGULARISED = "#c2571a"
DPI = 130
PANEL_WIDTH = 3.1  # inches
LEGEND_WIDTH = 210  # points of the legend beside a title
BESIDE_TITLE = {"loc": "lower right", "bbox_to_anchor": (1.0, 1.0), "ncols": 2, "borderaxespad": 0.2}
# after the label of a mean of fewer seeds than were run
FEWER = "*"

STYLE = {
    "pdf.fonttype": 42,
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "0.88",
    # names are literal: matplotlib reads text between dollar signs as a formula
    "text.parse_math": False,
}


class Value(NamedTuple):
    """A mean over seeds with its standard deviation, NaN if there is none."""

    mean: float
    deviation: float


class Dot(NamedTuple):
    """A group in a figure.

    `regularised`: it has rho_distance. `fewer`: a mean is of fewer seeds than were run. `values`: what is drawn.
    """

    label: str
    regularised: bool
    fewer: bool
    values: tuple[Value, ...]

    @property
    def colour(self) -> str:
        """Of its dot and of its name."""
        return REGULARISED if self.regularised else BASE

    @property
    def marked(self) -> str:
        """The name with the mark of fewer seeds."""
        return self.label + FEWER * self.fewer


class Panel(NamedTuple):
    """Dots of two values, x and y.

    `line`: whether they are enough for a least-squares line.
    """

    dots: list[Dot]
    xlabel: str
    title: str
    line: bool


def new_figure(width: float, height: float):
    """An empty figure of that many inches, without pyplot and its global state."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    matplotlib.rcParams.update(STYLE)
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure


def save(figure, folder: Path, name: str) -> None:
    """Write `name`.pdf and `name`.png."""
    save_figure(figure, folder / f"{name}.pdf")
    save_figure(figure, folder / f"{name}.png", dpi=DPI)


def _set_margins(
    figure, left_margin: float = 0.75, right_margin: float = 0.2, bottom_margin: float = 0.6, top_margin: float = 0.45
) -> None:
    """Set margins in inches: a tight bounding box or a layout engine would draw every figure twice."""
    width, height = figure.get_size_inches()
    figure.subplots_adjust(
        left=left_margin / width,
        right=1 - right_margin / width,
        bottom=bottom_margin / height,
        top=1 - top_margin / height,
    )


def _width(texts: list[str], size: float) -> float:
    """About how wide the longest text is, in inches."""
    return max(map(len, texts)) * size * 0.6 / 72


def _explain(figure, dots: list[Dot], sign: str = FEWER) -> None:
    """Say what the mark of labels or points means, where one has it."""
    if any(dot.fewer for dot in dots):
        x = 1 - 0.1 / figure.get_figwidth()
        y = 0.08 / figure.get_figheight()
        figure.text(x, y, f"{sign} fewer seeds than were run", fontsize=8, ha="right")


def _scatter(axis, panel: Panel) -> None:
    """Means with bars of one deviation, hollow if of fewer seeds than were run, and the least-squares line."""
    means, deviations = np.array([dot.values for dot in panel.dots]).transpose(2, 1, 0)  # (x and y, dots) each
    xs, ys = means
    spreads = np.nan_to_num(deviations)
    colours = np.array([dot.colour for dot in panel.dots])
    for colour in (BASE, REGULARISED):
        is_colour = colours == colour
        if is_colour.any():
            bars = {"xerr": spreads[0, is_colour], "yerr": spreads[1, is_colour], "ecolor": "0.7", "elinewidth": 1}
            axis.errorbar(xs[is_colour], ys[is_colour], fmt="o", color=colour, markersize=5, zorder=3, **bars)
    for dot, x, y in zip(panel.dots, xs, ys, strict=True):
        if dot.fewer:
            axis.plot(x, y, "o", color=dot.colour, markerfacecolor="white", markersize=5, zorder=3.2)
    if panel.line and np.ptp(xs) > 0:
        slope, offset = np.polyfit(xs, ys, 1)
        ends = np.array([xs.min(), xs.max()])
        axis.plot(ends, slope * ends + offset, color="0.4", linestyle="--", linewidth=1, zorder=2)
    axis.grid(True)


def _legend(axis, dots: list[Dot], **options) -> float:
    """Legend of the two colours, where both occur.

    It is beside the title: inside the axes it would cover a point or an error bar.

    Returns the points that it takes of the title's line.
    """
    if {dot.colour for dot in dots} == {BASE, REGULARISED}:
        for colour, name in ((BASE, "as it is"), (REGULARISED, "with rho_distance")):
            axis.plot([], [], "o", color=colour, label=name, markersize=5)
        axis.legend(fontsize=9, frameon=False, **BESIDE_TITLE | options)
        return LEGEND_WIDTH
    return 0.0


def _lines(dots: list[Dot], texts: list[str], places, count: int):
    """A figure of `count` lines, the lowest first, with name and end text of each dot. Returns figure and axis."""
    names = [dot.marked for dot in dots]
    figure = new_figure(6.2 + _width(names, 9), 0.27 * count + 1.1)
    axis = figure.subplots()
    # room for the end texts
    _set_margins(figure, _width(names, 9) + 0.2, right_margin=0.55)
    for place, text in zip(places, texts, strict=True):
        axis.annotate(
            text,
            (1, place),
            xycoords=("axes fraction", "data"),
            xytext=(4, 0),
            textcoords="offset points",
            fontsize=8,
            va="center",
            annotation_clip=False,
        )
    axis.set_yticks(places, names, fontsize=9)
    axis.set_ylim(-0.6, count - 0.4)
    axis.grid(True)
    _explain(figure, dots)
    return figure, axis


def relations(panels: list[Panel], ylabel: str, title: str):
    """The figure of one y against the x of each panel."""
    figure = new_figure(PANEL_WIDTH * len(panels) + 0.6, 3.6)
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)
    for axis, panel in zip(axes[0], panels, strict=True):
        _scatter(axis, panel)
        axis.set_xlabel(panel.xlabel)
        title_of_panel = title_that_fits(panel.title, PANEL_WIDTH * 72 - MARGIN, 10)
        axis.set_title(title_of_panel["text"], fontsize=title_of_panel["fontsize"])
    axes[0, 0].set_ylabel(ylabel)
    dots = [dot for panel in panels for dot in panel.dots]
    # Below all panels: a figure of one panel has no room beside its title.
    _legend(axes[0, 0], dots, loc="lower left", bbox_to_anchor=(0.0, 0.0), bbox_transform=figure.transFigure)
    set_suptitle(figure, title, x=0.02, ha="left")
    _explain(figure, dots, "hollow:")
    _set_margins(figure, top_margin=0.65, bottom_margin=0.8)
    figure.subplots_adjust(wspace=0.08)
    return figure


def matrix(values: np.ndarray, names: list[str], title: str):
    """The figure of coefficients `(n, n)` in [-1, 1], NaN if there is none."""
    side = 0.62 * len(names)
    around = _width(names, 10)
    figure = new_figure(side + around + 1.6, side + 0.75 * around + 0.7)
    axis = figure.subplots()
    # Not imshow, which enlarges the few values to an array of the figure's pixels: 30 MB of memory.
    edges = np.arange(len(names) + 1) - 0.5
    picture = axis.pcolormesh(edges, edges, np.ma.masked_invalid(values), vmin=-1, vmax=1, cmap="RdBu_r")
    axis.invert_yaxis()
    axis.set_aspect("equal")
    axis.set_xticks(range(len(names)), names, rotation=45, ha="right")
    axis.set_yticks(range(len(names)), names)
    axis.spines[:].set_visible(False)
    for a, b in np.argwhere(np.isfinite(values)).tolist():
        ink = "white" if abs(values[a, b]) > 0.6 else "black"
        axis.text(b, a, f"{values[a, b]:.2f}", ha="center", va="center", fontsize=8, color=ink)
    _set_margins(figure, around + 0.2, 1.4, 0.75 * around + 0.2, 0.5)
    bar = figure.add_axes((1 - 1.1 / (side + around + 1.6), 0.35, 0.02, 0.4))
    figure.colorbar(picture, cax=bar, label="Pearson's r")
    set_title(axis, title)
    return figure


def labelled(panel: Panel, ylabel: str):
    """The figure of y against x with every dot's name, no name over another or over a dot."""
    # more room until all labels find a place
    for scale in (1.0, 1.3, 1.7, 2.2, 3.0):
        figure = new_figure(8.6 * scale, 6.0 * scale)
        axis = figure.subplots()
        _scatter(axis, panel)
        _set_margins(figure)
        axis.margins(0.12)
        axis.set(xlabel=panel.xlabel, ylabel=ylabel)
        set_title(axis, panel.title, reserved=_legend(axis, panel.dots))
        _explain(figure, panel.dots)
        points = [(x.mean, y.mean) for x, y in (dot.values for dot in panel.dots)]
        if place_labels(axis, points, [dot.marked for dot in panel.dots], [dot.colour for dot in panel.dots]):
            break
    return figure


def ranked(rows: list[Dot | str], digits: int, xlabel: str, title: str):
    """The figure of dots of one value, a line each, from below; a text closes the part of those below it.

    Dots, not bars: their axis need not start at 0, where differences of a few points in sixty could not be seen.
    """
    places = [i for i, row in enumerate(rows) if isinstance(row, Dot)]
    dots = [rows[i] for i in places]
    figure, axis = _lines(dots, [f"{dot.values[0].mean:.{digits}f}" for dot in dots], places, len(rows))
    for place, dot in zip(places, dots, strict=True):
        (value,) = dot.values
        # Without a deviation there is no bar: a cap at the mean would read as 0.
        deviation = None if math.isnan(value.deviation) else value.deviation
        axis.errorbar(
            value.mean,
            place,
            xerr=deviation,
            fmt="o",
            elinewidth=1,
            capsize=2,
            markersize=5,
            color=dot.colour,
            ecolor="0.45",
        )
    for place, row in enumerate(rows):
        if isinstance(row, str):
            axis.axhline(place - 0.5, color="0.6", linewidth=0.8)
            axis.annotate(
                row,
                (0, place),
                xycoords=("axes fraction", "data"),
                xytext=(3, -4),
                textcoords="offset points",
                fontsize=8.5,
                style="italic",
            )
    axis.set_xlabel(xlabel)
    set_title(axis, title, reserved=_legend(axis, dots))
    return figure


def optimism(dots: list[Dot], digits: int, xlabel: str, title: str):
    """The figure of two selections and their difference, the two joined by a line per dot, from below."""
    figure, axis = _lines(dots, [f"{dot.values[2].mean:+.{digits}f}" for dot in dots], range(len(dots)), len(dots))
    for place, dot in enumerate(dots):
        axis.plot([value.mean for value in dot.values[:2]], [place, place], color="0.7", linewidth=2, zorder=2)
    for i, (colour, name) in enumerate(((BASE, "chosen on validation"), (REGULARISED, "on test"))):
        axis.plot(
            [dot.values[i].mean for dot in dots],
            range(len(dots)),
            "o",
            color=colour,
            markersize=5,
            label=name,
            zorder=3,
        )
    axis.set_xlabel(xlabel)
    set_title(axis, title, reserved=LEGEND_WIDTH)
    axis.legend(fontsize=9, frameon=False, **BESIDE_TITLE)
    return figure


def by_split(
    means: np.ndarray, spreads: list[list[float]], methods: list[str], splits: list[str], ylabel: str, title: str
):
    """The figure of a line per method over the splits, the best method first in the legend.

    `means` `(M, K)`, with one deviation.
    """
    import matplotlib

    figure = new_figure(max(4.5, 0.9 * len(splits) + 2.2), 3.4)
    _set_margins(figure, right_margin=1.5)
    axis = figure.add_subplot()
    for m in np.argsort(-means.mean(1)):
        # beside each other, so that bars are seen
        places = np.arange(len(splits)) + 0.04 * (m - len(methods) / 2)
        axis.errorbar(
            places,
            means[m],
            spreads[m],
            marker="o",
            markersize=4,
            linewidth=1.2,
            elinewidth=0.8,
            label=methods[m],
            color=matplotlib.colormaps["tab10"](m % 10),
        )
    axis.axhline(0, color="0.7", linewidth=0.8, zorder=0)
    axis.set_xticks(range(len(splits)), splits)
    axis.set_ylabel(ylabel)
    set_title(axis, title)
    axis.legend(fontsize=9, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def progressed(curves: list[tuple[str, list[float], list[Value]]], ylabel: str, title: str):
    """The figure of a metric against the FID of splits: a line (method, FIDs, values) with a band of one deviation."""
    import matplotlib

    figure = new_figure(7.6, 4.4 + 0.2 * (len(curves) // 3))
    axis = figure.subplots()
    colours = matplotlib.colormaps["tab10" if len(curves) <= 10 else "tab20"].colors
    for i, (name, fids, values) in enumerate(curves):
        means = np.array([v.mean for v in values])
        spreads = np.nan_to_num([v.deviation for v in values])
        colour = colours[i % len(colours)]
        axis.fill_between(fids, means - spreads, means + spreads, color=colour, alpha=0.15, linewidth=0)
        axis.plot(
            fids, means, "osD^v"[i // len(colours) % 5] + "-", color=colour, markersize=4, linewidth=1.4, label=name
        )
    _set_margins(figure, bottom_margin=0.75 + 0.2 * math.ceil(len(curves) / 3))
    axis.set(xlabel="FID of the split: how far its test classes are from those of training", ylabel=ylabel)
    set_title(axis, title)
    axis.grid(True)
    figure.legend(fontsize=8, frameon=False, loc="lower center", ncols=3)
    return figure
