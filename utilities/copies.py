"""Finding the same vector twice: an image that is in a gallery under another name finds itself.

All vectors are projected onto two random directions. Two vectors differ at least as much as their projections do, so
only rows whose first projection is next to a query's can be copies, and of these only rows with its second projection
are read: N log N operations in place of N squared, and hardly any rows of a large file.
"""

from collections.abc import Callable, Iterable

import numpy as np

TOLERANCE = 1e-5  # distance by the vector's length: one image embedded in two batches differs by rounding
NEXT = 16  # rows on each side of a query's projection that are compared
BLOCK = 1 << 14  # rows that are read at once


class CopyFinder:
    """Finds the rows of a reference that hold the same vector as a query, up to rounding.

    Args:
        blocks: the reference's rows `(m, D)`, block after block. dimensions: D.
        read: row numbers `(n,)` -> these vectors `(n, D)`.
    """

    def __init__(self, blocks: Iterable[np.ndarray], dimensions: int, read: Callable[[np.ndarray], np.ndarray]):
        self.directions = np.random.default_rng(0).standard_normal((dimensions, 2))
        self.directions /= np.linalg.norm(self.directions, axis=0)
        projections = np.concatenate([np.empty((0, 2)), *(self._project(block) for block in blocks)])
        self.order = projections[:, 0].argsort(kind="stable")  # (M,)
        # (2, M)
        self.projections = np.ascontiguousarray(projections[self.order].T)
        self.read = read

    def _project(self, vectors: np.ndarray) -> np.ndarray:
        """`(m, 2)`: the projections of vectors `(m, D)`."""
        return np.asarray(vectors, dtype=np.float64) @ self.directions

    def find(self, queries: np.ndarray, own_rows: np.ndarray) -> np.ndarray:
        """For each of `queries` `(Q, D)` a row of the reference with the same vector, or -1.

        own_rows: `(Q,)`, the row that is the query itself and is not looked at; -1: none.
        """
        queries = np.asarray(queries, dtype=np.float64)
        projections = self._project(queries).T
        allowed = TOLERANCE * np.linalg.norm(queries, axis=1)
        places = np.searchsorted(self.projections[0], projections[0])
        copies = np.full(len(queries), -1)
        if not len(self.order):
            return copies
        for offset in range(-NEXT, NEXT):
            place = np.clip(places + offset, 0, len(self.order) - 1)
            rows = self.order[place]
            is_near = (np.abs(self.projections[:, place] - projections) <= allowed).all(0)
            compared = np.flatnonzero(is_near & (rows != own_rows) & (copies < 0))
            if len(compared):
                differences = np.asarray(self.read(rows[compared]), dtype=np.float64) - queries[compared]
                is_equal = np.linalg.norm(differences, axis=1) <= allowed[compared]
                copies[compared[is_equal]] = rows[compared[is_equal]]
        return copies


def find_copies(queries, reference, own_rows: np.ndarray | None = None) -> np.ndarray:
    """`CopyFinder.find` of arrays `(Q, D)` and `(M, D)`, also mapped ones, which are read one block at a time."""
    blocks = (reference[start : start + BLOCK] for start in range(0, len(reference), BLOCK))
    finder = CopyFinder(blocks, reference.shape[1], lambda rows: reference[rows])
    if own_rows is None:
        own_rows = np.full(len(queries), -1)
    starts = range(0, len(queries), BLOCK)
    copies = [finder.find(queries[start : start + BLOCK], own_rows[start : start + BLOCK]) for start in starts]
    return np.concatenate([np.empty(0, dtype=np.int64), *copies])
