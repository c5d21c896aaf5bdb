"""Runs from run folders and from W&B projects, read into one shape."""

import io
import math
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import yaml

from runs._names import NEVER_A_CHANGE, NEVER_SAVED
from runs.changes import CONFIGS as CHANGES
from runs.changes import history
from runs.records import SPLIT_TITLES
from utilities.errors import UserError

# Flags that may differ within a group: names, places, records, and which part of a protocol a process ran.
NOT_COMPARED = NEVER_A_CHANGE | {
    "seed", "savename", "group", "project", "no_records", "weights_cache", "evaluation_metrics", "no_train_metrics", "allow_partial_dataset",
    "splits_to_eval", "eval_bs",
}  # fmt: skip
CHANGED = "changed_on_resume"  # beside a run's flags: runs that differ in it are not averaged
PARAMETERS, METRICS = "parameters.yaml", Path("CSV_Logs") / "metrics.csv"
FOLD = re.compile(r"fold_(\d+)$")
SEPARATED, CONCATENATED = "separated", "concatenated"  # the results over folds, as their files in meta/ are called
SEARCH = "_search"  # folders of hyper-parameter searches end so: their trials differ by design
ONLINE_KEY = re.compile(r"(Train|Val|Test): (?:(.+): )?(.+)$")  # `Test: discriminative_e_recall: e_recall@1`
PLAIN_KEY = re.compile(r"(train|val|test)/(.+)$")  # `test/e_recall@1`, with --online_names plain
SPLITS = {title: split for split, title in SPLIT_TITLES.items()}
TRAINING_GROUPS = ("criterion", "miner", "rate")  # logged online without the group before the slash
WHOLE_NUMBERS, LISTS_OF_NAMES = ("seed", "n_epochs", "patience", "split_sets", "embed_dim"), ("evaltypes", "storage_metrics")  # flags
_YAML = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml reads hundreds of files in a second, plain PyYAML in many


