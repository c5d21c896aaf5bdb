"""The space of embeddings in files: `python -m evaluation FILE [--gallery FILE]`."""

import contextlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

import metrics
from evaluation import galleries, judgements, missing_labels
from evaluation.file_kinds import refuse_others
from evaluation.galleries import ROLES, taken
from evaluation.judgements import LISTS, has_lists, protocol_of
from evaluation.space import Space
from utilities.copies import find_copies
from utilities.errors import UserError
from utilities.reading import Unreadable, parsing, read_array_or_arrays, read_text

OF_REFERENCE = ("reference_features", "reference_labels", "exclude")
NAMES = ("paths", "class_names")
REQUIRED = ("features", "labels")
GROUPS = (
    "groups",
    "super_names",
)  # super-classes: the first of them that the file has; --dump_embeddings writes the second
HIGHER = "higher_names"  # (N, L - 2) classes of the levels above the super-classes
MOST_COMPARED = 2 << 30  # bytes of a reference that is searched for copies of the queries
KINDS = "biufUS"  # NumPy's letters of the types of values: numbers and text, not dates, complex numbers or structures
DOMAINS = "domains"  # (N,) names, "" for a distractor: each domain's queries are also measured by themselves


def opened(path: str, optional: tuple[str, ...]) -> tuple[dict, list[str]] | np.ndarray:
    """The wanted arrays of an .npz file, by name, and the names of all; or the memory map of an .npy file. Raises
    UserError where it is neither.
    """
    if Path(path).is_dir():
        raise UserError(
            f"{path}: a folder, expected a file of embeddings; a run is measured by `python main.py --evaluate "
            f"--resume_from {path}`"
        )
    refuse_others(path)
    wanted = {*REQUIRED, *optional}
    return read_array_or_arrays(
        path, lambda name: name in wanted or (LISTS[0] in wanted and protocol_of(name) is not None)
    )


