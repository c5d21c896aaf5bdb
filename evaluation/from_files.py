"""The task of embeddings in files: `python -m evaluation FILE [--gallery FILE]`.

`task_of` chooses between four forms: all rows of a file search each other; the queries of a file search its
`reference_features` (`with_reference`), or its own rows that `is_gallery` marks (`in_itself`); or they search the
gallery of another file (`in_another`). Lists in the file then say what is relevant (`judgements.py`).
"""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

import metrics
from evaluation import galleries, judgements, missing_labels
from evaluation.file_arrays import CERTAINTY, DOMAINS, GROUPS, HIGHER, NAMES
from evaluation.galleries import ROLES, Roles
from evaluation.judgements import has_lists
from evaluation.task import Rows, Task, joined, places_in
from utilities.copies import find_copies
from utilities.errors import UserError

# bytes of a reference that is searched for copies of the queries
MOST_COMPARED = 2 << 30


class EmbeddingFile(NamedTuple):
    """A file's path, its arrays, and the roles of its rows."""

    path: str
    arrays: dict
    roles: Roles

    @property
    def names(self) -> np.ndarray | None:
        """`(N,)` class name of each row; None if the file has only numbers."""
        if "labels" not in self.arrays:
            return None
        if "class_names" in self.arrays:
            return self.arrays["class_names"]
        labels = finest(self.arrays)
        if labels.dtype.kind != "U":
            return None
        return labels

    def rows(self, role: str) -> np.ndarray:
        """The rows that are `queries`, or `gallery`. Raises UserError if there are none."""
        rows = self.roles.rows(role)
        if not len(rows):
            name = "query" if role == "queries" else role
            raise UserError(f"{self.path}: none of its {self.roles.size} embeddings is a {name} image")
        return rows


def finest(arrays: dict, features: str = "features", name: str = "labels") -> np.ndarray:
    """The labels `(N,)` of the rows, of several levels the finest; one label for all if lists replace labels."""
    size = len(np.atleast_1d(arrays[features]))
    if name not in arrays:
        return np.zeros(size, dtype=np.int64)
    return metrics.finest(arrays[name], size)


def n_classes(arrays: dict) -> int:
    """The number of classes of the rows with one: without distractors."""
    labels = finest(arrays)
    if "is_distractor" in arrays:
        labels = labels[~arrays["is_distractor"].astype(bool)]
    return len(np.unique(labels))


def rows_of(arrays: dict) -> Rows:
    """All rows of a file."""
    groups = None
    for name in GROUPS:
        if groups is None:
            groups = arrays.get(name)
    return Rows(
        arrays["features"],
        finest(arrays),
        levels=_levels(arrays, groups),
        sequences=arrays.get("sequence"),
        groups=groups,
        domains=arrays.get(DOMAINS),
        certainty=arrays.get(CERTAINTY),
        paths=arrays.get("paths"),
    )


def _levels(
    arrays: dict, groups: np.ndarray | None = None, features: str = "features", name: str = "labels"
) -> np.ndarray | None:
    """The labels `(N, L - 1)` of the coarser levels: those of labels `(N, L)`, else super-classes and what is above
    them; None without any.
    """
    size = len(arrays[features])
    labels = arrays.get(name)
    if labels is not None and labels.ndim == 2:
        has_coarser = len(labels) == size and labels.shape[1] > 1
        return labels[:, 1:] if has_coarser else None
    if groups is None:
        return None
    levels = [groups]
    if HIGHER in arrays:
        levels.append(arrays[HIGHER])
    if any(len(level) != size or level.ndim > 2 for level in levels):
        return None
    return np.column_stack(levels)


def plain_space(path: str, arrays: dict) -> metrics.EmbeddingSpace:
    """The space in which all rows of a file search each other; without labels all are of one class. Raises UserError
    for impossible arrays.
    """
    try:
        return metrics.EmbeddingSpace(arrays["features"], finest(arrays), query_sequences=arrays.get("sequence"))
    except UserError as error:
        raise UserError(f"{path}: {str(error).replace('query_sequences', 'sequence')}") from error


