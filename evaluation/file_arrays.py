"""The arrays of files of embeddings: which names a file may have, how they are read, and what is refused at once.

An .npz file holds its arrays by name. An .npy file is one array, the features, and stays in its file as a memory map;
a second .npy file holds its labels. Several files can be one gallery. `from_files.py` makes tasks of the arrays.
"""

import contextlib
import json
from pathlib import Path

import numpy as np

import metrics
from evaluation import missing_labels
from evaluation.file_kinds import refuse_others
from evaluation.galleries import ROLES
from evaluation.judgements import LISTS, has_lists, protocol_of
from utilities.errors import UserError
from utilities.reading import Unreadable, parsing, read_array_or_arrays, read_text

OF_REFERENCE = ("reference_features", "reference_labels", "exclude")
NAMES = ("paths", "class_names")
REQUIRED = ("features", "labels")
# super-classes: the first of them that the file has; --dump_embeddings writes the second
GROUPS = ("groups", "super_names")
HIGHER = "higher_names"  # (N, L - 2) classes of the levels above the super-classes
DOMAINS = "domains"  # (N,) names, "" for a distractor: each domain's queries are also measured by themselves
CERTAINTY = "certainty"  # (N,) numbers: how certain the answer of each query is
# NumPy's letters of the types of values: numbers and text, not dates, complex numbers or structures
KINDS = "biufUS"


def opened(path: str, optional: tuple[str, ...]) -> tuple[dict, list[str]] | np.ndarray:
    """The wanted arrays of an .npz file, by name, and the names of all; or the memory map of an .npy file. Raises
    UserError if it is neither.
    """
    if Path(path).is_dir():
        raise UserError(
            f"{path}: a folder, expected a file of embeddings; a run is measured by `python main.py --evaluate "
            f"--resume_from {path}`"
        )
    refuse_others(path)
    array_names = {*REQUIRED, *optional}
    return read_array_or_arrays(
        path, lambda name: name in array_names or (LISTS[0] in array_names and protocol_of(name) is not None)
    )


def read(
    path: str,
    optional: tuple[str, ...] = OF_REFERENCE + ROLES,
    labels: str | None = None,
    flag: str = "--labels",
    needs_labels: bool = True,
) -> dict:
    """The arrays of the file, by name. Raises UserError if it cannot be read, or lacks a required array.

    Args:
        labels: the file of the labels of an .npy file, which `flag` names.
        needs_labels: False if lists say what is relevant.
    """
    content = opened(path, optional)
    if isinstance(content, np.ndarray):
        return _with_labels(path, content, labels, flag, needs_labels)
    if labels is not None:
        raise UserError(f"{flag} {labels}: the .npz file {path} holds its labels itself, leave it out")
    arrays, names = content
    required = ["features"]
    if needs_labels and not has_lists(arrays):
        required.append("labels")
    if "reference_features" in arrays and ("labels" in required or "labels" in arrays):
        required.append("reference_labels")
    missing = [name for name in required if name not in arrays]
    if missing:
        raise UserError(f"{path} has no {' and no '.join(missing)}; it holds {', '.join(names) or 'nothing'}")
    return checked(path, arrays)


def _with_labels(path: str, features: np.ndarray, labels: str | None, flag: str, needs_labels: bool) -> dict:
    """The arrays of an .npy file of features and the file of its labels; see `read`."""
    arrays = {"features": features}
    if labels is None and not needs_labels:
        return checked(path, arrays)
    content = None
    instead = ""
    if labels is not None:
        content = opened(labels, ())
        instead = f", not {labels}"
    if not isinstance(content, np.ndarray):
        raise UserError(f"{path}: one array, the features: name the .npy file of their labels by {flag}{instead}")
    return {**checked(path, arrays), **checked(labels, {"labels": np.array(content)})}


def checked(path: str, arrays: dict) -> dict:
    """The arrays of a file, by name.

    Raises UserError for one that no use could fit: without rows, without columns, or of other values.
    """
    for name, array in arrays.items():
        if name == "flags":
            continue
        if array.ndim == 0 or 0 in array.shape[1:]:
            raise UserError(
                f"{path}: {name} has shape {array.shape}: an array with a row for each image is expected, such as "
                "(N,) or (N, D)"
            )
        if array.dtype.kind not in KINDS:
            raise UserError(
                f"{path}: {name} holds values of the type {array.dtype.name}: numbers, true and false, or text "
                "are expected"
            )
    if DOMAINS in arrays and arrays[DOMAINS].dtype.kind == "f":
        raise UserError(
            f"{path}: {DOMAINS} holds values of the type {arrays[DOMAINS].dtype.name}: the names or numbers of "
            "domains (N,) are expected"
        )
    if DOMAINS in arrays and "reference_features" in arrays:
        raise UserError(
            f"{path}: {DOMAINS} are of the rows of features, which search each other: they need no reference_features"
        )
    return arrays


