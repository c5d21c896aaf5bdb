"""What a search leaves: best_parameters.yaml, trials.csv, pictures, and the best trial reproduced with other seeds."""

import csv
import json
import sys
import textwrap
from pathlib import Path

import yaml

from runs.configuration import NEVER_A_CHANGE
from runs.folds import over_folds
from search import study as studies
from search.files import TABLE, read_mapping, read_table, undamaged
from search.trials import scores
from utilities.files import replacing
from utilities.locks import Lock

NO_PART_OF_THE_BEST = NEVER_A_CHANGE - {"source_path"} | {"savename", "group", "splits_to_eval"}
REPRODUCTIONS = "reproductions.yaml"
COLUMNS = ("trial", "state", "value", "attempts", "seconds", "host", "reason")


def best_of(study):
    """The best trial; None while none has a value."""
    done = [trial for trial in studies.latest(study) if trial.state.name == "COMPLETE"]
    if not done:
        return None
    choose = max if study.direction.name == "MAXIMIZE" else min
    return choose(done, key=lambda trial: trial.value)


def write_tables(study, folder: Path, flags, given: set[str], metric: str) -> None:
    """Write trials.csv, and best_parameters.yaml as soon as a trial has a value."""
    rows = []
    for trial in studies.latest(study):
        seconds = trial.duration.total_seconds() if trial.duration is not None else ""
        reason = trial.user_attrs.get("reason", "") if trial.state.name in ("FAIL", "WAITING") else ""
        if trial.state.name == "FAIL" and not reason:
            reason = "its process was killed"
        row = [studies.folder_name(study, trial), trial.state.name.lower(), "" if trial.value is None else trial.value]
        row += [trial.user_attrs.get("attempt", 1), seconds, trial.user_attrs.get("host", ""), reason]
        rows.append(row + [trial.params.get(flag, "") for flag in flags.ranges])
    with replacing(folder / TABLE) as file:
        writer = csv.writer(file)
        writer.writerow([*COLUMNS, *flags.ranges])
        writer.writerows(rows)
    best = best_of(study)
    if best is None:
        return
    opt = flags.read(best.params)
    content = dict(best.params) | {name: getattr(opt, name) for name in sorted(given) if name in opt.flags - NO_PART_OF_THE_BEST}
    with replacing(folder / "best_parameters.yaml") as file:
        file.write(f"# {studies.folder_name(study, best)}: {metric} on validation {best.value:.6g}, the best of {len(rows)} trials\n")
        yaml.safe_dump(content, file, sort_keys=False)


def how_far(folder: Path, trials: int, reproductions: int) -> tuple[bool, str]:
    """(finished, progress in words) of a search by the files in its folder; writes nothing. Raises UserError where one is damaged.

    Args:
        trials, reproductions: how many are asked for.
    """
    ended = sum(row["state"] in ("complete", "fail") for row in read_table(folder))
    best, known, again = folder / "best_parameters.yaml", _reproductions(folder), 0
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
        known = read_mapping(path)
        over_folds([run["values"] for run in known["runs"].values()])
        return {"trial": known["trial"], "results": dict(known["results"]), "runs": known["runs"]}


def draw(study, folder: Path, metric: str) -> list[Path]:
    """Draw history, slice, contour and importance as PNG in `plots/`. Returns the files; one that fails is named and left out."""
    import matplotlib
    import optuna

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from optuna.visualization import matplotlib as pictures

    shown = optuna.create_study(direction=study.direction)  # whose trials have our numbers, not those of attempts
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
        except Exception as error:  # a picture of the drawing package's is not worth a search
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
                    axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
                    axis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
            elif isinstance(axis.get_major_locator(), ticker.AutoLocator):
                axis.set_major_locator(ticker.MaxNLocator(5, steps=(1, 2, 5, 10), integer=name in whole))
            if "_" in name:
                axis.set_label_text("_\n".join(textwrap.wrap(name.replace("_", " "), 16)).replace(" ", "_"), fontsize=10)
            axis.set_tick_params(labelsize=9)
        if len(grid) > 1 and axes in grid:
            axes.label_outer()


def reproduce(study, folder: Path, flags, train, savename: str, group: str, count: int, more: list[str]) -> Path | None:
    """Run the best trial again with seeds seed + 1, seed + 2 …, the trial itself not counted.

    What was already run is taken as it is. Returns reproductions.yaml; None while another process is at it.

    Args:
        more: arguments that every reproduction gets.
    """
    lock = Lock(folder / ".reproductions.lock")
    if not lock.acquire(wait=False):
        return None
    try:
        best = best_of(study)
        name = studies.folder_name(study, best)
        path, known = folder / REPRODUCTIONS, _reproductions(folder)
        done = known["runs"] if known["trial"] == name else {}
        first = flags.read(best.params).seed
        for number in range(1, count + 1):
            run = f"{name}_reproduction_{number}"
            if run not in done:
                print(f"\n{run} of {count}: seed {first + number}", flush=True)
                again = ["--resume"] * (folder / run).exists()
                train(
                    flags.read(
                        best.params, f"--savename={savename}/{run}", f"--group={group}_best", f"--seed={first + number}", *more, *again
                    )
                )
                done[run] = {"seed": first + number, "values": scores(folder / run)}
            _write_reproductions(path, name, done)
        return path
    finally:
        lock.release()


def _write_reproductions(path: Path, name: str, done: dict) -> None:
    """Mean, standard error and 95 % t-interval over the reproductions, and each one's values."""
    results = over_folds([run["values"] for run in done.values()])
    with replacing(path) as file:
        yaml.safe_dump(json.loads(json.dumps({"trial": name, "results": results, "runs": done})), file, sort_keys=False)


def tell(study, folder: Path, metric: str, reproductions: Path | None) -> None:
    """Print where the search stands."""
    trials, best = studies.latest(study), best_of(study)
    failed = [trial for trial in trials if trial.state.name == "FAIL"]
    print(f"\n{folder}: {len(trials)} trials, {len(failed)} failed")
    if best is not None:
        print(f"best: {studies.folder_name(study, best)}, {metric} on validation {best.value:.4f}")
        print("".join(f"  {flag}: {value}\n" for flag, value in best.params.items()), end="")
    if reproductions is not None:
        content = _reproductions(folder)
        for split, values in content["results"].items():
            found = values.get(metric)
            if found is not None:
                interval = found["interval_95"]
                width = f", 95 % interval {interval[0]:.4f} to {interval[1]:.4f}" if interval else ""
                print(f"{len(content['runs'])} reproductions: {metric} on {split} {found['mean']:.4f}{width}")
