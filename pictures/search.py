"""Pictures of a search: its history, and its value over the searched flags."""

import sys
import textwrap
from pathlib import Path


def draw_search(trials: list, direction, folder: Path, metric: str) -> list[Path]:
    """Draw history, slice, contour and importance as PNG in `plots/` of `folder`. Returns the files; one that fails is named and left out.

    Args:
        trials: the finished trials of a study of Optuna, in their order.
        direction: the study's.
        metric: the name of their value.
    """
    import matplotlib
    import optuna

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from optuna.visualization import matplotlib as pictures

    shown = optuna.create_study(direction=direction)  # its trials are numbered as ours, which count no attempts
    shown.add_trials(trials)
    done = shown.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
    if not done:
        return []
    ranges = done[-1].distributions
    several = len(ranges) > 1 and len(done) > 1
    varied = several and len({trial.value for trial in done}) > 1
    kinds = {
        "history": (pictures.plot_optimization_history, (7, 4.5)),
        "slice": (pictures.plot_slice, (max(5, 3 * len(ranges)), 4)),
        **({"contour": (pictures.plot_contour, (max(7, 3 * len(ranges)), max(5, 2.6 * len(ranges))))} if several else {}),
        **({"importance": (pictures.plot_param_importances, (7, 4.5))} if varied else {}),
    }
    files = []
    (folder / "plots").mkdir(exist_ok=True)
    for name, (plot, size) in kinds.items():
        try:
            plot(shown, target=None, target_name=metric)
            figure = plt.gcf()
            figure.set_size_inches(*size)
            _make_readable(figure, {"Trial", *(flag for flag, found in ranges.items() if hasattr(found, "step") and found.step == 1)})
            figure.savefig(folder / "plots" / f"{name}.png", dpi=120, bbox_inches="tight")
            files.append(folder / "plots" / f"{name}.png")
        except Exception as error:  # a plot that fails must not end a search
            print(f"WARNING: the {name} plot cannot be drawn: {type(error).__name__}: {error}", file=sys.stderr)
        plt.close("all")
    return files


def _make_readable(figure, whole: set[str]) -> None:
    """Few ticks, whole numbers on the axes in `whole`, and labels of long flags in several lines."""
    from matplotlib import ticker

    figure.suptitle("")  # far above many axes, and the file's name says it
    grid = [axes for axes in figure.axes if axes.get_subplotspec() is not None and axes.get_xlabel()]
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            name = axis.get_label_text()
            low, high = sorted(axis.get_view_interval())
            if axis.get_scale() == "log":
                axis.set_minor_formatter(ticker.NullFormatter())
                if high / low < 10:
                    axis.set_major_locator(ticker.MaxNLocator(3, steps=(1, 2, 5, 10)))
                    axis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
            elif isinstance(axis.get_major_locator(), ticker.AutoLocator):
                axis.set_major_locator(ticker.MaxNLocator(5, steps=(1, 2, 5, 10), integer=name in whole))
            if "_" in name:
                axis.set_label_text("_\n".join(textwrap.wrap(name.replace("_", " "), 16)).replace(" ", "_"), fontsize=10)
            axis.set_tick_params(labelsize=9)
        if len(grid) > 1 and axes in grid:
            axes.label_outer()