def read_queries(path: str, has_gallery: bool, with_names: bool = False, **labels) -> dict:
    """The arrays of a file whose rows search; see `read`, also for `labels` and what follows.

    Rows without a label are distractors.

    Raises UserError also if an array needs a reference and there is none, and for a query without a label.
    """
    arrays = _with_roles(path, has_gallery, with_names, **labels)
    is_listed = not labels.get("needs_labels", True) or has_lists(arrays)
    return missing_labels.of_queries(path, arrays, is_listed)


def _with_roles(path: str, has_gallery: bool, with_names: bool, **labels) -> dict:
    """All arrays of a file that an evaluation uses; see `read_queries`."""
    names = NAMES if has_gallery or with_names else ()
    arrays = read(path, (*OF_REFERENCE, *ROLES, *GROUPS, HIGHER, DOMAINS, CERTAINTY, *LISTS, "flags", *names), **labels)
    if "reference_features" not in arrays:
        for name in arrays:
            if name == "exclude" and not has_gallery:
                raise UserError(f"{path}: exclude needs reference_features, or --gallery")
            if name == "reference_labels":
                raise UserError(f"{path}: reference_labels needs reference_features")
    for name in (DOMAINS, CERTAINTY):
        if name in arrays and arrays[name].shape != arrays["features"].shape[:1]:
            raise UserError(
                f"{path}: {name} has shape {arrays[name].shape}: ({len(arrays['features'])},) is expected, one "
                "for each row of features"
            )
    return arrays


def read_gallery(paths: list[str], keep: str | None = None, labels: list[str] | None = None, **reading) -> dict:
    """The arrays of one or several files, row after row; see `read_queries`. Memory maps stay in their files.

    Args:
        keep: file with a name of a distractor in each line: other rows with `is_distractor` are left out.

    Raises UserError for files that hold different arrays.
    """
    if labels is None:
        labels = [None] * len(paths)
    if len(labels) != len(paths):
        raise UserError(
            f"--gallery_labels {' '.join(labels)}: {len(labels)} files beside {len(paths)} of --gallery: give one "
            "for each"
        )
    parts = []
    for path, label_file in zip(paths, labels, strict=True):
        parts.append(_with_roles(path, True, True, labels=label_file, **reading))
    parts = missing_labels.of_gallery(paths, parts)
    if keep is not None:
        parts = [_without_unlisted(path, part, keep) for path, part in zip(paths, parts, strict=True)]
    if len(parts) == 1:
        return parts[0]
    return _joined(paths, parts)


def _joined(paths: list[str], parts: list[dict]) -> dict:
    """The arrays of several files, row after row. Raises UserError for files that hold different arrays."""
    names = set(parts[0]) - {"flags"}
    for path, part in zip(paths, parts, strict=True):
        if set(part) - {"flags"} != names:
            raise UserError(
                f"--gallery {path}: it differs from {paths[0]} in "
                f"{', '.join(sorted((set(part) - {'flags'}) ^ names))}: give all of them the same arrays"
            )
    of_one_file = sorted(names & {"role_draws", *OF_REFERENCE})
    if of_one_file:
        raise UserError(
            f"--gallery {' '.join(paths)}: {of_one_file[0]} belongs to a single file; those of several are joined"
        )
    features = [part["features"] for part in parts]
    if len({array.shape[1:] for array in features}) > 1:
        shapes = ", ".join(str(array.shape) for array in features)
        raise UserError(f"--gallery {' '.join(paths)}: features of {shapes}: their width must agree")
    joined = {}
    for name in names - {"features"}:
        joined[name] = np.concatenate([part[name] for part in parts])
    if any(map(metrics.is_mapped, features)):
        joined["features"] = metrics.Stacked(*((array, None) for array in features))
    else:
        joined["features"] = np.concatenate(features)
    return joined


def _without_unlisted(path: str, arrays: dict, keep: str) -> dict:
    """The arrays without the distractors that the file `keep` does not list."""
    if "is_distractor" not in arrays:
        raise UserError(
            f"--gallery_keep {keep}: {path} has no is_distractor (N,), so nothing says which images could be left out"
        )
    if "paths" not in arrays:
        raise UserError(f"--gallery_keep {keep}: images are matched by name, and {path} has no paths (N,)")
    listed = {line.strip() for line in read_text(keep, encoding="utf-8-sig").splitlines()}
    is_listed = np.zeros(len(arrays["paths"]), dtype=bool)
    for row, name in enumerate(map(str, arrays["paths"].tolist())):
        is_listed[row] = not listed.isdisjoint({name, Path(name).name, Path(name).stem})
    rows = np.flatnonzero(is_listed | ~arrays["is_distractor"].astype(bool))
    of_listed = dict(arrays)
    for name, array in arrays.items():
        if array.shape[:1] == is_listed.shape:
            of_listed[name] = array[rows]
    return of_listed


def written_flags(arrays: dict) -> dict:
    """The flags of the evaluation that wrote the file; empty if the file does not hold them."""
    written = None
    with contextlib.suppress(Unreadable), parsing("flags"):
        written = json.loads(str(arrays.get("flags", "{}")))
    return written if isinstance(written, dict) else {}
