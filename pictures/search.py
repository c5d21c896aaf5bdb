"""Pictures of a search: its history, and its value over the searched flags."""

import sys
import textwrap
from pathlib import Path

from pictures.fonts import save_figure

# name of the file -> function of Optuna
KINDS = {
    "history": "plot_optimization_history",
    "slice": "plot_slice",
    "contour": "plot_contour",
    "importance": "plot_param_importances",
}


def draw_search(trials: list, direction, folder: Path, metric: str) -> list[Path]:
    """Draw history, slice, contour and importance in `plots/` of `folder`, as PNG and, with plotly, as HTML pages.

    Args:
        trials: the finished trials of a study of Optuna, in their order.
        direction: the study's.
        metric: the name of their value.

    Returns the PNG files; one that fails is named and left out.
    """
    import matplotlib
    import optuna

    matplotlib.use("Agg")

    # a new study, whose trials are numbered as this program numbers them: further attempts do not count
    study = optuna.create_study(direction=direction)
    study.add_trials(trials)
    done = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
    if not done:
        return []
    (folder / "plots").mkdir(exist_ok=True)
    names = _drawable(done)
    _write_pages(study, names, folder / "plots", metric)
    paths = (_draw_picture(study, name, folder / "plots", metric) for name in names)
    return [path for path in paths if path is not None]


def _drawable(done: list) -> list[str]:
    """The kinds that complete trials allow: a contour needs two flags and two trials, an importance also two values."""
    names = ["history", "slice"]
    if len(done[-1].distributions) > 1 and len(done) > 1:
        names.append("contour")
        if len({trial.value for trial in done}) > 1:
            names.append("importance")
    return names


def _draw_picture(study, name: str, folder: Path, metric: str) -> Path | None:
    """Draw one kind of plot as PNG. Returns its path; None, with a warning, where it fails: no plot ends a search."""
    import matplotlib.pyplot as plt
    from optuna.visualization import matplotlib as pictures

    ranges = study.best_trial.distributions
    sizes = {"slice": (max(5, 3 * len(ranges)), 4), "contour": (max(7, 3 * len(ranges)), max(5, 2.6 * len(ranges)))}
    whole_flags = {flag for flag, distribution in ranges.items() if getattr(distribution, "step", None) == 1}
    path = folder / f"{name}.png"
    try:
        getattr(pictures, KINDS[name])(study, target=None, target_name=metric)
        figure = plt.gcf()
        figure.set_size_inches(*sizes.get(name, (7, 4.5)))
        _make_readable(figure, {"Trial", *whole_flags})
        save_figure(figure, path, dpi=120, bbox_inches="tight")
    except Exception as error:
        _warn(f"{name} plot", error)
        return None
    finally:
        plt.close("all")
    return path


def _write_pages(study, names: list[str], folder: Path, metric: str) -> None:
    """Write the plots as HTML pages that show the values under the pointer; their script lies beside them."""
    from optuna import visualization

    if not visualization.is_available():
        print("plots/ has no HTML pages: they need the package plotly (pip install plotly)")
        return
    for name in names:
        try:
            figure = getattr(visualization, KINDS[name])(study, target=None, target_name=metric)
            # one plotly.min.js for all pages, and no network to read them
            figure.write_html(folder / f"{name}.html", include_plotlyjs="directory")
        except Exception as error:
            _warn(f"page {name}.html", error)


def _warn(title: str, error: Exception) -> None:
    print(f"WARNING: the {title} cannot be drawn: {type(error).__name__}: {error}", file=sys.stderr)


def _make_readable(figure, whole_names: set[str]) -> None:
    """Few ticks, whole numbers on the axes in `whole_names`, and labels of long flags in several lines."""
    from matplotlib import ticker

    # the title would stand far above many axes, and the file's name says the same
    figure.suptitle("")
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
                axis.set_major_locator(ticker.MaxNLocator(5, steps=(1, 2, 5, 10), integer=name in whole_names))
            if "_" in name:
                axis.set_label_text(
                    "_\n".join(textwrap.wrap(name.replace("_", " "), 16)).replace(" ", "_"), fontsize=10
                )
            axis.set_tick_params(labelsize=9)
        if len(grid) > 1 and axes in grid:
            axes.label_outer()
