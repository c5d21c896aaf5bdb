"""Which classes are enrolled in the gallery, which are new, and what counts as one draw of a new class.

The roles are those of a file of embeddings, or made of a seed: `with_open_set`. A unit is a class, a super-class
(`--unit super`), or several classes that share a group or a sequence, such as one individual under two names.
"""

from typing import NamedTuple

import numpy as np

from datasets import _schemes
from evaluation import from_files
from evaluation.file_arrays import GROUPS
from evaluation.galleries import ROLES
from utilities.errors import UserError
from utilities.labels import are_missing

NEWEST = "newest"


class Images(NamedTuple):
    """What a file says of its N images, an array `(N,)` each.

    classes, files: names. units: names of what counts as one draw. bursts: name of the group or sequence, "" for none;
    None: there are none. times: NaN if unknown; None: there are none. n_joined: classes that share a unit with another.
    """

    classes: np.ndarray
    files: np.ndarray
    units: np.ndarray
    bursts: np.ndarray | None
    times: np.ndarray | None
    n_joined: int

    def take(self, rows: np.ndarray) -> "Images":
        """Those of the images `rows`."""
        columns = [array if array is None else array[rows] for array in self[:-1]]
        return Images(*columns, self.n_joined)


def without_distractors(arrays: dict) -> tuple[dict, int]:
    """The arrays without the rows of no class, and the number of these."""
    if "is_distractor" not in arrays:
        return arrays, 0
    has_class = ~arrays["is_distractor"].astype(bool)
    remaining = {}
    for name, array in arrays.items():
        if name != "is_distractor":
            remaining[name] = array[has_class] if array.shape[:1] == has_class.shape else array
    return remaining, int((~has_class).sum())


def images_of(path: str, arrays: dict, unit: str = "class") -> Images:
    """What the arrays of a file say of its images. Raises UserError for `unit` "super" without super-classes."""
    size = len(arrays["features"])
    classes = arrays.get("class_names", from_files.finest(arrays)).astype(str)
    files = np.arange(size).astype(str)
    if "paths" in arrays:
        files = np.array([path.replace("\\", "/").rpartition("/")[2] for path in arrays["paths"].astype(str)])
    bursts = _bursts(arrays)
    times = _times(path, arrays["time"]) if "time" in arrays else None
    names = classes
    if unit == "super":
        present = [name for name in GROUPS if name in arrays]
        if not present and arrays["labels"].ndim == 2 and arrays["labels"].shape[1] > 1:
            names = arrays["labels"][:, 1].astype(str)
        elif present:
            names = arrays[present[0]].astype(str)
        else:
            raise UserError(f"--unit super: {path} has no super-classes: {' or '.join(GROUPS)} (N,), or labels (N, 2)")
    units = _joined(names, bursts)
    n_joined = len(np.unique(names)) - len(np.unique(units))
    return Images(classes, files, units, bursts, times, n_joined)


def _times(path: str, values: np.ndarray) -> np.ndarray:
    """`(N,)` numbers that ascend with time: numbers as they are, else dates or years as ISO writes them; NaN for none.

    Raises UserError for anything else.
    """
    if values.dtype.kind in "iuf":
        return values.astype(np.float64)
    try:
        dates = values.astype("datetime64[s]")
    except ValueError as error:
        raise UserError(f"{path}: time holds something else than numbers and ISO dates ({error})") from None
    return np.where(np.isnat(dates), np.nan, dates.astype(np.int64).astype(np.float64))


def _bursts(arrays: dict) -> np.ndarray | None:
    """`(N,)` the group of each image, else its sequence, "" for none; None if the file has neither."""
    for name in ("group", "sequence"):
        if name in arrays:
            is_none = are_missing(arrays[name])
            if arrays[name].dtype.kind in "iu":
                is_none = arrays[name] < 0
            return np.where(is_none, "", arrays[name].astype(str))
    return None


