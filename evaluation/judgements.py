"""What the queries of embeddings in files are to find: by lists in the file, published ground truth, or a function of
the user's.
"""

from pathlib import Path

import numpy as np

import datasets
import metrics
from evaluation import galleries, relevance
from evaluation.space import Space
from utilities.errors import UserError

LISTS = (
    metrics.Lists._fields
)  # positive_indptr, positive_indices, junk_indptr, junk_indices: positions among the rows of the gallery


def has_lists(arrays: dict) -> bool:
    """Whether the arrays of a file, by name, have lists of what queries are to find."""
    return any(protocol_of(name) is not None for name in arrays)


def protocol_of(name: str) -> str | None:
    """The protocol of an array of lists, as `positive_indptr_hard`, "" where it has no name; None of any other
    array.
    """
    part = next((part for part in LISTS if name == part or name.startswith(f"{part}_")), None)
    return None if part is None else name.removeprefix(part).removeprefix("_")


def in_file(path: str, arrays: dict) -> dict[str, metrics.Lists]:
    """Protocol -> its lists, of a file. Raises UserError where an array is missing, or where the file gives what takes
    no rank a second time.
    """
    found = {}
    for protocol in sorted({protocol_of(name) for name in arrays} - {None}):
        end = "_" * bool(protocol) + protocol
        for kind in ("positive", "junk"):
            names = [f"{kind}_indptr{end}", f"{kind}_indices{end}"]
            there = [name for name in names if name in arrays]
            if len(there) == 1 or (kind == "positive" and not there):
                raise UserError(
                    f"{path}: lists of {'positives' if kind == 'positive' else kind} are {' and '.join(names)}; "
                    f"it has {' and '.join(there) or 'neither'}"
                )
        found[protocol] = metrics.Lists(*(arrays.get(f"{name}{end}") for name in LISTS))
    for name in ("sequence", "role_draws"):
        if name in arrays:
            raise UserError(
                f"{path}: it has lists and {name}, and lists already give what takes no rank: leave {name} out"
            )
    return found


def judged(path: str, found: Space, lists: dict[str, metrics.Lists]) -> tuple[Space, str]:
    """The space with lists of what its queries are to find, and a line on them. Raises UserError, with the name of
    their file, where they do not fit.
    """
    found = found._replace(lists=lists)
    try:
        found.findable()
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    return found, galleries.lists_in_words(lists, len(found.gallery()[1]))


def judged_by(flags, found: Space, rows: np.ndarray | None, arrays: dict, gallery: dict | None) -> tuple[Space, str]:
    """As `judged`, by the published --ground_truth, or the user's --eval_relevance.

    Args:
        rows: of `arrays` that are the queries; None: all. gallery: the arrays of another file that they search; None:
        they search their own.
    """
    where = arrays if gallery is None else gallery
    searched = np.arange(len(found.gallery()[1])) if "reference_features" in arrays else _rows(where, "is_gallery")
    queries = np.arange(len(found.labels)) if rows is None else rows
    if flags.eval_relevance is not None:
        exclude = found.gallery()[2]
        exclude = np.full(len(queries), -1) if exclude is None else np.asarray(exclude)
        return judged(
            flags.eval_relevance, found, {"": relevance.lists(flags.eval_relevance, queries, searched, exclude)}
        )
    for file in (arrays, where):
        if "paths" not in file or "reference_features" in file:
            raise UserError(
                f"--ground_truth {flags.ground_truth}: images are matched by name, and an .npz file of queries or "
                "gallery has no paths (N,)"
            )
    asking, places = (_by_name(file["paths"][of]) for file, of in ((arrays, queries), (where, searched)))
    lists = {}
    for protocol, of in datasets.ground_truth(Path(flags.ground_truth)).items():
        found_by = [
            of.get(str(path), of.get(Path(str(path)).stem, ((), ()))) for path in arrays["paths"][queries].tolist()
        ]
        named = [(name, places) for both in of.values() for name in (*both[0], *both[1])]
        for name, known in [*((query, asking) for query in of), *named]:
            if known.get(name, -1) < 0:
                why = "stands there twice" if name in known else "is not among the paths"
                raise UserError(
                    f"--ground_truth {flags.ground_truth}: {name} {why} of the "
                    f"{'queries' if known is asking else 'gallery'}"
                )
        lists[protocol] = metrics.Lists.of(
            *([[places[name] for name in both[kind]] for both in found_by] for kind in (0, 1))
        )
    return judged(flags.ground_truth, found, lists)


def _by_name(paths: np.ndarray) -> dict[str, int]:
    """Path, and file name without its suffix, -> position in `paths` `(N,)`; -1 where there are several."""
    places = {}
    for place, path in enumerate(map(str, paths.tolist())):
        for name in {path, Path(path).stem}:
            places[name] = place if name not in places else -1
    return places


def _rows(arrays: dict, role: str) -> np.ndarray:
    """The rows of a file that have a role; all without such an array."""
    return np.flatnonzero(arrays[role]) if role in arrays else np.arange(len(arrays["features"]))
