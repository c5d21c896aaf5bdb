"""Progression curves of a run, one SVG a group of metrics, drawn from metrics.csv."""

import contextlib
import copy
import math
from pathlib import Path

from pictures.fonts import save_figure
from pictures.text import MARGIN, SPLIT_COLOURS, set_suptitle, title_that_fits
from runs.folder import METRICS, RunFolder
from runs.records.damaged import as_file, as_folder
from runs.records.local import read_metrics
from utilities.errors import UserError

UNTRAINED = {-1: ("bare backbone", "s"), 0: ("untrained", "o")}  # epoch -> what was measured, and its marker
TICKS = {-1: ("backbone", "right"), 0: ("untrained", "left")}  # epoch -> its name at the axis, and its side of the tick
INK = "#555555"  # colour of marks that belong to no split
PLOT_WIDTH = 4.2  # inches
COLUMNS = 3  # of plots on a sheet, at most


def draw_curves(folder: Path) -> list[Path]:
    """Draw `Progression_Plots/<group>.svg`: a line per split, the selected epoch marked.

    Raises ValueError if metrics.csv is damaged.
    """
    from matplotlib.figure import Figure

    # group -> metric -> split -> {epoch: value}
    groups = {}
    for epoch, split, metric, value in zip(*read_metrics(folder / METRICS)[:4], strict=True):
        groups.setdefault(_group(metric), {}).setdefault(metric, {}).setdefault(split, {})[epoch] = value
    selected = None
    target = as_folder(folder / "Progression_Plots")
    files = []
    # with a damaged summary no epoch is marked
    with contextlib.suppress(UserError):
        selected = RunFolder(folder).selected["epoch"]
    for group, metrics in sorted(groups.items()):
        columns = min(len(metrics), COLUMNS)
        lines = -(-len(metrics) // columns)
        size = max(PLOT_WIDTH * columns, 5), 3.1 * lines + 0.7
        # not pyplot's: a notebook that calls the program keeps its own way of showing figures
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots(lines, columns, squeeze=False)
        for axis, (metric, curves) in zip(axes.flat, sorted(metrics.items(), key=_in_order), strict=False):
            _draw(axis, metric, curves, selected)
        for axis in axes.flat[len(metrics) :]:
            axis.set_visible(False)
        _explain(figure)
        set_suptitle(figure, _name(folder))
        files.append(as_file(target / f"{group.replace('/', '_')}.svg"))
        save_figure(figure, files[-1])
    return files


def _draw(axis, metric: str, curves: dict, selected: int | None) -> None:
    """The curves of one metric, split -> {epoch: value}.

    Untrained states are hollow points before them, without a line.
    """
    for split in sorted(curves, key=[*SPLIT_COLOURS, *curves].index):
        colour = SPLIT_COLOURS.get(split)
        trained = sorted((e, value) for e, value in curves[split].items() if e not in UNTRAINED)
        if trained:
            marker = "." if len(trained) < 100 else None
            axis.plot(*zip(*trained, strict=True), marker=marker, color=colour, label=split)
        for epoch, (name, marker) in UNTRAINED.items():
            if epoch in curves[split]:
                axis.plot(
                    epoch, curves[split][epoch], marker, markersize=5, color=colour, markerfacecolor="none", label=name
                )
        if math.isfinite(curves[split].get(selected, math.nan)):
            axis.plot(selected, curves[split][selected], "D", markersize=6, color=colour)
    if selected is not None and selected in {epoch for curve in curves.values() for epoch in curve}:
        axis.axvline(selected, color=INK, linewidth=1, linestyle=":", zorder=0, label=f"selected epoch, {selected}")
    fitting = title_that_fits(metric, PLOT_WIDTH * 72 - MARGIN, 10)
    axis.set_title(fitting["text"], fontsize=fitting["fontsize"], parse_math=False)
    axis.set_xlabel("epoch")
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    axis.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    _name_untrained(axis, sorted(TICKS.keys() & {epoch for curve in curves.values() for epoch in curve}))


def _name_untrained(axis, epochs: list[int]) -> None:
    """Names in place of the numbers -1 and 0, which count no epochs: upright, each on its own side of its tick, so that
    they stay apart however many epochs follow.
    """
    if not epochs:
        return
    axis.xaxis.remove_overlapping_locs = False
    axis.xaxis.set_major_formatter(lambda epoch, _: f"{epoch:.0f}" if epoch > 0 else "")
    axis.set_xticks(epochs, labels=[TICKS[epoch][0] for epoch in epochs], minor=True, rotation=90, fontsize=8)
    for epoch, label in zip(epochs, axis.get_xticklabels(minor=True), strict=True):
        label.set_horizontalalignment(TICKS[epoch][1])


def _explain(figure) -> None:
    """One legend below the whole sheet: each name once, splits first."""
    handles = {}
    for axis in figure.axes:
        for handle, name in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(name, handle)
    for name, _ in UNTRAINED.values():
        # an untrained network is drawn for every split, so its entry has no split's colour
        if name in handles:
            handles[name] = copy.copy(handles[name])
            handles[name].set_color(INK)
    names = sorted(handles, key=[*SPLIT_COLOURS, *handles].index)
    columns = max(2, int(figure.get_figwidth() // 1.7))
    figure.legend(
        [handles[name] for name in names], names, loc="outside lower center", ncols=columns, fontsize=8, frameon=False
    )


def _name(folder: Path) -> str:
    """The run's name; a fold's with its cross-validation's."""
    folder = folder.absolute()
    if folder.name.startswith("fold_"):
        return f"{folder.parent.name}/{folder.name}"
    return folder.name


def _in_order(curve: tuple[str, dict]) -> tuple[str, float, str]:
    """Sorts metrics by name, then by the number after the @."""
    name, _, parameter = curve[0].partition("@")
    try:
        return name, float(parameter or 0), ""
    except ValueError:
        return name, math.inf, parameter


def _group(metric: str) -> str:
    """The sheet of a curve: one for `e_recall@1` and `e_recall@2`, for `criterion/…`, for the gradient's sizes."""
    if metric.startswith("gradient_"):
        return "gradient_norm"
    head, _, tail = metric.rpartition("/")
    if head in ("criterion", "miner", "rate"):
        return head
    family = tail.partition("@")[0]
    return f"{head}/{family}" if head else family
