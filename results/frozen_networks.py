"""The table of `python -m evaluation models`: metrics of the pooled features of frozen networks.

Its rows are kept in a JSON file beside the table. Rows of a later command join the table (`joined`) if data and
evaluation are the same; else they begin a new one.
"""

import contextlib
import itertools
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

import metrics
from evaluation import feature_store, knn
from results.formats import Cell, Table, file_name
from runs.names import plain
from utilities.files import write_json
from utilities.reading import Unreadable, parsing, read_json

HEAD = ["model", "pooling", "input", "width", "parameters in M", "images/s", "licence"]
# ending of the file from which a later command reads the rows
ROWS = ".json"
# flags in which rows of one table may differ
OF_ROW = {
    "evaluation_metrics",
    "crop_size",
    "resize_size",
    "eval_resize_size",
    "resize_mode",
    "precision",
    "eval_bs",
}


class Row(NamedTuple):
    """A row of the table; scores: split -> metric -> value; source: hash of the weights and code of its features."""

    name: str
    pooling: str
    size: str
    width: int
    parameters: int
    speed: float
    licence: str
    remarks: list
    scores: dict
    source: str


class Measured(NamedTuple):
    """Rows that can stand in one table.

    Attributes:
        conditions: what has to be equal: `data`, split -> its images, and `flags`, those of the evaluation.
        devices: those on which features were computed.
    """

    conditions: dict
    rows: list[Row]
    devices: list[str]


def conditions(data: dict, opt, splits: list[str]) -> dict:
    """What decides whether rows can be compared: the images of `splits`, the evaluation's flags.

    `data`: split -> data set.
    """
    images = {}
    for split in splits:
        images[split] = {
            "images": len(data[split]),
            "classes": data[split].n_classes,
            "content": feature_store.images_of(data[split]),
        }
    flags = {name: value for name, value in opt.measured().items() if name not in OF_ROW}
    parts = {name: getattr(opt, name) for name in ("split_scheme", "use_tv_split", "evaluate_all")}
    return json.loads(json.dumps({"data": images, "flags": flags, "parts": parts}, default=str))


def joined(folder: Path, stem: str, measured: Measured) -> tuple[str, Measured]:
    """The name of the table in `folder` that the rows join, and all its rows; a new name if they fit none.

    They fit a table of the same `conditions`, in which no row of the same name has another source or value.
    """
    for number in itertools.count():
        name = file_name(stem)
        if number:
            name += f"_{number}"
        earlier = _read(folder / f"{name}{ROWS}")
        if earlier is None and not (folder / f"{name}.md").exists():
            return name, measured
        if earlier is None or earlier.conditions != measured.conditions:
            continue
        rows = _together(earlier.rows, measured.rows)
        if rows is not None:
            return name, Measured(earlier.conditions, rows, sorted({*earlier.devices, *measured.devices}))


def write(folder: Path, table: Table, measured: Measured) -> None:
    """Write the table, and its rows for `joined`."""
    table.write(folder)
    rows = [row._asdict() | {"scores": _numbers(row.scores)} for row in measured.rows]
    write_json(
        folder / f"{table.name}{ROWS}", {"about": measured.conditions, "rows": rows, "devices": measured.devices}
    )


def _read(path: Path) -> Measured | None:
    """What `write` wrote; None if there is no such file, or it is damaged."""
    with contextlib.suppress(Unreadable), parsing(path):
        content = read_json(path)
        rows = [Row(**row) for row in content["rows"]]
        for row in rows:
            for values in row.scores.values():
                values |= {name: float("nan") for name, value in values.items() if value is None}
        return Measured(content["about"], rows, content["devices"])
    return None


def _numbers(scores: dict) -> dict:
    """The scores without arrays, as `float`."""
    numbers = {}
    for split, values in scores.items():
        numbers[split] = {name: float(value) for name, value in values.items() if not np.ndim(value)}
    return numbers