def read(
    path: str,
    optional: tuple[str, ...] = OF_REFERENCE + ROLES,
    labels: str | None = None,
    flag: str = "--labels",
    needs_labels: bool = True,
) -> dict:
    """The arrays of the file, by name. Raises UserError where it cannot be read, or lacks a required array.

    Args:
        labels: the file of the labels of an .npy file, which `flag` names. needs_labels: False where lists say what
        queries are to find.
    """
    content = opened(path, optional)
    if isinstance(content, np.ndarray):
        if labels is None and not needs_labels:
            return checked(path, {"features": content})
        found = None if labels is None else opened(labels, ())
        if not isinstance(found, np.ndarray):
            raise UserError(
                f"{path}: one array, the features: name the .npy file of their labels by {flag}"
                + f", not {labels}" * bool(labels)
            )
        return {**checked(path, {"features": content}), **checked(labels, {"labels": np.array(found)})}
    if labels is not None:
        raise UserError(f"{flag} {labels}: the .npz file {path} holds its labels itself, leave it out")
    arrays, found = content
    needs_labels = needs_labels and not has_lists(arrays)
    missing = [name for name in REQUIRED if name not in arrays and (name != "labels" or needs_labels)]
    if "reference_features" in arrays and "reference_labels" not in arrays and (needs_labels or "labels" in arrays):
        missing.append("reference_labels")
    if missing:
        raise UserError(f"{path} has no {' and no '.join(missing)}; it holds {', '.join(found) or 'nothing'}")
    return checked(path, arrays)


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

    Raises UserError also where an array needs a reference and there is none, and for a query without a label.
    """
    arrays = _with_roles(path, has_gallery, with_names, **labels)
    is_listed = not labels.get("needs_labels", True) or has_lists(arrays)
    return missing_labels.of_queries(path, arrays, is_listed)


def _with_roles(path: str, has_gallery: bool, with_names: bool, **labels) -> dict:
    """All arrays of a file that an evaluation uses; see `read_queries`."""
    arrays = read(
        path,
        (*OF_REFERENCE, *ROLES, *GROUPS, HIGHER, DOMAINS, *LISTS, "flags", *NAMES * (has_gallery or with_names)),
        **labels,
    )
    extra = next((name for name in arrays if name in OF_REFERENCE and not (has_gallery and name == "exclude")), None)
    if "reference_features" not in arrays and extra is not None:
        raise UserError(f"{path}: {extra} needs reference_features" + ", or --gallery" * (extra == "exclude"))
    if DOMAINS in arrays and arrays[DOMAINS].shape != arrays["features"].shape[:1]:
        raise UserError(
            f"{path}: {DOMAINS} has shape {arrays[DOMAINS].shape}: ({len(arrays['features'])},) is expected, one "
            "for each row of features"
        )
    return arrays


def read_gallery(paths: list[str], keep: str | None = None, labels: list[str] | None = None, **about) -> dict:
    """The arrays of one or several files, row after row; see `read_queries`. Memory maps stay in their files.

    Args:
        keep: file with a name of a distractor in each line: other rows with `is_distractor` are left out.

    Raises UserError for files that hold different arrays.
    """
    labels = [None] * len(paths) if labels is None else labels
    if len(labels) != len(paths):
        raise UserError(
            f"--gallery_labels {' '.join(labels)}: {len(labels)} files beside {len(paths)} of --gallery: give one "
            "for each"
        )
    parts = [_with_roles(path, True, True, labels=file, **about) for path, file in zip(paths, labels, strict=True)]
    parts = missing_labels.of_gallery(paths, parts)
    parts = [_kept(path, part, keep) for path, part in zip(paths, parts, strict=True)]
    if len(parts) == 1:
        return parts[0]
    names = [set(part) - {"flags"} for part in parts]
    if other := next((i for i, there in enumerate(names) if there != names[0]), None):
        raise UserError(
            f"--gallery {paths[other]}: it differs from {paths[0]} in "
            f"{', '.join(sorted(names[other] ^ names[0]))}: give all of them the same arrays"
        )
    if alone := sorted(names[0] & {"role_draws", *OF_REFERENCE}):
        raise UserError(f"--gallery {' '.join(paths)}: {alone[0]} is of one file: several are joined row after row")
    if len({part["features"].shape[1:] for part in parts}) > 1:
        raise UserError(
            f"--gallery {' '.join(paths)}: features of "
            f"{', '.join(str(part['features'].shape) for part in parts)}: their width must agree"
        )
    joined = {name: np.concatenate([part[name] for part in parts]) for name in names[0] - {"features"}}
    return {**joined, "features": _joined(*((part["features"], np.arange(len(part["features"]))) for part in parts))}


def _kept(path: str, arrays: dict, keep: str | None) -> dict:
    """The arrays without the distractors that the file `keep` does not list."""
    if keep is None:
        return arrays
    if "is_distractor" not in arrays:
        raise UserError(
            f"--gallery_keep {keep}: {path} has no is_distractor (N,), so nothing says which images could be left out"
        )
    if "paths" not in arrays:
        raise UserError(f"--gallery_keep {keep}: images are matched by name, and {path} has no paths (N,)")
    listed = {line.strip() for line in read_text(keep, encoding="utf-8-sig").splitlines()}
    there = np.array(
        [
            not {name, Path(name).name, Path(name).stem}.isdisjoint(listed)
            for name in map(str, arrays["paths"].tolist())
        ],
        dtype=bool,
    )
    rows = np.flatnonzero(there | ~arrays["is_distractor"].astype(bool))
    return {name: array[rows] if array.shape[:1] == there.shape else array for name, array in arrays.items()}


def written_flags(arrays: dict) -> dict:
    """The flags of the evaluation that wrote the file; empty where the file does not hold them."""
    written = None
    with contextlib.suppress(Unreadable), parsing("flags"):
        written = json.loads(str(arrays.get("flags", "{}")))
    return written if isinstance(written, dict) else {}


class Embeddings(NamedTuple):
    """A file's path, its arrays, and the roles of its rows."""

    path: str
    arrays: dict
    roles: galleries.Roles

    @property
    def names(self) -> np.ndarray | None:
        """`(N,)` class name of each row; None where the file has only numbers."""
        if "labels" not in self.arrays:
            return None
        labels = finest(self.arrays)
        return self.arrays.get("class_names", labels if labels.dtype.kind == "U" else None)


def _whole(arrays: dict) -> Space:
    """The space in which all rows of a file search each other."""
    groups = next((arrays[name] for name in GROUPS if name in arrays), None)
    return Space(
        arrays["features"],
        finest(arrays),
        query_sequences=arrays.get("sequence"),
        groups=groups,
        above=_above(arrays, groups),
        domains=arrays.get(DOMAINS),
    )


