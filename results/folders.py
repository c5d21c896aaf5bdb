"""Run folders -> `RecordedRun`.

`find_folders` lists the run folders below a folder, `read_folder` reads one: flags, metrics.csv, summary,
environment and, for folds, the results over all folds. What is missing or damaged becomes the run's problem or a
note, never an exception.
"""

import math
from pathlib import Path

from engine.optimisers import OVER_ALL_EPOCHS
from results import columns
from results.columns import SELECTED
from results.recorded import (
    CHANGED,
    FOLD,
    OverFolds,
    RecordedRun,
    Series,
    dataset_of,
    environment,
    identity,
    judge,
    typed,
    whole_number,
)
from results.roles import FlagRoles
from runs.changes import CONFIGS as CHANGES
from runs.changes import history
from runs.meta import CONCATENATED, SEPARATED
from runs.records.local import read_metrics
from utilities.errors import UserError
from utilities.files import walk
from utilities.reading import Unreadable, parsing, read_json, read_yaml

PARAMETERS = "parameters.yaml"
METRICS = "CSV_Logs/metrics.csv"
# ending of search folders, whose trials differ by design
SEARCH = "_search"


def find_folders(root: Path | str, skipped: list[str] | None = None) -> list[Path]:
    """All run folders below `root`, itself included.

    Folds are runs of their own; folders of searches are left out, and go into `skipped`.

    Raises UserError if `root` is no folder.
    """
    root = Path(root)
    if not root.is_dir():
        raise UserError(f"--runs {root}: no such folder. Give the --save_path of the runs, or --project for W&B")
    run_folders = []
    for place, folders, files in walk(root, follow_links=False):
        place = Path(place)
        names = sorted(folders)
        folds = [name for name in names if FOLD.fullmatch(name)]
        has_metrics = (place / METRICS).exists()
        if has_metrics or (PARAMETERS in files and not folds):
            run_folders.append(place)
        if has_metrics or PARAMETERS in files or folds:
            folders[:] = folds
        else:
            folders[:] = [name for name in names if not name.endswith(SEARCH) and not name.startswith(".")]
            if skipped is not None:
                skipped += [str(place / name) for name in names if name.endswith(SEARCH)]
    return run_folders


def read_folder(folder: Path, flag_roles: FlagRoles) -> RecordedRun:
    """The run in one folder.

    Its problem: missing flags or metrics, an unreadable file; of environment.yaml and meta/ only a note.
    """
    folder = Path(folder)
    fold = FOLD.fullmatch(folder.name)
    base = folder
    name = folder.name
    if fold:
        base = folder.parent
        name = f"{base.name}/{folder.name}"
    group, seed = identity({}, base.name)
    run = RecordedRun(name, str(folder), base.parent.name, group, seed, flag_roles)
    if fold:
        run.fold = int(fold[1])
    needed = [(folder / PARAMETERS, _flags), (folder / METRICS, _series), (folder / "summary.json", _summary)]
    optional = [(folder / "environment.yaml", _environment)]
    if fold:
        optional.append((base / "meta" / f"{SEPARATED}.json", _over_folds))
        optional.append((base / "meta" / f"{CONCATENATED}.json", _over_folds))
    for path, read in needed + optional:
        is_needed = (path, read) in needed
        try:
            with parsing(path):
                read(run, path)
        except Unreadable as error:
            reason = f"{path.name} cannot be read ({error.reason})"
            if error.is_missing and is_needed:
                run.problem = run.problem or f"failed: no {path.relative_to(folder)}"
            elif error.is_missing:
                continue
            elif is_needed:
                run.problem = run.problem or f"failed: {reason}"
            else:
                run.notes.append(f"{reason} and was left out")
    judge(run, columns.epoch(run, SELECTED), columns.epoch(run, columns.LAST))
    return run


def _flags(run: RecordedRun, path: Path) -> None:
    content = read_yaml(path)
    flags = typed({str(name): value for name, value in content.items()})
    base = path.parent
    if run.fold is not None:
        base = base.parent
    run.group, run.seed = identity(flags, base.name)
    run.dataset = dataset_of(flags) or run.dataset
    run.flags = flags | {CHANGED: _changes(path.parent, run.roles)}


def _changes(folder: Path, flag_roles: FlagRoles) -> str:
    """The flags changed on resume, each with the epoch after which it changed.

    Another number of epochs counts only with a schedule whose learning rates depend on it.
    """
    if not (folder / CHANGES).is_dir():
        return "no"
    try:
        with parsing(folder / CHANGES):
            began, changes = history(folder)
    except UserError as error:
        return f"unknown ({error})"
    changed = {}
    for moment, flags in changes:
        for name, value in flag_roles.compared(flags).items():
            if name != "n_epochs" or began.get("scheduler") in OVER_ALL_EPOCHS:
                changed[moment[0], name] = value
    texts = [f"{name} {value} after epoch {epoch}" for (epoch, name), value in changed.items()]
    return ", ".join(texts) or "no"


def _series(run: RecordedRun, path: Path) -> None:
    *rows, is_cut = read_metrics(path)
    if rows[0]:
        run.series = Series.from_rows(*rows)
    if is_cut:
        run.notes.append("the last row of metrics.csv is cut short and was left out")


def _summary(run: RecordedRun, path: Path) -> None:
    if path.exists():
        content = read_json(path)
        epoch = (content.get("selected") or {}).get("epoch")
        if epoch is not None:
            run.selected_epoch = whole_number(epoch)
        run.warnings = [str(warning) for warning in content.get("warnings") or ()]
        run.notes += run.warnings


def _environment(run: RecordedRun, path: Path) -> None:
    content = read_yaml(path)
    run.environment = environment(content)
    if "data" in run.environment:
        run.notes.append(f"its data {run.environment['data']}")
    fid = ((content.get("data") or {}).get("oodml") or {}).get("fid")
    if fid is not None:
        run.fid = float(fid)


def _over_folds(run: RecordedRun, path: Path) -> None:
    content = read_json(path)
    means = {}
    for split, metrics in content["values"].items():
        for metric, statistics in metrics.items():
            mean = statistics["mean"]
            means[split, metric] = math.nan if mean is None else float(mean)
    run.meta[path.stem] = OverFolds(
        list(content["folds"]), list(content["epochs"]), dict(content.get("flags") or {}), means
    )