def task_of(
    path: str, arrays: dict, gallery_path: str | None = None, gallery: dict | None = None, listed: bool = False
) -> Task:
    """The task of a file's queries.

    If the file has lists of positives and junk, they say what is relevant.

    Args:
        arrays: name -> array, of a file with `features` and `labels`.
        gallery: the arrays of the file whose gallery the queries search.
        listed: lists that are not among `arrays` say what is relevant.

    Raises UserError for arrays that do not fit each other.
    """
    if has_lists(arrays):
        lists = judgements.in_file(path, arrays)
        plain = judgements.without_lists(arrays)
        if gallery is not None:
            gallery = judgements.without_lists(gallery)
            # labels of one side say nothing
            if "labels" not in plain or "labels" not in gallery:
                plain = without_classes(plain)
                gallery = without_classes(gallery)
        return judgements.with_lists(path, task_of(path, plain, gallery_path, gallery, listed=True), lists)
    if gallery is not None:
        return in_another(_checked(path, arrays, listed), _checked(gallery_path, gallery))
    roles = [name for name in ROLES if name in arrays]
    if roles and "reference_features" in arrays:
        raise UserError(
            f"{path}: it has reference_features and {roles[0]}: both define queries and gallery: leave out one of them"
        )
    if roles:
        return in_itself(_checked(path, arrays, listed))
    if "reference_features" in arrays:
        return with_reference(arrays)
    return Task(rows_of(arrays))


def without_classes(arrays: dict) -> dict:
    """The arrays of a file without its labels."""
    return {name: array for name, array in arrays.items() if name not in ("labels", "class_names")}


def draws(path: str, arrays: dict):
    """Yield the task of each draw of the file's gallery but the first, which is that of `task_of`;
    none if it is not drawn.
    """
    for draw in arrays.get("role_draws", [])[1:]:
        yield in_itself(_checked(path, {**arrays, "role_draws": draw[None]}))


def _checked(path: str, arrays: dict, listed: bool = False) -> EmbeddingFile:
    """A file with its roles. Raises UserError if its arrays do not fit each other. `listed`: queries need no class."""
    size = plain_space(path, arrays).size
    for name in ROLES + NAMES + GROUPS:
        array = arrays.get(name)
        if array is None or name == "role_draws":
            continue
        if array.shape != (size,):
            raise UserError(
                f"{path}: {name} has shape {array.shape}: ({size},) is expected, one for each row of features"
            )
        if name.startswith("is_") and (array.dtype.kind not in "biu" or not np.isin(array, (0, 1)).all()):
            raise UserError(f"{path}: {name} holds something else than true and false")
    distractor = None
    if "is_distractor" in arrays:
        distractor = arrays["is_distractor"].astype(bool)
        asking = distractor & arrays.get("is_query", ~distractor).astype(bool)
        if asking.any() and not listed:
            raise UserError(
                f"{path}: row {int(asking.argmax())} is_distractor and is_query: distractors (no label) cannot be "
                "queries"
            )
    draws = arrays.get("role_draws")
    if draws is not None and (draws.dtype != bool or draws.ndim != 2 or draws.shape[1] != size or not len(draws)):
        raise UserError(
            f"{path}: role_draws must be (D, {size}), true where a row is in the gallery of a draw; it is "
            f"{draws.shape} of {draws.dtype}"
        )
    if distractor is not None:
        arrays = missing_labels.classless(arrays, distractor)
    return EmbeddingFile(path, arrays, roles_in(arrays, size))