def _together(earlier: list[Row], rows: list[Row]) -> list[Row] | None:
    """The rows of both, with the metrics of both. None if two rows of one name differ in source or in a value."""
    by_name = {row.name: row for row in earlier}
    for row in rows:
        scores = _numbers(row.scores)
        before = by_name.get(row.name)
        if before is not None:
            if before.source != row.source or before.scores.keys() != scores.keys():
                return None
            if any(_differ(before.scores[split], scores[split]) for split in scores):
                return None
            scores = {split: before.scores[split] | scores[split] for split in scores}
        by_name[row.name] = row._replace(scores=scores)
    return list(by_name.values())


def _differ(values: dict, other_values: dict) -> bool:
    """Whether a metric of both has two values; NaN equals NaN."""
    for name in values.keys() & other_values.keys():
        both_undefined = np.isnan(values[name]) and np.isnan(other_values[name])
        if values[name] != other_values[name] and not both_undefined:
            return True
    return False


def table_of(name: str, measured: Measured, missing: list[str], opt) -> Table:
    """The table: a part for each split, the best of each column marked. `missing`: lines on networks left out."""
    rows = measured.rows
    # metric -> factor from values to printed numbers, decimals, end of its head
    forms = {}
    for row in rows:
        for values in _numbers(row.scores).values():
            for metric in values:
                is_percentage = metric.startswith("k-NN") or _is_share(metric)
                forms[metric] = (100, 2, " in %") if is_percentage else (1, 4, "")
    heads = [metric + ending for metric, (*_, ending) in forms.items()]
    table = Table(name, f"Frozen networks on {opt.dataset}", HEAD + heads)
    splits = list(rows[0].scores)
    for split in splits:
        part = split if len(splits) > 1 else ""
        best = {}
        for metric in forms:
            best[metric] = _best(metric, [row.scores[split].get(metric, np.nan) for row in rows])
        for row in rows:
            cells = _text_cells(row)
            for metric, (scale, digits, _) in forms.items():
                value = row.scores[split].get(metric, float("nan"))
                cell = Cell(scale * value, digits=digits)
                if value == best[metric] and len(rows) > 1:
                    cell.mark = "best"
                cells.append(cell)
            table.add(cells, row.remarks, part)
    length = "" if opt.eval_no_normalize else ", at unit length"
    table.notes += [
        *_data_notes(measured.conditions),
        f"Pooled features of frozen backbones, before any projection or classifier{length}.",
        "images/s: embedding and reading of images, as measured when the features were computed, "
        f"on {', '.join(measured.devices)}.",
    ]
    if any(metric.startswith("k-NN") for metric in forms):
        table.notes.append(
            f"k-NN@k: votes exp(cosine / {knn.TEMPERATURE}) of the k nearest training images, as DINO's eval_knn."
        )
    table.notes += [f"Left out: {line}" for line in missing]
    return table


def _text_cells(row: Row) -> list[Cell]:
    """The cells before a row's scores."""
    speed_digits = 0 if row.speed >= 10 else 1
    return [
        Cell(text=row.name),
        Cell(text=row.pooling),
        Cell(text=row.size),
        Cell(row.width, digits=0),
        Cell(row.parameters / 1e6, digits=1),
        Cell(row.speed, digits=speed_digits),
        Cell(text=row.licence),
    ]


def _is_share(name: str) -> bool:
    """Whether a metric is printed in percent: a mean over queries of values between 0 and 1."""
    return metrics.searches(plain(name)) and metrics.is_share(plain(name))


def _best(name: str, values: list[float]) -> float | None:
    """The best of the values of a metric; None if none is defined."""
    if np.isnan(values).all():
        return None
    if name.startswith("k-NN") or metrics.higher_is_better(plain(name)):
        return np.nanmax(values)
    return np.nanmin(values)


def _data_notes(comparability: dict) -> list[str]:
    """A line on the images of each split: how many, of how many classes, by which flags of the split."""
    parts = comparability["parts"]
    split_flags = f"--split_scheme {parts['split_scheme']}"
    if parts["use_tv_split"]:
        split_flags += " --use_tv_split"
    if parts["evaluate_all"]:
        split_flags = "--evaluate_all"
    lines = []
    for split, data in comparability["data"].items():
        lines.append(f"Part {split}: {data['images']:,} images of {data['classes']:,} classes ({split_flags}).")
    return lines
