"""Runs of W&B projects -> `RecordedRun`, including those logged by the ICML 2020 pipeline.

W&B returns flags, and rows of values under names that depend on the version that logged them (runs/icml_names.py). They
become the rows of metrics.csv, in the order of the flags.
"""

import math
import re

import numpy as np

from results import columns
from results.columns import SELECTED
from results.recorded import (
    CHANGED,
    EMPTY,
    FOLD,
    RecordedRun,
    Series,
    dataset_of,
    environment,
    identity,
    in_one_line,
    judge,
    typed,
    words,
)
from results.roles import FlagRoles
from runs.icml_names import is_misnamed, value_name
from runs.names import split_name
from utilities.errors import UserError
from utilities.evaltypes import MAIN
from utilities.extras import way_out

# a key such as `test/e_recall@1`, as runs have them without --online_names icml
PLAIN_KEY = re.compile(r"(train|val|test)/(.+)$")


def wandb_api():
    """W&B's public API. Raises UserError if the package or the network is missing."""
    try:
        import wandb

        return wandb.Api()
    except ImportError as error:
        raise UserError(
            f"--project needs the package: {way_out('wandb')}. Local run folders (--runs) do not"
        ) from error
    except Exception as error:
        raise UserError(
            f"--project: W&B does not answer ({in_one_line(error)}). Use --runs for local folders"
        ) from error


def read_project(path: str, api, flag_roles: FlagRoles) -> list[RecordedRun]:
    """The runs of the W&B project `entity/project`. `api`: `wandb.Api()`, or any object with its `runs(path)`.

    Raises UserError if the project cannot be read.
    """
    try:
        return [_read(run, path, flag_roles) for run in api.runs(path)]
    except Exception as error:
        raise UserError(f"--project {path}: cannot be read ({in_one_line(error, 160)})") from error


def _read(online, path: str, flag_roles: FlagRoles) -> RecordedRun:
    config = flag_roles.saved({key: value for key, value in dict(online.config).items() if not key.startswith("_")})
    recorded = config.pop("environment", None)
    problem = None
    try:
        config = typed(config)
    except ValueError as error:
        problem = f"failed: config: {in_one_line(error)}"
        config = {key: config[key] for key in ("dataset", "group") if key in config}
    name = str(online.name)
    base, _, last = name.rpartition("/")
    # `X/fold_0`, as runs/records/online.py names the folds of X
    fold = base and FOLD.fullmatch(last)
    known_flags = {flag: value for flag, value in config.items() if value is not None}
    known_flags = {"group": getattr(online, "group", None), **known_flags}
    run_name = base if fold else name
    group, seed = identity(known_flags, run_name)
    address = getattr(online, "url", None) or f"https://wandb.ai/{path}/runs/{getattr(online, 'id', name)}"
    # W&B keeps only the last flags, so earlier changes are unknown
    flags = {CHANGED: "no", **config}
    dataset = dataset_of(config) or "unknown"
    run = RecordedRun(name, address, dataset, group, seed, flag_roles, flags=flags, problem=problem)
    if fold:
        run.fold = int(fold[1])
    if isinstance(recorded, dict):
        run.environment = environment(recorded)
    try:
        run.series = _series(list(online.scan_history()), config, run.notes)
    except (ValueError, TypeError, KeyError) as error:
        run.problem = run.problem or f"failed: its history cannot be read ({in_one_line(error)})"
    judge(run, columns.epoch(run, SELECTED), columns.epoch(run, columns.LAST))
    state = str(getattr(online, "state", "finished"))
    if state != "finished" and run.problem:
        run.problem += f" (W&B says {state})"
    elif state != "finished":
        run.notes.append(f"W&B says {state}, but all epochs are there")
    return run


def _series(history: list[dict], config: dict, notes: list[str]) -> Series:
    """Rows of W&B under the names of metrics.csv."""
    evaltypes = words(config.get("evaltypes") or [MAIN])
    rows = []  # (epoch, key, value)
    for number, row in enumerate(history):
        epoch = _epoch(row, number)
        rows += [(epoch, key, value) for key, value in row.items() if _is_number(value)]
    keys = {key for _, key, _ in rows}
    names = {key: _metric(key, evaltypes) for key in keys}
    if shared := _shared_keys(names, evaltypes):
        names |= dict.fromkeys(shared)
        notes.append("train metrics of several domains were logged under one name and are left out")
    # A run with plain names may log each value under its older name as well: the plain one counts.
    plain = {(epoch, names[key][0]) for epoch, key, _ in rows if PLAIN_KEY.fullmatch(key)}
    named_rows = []  # (epoch, split, metric, value)
    for epoch, key, value in rows:
        if names[key] and (PLAIN_KEY.fullmatch(key) or (epoch, names[key][0]) not in plain):
            named_rows.append((epoch, *names[key], value))
    rows = _in_flags_order(named_rows, words(config.get("evaluation_metrics") or []), evaltypes)
    if not rows:
        return EMPTY
    epochs, splits, metrics, values = map(list, zip(*rows, strict=True))
    # The ICML pipeline's first version logged its mAP_c as `mAP`; --save_interval is a flag that only this pipeline
    # has.
    if "mAP" in metrics and "mAP_c" not in metrics and "save_interval" not in config:
        metrics = ["mAP_c" if metric == "mAP" else metric for metric in metrics]
        notes.append("its mAP is the older name of mAP_c, and read as such")
    return Series.from_rows(epochs, splits, metrics, values)


def _in_flags_order(rows: list[tuple], metrics: list[str], evaltypes: list[str]) -> list[tuple]:
    """Rows (epoch, split, metric, value) in the order of the flags: W&B returns them in another order."""
    order = {metric: place for place, metric in enumerate(metrics)}
    of_evaltype = {evaltype: place for place, evaltype in enumerate(evaltypes)}

    def place(row: tuple) -> tuple[int, int]:
        above, name = split_name(row[2])
        return of_evaltype.get(above.partition("/")[0], 0), order.get(name, len(order))

    return sorted(rows, key=place)


def _epoch(row: dict, number: int) -> int:
    """The epoch of a row; the steps of the ICML pipeline are epochs counted from 0."""
    if _is_number(row.get("epoch")):
        return int(row["epoch"])
    if _is_number(row.get("_step")):
        return int(row["_step"]) + 1
    return number + 1


def _metric(key: str, evaltypes: list[str]) -> tuple[str, str] | None:
    """(split, metric) of a key of W&B; None if it is no metric."""
    exact = PLAIN_KEY.fullmatch(key)
    if exact:
        return exact[1], exact[2]
    return value_name(key, evaltypes)


def _shared_keys(names: dict, evaltypes: list[str]) -> list[str]:
    """The keys under which a version of November 2026 logged both an evaltype's mean and the values of its domains.

    The service kept the last of these alone. `names`: key -> (split, metric), None for a key of no value.
    """
    metrics = {name[1] for name in names.values() if name is not None}
    with_domains = {metric.partition("/")[0] for metric in metrics if metric.count("/") > 1}
    if len(evaltypes) == 1:
        return []
    return [key for key in names if is_misnamed(key) and names[key][1].partition("/")[0] in with_domains]


def _is_number(value) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool) and not math.isnan(value)
