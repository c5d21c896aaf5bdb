"""The space of embeddings in files: `python -m evaluation FILE [--gallery FILE]`."""

from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

import metrics
from evaluation import galleries
from evaluation.galleries import ROLES, taken
from evaluation.spaces import Space
from utilities.errors import UserError

OF_REFERENCE = ("reference_features", "reference_labels", "exclude")
NAMES = ("paths", "class_names")
GROUPS = ("groups", "super_names")  # super-classes: the first of them that the file has; --dump_embeddings writes the second


class Embeddings(NamedTuple):
    """A file's path, its arrays, and the roles of its rows."""

    path: str
    arrays: dict
    roles: galleries.Roles

    @property
    def names(self) -> np.ndarray | None:
        """`(N,)` class name of each row; None where the file has only numbers."""
        labels = self.arrays["labels"]
        return self.arrays.get("class_names", labels if labels.dtype.kind == "U" else None)


def _whole(arrays: dict) -> Space:
    """The space in which all rows of a file search each other."""
    groups = next((arrays[name] for name in GROUPS if name in arrays), None)
    return Space(arrays["features"], arrays["labels"], query_sequences=arrays.get("sequence"), groups=groups)


def space(
    path: str, arrays: dict, gallery_path: str | None = None, gallery: dict | None = None, skips: bool = False
) -> tuple[Space, str, np.ndarray | None]:
    """The space to measure, a line on its queries and reference, and the rows of the file that are the queries; None: all.

    Args:
        arrays: name -> array, of a file with `features` and `labels`. gallery: the arrays of the file that its queries search.
        skips: queries with nothing to find are left out; the line says so.

    Raises UserError for arrays that do not fit each other.
    """
    role = next((name for name in ROLES if name in arrays), None)
    whole = _whole(arrays)
    if gallery is None and "reference_features" in arrays:
        if role is not None:
            raise UserError(f"{path}: it has reference_features and {role}: one of them says who searches where, leave out the other")
        reference, labels, exclude = (arrays.get(name) for name in OF_REFERENCE)
        found = whole._replace(reference=reference, reference_labels=labels, exclude=exclude)
        return found, "; ".join([f"searched in {len(reference):,}", *_left_out(found, skips)]), None
    if gallery is None and role is None:
        return whole, "".join(_left_out(whole, skips)), None
    queries = _checked(path, arrays)
    return in_itself(queries, skips) if gallery is None else _in_another(queries, _checked(gallery_path, gallery), skips)


def draws(path: str, arrays: dict):
    """Yield the space of each draw of the file's gallery but the first, which `space` gives; none where it is not drawn."""
    for draw in arrays.get("role_draws", [])[1:]:
        yield in_itself(_checked(path, {**arrays, "role_draws": draw[None]}))[0]


def _checked(path: str, arrays: dict) -> Embeddings:
    """A file's arrays as `Embeddings`. Raises UserError where they do not fit each other."""
    try:
        size = metrics.EmbeddingSpace(arrays["features"], arrays["labels"], query_sequences=arrays.get("sequence")).size
    except UserError as error:
        raise UserError(f"{path}: {str(error).replace('query_sequences', 'sequence')}") from error
    for name in (*ROLES, *NAMES, *GROUPS):
        array = None if name == "role_draws" else arrays.get(name)
        if array is not None and array.shape != (size,):
            raise UserError(f"{path}: {name} has shape {array.shape}: ({size},) is expected, one for each row of features")
        if array is not None and name.startswith("is_") and (array.dtype.kind not in "biu" or not np.isin(array, (0, 1)).all()):
            raise UserError(f"{path}: {name} holds something else than true and false")
    sequence = arrays.get("sequence")
    if sequence is not None and sequence.dtype.kind == "U":
        names, sequence = np.unique(sequence, return_inverse=True)
        sequence = np.where(names[sequence] == "", -1, sequence)
    draws, distractor = arrays.get("role_draws"), arrays.get("is_distractor")
    distractor = None if distractor is None else distractor.astype(bool)
    is_query = arrays.get("is_query", None if distractor is None else ~distractor)
    if distractor is not None and (distractor & is_query.astype(bool)).any():
        raise UserError(f"{path}: row {int((distractor & is_query.astype(bool)).argmax())} is_distractor and is_query: an image of no class finds none of its own")
    about = SimpleNamespace(is_query=is_query, is_gallery=arrays.get("is_gallery"), sequences=sequence, is_distractor=distractor)
    if draws is not None:
        if draws.dtype != bool or draws.ndim != 2 or draws.shape[1] != size or not len(draws):
            raise UserError(
                f"{path}: role_draws must be (D, {size}), true where a row is in the gallery of a draw; it is {draws.shape} of {draws.dtype}"
            )
        about = SimpleNamespace(is_query=~draws[0], is_gallery=draws[0], sequences=sequence, role_draws=draws, is_distractor=distractor)
    return Embeddings(path, arrays, galleries.roles_of(about, size))


def _of_role(file: Embeddings, role: str) -> np.ndarray:
    """The rows of the file that are its `queries`, or its `gallery`. Raises UserError where there is none."""
    rows = taken(np.arange(file.roles.size), getattr(file.roles, role))
    if not len(rows):
        raise UserError(f"{file.path}: none of its {file.roles.size} embeddings is a {'query' if role == 'queries' else role} image")
    return rows