def plain_space(path: str, arrays: dict) -> metrics.EmbeddingSpace:
    """The space in which all rows of a file search each other; without labels all are of one class. Raises UserError
    for impossible arrays.
    """
    try:
        return metrics.EmbeddingSpace(arrays["features"], finest(arrays), query_sequences=arrays.get("sequence"))
    except UserError as error:
        raise UserError(f"{path}: {str(error).replace('query_sequences', 'sequence')}") from error


def finest(arrays: dict, of: str = "features", name: str = "labels") -> np.ndarray:
    """The labels `(N,)` of the rows, of several levels the finest; where lists stand in place of labels, one label for
    all.
    """
    size = len(np.atleast_1d(arrays[of]))
    return metrics.finest(arrays[name], size) if name in arrays else np.zeros(size, dtype=np.int64)


def n_classes(arrays: dict) -> int:
    """The number of classes of the rows with one: without distractors."""
    labels = finest(arrays)
    distractor = arrays.get("is_distractor")
    return len(np.unique(labels if distractor is None else labels[~distractor.astype(bool)]))


def _above(
    arrays: dict, groups: np.ndarray | None = None, of: str = "features", name: str = "labels"
) -> np.ndarray | None:
    """The labels `(N, L - 1)` of the coarser levels: those of labels `(N, L)`, else super-classes and what is above
    them; None without.
    """
    labels = arrays.get(name)
    if labels is not None and labels.ndim == 2:
        return labels[:, 1:] if len(labels) == len(arrays[of]) and labels.shape[1] > 1 else None
    levels = [level for level in (groups, arrays.get(HIGHER)) if level is not None and groups is not None]
    return (
        np.column_stack(levels)
        if levels and all(len(level) == len(arrays[of]) and level.ndim < 3 for level in levels)
        else None
    )


def space(
    path: str,
    arrays: dict,
    gallery_path: str | None = None,
    gallery: dict | None = None,
    skips: bool = False,
    listed: bool = False,
) -> tuple[Space, str, np.ndarray | None]:
    """The space to measure, a line on its queries and reference, and the rows of the file that are the queries; None:
    all.

    Where the file has lists of positives and junk, they say what is found, and queries without positives are left out.

    Args:
        arrays: name -> array, of a file with `features` and `labels`. gallery: the arrays of the file that its queries
        search.
        skips: queries with nothing to find are left out; the line says so. listed: lists, not among `arrays`, say what
        queries are to find.

    Raises UserError for arrays that do not fit each other.
    """
    if has_lists(arrays):
        lists = judgements.in_file(path, arrays)
        left = {name for name in arrays if protocol_of(name) is not None}
        if gallery is not None and not ("labels" in arrays and "labels" in gallery):
            left |= {"labels", "class_names"}
        plain = [{name: array for name, array in file.items() if name not in left} for file in (arrays, gallery or {})]
        found, _, rows = space(path, plain[0], gallery_path, gallery and plain[1], listed=True)
        return *judgements.judged(path, found, lists), rows
    role = next((name for name in ROLES if name in arrays), None)
    whole = _whole(arrays)
    if gallery is None and "reference_features" in arrays:
        if role is not None:
            raise UserError(
                f"{path}: it has reference_features and {role}: one of them says who searches where, leave out "
                "the other"
            )
        reference = arrays[OF_REFERENCE[0]]
        labels = finest(arrays, *OF_REFERENCE[:2])
        exclude = arrays.get("exclude")
        above = _above(arrays, None, *OF_REFERENCE[:2])
        found = whole._replace(reference=reference, reference_labels=labels, exclude=exclude, reference_above=above)
        return found, "; ".join([f"searched in {len(reference):,}", *_left_out(found, skips)]), None
    if gallery is None and role is None:
        return whole, "".join(_left_out(whole, skips)), None
    queries = _checked(path, arrays, listed)
    return (
        in_itself(queries, skips) if gallery is None else _in_another(queries, _checked(gallery_path, gallery), skips)
    )


def draws(path: str, arrays: dict):
    """Yield the space of each draw of the file's gallery but the first, which `space` gives; none where it is not
    drawn.
    """
    for draw in arrays.get("role_draws", [])[1:]:
        yield in_itself(_checked(path, {**arrays, "role_draws": draw[None]}))[0]


