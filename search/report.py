"""What a search leaves: best_parameters.yaml, trials.csv, pictures, and the best trial reproduced with other seeds."""

import csv
import json
import sys
from pathlib import Path

import yaml

from runs._names import NEVER_A_CHANGE
from runs.meta import over_folds
from search import study as studies
from search.files import TABLE, read_mapping, read_table
from search.trials import scores
from utilities.errors import UserError
from utilities.files import replacing

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


def progress(folder: Path) -> tuple[int, int]:
    """(trials that ended, finished reproductions of the best one) of a search, by the files in its folder; writes nothing.

    Raises UserError where one of the files is damaged.
    """
    ended = sum(row["state"] in ("complete", "fail") for row in read_table(folder))
    best, known = folder / "best_parameters.yaml", _reproductions(folder)
    if not (best.exists() and known["runs"]):
        return ended, 0
    named = best.read_text(encoding="utf-8", errors="replace").removeprefix("# ").partition(":")[0]  # as `write_tables` writes it
    return ended, len(known["runs"]) if known["trial"] == named else 0


def _reproductions(folder: Path) -> dict:
    """reproductions.yaml; none where there is no such file. Raises UserError where it is damaged."""
    path = folder / REPRODUCTIONS
    if not path.exists():
        return {"trial": None, "results": {}, "runs": {}}
    way_out = "move it away: the folders of the reproductions stay, and are read again"
    known = read_mapping(path, {"trial": str, "results": dict, "runs": dict}, way_out)
    broken = [name for name, run in known["runs"].items() if not _has_values(run)]
    if broken:
        raise UserError(f"{path} is damaged (no values of {', '.join(map(str, broken))} in it): {way_out}")
    return known


def _has_values(run) -> bool:
    """Whether it is what `reproduce` notes of a run: its values, split -> {metric: number or none}."""
    splits = run.get("values") if isinstance(run, dict) else None
    return isinstance(splits, dict) and all(
        isinstance(values, dict) and all(isinstance(value, int | float | None) for value in values.values()) for values in splits.values()
    )


def draw(study, folder: Path, metric: str) -> list[Path]:
    """Draw history, slice, contour and importance as PNG in `plots/`. Returns the files; one that fails is named and left out."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from optuna.visualization import matplotlib as pictures

    done = [trial for trial in studies.latest(study) if trial.state.name == "COMPLETE"]
    if not done:
        return []
    several = len(done[0].params) > 1
    kinds = {"history": pictures.plot_optimization_history, "slice": pictures.plot_slice}
    if several and len(done) > 1:
        kinds["contour"] = pictures.plot_contour
    if several and len({trial.value for trial in done}) > 1:
        kinds["importance"] = pictures.plot_param_importances
    target = folder / "plots"
    target.mkdir(exist_ok=True)
    files = []
    for name, plot in kinds.items():
        try:
            plot(study, target=None, target_name=metric)
            figure = plt.gcf()
            columns = len(done[0].params)
            sizes = {"slice": (max(5, 3.5 * columns), 4), "contour": (max(7, 3.2 * columns), max(5, 2.8 * columns))}
            figure.set_size_inches(*sizes.get(name, (7, 4.5)))
            files.append(target / f"{name}.png")
            figure.savefig(files[-1], dpi=120, bbox_inches="tight")
        except Exception as error:  # a picture of the drawing package's is not worth a search
            print(f"WARNING: the {name} plot cannot be drawn: {type(error).__name__}: {error}", file=sys.stderr)
        plt.close("all")
    return files


def reproduce(study, folder: Path, flags, train, savename: str, group: str, count: int, more: list[str]) -> Path | None:
    """Run the best trial again with seeds seed + 1, seed + 2 …, the trial itself not counted.

    What was already run is taken as it is. Returns reproductions.yaml; None while another process is at it.

    Args:
        more: arguments that every reproduction gets.
    """
    lock = studies.Lock(folder / ".reproductions.lock")
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
