"""Figures of the toy programs: points in the plane and the numbers of their spaces."""

from pathlib import Path

import numpy as np

from pictures.fonts import save_figure


def diagonal_lines(path: Path, panels: list[tuple], bars: dict[str, np.ndarray], title: str) -> None:
    """Draw points of training and test in each panel, and mean singular values with one deviation.

    The suffix of `path` is the format.

    Args:
        panels: of each a title, the points of training and of test with their labels, `(N, 2)` and `(N,)`; all but the
        first lie in the unit circle.
        bars: name -> second singular value of each seed, `(S,)`; the first is what is missing to 1.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 4, figsize=(15, 3.9), layout="constrained", width_ratios=[1, 1, 1, 1.15])
    colours = plt.get_cmap("tab10").colors
    for axis, (name, training, labels, test, test_labels) in zip(axes[:3], panels, strict=True):
        if axis is not axes[0]:
            axis.add_patch(plt.Circle((0, 0), 1, fill=False, color="0.8", linewidth=1))
            axis.set(xlim=(-1.15, 1.15), ylim=(-1.15, 1.15))
        for label in range(4):
            points = training[labels == label].T
            axis.scatter(*points, s=26, marker="o", color=colours[label], label=f"train {label + 1}", linewidths=0)
        for label in range(4):
            points = test[test_labels == label].T
            colour = colours[4 + label]
            axis.scatter(*points, s=24, marker="x", color=colour, label=f"test {label + 1}", linewidths=1.1)
        axis.set(title=name, aspect="equal", xticks=[], yticks=[])
    figure.legend(
        *axes[0].get_legend_handles_labels(), ncols=8, loc="outside lower left", frameon=False, handletextpad=0.2
    )
    places = np.arange(len(bars))
    seconds = list(bars.values())
    firsts = [1 - second for second in seconds]
    for shift, values, name, colour in ((-0.2, firsts, "first", "#8c9aa8"), (0.2, seconds, "second", "#c44e52")):
        deviations = [v.std(ddof=1) for v in values] if len(values[0]) > 1 else None
        axes[3].bar(
            places + shift, [v.mean() for v in values], 0.38, yerr=deviations, color=colour, label=name, capsize=2
        )
    axes[3].set(title=title, xticks=places, xticklabels=list(bars), ylim=(0, 1.19))
    axes[3].tick_params(axis="x", labelsize=8)
    axes[3].spines[["top", "right"]].set_visible(False)
    axes[3].legend(frameon=False, fontsize=9, loc="upper center", ncols=2)
    save_figure(figure, path, dpi=100)
    plt.close(figure)


def spaces(path: Path, panels: list[tuple], stressed: set[str], title: str) -> None:
    """Draw spaces side by side, their values below them.

    Args:
        panels: of each space a title, its points `(N, 2)` with labels `(N,)`, and name -> value in percent.
        stressed: the names whose bars have the second colour.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, len(panels), figsize=(12, 6.4), height_ratios=[3, 1.4], layout="constrained")
    for (points, bars), (name, features, labels, values) in zip(axes.T, panels, strict=True):
        points.scatter(*features.T, c=plt.get_cmap("tab10")(labels), s=9, linewidths=0)
        points.set(title=name, aspect="equal", xticks=[], yticks=[])
        names = list(values)[::-1]
        numbers = list(values.values())[::-1]
        colours = ["#c44e52" if name in stressed else "#8c9aa8" for name in names]
        bars.barh(names, numbers, color=colours)
        for row, number in enumerate(numbers):
            bars.text(number - 1.5, row, f"{number:.1f}", ha="right", va="center", color="white", fontsize=9)
        bars.set(xlim=(0, 101), xticks=[0, 25, 50, 75, 100])
        bars.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title)
    save_figure(figure, path, dpi=130)
    plt.close(figure)