def roles_in(arrays: dict, size: int) -> Roles:
    """The roles that the arrays of a file give to its `size` rows."""
    sequences = arrays.get("sequence")
    if sequences is not None and sequences.dtype.kind == "U":
        names, numbers = np.unique(sequences, return_inverse=True)
        sequences = np.where(names[numbers] == "", -1, numbers)
    roles = SimpleNamespace(
        is_query=arrays.get("is_query"),
        is_gallery=arrays.get("is_gallery"),
        role_draws=arrays.get("role_draws"),
        sequences=sequences,
        is_distractor=None,
    )
    if "is_distractor" in arrays:
        roles.is_distractor = arrays["is_distractor"].astype(bool)
        if roles.is_query is None:
            roles.is_query = ~roles.is_distractor
    if roles.role_draws is not None:
        roles.is_gallery = roles.role_draws[0]
        roles.is_query = ~roles.role_draws[0]
    return galleries.roles_of(roles, size)


def with_reference(arrays: dict) -> Task:
    """The rows of a file search its `reference_features`."""
    reference = Rows(
        arrays["reference_features"],
        finest(arrays, "reference_features", "reference_labels"),
        levels=_levels(arrays, None, "reference_features", "reference_labels"),
    )
    return Task(rows_of(arrays), reference, arrays.get("exclude"))


def in_itself(file: EmbeddingFile) -> Task:
    """The queries of a file search its own gallery."""
    queries = file.rows("queries")
    gallery = file.rows("gallery")
    rows = rows_of(file.arrays)
    if file.roles.pool is None:
        return Task(rows)
    return replace(Task(rows).part(queries, gallery), pool=rows.take(file.roles.pool))


def in_another(queries: EmbeddingFile, gallery: EmbeddingFile) -> Task:
    """The queries of a file search the gallery of another. Class-wise numbers are of both;
    an image that is in both counts once.
    """
    for file in (queries, gallery):
        if "reference_features" in file.arrays:
            raise UserError(
                f"{file.path}: it has reference_features, and --gallery names another reference: leave out one of them"
            )
    query_rows = rows_of(queries.arrays)
    gallery_rows = rows_of(gallery.arrays)
    widths = query_rows.features.shape[1], gallery_rows.features.shape[1]
    if widths[0] != widths[1]:
        raise UserError(
            f"--gallery {gallery.path}: embeddings of {widths[1]} dimensions, those of {queries.path} have "
            f"{widths[0]}: they must agree"
        )
    if queries.names is not None and gallery.names is not None:
        query_rows = replace(query_rows, labels=queries.names)
        gallery_rows = replace(gallery_rows, labels=gallery.names)
    _refuse_names_beside_numbers(gallery.path, "labels", query_rows.labels, gallery_rows.labels)
    _refuse_names_beside_numbers(gallery.path, "levels", query_rows.levels, gallery_rows.levels)
    asking = query_rows.take(queries.rows("queries"))
    searched = gallery_rows.take(gallery.rows("gallery"))
    exclude = places_in(searched.positions, gallery.roles.size)[_rows_in(gallery, queries)[asking.positions]]
    _refuse_one_sided(gallery.path, "sequence", query_rows.sequences, gallery_rows.sequences)
    _refuse_one_sided(gallery.path, "domains", query_rows.domains, gallery_rows.domains)
    of_class = searched.positions
    if gallery.roles.distractors is not None:
        of_class = np.setdiff1d(of_class, gallery.roles.distractors)
    pooled = []
    for rows, chosen in ((query_rows, asking.positions[exclude < 0]), (gallery_rows, of_class)):
        pooled.append(Rows(rows.features, rows.labels, domains=rows.domains).take(chosen))
    return Task(asking, searched, exclude, pool=joined(pooled))


def _refuse_names_beside_numbers(path: str, name: str, of_queries, of_gallery) -> None:
    if of_queries is None or of_gallery is None:
        return
    if (of_queries.dtype.kind == "U") != (of_gallery.dtype.kind == "U"):
        raise UserError(
            f"--gallery {path}: {name} are numbers in one file and names in the other: give numbers in both, or names"
        )


