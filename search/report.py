"""What a search leaves at its end: plots, and the best trial reproduced with other seeds; and how far a search has come."""

import json
import sys
import textwrap
from pathlib import Path

import yaml

from runs.meta import over_folds
from search import study as studies
from search.files import BEST, read_table, undamaged
from search.tables import best_of
from search.trials import scores
from utilities.files import replacing
from utilities.locks import Lock

REPRODUCTIONS = "reproductions.yaml"


def how_far(folder: Path, trials: int, reproductions: int) -> tuple[bool, str]:
    """(finished, progress in words) of a search by the files in its folder; writes nothing. Raises UserError where one is damaged.

    Args:
        trials, reproductions: how many are asked for.
    """
    ended = sum(row["state"] in ("complete", "fail") for row in read_table(folder))
    best, known, again = folder / BEST, _reproductions(folder), 0
    if best.exists() and known["runs"]:
        trial = best.read_text(encoding="utf-8", errors="replace").removeprefix("# ").partition(":")[0]  # as `write_tables` writes it
        again = len(known["runs"]) * (trial == known["trial"])
    finished = ended >= trials and again >= reproductions and best.exists()
    words = f"{ended} trials" if finished else f"after {ended} of {trials} trials"
    return finished, words + (f" and {again} of {reproductions} reproductions" if reproductions and ended >= trials else "")


def _reproductions(folder: Path) -> dict:
    """reproductions.yaml; none where there is no such file. Raises UserError where it is damaged."""
    path = folder / REPRODUCTIONS
    if not path.exists():
        return {"trial": None, "results": {}, "runs": {}}
    with undamaged(path, "move it away: the folders of the reproductions stay, and are read again"):
        known = dict(yaml.safe_load(path.read_text(encoding="utf-8")))
        over_folds([run["values"] for run in known["runs"].values()])
        return {"trial": known["trial"], "results": dict(known["results"]), "runs": known["runs"]}


def draw(study, folder: Path, metric: str) -> list[Path]:
    """Draw history, slice, contour and importance as PNG in `plots/`. Returns the files; one that fails is named and left out."""
    import matplotlib
    import optuna

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from optuna.visualization import matplotlib as pictures

    shown = optuna.create_study(direction=study.direction)  # its trials are numbered as ours, which count no attempts
    shown.add_trials([trial for trial in studies.latest(study) if trial.state.is_finished()])
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


def reproduce(study, plan, train) -> dict | None:
    """Run the best trial again with seeds seed + 1, seed + 2 …, the trial itself not counted, and measure these on test.

    Finished reproductions are not run again. Returns the content of reproductions.yaml; None while another process reproduces.
    """
    lock = Lock(plan.folder / ".reproductions.lock")
    if not lock.acquire(wait=False):
        return None
    with lock:
        best, known = best_of(study), _reproductions(plan.folder)
        name = studies.folder_name(study, best)
        done = known["runs"] if known["trial"] == name else {}
        first = plan.flags.read(best.params).seed
        for number in range(1, plan.reproductions + 1):
            run = f"{name}_reproduction_{number}"
            if run not in done:
                print(f"\n{run} of {plan.reproductions}: seed {first + number}", flush=True)
                again = ["--resume"] * (plan.folder / run).exists()
                train(plan.read(best.params, run, f"--group={plan.opt.group}_best", f"--seed={first + number}", "--final_test", *again))
                done[run] = {"seed": first + number, "values": scores(plan.folder / run)}
            content = {"trial": name, "results": over_folds([found["values"] for found in done.values()]), "runs": done}
            with replacing(plan.folder / REPRODUCTIONS) as file:
                yaml.safe_dump(json.loads(json.dumps(content)), file, sort_keys=False)
        return content


def tell(study, plan, reproductions: dict | None) -> None:
    """Print where the search stands."""
    trials, best = studies.latest(study), best_of(study)
    failed = [trial for trial in trials if trial.state.name == "FAIL"]
    print(f"\n{plan.folder}: {len(trials)} trials, {len(failed)} failed")
    print(f"best: {studies.folder_name(study, best)}, {plan.metric} on validation {best.value:.4f}")
    print("".join(f"  {flag}: {value}\n" for flag, value in best.params.items()), end="")
    for split, values in (reproductions or {"results": {}})["results"].items():
        found = values.get(plan.metric)
        if found is not None:
            interval = found["interval_95"]
            width = f", 95 % interval {interval[0]:.4f} to {interval[1]:.4f}" if interval else ""
            print(f"{len(reproductions['runs'])} reproductions: {plan.metric} on {split} {found['mean']:.4f}{width}")
