"""Rows without a label in files of embeddings: distractors of a gallery;
refused where they would be queries or a class.

What a missing label is says `utilities.labels`: NaN, or a text such as `nan`, `None` or `<NA>`. A class of that name
would otherwise hold all unlabelled images, which would find each other.
"""

import numpy as np

from utilities.errors import UserError
from utilities.labels import are_missing

WAY_OUT = "give each query a class, leave these rows out, or mark those of a gallery by is_query and is_distractor (N,)"


def classless(arrays: dict, distractor: np.ndarray) -> dict:
    """The arrays with a label and a name for distractors `(N,)` that no query has, in place of those they came with."""
    changed = dict(arrays)
    for name in {"labels", "class_names"} & arrays.keys():
        if arrays[name].size == len(distractor) or len(arrays[name]) == len(distractor):
            changed[name] = _without_class(arrays[name], distractor)
    return changed


def _without_class(labels: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The labels `(N,)` or `(N, L)`, at `rows` `(N,)` one that no query has."""
    if labels.dtype.kind in "biu":
        labels = labels.astype(np.int64)
    if labels.size == len(rows):
        labels = labels.reshape(-1)
    nobody = {"U": "", "S": b""}.get(labels.dtype.kind, np.iinfo(np.int64).min)
    return np.where(rows.reshape(-1, *[1] * (labels.ndim - 1)), nobody, labels)


def of_queries(path: str, arrays: dict, listed: bool = False) -> dict:
    """The arrays of a file whose rows search: those without a label are distractors (`is_distractor`).

    Args:
        listed: lists say what queries are to find, so that they need no label.

    Raises UserError where a query, or a row of reference_features, has no label.
    """
    if {"reference_features", "reference_labels"} <= arrays.keys():
        _refuse_in_reference(path, arrays)
    missing = missing_rows(path, arrays)
    queries = _queries(arrays)
    if missing is None or queries is None:
        return arrays
    if not listed or "reference_features" in arrays:
        _refuse(path, arrays["labels"], missing & queries, WAY_OUT)
    marked = _marked(arrays, missing)
    if listed and "is_query" not in arrays and "role_draws" not in arrays:
        marked["is_query"] = queries
    return marked


def of_gallery(paths: list[str], parts: list[dict]) -> list[dict]:
    """The arrays of the files of a gallery, in which rows without a label are distractors:
    none of its rows searches.
    """
    all_missing = [missing_rows(path, part) for path, part in zip(paths, parts, strict=True)]
    if all(missing is None for missing in all_missing):
        return parts
    marked = []
    for part, missing in zip(parts, all_missing, strict=True):
        rows = missing
        if missing is None:
            rows = np.zeros(len(part["features"]), dtype=bool)
        roles = part.get("is_query")
        if roles is not None and roles.shape == rows.shape:
            part = {**part, "is_query": np.where(rows, False, roles)}
        marked.append(_marked(part, rows))
    return marked


def refuse_missing(path: str, arrays: dict) -> None:
    """Raise UserError where any row of the file has no label."""
    missing = missing_rows(path, arrays)
    if missing is not None:
        _refuse(path, arrays["labels"], missing, "give each row a class, or leave these rows out")


def _refuse_in_reference(path: str, arrays: dict) -> None:
    missing = missing_rows(path, arrays, "reference_labels", "reference_features")
    if missing is not None:
        way_out = "give distractors a label that no query has, such as nobody or -1"
        _refuse(path, arrays["reference_labels"], missing, way_out, "reference_labels")


def missing_rows(path: str, arrays: dict, name: str = "labels", features: str = "features") -> np.ndarray | None:
    """`(N,)` whether each row has no label; None where all have one, or where the labels do not fit the features.

    Raises UserError where a row with a class has none at a coarser level.
    """
    labels = arrays.get(name)
    size = len(np.atleast_1d(arrays[features]))
    if labels is None or (labels.size != size and len(labels) != size):
        return None
    missing = are_missing(labels).reshape(size, -1)
    partly = missing.any(1) & ~missing[:, 0]
    if partly.any():
        row = int(partly.argmax())
        level = int(missing[row].argmax())
        raise UserError(
            f"{path}: {name} has no class at level {level} in row {row}, and {labels[row, 0]} at the finest: "
            "give it one at each level"
        )
    return missing[:, 0] if missing.any() else None


def _queries(arrays: dict) -> np.ndarray | None:
    """`(N,)` the rows that search; None where the roles do not fit the features, which is refused elsewhere."""
    size = len(np.atleast_1d(arrays["features"]))
    roles = {name: arrays[name] for name in ("is_query", "is_distractor", "role_draws") if name in arrays}
    if any(array.shape[-1] != size or array.dtype.kind not in "biu" for array in roles.values()):
        return None
    if "role_draws" in roles:
        return ~roles["role_draws"].astype(bool).reshape(-1, size).all(0)
    if "is_query" in roles:
        return roles["is_query"].astype(bool).reshape(-1)
    if "is_distractor" in roles:
        return ~roles["is_distractor"].astype(bool).reshape(-1)
    return np.ones(size, dtype=bool)


def _marked(arrays: dict, missing: np.ndarray) -> dict:
    """The arrays with `missing` rows `(N,)` among their distractors."""
    distractor = arrays.get("is_distractor", np.zeros(len(missing), dtype=bool))
    if distractor.shape != missing.shape or distractor.dtype.kind not in "biu":
        return arrays
    return {**classless(arrays, missing), "is_distractor": distractor.astype(bool) | missing}


def _refuse(path: str, labels: np.ndarray, rows: np.ndarray, way_out: str, name: str = "labels") -> None:
    """Raise UserError with the first of the `rows` `(N,)`, if any."""
    if not rows.any():
        return
    row = int(rows.argmax())
    text = labels.reshape(len(rows), -1)[row, 0]
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    text = str(text)
    raise UserError(
        f"{path}: {int(rows.sum()):,} of {len(rows):,} {name} are missing, such as {text!r} in row {row}: {way_out}"
    )