def _refuse_one_sided(path: str, name: str, of_queries, of_gallery) -> None:
    if (of_queries is None) != (of_gallery is None):
        raise UserError(f"--gallery {path}: {name} is in one of the files alone: give it in both, or in none")


def _rows_in(gallery: EmbeddingFile, queries: EmbeddingFile) -> np.ndarray:
    """`(N,)` row of each query in the gallery's file, -1 if it is not there: by `exclude`, by its row if both are one
    file, or by path.
    """
    size = queries.roles.size
    if "exclude" in queries.arrays:
        exclude = queries.arrays["exclude"]
        fits = exclude.dtype.kind in "iu" and exclude.shape == (size,)
        if not fits or exclude.min() < -1 or exclude.max() >= gallery.roles.size:
            raise UserError(
                f"{queries.path}: exclude must be ({size},) whole numbers, rows of {gallery.path}, -1 for none"
            )
        return exclude.astype(np.int64)
    if Path(queries.path).resolve() == Path(gallery.path).resolve():
        return np.arange(size)
    if "paths" not in queries.arrays or "paths" not in gallery.arrays:
        return np.full(size, -1)
    paths = queries.arrays["paths"]
    distinct, rows, counts = np.unique(gallery.arrays["paths"], return_index=True, return_counts=True)
    places = np.minimum(np.searchsorted(distinct, paths), len(distinct) - 1)
    is_there = distinct[places] == paths
    is_ambiguous = is_there & (counts[places] > 1)
    if is_ambiguous.any():
        raise UserError(
            f"--gallery {gallery.path}: {paths[is_ambiguous.argmax()]} occurs there several times: give exclude, the "
            f"row of each query in that file, in {queries.path}"
        )
    return np.where(is_there, rows[places], -1)


def described(task: Task, arrays: dict, has_gallery: bool, skips: bool) -> str:
    """A line on the queries of a file and what they search; empty if there is nothing to say.

    Args:
        arrays: of the file. has_gallery: whether --gallery names another file. skips: whether queries without anything
            relevant are left out.
    """
    if task.relevance is not None:
        return galleries.lists_described(task)
    if has_gallery:
        n_both = int((task.exclude >= 0).sum())
        phrases = galleries.searching(len(task.queries), len(task.gallery), "--gallery", n_both, len(task.pool))
        return "; ".join(phrases + galleries.unmatched(task, skips))
    if any(name in arrays for name in ROLES):
        roles = roles_in(arrays, len(arrays["features"]))
        return galleries.described(task, roles, "its gallery", skips, roles.draws)
    phrases = []
    if task.gallery is not None:
        phrases.append(f"searched in {len(task.gallery):,}")
    if skips:
        phrases += galleries.unmatched(task, skips)
    return "; ".join(phrases)


def copies_described(path: str, arrays: dict, task: Task, has_gallery: bool) -> str | None:
    """A line on queries whose vector is in the reference too and that are not excluded there; None without any.

    A reference of more than `MOST_COMPARED` bytes is not read for this.

    Args:
        arrays: of the file `path`. has_gallery: whether --gallery names another file.
    """
    if task.gallery is None:
        return None
    features = task.queries.features
    reference = task.gallery.features
    if len(reference) * reference.shape[1] * reference.dtype.itemsize > MOST_COMPARED:
        return None
    copies = find_copies(features, reference, task.exclude)
    queries = np.flatnonzero(copies >= 0)
    if not len(queries):
        return None
    row = int(task.queries.positions[queries[0]])
    name = f" ({arrays['paths'][row]})" if "paths" in arrays else ""
    way_out = "give exclude (N,), the row of each query in the reference, -1 for none"
    if has_gallery:
        way_out += ", or the same paths in both files"
    return (
        f"{path}: {len(queries):,} of {len(features):,} queries have the same vector in the reference and may find "
        f"themselves, first row {row}{name}, which is row {copies[queries[0]]} of the reference. If these are the "
        f"same images, {way_out}"
    )
