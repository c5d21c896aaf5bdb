"""What is relevant to the queries of a task, in place of classes: by lists in their file, by published ground truth, or
by a user's function. Each function takes a task and returns it with `relevance`.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np

import datasets
import metrics
from evaluation import relevance
from evaluation.task import Task
from utilities.errors import UserError

# positive_indptr, positive_indices, junk_indptr, junk_indices: positions among the rows of the gallery
LISTS = metrics.Lists._fields


def has_lists(arrays: dict) -> bool:
    """Whether the arrays of a file, by name, have lists of what queries are to find."""
    return any(protocol_of(name) is not None for name in arrays)


def protocol_of(name: str) -> str | None:
    """The protocol of an array of lists, as `positive_indptr_hard`, "" without a name; None of any other array."""
    for field in LISTS:
        if name == field or name.startswith(f"{field}_"):
            return name.removeprefix(field).removeprefix("_")
    return None


def without_lists(arrays: dict) -> dict:
    """The arrays of a file that are no lists."""
    return {name: array for name, array in arrays.items() if protocol_of(name) is None}


def in_file(path: str, arrays: dict) -> dict[str, metrics.Lists]:
    """Protocol -> its lists, of a file. Raises UserError if an array is missing, or if another array of the file also
    lists the ignored items.
    """
    lists = {}
    for protocol in sorted({protocol_of(name) for name in arrays} - {None}):
        ending = f"_{protocol}" if protocol else ""
        _refuse_half(path, arrays, "positives", [f"positive_indptr{ending}", f"positive_indices{ending}"])
        _refuse_half(path, arrays, "junk", [f"junk_indptr{ending}", f"junk_indices{ending}"])
        lists[protocol] = metrics.Lists(*(arrays.get(f"{name}{ending}") for name in LISTS))
    for name in ("sequence", "role_draws"):
        if name in arrays:
            raise UserError(
                f"{path}: it has lists and {name}, but lists already define what is not ranked: leave {name} out"
            )
    return lists


def _refuse_half(path: str, arrays: dict, judged: str, names: list[str]) -> None:
    """Raise UserError if the arrays hold one of two `names` without the other, or no positives."""
    present = [name for name in names if name in arrays]
    if len(present) == 1 or (judged == "positives" and not present):
        raise UserError(
            f"{path}: lists of {judged} are {' and '.join(names)}; it has {' and '.join(present) or 'neither'}"
        )


def with_lists(source: str, task: Task, lists: dict[str, metrics.Lists]) -> Task:
    """The task with lists, protocol -> lists, from the file `source`.
    Raises UserError, which names it, if they do not fit.
    """
    task = replace(task, relevance=lists)
    try:
        task.findable()
    except UserError as error:
        raise UserError(f"{source}: {error}") from error
    return task


def by_function(task: Task, path: str) -> Task:
    """The task by the user's `--eval_relevance`, a function of the rows of the files."""
    lists = relevance.lists(path, task.queries.positions, task.searched.positions, task.places)
    return with_lists(path, task, {"": lists})


def by_ground_truth(task: Task, path: str, arrays: dict, gallery: dict) -> Task:
    """The task by the published `--ground_truth`, which names images.

    Args:
        arrays, gallery: of the file of the queries, and of that of the gallery.
    """
    for file in (arrays, gallery):
        if "paths" not in file or "reference_features" in file:
            raise UserError(
                f"--ground_truth {path}: images are matched by name, and an .npz file of queries or gallery has no "
                "paths (N,)"
            )
    query_paths = arrays["paths"][task.queries.positions]
    queries = _by_name(query_paths)
    places = _by_name(gallery["paths"][task.searched.positions])
    lists = {}
    for protocol, images_of in datasets.ground_truth(Path(path)).items():
        for query in images_of:
            _refuse_unknown(path, query, queries, "queries")
        for positives, junk in images_of.values():
            for name in (*positives, *junk):
                _refuse_unknown(path, name, places, "gallery")
        positives = []
        junk = []
        for query in map(str, query_paths):
            positive_names, junk_names = images_of.get(query, images_of.get(Path(query).stem, ((), ())))
            positives.append([places[name] for name in positive_names])
            junk.append([places[name] for name in junk_names])
        lists[protocol] = metrics.Lists.of(positives, junk)
    return with_lists(path, task, lists)


def _refuse_unknown(path: str, name: str, places: dict[str, int], images: str) -> None:
    """Raise UserError for a name of the ground truth that no image has, or several."""
    if places.get(name, -1) < 0:
        problem = "occurs there twice" if name in places else "is not among the paths"
        raise UserError(f"--ground_truth {path}: {name} {problem} of the {images}")


def _by_name(paths: np.ndarray) -> dict[str, int]:
    """Path, and file name without its suffix, -> position in `paths` `(N,)`; -1 if several have it."""
    places = {}
    for place, path in enumerate(map(str, paths.tolist())):
        for name in {path, Path(path).stem}:
            is_repeated = name in places
            places[name] = -1 if is_repeated else place
    return places