def in_itself(file: Embeddings, skips: bool = False) -> tuple[Space, str, np.ndarray]:
    """The queries of a file search its own gallery; returns as `space` does."""
    rows, kept = _of_role(file, "queries"), _of_role(file, "gallery")
    found, pool = _whole(file.arrays), file.roles.pool
    if pool is not None:
        found = found.part(rows, kept)._replace(pool=Space(found.features[pool], found.labels[pool]))
    return found, _described(found, file.roles, skips), rows


def _in_another(queries: Embeddings, gallery: Embeddings, skips: bool) -> tuple[Space, str, np.ndarray]:
    """The queries of a file search the gallery of another. Class-wise numbers are of both; an image that is in both counts once."""
    for file in (queries, gallery):
        if "reference_features" in file.arrays:
            raise UserError(f"{file.path}: it has reference_features, and --gallery names another reference: leave out one of them")
    asking, found = _whole(queries.arrays), _whole(gallery.arrays)
    if asking.features.shape[1] != found.features.shape[1]:
        raise UserError(
            f"--gallery {gallery.path}: embeddings of {found.features.shape[1]} dimensions, those of {queries.path} have "
            f"{asking.features.shape[1]}: they must agree"
        )
    labels = [file.names for file in (queries, gallery)]
    if labels[0] is None or labels[1] is None:
        labels = [asking.labels, found.labels]
        if (labels[0].dtype.kind == "U") != (labels[1].dtype.kind == "U"):
            raise UserError(f"--gallery {gallery.path}: labels of numbers beside labels of names: give numbers in both files, or names")
    rows, kept = _of_role(queries, "queries"), _of_role(gallery, "gallery")
    exclude = galleries.places_in(kept, gallery.roles.size)[_own_rows(queries, gallery)[rows]]
    apart, none = rows[exclude < 0], gallery.roles.distractors
    of_class = kept if none is None else np.setdiff1d(kept, none)
    pool = Space(_joined((asking.features, apart), (found.features, of_class)), np.concatenate([labels[0][apart], labels[1][of_class]]))
    space = Space(
        _joined((asking.features, rows)), labels[0][rows], _joined((found.features, kept)), labels[1][kept], exclude,
        groups=taken(asking.groups, rows), pool=pool,
    )  # fmt: skip
    if asking.query_sequences is not None and found.query_sequences is not None:
        space = space._replace(query_sequences=asking.query_sequences[rows], reference_sequences=found.query_sequences[kept])
    return space, _described(space, None, skips), rows


def _joined(*parts: tuple[np.ndarray, np.ndarray]) -> np.ndarray | metrics.Stacked:
    """The given rows of several arrays, concatenated; where an array is memory-mapped, without reading them."""
    if not any(metrics.is_mapped(features) for features, _ in parts):
        return np.concatenate([features[rows] for features, rows in parts])
    return metrics.Stacked(*((features, None if len(rows) == len(features) else rows) for features, rows in parts))


def _own_rows(queries: Embeddings, gallery: Embeddings) -> np.ndarray:
    """`(N,)` row of each query in the gallery's file, -1 where it is not there: by `exclude`, by its row where both are one file, or by path."""
    size = queries.roles.size
    if "exclude" in queries.arrays:
        exclude = queries.arrays["exclude"]
        whole = exclude.dtype.kind in "iu" and exclude.shape == (size,)
        if not whole or exclude.min() < -1 or exclude.max() >= gallery.roles.size:
            raise UserError(f"{queries.path}: exclude must be ({size},) whole numbers, rows of {gallery.path}, -1 for none")
        return exclude.astype(np.int64)
    if Path(queries.path).resolve() == Path(gallery.path).resolve():
        return np.arange(size)
    if "paths" not in queries.arrays or "paths" not in gallery.arrays:
        return np.full(size, -1)
    known, first, counts = np.unique(gallery.arrays["paths"], return_index=True, return_counts=True)
    found = np.minimum(np.searchsorted(known, queries.arrays["paths"]), len(known) - 1)
    there = known[found] == queries.arrays["paths"]
    if (counts[found[there]] > 1).any():
        path = known[found[there]][counts[found[there]] > 1][0]
        raise UserError(
            f"--gallery {gallery.path}: {path} stands there several times: give exclude, the row of each query there, in {queries.path}"
        )
    return np.where(there, first[found], -1)


def _left_out(found: Space, skips: bool) -> list[str]:
    """How many queries are left out, in words, where they are; of a file without roles."""
    lone = int((found.findable()[0] == 0).sum()) if skips else 0
    return [galleries.roles_in_words(len(found.labels), 0, "", 0, None, None, lone, skips)] * skips


def _described(found: Space, roles: galleries.Roles | None, skips: bool) -> str:
    """A line on the queries and the reference. `roles`: of the file, where one file holds both."""
    lone = int((found.findable()[0] == 0).sum())
    if roles is not None:
        return galleries.described(roles, len(found.gallery()[1]), "its gallery", lone, skips)
    return galleries.roles_in_words(
        len(found.labels), len(found.reference), "--gallery", int((found.exclude >= 0).sum()), len(found.pool.labels), None, lone, skips
    )
