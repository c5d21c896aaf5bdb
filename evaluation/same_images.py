"""Rows of the same images in two lists, by their paths: of another file of embeddings, of the data set of a run."""

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from utilities.console import say


def rows_of(paths: Sequence[str], listed: Sequence[str], root: str, source: str) -> np.ndarray:
    """The row of each of `paths` in `listed`, int64 `(N,)`, -1 where it is missing.

    Where the same files lie in another folder, the parts of the paths below `root`, the folder of `paths`, are
    compared, and a line says so. A path that occurs several times, as of several boxes, is matched in its order, and is
    missing where both sides have it in different numbers.

    Args:
        source: the name of `listed`, for the line.
    """
    paths = [str(path) for path in paths]
    listed = [str(path) for path in listed]
    rows = _matched(paths, listed)
    if (rows >= 0).any():
        return rows
    prefix = root.rstrip("/") + "/"
    names = [path.removeprefix(prefix) for path in paths]
    # number of parts below the folder -> rows
    rows_of_depth = defaultdict(list)
    for row, name in enumerate(names):
        rows_of_depth[name.count("/") + 1].append(row)
    for depth, chosen in rows_of_depth.items():
        rows[chosen] = _matched([names[row] for row in chosen], _tails(listed, depth))
    if (rows >= 0).all():
        say(f"{source}: its paths are in another folder; images are joined by what follows {prefix}")
    return rows


def _tails(paths: list[str], depth: int) -> list[str]:
    """The last `depth` parts of each path; the whole path where two files have the same ones."""
    tails = ["/".join(path.split("/")[-depth:]) for path in paths]
    files = defaultdict(set)
    for tail, path in zip(tails, paths, strict=True):
        files[tail].add(path)
    return [tail if len(files[tail]) == 1 else path for tail, path in zip(tails, paths, strict=True)]


def _matched(paths: list[str], listed: list[str]) -> np.ndarray:
    """The row in `listed` of each of `paths`, -1 where it is missing."""
    rows = defaultdict(list)
    for row, path in enumerate(listed):
        rows[path].append(row)
    counts = Counter(paths)
    seen = Counter()
    matched = np.full(len(paths), -1)
    for position, path in enumerate(paths):
        if len(rows.get(path, ())) == counts[path]:
            matched[position] = rows[path][seen[path]]
            seen[path] += 1
    return matched
