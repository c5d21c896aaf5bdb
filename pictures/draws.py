"""Figures of the study of draws (docs/evidence.md): its design, a difference on all splits, the variance in parts."""

from pathlib import Path

import numpy as np

from pictures.fonts import save_figure
from pictures.groups import BASE, DPI, REGULARISED, new_figure

TESTED = "#c9d9e8"
COLOURS = ("#2b6ca3", "#c2571a", "#e3a857", "#7a9a4e", "#b9bec4")
GREY = "0.45"


def design(path: Path, n_sets: int) -> None:
    """Draw which set of classes trains and which tests: all but itself, the field's habit marked."""
    figure = new_figure(4.6, 4.3)
    axis = figure.add_axes((0.13, 0.2, 0.74, 0.78))
    for train_set in range(n_sets):
        for test_set in range(n_sets):
            if test_set == train_set:
                continue
            colour = REGULARISED if test_set == train_set ^ 1 else TESTED
            axis.add_patch(_square(test_set, train_set, colour))
    for label, colour, low in (("tested", TESTED, 0), ("one split, as the field has it", REGULARISED, 5)):
        axis.add_patch(_square(low, n_sets + 3.6, colour))
        axis.text(low + 0.9, n_sets + 3.6, label, va="center", fontsize=9)
    axis.set(xlim=(-0.6, n_sets - 0.4), ylim=(n_sets - 0.4, -0.6), aspect="equal")
    ticks = range(0, n_sets, 4)
    axis.set_xticks(ticks, [str(tick + 1) for tick in ticks])
    axis.set_yticks(ticks, [str(tick + 1) for tick in ticks])
    axis.tick_params(length=0)
    for side in axis.spines.values():
        side.set_visible(False)
    axis.set_xlabel("test: set of 100 classes")
    axis.set_ylabel("training: set of 100 classes")
    save_figure(figure, path, dpi=DPI)


def _square(column: int, row: float, colour: str):
    from matplotlib.patches import Rectangle

    return Rectangle((column - 0.42, row - 0.42), 0.84, 0.84, color=colour, linewidth=0, clip_on=False)


def splits(path: Path, intervals: list[tuple[float, float, float]], mean: float, title: str) -> None:
    """Draw a difference on each split with its interval `(value, low, high)`, sorted, and the mean of all draws."""
    figure = new_figure(6.4, 3.6)
    axis = figure.add_axes((0.1, 0.13, 0.87, 0.75))
    ordered = sorted(intervals)
    for place, (value, low, high) in enumerate(ordered):
        colour = BASE if low <= mean <= high else REGULARISED
        axis.plot([place, place], [low, high], color=colour, linewidth=1.6)
        axis.plot(place, value, "o", color=colour, markersize=4.5)
    axis.axhline(0, color="0.75", linewidth=0.8, zorder=0)
    axis.axhline(mean, color=GREY, linewidth=1.1, linestyle="--", zorder=0)
    axis.set_xticks([])
    axis.set_xlim(-0.7, len(ordered) - 0.3)
    axis.set_xlabel("splits of 100 + 100 classes, sorted; bars: paired 95 % interval of that split")
    axis.set_ylabel("points")
    axis.set_title(f"{title}; dashed: mean of all draws, {mean:+.1f}", fontsize=10, loc="left")
    save_figure(figure, path, dpi=DPI)


def parts(path: Path, estimates: dict[str, dict[str, float]], names: dict[str, str]) -> None:
    """Draw the parts of the variance of one split's difference, a bar per metric; components below 0 count as 0."""
    figure = new_figure(6.4, 2.5)
    axis = figure.add_axes((0.12, 0.5, 0.85, 0.46))
    for place, variances in enumerate(estimates.values()):
        start = 0.0
        for colour, name in zip(COLOURS, names, strict=True):
            width = max(variances[name], 0.0)
            label = names[name] if place == 0 else None
            axis.barh(place, width, left=start, height=0.62, color=colour, label=label)
            start += width
    axis.set_yticks(np.arange(len(estimates)), list(estimates))
    axis.invert_yaxis()
    axis.tick_params(axis="y", length=0)
    axis.set_xlabel("variance of a difference, one seed, 100 test classes [points squared]")
    figure.legend(loc="lower left", bbox_to_anchor=(0.03, 0.0), ncols=2, frameon=False, fontsize=8.5)
    save_figure(figure, path, dpi=DPI)