def _checked(path: str, arrays: dict, listed: bool = False) -> Embeddings:
    """A file's arrays as `Embeddings`. Raises UserError where they do not fit each other. `listed`: queries need no
    class.
    """
    size = plain_space(path, arrays).size
    for name in (*ROLES, *NAMES, *GROUPS):
        array = None if name == "role_draws" else arrays.get(name)
        if array is not None and array.shape != (size,):
            raise UserError(
                f"{path}: {name} has shape {array.shape}: ({size},) is expected, one for each row of features"
            )
        if (
            array is not None
            and name.startswith("is_")
            and (array.dtype.kind not in "biu" or not np.isin(array, (0, 1)).all())
        ):
            raise UserError(f"{path}: {name} holds something else than true and false")
    sequence = arrays.get("sequence")
    if sequence is not None and sequence.dtype.kind == "U":
        names, sequence = np.unique(sequence, return_inverse=True)
        sequence = np.where(names[sequence] == "", -1, sequence)
    draws = arrays.get("role_draws")
    distractor = arrays.get("is_distractor")
    distractor = None if distractor is None else distractor.astype(bool)
    is_query = arrays.get("is_query", None if distractor is None else ~distractor)
    if distractor is not None and not listed and (distractor & is_query.astype(bool)).any():
        raise UserError(
            f"{path}: row {int((distractor & is_query.astype(bool)).argmax())} is_distractor and is_query: an "
            "image of no class finds none of its own"
        )
    about = SimpleNamespace(
        is_query=is_query, is_gallery=arrays.get("is_gallery"), sequences=sequence, is_distractor=distractor
    )
    if draws is not None:
        if draws.dtype != bool or draws.ndim != 2 or draws.shape[1] != size or not len(draws):
            raise UserError(
                f"{path}: role_draws must be (D, {size}), true where a row is in the gallery of a draw; it is "
                f"{draws.shape} of {draws.dtype}"
            )
        about = SimpleNamespace(
            is_query=~draws[0], is_gallery=draws[0], sequences=sequence, role_draws=draws, is_distractor=distractor
        )
    return Embeddings(
        path,
        arrays if distractor is None else missing_labels.classless(arrays, distractor),
        galleries.roles_of(about, size),
    )


def _of_role(file: Embeddings, role: str) -> np.ndarray:
    """The rows of the file that are its `queries`, or its `gallery`. Raises UserError where there is none."""
    rows = taken(np.arange(file.roles.size), getattr(file.roles, role))
    if not len(rows):
        raise UserError(
            f"{file.path}: none of its {file.roles.size} embeddings is a {'query' if role == 'queries' else role} image"
        )
    return rows


def in_itself(file: Embeddings, skips: bool = False) -> tuple[Space, str, np.ndarray]:
    """The queries of a file search its own gallery; returns as `space` does."""
    rows = _of_role(file, "queries")
    kept = _of_role(file, "gallery")
    found = _whole(file.arrays)
    pool = file.roles.pool
    if pool is not None:
        domains = found.domains
        pool = Space(found.features[pool], found.labels[pool], domains=taken(domains, pool))
        found = found.part(rows, kept)._replace(pool=pool, domains=taken(domains, rows))
    return found, _described(found, file.roles, skips), rows