class Series:
    """The recorded values of a run: `epochs` `(E,)` ascending, `values` `(E, K)` with NaN where nothing was recorded.

    Args:
        keys: the K pairs (split, metric).
    """

    def __init__(self, epochs: np.ndarray, keys: list[tuple[str, str]], values: np.ndarray):
        self.epochs, self.keys, self.values = epochs, {key: i for i, key in enumerate(keys)}, values

    def of(self, split: str, metric: str) -> np.ndarray:
        """Values `(E,)` of one metric, all NaN where it was never recorded."""
        column = self.keys.get((split, metric))
        return np.full(len(self.epochs), np.nan) if column is None else self.values[:, column]

    @classmethod
    def from_rows(cls, epochs, splits, metrics, values) -> "Series":
        """From the long form, four sequences of equal length; of rows that occur twice the last one counts."""
        import pandas as pd

        steps, row = np.unique(np.asarray(epochs, dtype=np.int64), return_inverse=True)
        split_codes, split_names = pd.factorize(pd.Series(splits))
        metric_codes, metric_names = pd.factorize(pd.Series(metrics))
        codes, column = np.unique(split_codes * len(metric_names) + metric_codes, return_inverse=True)
        keys = [(str(split_names[code // len(metric_names)]), str(metric_names[code % len(metric_names)])) for code in codes]
        table = np.full((len(steps), len(keys)), np.nan)
        table[row, column] = values
        return cls(steps, keys, table)


EMPTY = Series(np.empty(0, dtype=np.int64), [], np.empty((0, 0)))


@dataclass
class Run:
    """One run: what it is, what it recorded, and, where it does not count, why."""

    name: str
    where: str  # the run's folder, or its address at W&B
    dataset: str
    group: str
    seed: int | None
    fold: int | None = None
    flags: dict = field(default_factory=dict)
    environment: dict = field(default_factory=dict)
    series: Series = field(default_factory=lambda: EMPTY)
    problem: str | None = None  # failed or short
    notes: list[str] = field(default_factory=list)
    summary: dict = field(default_factory=dict)
    meta: dict = field(default_factory=dict)  # of a fold: kind of embeddings -> what its cross-validation's meta/<kind>.json holds

    @property
    def selected_epoch(self) -> int | None:
        """The epoch that its summary.json names; None where it names none."""
        return (self.summary.get("selected") or {}).get("epoch")

    @property
    def whole(self) -> str:
        """The name of the fold's cross-validation; of any other run its own."""
        return self.name if self.fold is None else self.name.rpartition("/")[0]


def find_folders(root: Path | str, skipped: list[str] | None = None) -> list[Path]:
    """All run folders below `root`, `root` included. Folds are runs of their own; folders of searches are left out.

    Args:
        skipped: takes the folders of searches that were left out.

    Raises:
        UserError: `root` is no folder.
    """
    root = Path(root)
    if not root.is_dir():
        raise UserError(f"--runs {root}: no such folder. Give the --save_path of the runs, or --project for W&B")
    found = []
    for place, folders, files in os.walk(root):
        place, here = Path(place), sorted(folders)
        folds = [name for name in here if FOLD.fullmatch(name)]
        has_metrics = (place / METRICS).exists()
        if has_metrics or (PARAMETERS in files and not folds):
            found.append(place)
        if has_metrics or PARAMETERS in files or folds:
            folders[:] = folds
        else:
            searches = [name for name in here if name.endswith(SEARCH)]
            folders[:] = [name for name in here if name not in searches and not name.startswith(".")]
            if skipped is not None:
                skipped += [str(place / name) for name in searches]
    return found


def read_folder(folder: Path) -> Run:
    """The run in one folder; what is missing or broken becomes its `problem`, of environment.yaml a note, never an exception."""
    folder = Path(folder)
    flags, problem = _read_yaml(folder / PARAMETERS)
    flags, wrong = _sound_flags(flags)
    summary, wrong_summary = _read_summary(folder / "summary.json")
    environment, notes = _read_environment(folder / "environment.yaml")
    fold = FOLD.fullmatch(folder.name)
    name = f"{folder.parent.name}/{folder.name}" if fold else folder.name
    base = folder.parent if fold else folder
    group, seed = _identity(flags, base.name)
    flags |= {CHANGED: _changes(folder)} if flags else {}
    run = Run(
        name, str(folder), str(flags.get("dataset") or base.parent.name), group, seed, int(fold[1]) if fold else None, flags, environment,
        problem=problem or _failed(PARAMETERS, wrong) or wrong_summary, notes=notes, summary=summary, meta=_read_meta(base / "meta") if fold else {},
    )  # fmt: skip
    try:
        run.series, cut = read_metrics(folder / METRICS)
        if cut:
            run.notes.append("the last row of metrics.csv is cut short and was left out")
    except OSError:
        run.problem = run.problem or "failed: no CSV_Logs/metrics.csv"
    except (ValueError, KeyError, OverflowError) as error:
        run.problem = f"failed: metrics.csv is no epoch,split,metric,value table ({' '.join(str(error).split())[:80]})"
    _judge(run)
    return run


def _changes(folder: Path) -> str:
    """The flags that were changed on resume, with the epochs after which; more epochs are no change where the rate does not follow them."""
    if not (folder / CHANGES).is_dir():
        return "no"
    try:
        began, found = history(folder)
    except (UserError, ValueError) as error:  # ValueError: a date that does not exist
        return f"unknown ({error})"
    harmless = NOT_COMPARED | ({"n_epochs"} if began.get("scheduler") != "cosine" else set())
    texts = [f"{name} {value} after epoch {done[0]}" for done, changed in found for name, value in changed.items() if name not in harmless]
    return ", ".join(texts) or "no"


def read_metrics(path: Path) -> tuple[Series, bool]:
    """The rows of a metrics.csv, and whether a crash cut its last line short. Numbers are read back exactly."""
    import pandas as pd

    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if not whole:
        return EMPTY, bool(content)
    exact = {} if tuple(map(int, pd.__version__.split(".")[:2])) >= (3, 1) else {"float_precision": "round_trip"}  # the default since 3.1
    columns = {"epoch": np.int32, "split": "category", "metric": "category", "value": np.float64}
    rows = pd.read_csv(io.BytesIO(content[:whole]), dtype=columns, **exact)
    if rows.empty:
        return EMPTY, whole < len(content)
    if rows[["split", "metric"]].isna().to_numpy().any():
        raise ValueError("a row without split or metric")
    return Series.from_rows(rows["epoch"], rows["split"], rows["metric"], rows["value"]), whole < len(content)


def _read_yaml(path: Path) -> tuple[dict, str | None]:
    try:
        content = yaml.load(path.read_bytes(), Loader=_YAML)
    except OSError:
        return {}, f"failed: {path.name} is missing"
    except (yaml.YAMLError, ValueError):  # ValueError: no UTF-8, or a date that does not exist
        return {}, f"failed: {path.name} is no YAML"
    if not isinstance(content, dict):
        return {}, f"failed: {path.name} is empty"
    return {str(key): value for key, value in content.items()}, None


def _read_environment(path: Path) -> tuple[dict, list[str]]:
    """What is said where it is looked for, and a note on what is not: `packages` and `data` are tables, and so are the latter's parts."""
    content, problem = _read_yaml(path)
    if problem:
        return {}, [f"{path.name} cannot be read"] * path.exists()
    data = content.get("data") or {}
    sound = {
        "packages": _is_table(content.get("packages") or {}),
        "data": _is_table(data)
        and _is_table(data.get("counts") or {}, lambda count: _is_table(count or {}))
        and _is_table(data.get("transforms") or {}),
    }
    broken = [name for name in sound if not sound[name]]
    return {key: value for key, value in content.items() if key not in broken}, [f"{path.name}: {name} cannot be read" for name in broken]


def _read_summary(path: Path) -> tuple[dict, str | None]:
    """A summary.json, empty where there is none, and what is wrong with the epoch that it names as selected."""
    summary = _read_json(path)
    selected = summary.get("selected") or {}
    if _is_table(selected) and _is_whole(selected.get("epoch")):
        return summary, None
    return {}, _failed(path.name, [f"selected {selected!r} names no epoch"])


def _failed(name: str, wrong: list[str]) -> str | None:
    return f"failed: {name}: {', '.join(wrong)}" if wrong else None


def _sound_flags(flags: dict) -> tuple[dict, list[str]]:
    """Flags without those that no table can be made of, and what is wrong with these."""
    wrong = {name: "no whole number" for name in WHOLE_NUMBERS if not _is_whole(flags.get(name))}
    wrong |= {name: "no list of names" for name in LISTS_OF_NAMES if not _are_names(flags.get(name) or [])}
    return {name: value for name, value in flags.items() if name not in wrong}, [
        f"{name} {flags[name]!r} is {wrong[name]}" for name in wrong
    ]


def _is_whole(value) -> bool:
    """Whether a value is a whole number, or None."""
    return value is None or (_is_number(value) and value % 1 == 0)


def _are_names(value) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(name, str) for name in value)


def _is_table(value, of=lambda part: True) -> bool:
    """Whether a value is a dict, and each of its values what `of` asks for."""
    return isinstance(value, dict) and all(map(of, value.values()))


def _read_meta(folder: Path) -> dict:
    """Kind of embeddings -> the results over folds; empty where they were not made, or are broken."""
    contents = {kind: _read_json(folder / f"{kind}.json") for kind in (SEPARATED, CONCATENATED)}
    return {kind: content for kind, content in contents.items() if _is_meta(content)}


def _is_meta(content: dict) -> bool:
    lists = all(isinstance(content.get(name) or [], list) for name in ("folds", "epochs"))
    return lists and _is_table(content.get("flags") or {}) and _is_table(content.get("values"), lambda split: _is_table(split, _is_result))


def _is_result(value) -> bool:
    return _is_table(value) and isinstance(value.get("mean"), (int, float, type(None)))


def _read_json(path: Path) -> dict:
    import json

    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _identity(flags: dict, name: str) -> tuple[str, int | None]:
    """Group and seed by the flags, else by a name of the form `<group>_s<seed>`."""
    named = re.fullmatch(r"(.+)_s(\d+)(?:_\d+)?", name)
    group = flags.get("group") or (named[1] if named else name)
    seed = flags.get("seed", int(named[2]) if named else None)
    return str(group), seed if seed is None else int(seed)


def _judge(run: Run) -> None:
    """Say what keeps a run from counting: nothing recorded, or fewer epochs than planned."""
    if run.problem:
        return
    trained = run.series.epochs[run.series.epochs > 0]
    planned = run.flags.get("n_epochs")
    if planned == 0 and len(run.series.epochs):
        return
    if not len(trained):
        run.problem = "failed: no epoch recorded"
        return
    last = int(trained[-1])
    if planned is not None and last < int(planned) and not _ended_by_patience(run, last):
        run.problem = f"short: {last} of {planned} epochs"


def _ended_by_patience(run: Run, last: int) -> bool:
    patience, selected = run.flags.get("patience"), run.selected_epoch
    return patience is not None and selected is not None and last - int(selected) >= int(patience)


def wandb_api():
    """W&B's public API. Raises UserError where the package or the network is missing."""
    try:
        import wandb

        return wandb.Api()
    except ImportError as error:
        raise UserError("--project needs the package: pip install wandb. Local run folders (--runs) do not") from error
    except Exception as error:
        raise UserError(f"--project: W&B does not answer ({' '.join(str(error).split())[:120]}). Use --runs for local folders") from error


def read_project(path: str, api) -> list[Run]:
    """The runs of a W&B project, those that the ICML 2020 pipeline logged included.

    Args:
        path: `entity/project`.
        api: `wandb.Api()`, or anything whose `runs(path)` yields objects with `name`, `group`, `config`, `state`, `url` and
            `scan_history()` or `history()`.

    Raises:
        UserError: the project cannot be read.
    """
    try:
        return [_read_online(run, path) for run in api.runs(path)]
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"--project {path}: cannot be read ({' '.join(str(error).split())[:160]})") from error


def _read_online(online, path: str) -> Run:
    config = {key: value for key, value in dict(online.config).items() if not key.startswith("_") and key not in NEVER_SAVED}
    environment = config.pop("environment", None)
    config, wrong = _sound_flags(config)
    name = str(online.name)
    base, _, last = name.rpartition("/")
    fold = FOLD.fullmatch(last) if base else None  # `X/fold_0`, as runs/records/online.py names the folds of X
    given = {"group": getattr(online, "group", None), **{k: v for k, v in config.items() if v is not None}}
    group, seed = _identity(given, base if fold else name)
    where = getattr(online, "url", None) or f"https://wandb.ai/{path}/runs/{getattr(online, 'id', name)}"
    environment = environment if _is_table(environment) else {}
    flags, dataset = {CHANGED: "no", **config}, str(config.get("dataset", "unknown"))
    run = Run(name, where, dataset, group, seed, int(fold[1]) if fold else None, flags, environment)
    run.problem = _failed("config", wrong)
    try:  # (W&B keeps the last flags alone: what was changed before is not known there)
        run.series = _online_series(_history(online), config, run.notes)
    except (ValueError, TypeError, KeyError) as error:
        run.problem = f"failed: its history cannot be read ({' '.join(str(error).split())[:80]})"
    _judge(run)
    state = str(getattr(online, "state", "finished"))
    if state != "finished":
        if run.problem:
            run.problem += f" (W&B says {state})"
        else:
            run.notes.append(f"W&B says {state}, but all epochs are there")
    return run


def _history(online) -> list[dict]:
    """All rows; `history()` alone would be a sample of 500."""
    if hasattr(online, "scan_history"):
        return list(online.scan_history())
    rows = online.history(samples=1_000_000)
    return rows.to_dict("records") if hasattr(rows, "to_dict") else list(rows)


def _online_series(history: list[dict], config: dict, notes: list[str]) -> Series:
    """Rows of W&B under the names of metrics.csv."""
    evaltypes = _listed(config.get("evaltypes"))
    rows = [
        (_online_epoch(row, number), key, value) for number, row in enumerate(history) for key, value in row.items() if _is_number(value)
    ]
    names = {key: _online_name(key, evaltypes) for key in {key for _, key, _ in rows}}
    rows = [(epoch, *names[key], value) for epoch, key, value in rows if names[key]]
    logged = {name[1] for name in names.values() if name}
    # The ICML pipeline's first version logged its mAP_c as `mAP`; --save_interval is a flag that only this pipeline has.
    if "mAP" in logged and "mAP_c" not in logged and "save_interval" not in config:
        rows = [(epoch, split, "mAP_c" if metric == "mAP" else metric, value) for epoch, split, metric, value in rows]
        notes.append("its mAP is the older name of mAP_c, and read as such")
    return Series.from_rows(*zip(*rows, strict=True)) if rows else EMPTY


def _online_epoch(row: dict, number: int) -> int:
    if _is_number(row.get("epoch")):
        return int(row["epoch"])
    return int(row["_step"]) + 1 if _is_number(row.get("_step")) else number + 1  # the ICML pipeline's steps are epochs from 0


def _online_name(key: str, evaltypes: list[str]) -> tuple[str, str] | None:
    plain, parts = PLAIN_KEY.fullmatch(key), ONLINE_KEY.fullmatch(key)
    if plain:
        return plain[1], plain[2]
    if not parts:
        return None
    split, group, metric = SPLITS[parts[1]], parts[2] or "", parts[3]
    if group in TRAINING_GROUPS:
        return split, f"{group}/{metric}"
    evaltype = next((name for name in sorted(evaltypes, key=len, reverse=True) if group.startswith(f"{name}_")), None)
    return split, f"{evaltype}/{metric}" if evaltype and len(evaltypes) > 1 else metric


def _listed(value) -> list[str]:
    return [] if value is None else [value] if isinstance(value, str) else list(value)


def _is_number(value) -> bool:
    return (
        isinstance(value, (int, float, np.number)) and not isinstance(value, bool) and not (isinstance(value, float) and math.isnan(value))
    )


def collect(folders: list[str], projects: list[str], api=None) -> tuple[list[Run], list[str]]:
    """All runs of the folders and W&B projects, and what was skipped, in words.

    Raises:
        UserError: there is none.
    """
    from tqdm import tqdm

    skipped = []
    places = {place.resolve(): place for root in folders for place in find_folders(root, skipped)}
    runs = [read_folder(place) for place in tqdm(list(places.values()), desc="reading runs", unit="run", leave=False, disable=None)]
    if projects and api is None:
        api = wandb_api()
    for project in projects:
        runs += read_project(project, api)
    notes = [f"{folder} holds the trials of a search and was left out; name it in --runs to see them" for folder in skipped]
    if not runs:
        asked = [f"--runs {' '.join(folders)}"] * bool(folders) + [f"--project {' '.join(projects)}"] * bool(projects)
        raise UserError(
            f"{', '.join(asked)}: no runs there. A run folder holds {PARAMETERS} and {METRICS}, as main.py writes them"
            + "".join(f"; {n}" for n in notes)
        )
    return runs, notes