def _joined(names: np.ndarray, bursts: np.ndarray | None) -> np.ndarray:
    """`(N,)` names in which those that share a burst are one: the first of them."""
    from scipy.sparse import coo_array, csgraph

    if bursts is None:
        return names
    distinct, numbers = np.unique(names, return_inverse=True)
    in_burst = bursts != ""
    burst_numbers = np.unique(bursts[in_burst], return_inverse=True)[1] + len(distinct)
    size = len(distinct) + int(in_burst.sum())
    edges = np.ones(int(in_burst.sum())), (numbers[in_burst], burst_numbers)
    parts = csgraph.connected_components(coo_array(edges, shape=(size, size)), directed=False)[1]
    parts = parts[: len(distinct)]
    # names ascend, and so does the first of each part
    firsts = np.unique(parts, return_index=True)[1]
    return distinct[firsts][parts][numbers]


def with_open_set(path: str, arrays: dict, images: Images, seed: int) -> dict:
    """The arrays with roles: of the units in the order of `_schemes.mixed` the first half is known; of a known class
    half of its groups or sequences, else of its images, is gallery; all other images are queries.

    Raises UserError if the file has roles, or fewer than two units.
    """
    roles = [name for name in (*ROLES, "reference_features") if name in arrays and name != "sequence"]
    if roles:
        raise UserError(f"--open_set {seed}: {path} has {roles[0]}, which says what the gallery is: leave one out")
    units = np.unique(images.units).tolist()
    if len(units) < 2:
        raise UserError(f"--open_set {seed}: {path} has {len(units)} class: half of at least 2 classes is known")
    known_units = [units[place] for place in _schemes.mixed(units, seed)[: len(units) // 2]]
    is_gallery = np.zeros(len(images.units), dtype=bool)
    rows = np.flatnonzero(np.isin(images.units, known_units))
    rows_of_class = {}
    for row in rows.tolist():
        rows_of_class.setdefault(images.classes[row], []).append(row)
    for class_rows in rows_of_class.values():
        is_gallery[_enrolled(images, class_rows, seed)] = True
    return {**arrays, "is_query": ~is_gallery, "is_gallery": is_gallery}


def _enrolled(images: Images, rows: list[int], seed: int) -> list[int]:
    """The rows of a class that are gallery: half of its bursts, else of its images, rounded up."""
    pieces = {}
    for row in rows:
        burst = "" if images.bursts is None else images.bursts[row]
        piece = f"{images.classes[row]}/burst {burst}" if burst else f"{images.classes[row]}/{images.files[row]}"
        pieces.setdefault(piece, []).append(row)
    names = sorted(pieces)
    enrolled = []
    for place in _schemes.mixed(names, seed)[: (len(names) + 1) // 2]:
        enrolled += pieces[names[place]]
    return enrolled


def set_aside(units: np.ndarray, images: Images, rule: str | float, seed: int) -> np.ndarray:
    """The names, among `units` (distinct, ascending), of those that are set aside.

    rule: a share, of the units in the order of `_schemes.mixed`; or `newest`, the later half by the time at which each
    is first seen. Raises UserError if none or all would be, and if times are missing.
    """
    if rule == NEWEST:
        return _newest(units, images)
    count = _schemes.share(len(units), rule)
    if not 0 < count < len(units):
        raise UserError(
            f"--set_aside {rule:g} of {len(units)} classes sets {count} aside: both parts need at least one"
        )
    order = _schemes.mixed(units.tolist(), seed)
    return np.sort(units[order[:count]])


def _newest(units: np.ndarray, images: Images) -> np.ndarray:
    if images.times is None:
        raise UserError(f"--set_aside {NEWEST}: the file has no time (N,), so nothing says which classes are new")
    first_seen = []
    for unit in units.tolist():
        times = images.times[images.units == unit]
        times = times[np.isfinite(times)]
        if not len(times):
            raise UserError(f"--set_aside {NEWEST}: no image of {unit} has a time")
        first_seen.append(times.min())
    order = np.argsort(first_seen, kind="stable")
    if len(units) < 2:
        raise UserError(f"--set_aside {NEWEST}: the later half of {len(units)} class: at least 2 are needed")
    return np.sort(units[order[len(units) // 2 :]])