def _in_another(queries: Embeddings, gallery: Embeddings, skips: bool) -> tuple[Space, str, np.ndarray]:
    """The queries of a file search the gallery of another. Class-wise numbers are of both; an image that is in both
    counts once.
    """
    for file in (queries, gallery):
        if "reference_features" in file.arrays:
            raise UserError(
                f"{file.path}: it has reference_features, and --gallery names another reference: leave out one of them"
            )
    asking = _whole(queries.arrays)
    found = _whole(gallery.arrays)
    if asking.features.shape[1] != found.features.shape[1]:
        raise UserError(
            f"--gallery {gallery.path}: embeddings of {found.features.shape[1]} dimensions, those of {queries.path} "
            "have "
            f"{asking.features.shape[1]}: they must agree"
        )
    labels = [file.names for file in (queries, gallery)]
    if labels[0] is None or labels[1] is None:
        labels = [asking.labels, found.labels]
    for one, other, what in ((*labels, "labels"), (asking.above, found.above, "levels")):
        if one is not None and other is not None and (one.dtype.kind == "U") != (other.dtype.kind == "U"):
            raise UserError(
                f"--gallery {gallery.path}: {what} of numbers beside {what} of names: give numbers in both files, "
                "or names"
            )
    rows = _of_role(queries, "queries")
    kept = _of_role(gallery, "gallery")
    exclude = galleries.places_in(kept, gallery.roles.size)[_own_rows(queries, gallery)[rows]]
    apart = rows[exclude < 0]
    none = gallery.roles.distractors
    of_class = kept if none is None else np.setdiff1d(kept, none)
    pool = Space(
        _joined((asking.features, apart), (found.features, of_class)),
        np.concatenate([labels[0][apart], labels[1][of_class]]),
    )
    space = Space(
        _joined((asking.features, rows)),
        labels[0][rows],
        _joined((found.features, kept)),
        labels[1][kept],
        exclude,
        groups=taken(asking.groups, rows),
        pool=pool,
        above=taken(asking.above, rows),
        reference_above=taken(found.above, kept),
    )
    for one, other, name in (
        (asking.query_sequences, found.query_sequences, "sequence"),
        (asking.domains, found.domains, "domains"),
    ):
        if (one is None) != (other is None):
            raise UserError(
                f"--gallery {gallery.path}: {name} is in one of the files alone: give it in both, or in none"
            )
    if asking.query_sequences is not None:
        space = space._replace(
            query_sequences=asking.query_sequences[rows], reference_sequences=found.query_sequences[kept]
        )
    if asking.domains is not None:
        pool = pool._replace(domains=np.concatenate([asking.domains[apart], found.domains[of_class]]))
        space = space._replace(domains=asking.domains[rows], pool=pool)
    return space, _described(space, None, skips), rows


def _joined(*parts: tuple[np.ndarray, np.ndarray]) -> np.ndarray | metrics.Stacked:
    """The given rows of several arrays, concatenated; where an array is memory-mapped, without reading them."""
    if not any(metrics.is_mapped(features) for features, _ in parts):
        return np.concatenate([features[rows] for features, rows in parts])
    return metrics.Stacked(*((features, None if len(rows) == len(features) else rows) for features, rows in parts))


def _own_rows(queries: Embeddings, gallery: Embeddings) -> np.ndarray:
    """`(N,)` row of each query in the gallery's file, -1 where it is not there: by `exclude`, by its row where both are
    one file, or by path.
    """
    size = queries.roles.size
    if "exclude" in queries.arrays:
        exclude = queries.arrays["exclude"]
        whole = exclude.dtype.kind in "iu" and exclude.shape == (size,)
        if not whole or exclude.min() < -1 or exclude.max() >= gallery.roles.size:
            raise UserError(
                f"{queries.path}: exclude must be ({size},) whole numbers, rows of {gallery.path}, -1 for none"
            )
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
            f"--gallery {gallery.path}: {path} stands there several times: give exclude, the row of each query "
            f"there, in {queries.path}"
        )
    return np.where(there, first[found], -1)


def copies_told(path: str, arrays: dict, found: Space, rows: np.ndarray | None, has_gallery: bool) -> str | None:
    """A line on queries whose vector is in the reference too and that are not excluded there; None without any.

    A reference of more than `MOST_COMPARED` bytes is not read for this.

    Args:
        arrays: of the file `path`. rows: of the file that are the queries; None: all. has_gallery: of --gallery.
    """
    if found.reference is None or found.features is None:
        return None
    reference = found.reference
    if len(reference) * reference.shape[1] * reference.dtype.itemsize > MOST_COMPARED:
        return None
    copies = find_copies(found.features, reference, found.exclude)
    queries = np.flatnonzero(copies >= 0)
    if not len(queries):
        return None
    row = int(queries[0] if rows is None else rows[queries[0]])
    name = f" ({arrays['paths'][row]})" if "paths" in arrays else ""
    way_out = "give exclude (N,), the row of each query in the reference, -1 for none"
    if has_gallery:
        way_out += ", or the same paths in both files"
    count = f"{len(queries):,} of {len(found.features):,}"
    return (
        f"{path}: {count} queries have the same vector in the reference and may find "
        f"themselves, first row {row}{name}, which is row {copies[queries[0]]} of the reference. If these are the "
        f"same images, {way_out}"
    )


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
        len(found.labels),
        len(found.reference),
        "--gallery",
        int((found.exclude >= 0).sum()),
        len(found.pool.labels),
        None,
        lone,
        skips,
    )
