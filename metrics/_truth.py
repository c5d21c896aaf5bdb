"""What a query is to find in its reference, and what takes no rank: by classes and sequences, or by lists.

Both kinds have the same methods, which the search, the ranking metrics and re-ranking read; nothing else knows which
one it is.
"""

from functools import cached_property
from typing import NamedTuple

import numpy as np

from metrics import _hidden
from utilities.errors import UserError


class Lists(NamedTuple):
    """The positives and the junk of each of Q queries, as indices into the reference, query after query.

    indptr `(Q + 1,)`: the list of query q lies from `indptr[q]` to `indptr[q + 1]` of `indices`, as in scipy's sparse
    matrices.
    """

    positive_indptr: np.ndarray
    positive_indices: np.ndarray
    junk_indptr: np.ndarray | None = None
    junk_indices: np.ndarray | None = None

    @classmethod
    def of(cls, positives, junk=None) -> "Lists":
        """From one sequence of indices for each query; `junk` likewise, None where there is none."""
        parts = []
        for lists in (positives, [()] * len(positives) if junk is None else junk):
            parts += [
                np.cumsum([0, *map(len, lists)]),
                np.array([index for one in lists for index in one], dtype=np.int64),
            ]
        return cls(*parts)

    def __len__(self):
        return len(self.positive_indptr) - 1

    def part(self, rows: np.ndarray) -> "Lists":
        """The lists of the queries `rows`."""
        found = []
        for indptr, indices in (self[:2], self[2:]):
            counts = None if indptr is None else np.diff(indptr)[rows]
            found += (
                [None, None]
                if counts is None
                else [np.cumsum([0, *counts]), indices[spans(np.asarray(indptr)[rows], counts)[1]]]
            )
        return Lists(*found)

    def each(self, kind: str) -> list[np.ndarray]:
        """One array of indices for each query, of its `positive` samples or its `junk`."""
        indptr, indices = self[:2] if kind == "positive" else self[2:]
        return (
            [np.zeros(0, np.int64)] * len(self)
            if indptr is None
            else np.split(np.asarray(indices), np.asarray(indptr)[1:-1])
        )

    def checked(self, size: int, reference_size: int, exclude: np.ndarray) -> "Lists":
        """int64 arrays, each list ascending. Raises UserError for what cannot be the lists of `size` queries of a
        reference.

        Args:
            exclude: `(size,)` index of each query in the reference, -1 where it is not there.
        """
        empty = np.zeros(size + 1, np.int64), np.zeros(0, np.int64)
        arrays = [*self[:2], *(one if given is None else given for one, given in zip(empty, self[2:], strict=True))]
        found = []
        for kind, indptr, indices in (("positive", *arrays[:2]), ("junk", *arrays[2:])):
            indptr = _hidden.as_numpy(indptr)
            indices = _hidden.as_numpy(indices)
            if (
                indptr.dtype.kind not in "iu"
                or indptr.shape != (size + 1,)
                or indices.ndim != 1
                or (indices.size and indices.dtype.kind not in "iu")
            ):
                raise UserError(
                    f"{kind}_indptr must be ({size + 1},) whole numbers, one more than there are queries, and "
                    f"{kind}_indices (P,) whole numbers."
                )
            indptr = indptr.astype(np.int64)
            indices = indices.astype(np.int64)
            if indptr[0] != 0 or indptr[-1] != len(indices) or (np.diff(indptr) < 0).any():
                raise UserError(f"{kind}_indptr must rise from 0 to {len(indices)}, the number of {kind}_indices.")
            rows = np.repeat(np.arange(size), np.diff(indptr))
            outside = (indices < 0) | (indices >= reference_size)
            if outside.any():
                at = int(outside.argmax())
                raise UserError(
                    f"{kind}_indices: query {rows[at]} lists {indices[at]}, which is outside the reference of "
                    f"{reference_size}."
                )
            keys = np.sort(rows * reference_size + indices)
            if len(keys) and (np.diff(keys) == 0).any():
                query, index = divmod(int(keys[1:][np.diff(keys) == 0][0]), reference_size)
                raise UserError(f"{kind}_indices: query {query} lists {index} twice.")
            found += [indptr, keys - rows * reference_size]
            if kind == "positive":
                own = np.flatnonzero(found[1] == exclude[rows])
                if len(own):
                    raise UserError(
                        f"positive_indices: query {rows[own[0]]} lists itself, {found[1][own[0]]}: an image is "
                        "not its own positive."
                    )
                positives = keys
            elif (both := np.intersect1d(positives, keys)).size:
                query, index = divmod(int(both[0]), reference_size)
                raise UserError(f"query {query} lists {index} among its positives and its junk: it is one of them.")
        return Lists(*found)


class ByLists:
    """Positives and junk as `Lists` say. Junk and the query itself take no rank.

    Attributes as those of `ByClasses`.
    """

    n_levels = 1
    sequences = None
    is_symmetric = False  # junk of one query may be a positive of another

    def __init__(self, lists: Lists, reference_size: int, exclude: np.ndarray):
        self.lists = lists
        self.reference_size = reference_size
        self.exclude = exclude
        self.relevant = np.diff(lists.positive_indptr)
        own = np.flatnonzero(exclude >= 0)
        rows = np.concatenate([np.repeat(np.arange(len(lists)), np.diff(lists.junk_indptr)), own])
        self._hidden_keys = np.unique(rows * reference_size + np.concatenate([lists.junk_indices, exclude[own]]))
        self._starts = np.searchsorted(self._hidden_keys, np.arange(len(lists) + 1) * reference_size)
        self._hidden_counts = np.diff(self._starts)
        self.visible = reference_size - self._hidden_counts
        self.sizes = self.relevant

    @cached_property
    def _positive_keys(self) -> np.ndarray:
        return (
            np.repeat(np.arange(len(self.lists)), self.relevant) * self.reference_size + self.lists.positive_indices
        )  # ascending

    def are_relevant(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Whether reference samples `columns` `(Q, W)` are positives of the queries `rows` `(Q,)`."""
        keys = rows[:, None] * self.reference_size + columns
        if not len(self._positive_keys):
            return np.zeros(keys.shape, dtype=bool)
        return (
            self._positive_keys[np.minimum(np.searchsorted(self._positive_keys, keys), len(self._positive_keys) - 1)]
            == keys
        )

    def first_relevant(self, rows: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
        """Positions in `rows` and columns, `(P,)` each, of at most `most` positives of each of the queries `rows`,
        query after query.
        """
        row, places = spans(self.lists.positive_indptr[rows], np.minimum(self.relevant[rows], most))
        return row, self.lists.positive_indices[places]

    def listed(self, rows: np.ndarray) -> np.ndarray:
        """How many samples `first_relevant` chooses from, for each of the queries `rows`."""
        return self.relevant[rows]

    def hidden_pairs(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Positions in `rows` and columns, `(P,)` each, of the samples that take no rank, one by one."""
        row, places = spans(self._starts[rows], self._hidden_counts[rows])
        return row, self._hidden_keys[places] % self.reference_size

    def unranked(self, rows: np.ndarray) -> np.ndarray:
        """How many of `hidden_pairs` each of the queries `rows` has, at least 1."""
        return np.maximum(self._hidden_counts[rows], 1)

    def unjudged(self) -> "ByLists":
        """What a search may know: not the junk, which is a judgement."""
        return ByLists(Lists.of([()] * len(self.lists)), self.reference_size, self.exclude)

    def at(self, column: int | None) -> "ByLists":
        """Itself: lists have one level."""
        return self


class ByClasses:
    """A query is to find the samples of its class; its own image and those of its own sequence take no rank.

    Args:
        labels, reference_labels: `(N,)`, `(M,)` numbers from 0. exclude: `(N,)` index of each query in the reference,
        -1 where it is not there.
        sequences: numbers `(N,)`, `(M,)` that are equal where a query must not find a sample; None: all may be found.
    """

    n_levels = 1
    is_symmetric = True

    def __init__(self, labels, reference_labels, exclude, sequences):
        self.labels = labels
        self.reference_labels = reference_labels
        self.exclude = exclude
        self.sequences = sequences

    @cached_property
    def _findable(self) -> tuple[np.ndarray, np.ndarray]:
        return _hidden.findable(self.labels, self.reference_labels, self.exclude, self.sequences)

    @property
    def relevant(self) -> np.ndarray:
        """`(N,)` samples of its class that each query can find: without itself and its own sequence."""
        return self._findable[0]

    @property
    def visible(self) -> np.ndarray:
        """`(N,)` samples that each query can find, of any class."""
        return self._findable[1]

    @cached_property
    def sizes(self) -> np.ndarray:
        """`(N,)` samples of its class that each query can find, the query counted in where it is one of them."""
        return self.relevant + ((self.exclude >= 0) & (self.reference_labels[self.exclude] == self.labels))

    @cached_property
    def _class_sizes(self) -> np.ndarray:
        return np.bincount(
            self.reference_labels, minlength=int(max(self.labels.max(), self.reference_labels.max())) + 1
        )

    @cached_property
    def _class_starts(self) -> np.ndarray:
        return np.cumsum(self._class_sizes) - self._class_sizes

    @cached_property
    def _by_class(self) -> np.ndarray:
        """Indices of the reference, class after class."""
        return np.argsort(self.reference_labels, kind="stable")

    def are_relevant(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Whether reference samples `columns` `(Q, W)` are of the class of the queries `rows` `(Q,)`."""
        return self.reference_labels[columns] == self.labels[rows][:, None]

    def listed(self, rows: np.ndarray) -> np.ndarray:
        """How many samples `first_relevant` chooses from, for each of the queries `rows`: those of its class, hidden
        ones too.
        """
        return self._class_sizes[self.labels[rows]]

    def first_relevant(self, rows: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
        """Positions in `rows` and columns, `(P,)` each, of the visible ones among the first `most` samples of each
        query's class.
        """
        row, places = spans(self._class_starts[self.labels[rows]], np.minimum(self.listed(rows), most))
        column = self._by_class[places]
        other = column != self.exclude[rows[row]]
        if self.sequences is not None:
            other &= self.sequences[0][rows[row]] != self.sequences[1][column]
        return row[other], column[other]

    def hidden_pairs(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Positions in `rows` and columns, `(P,)` each, of the queries' own images; sequences are compared as numbers,
        not listed.
        """
        own = np.flatnonzero(self.exclude[rows] >= 0)
        return own, self.exclude[rows[own]]

    def unranked(self, rows: np.ndarray) -> int:
        """The most of `hidden_pairs` that a query has: itself."""
        return 1

    def unjudged(self) -> "ByClasses":
        """What a search may know: sequences are no judgement."""
        return self

    def at(self, column: int | None) -> "ByClasses":
        """The truth by one column of the labels."""
        return self


class ByLevels(ByClasses):
    """Classes of several levels. A query is to find the samples of its class in the last column, those that share more
    columns rather.

    Args:
        labels, reference_labels: `(N, L)`, `(M, L)` numbers from 0, nested, column 0 the finest. The others as those of
        `ByClasses`, whose
            attributes and methods are by column 0, but for `are_relevant`.
    """

    def __init__(self, labels, reference_labels, exclude, sequences):
        columns = [
            (labels[:, column], reference_labels[:, column], exclude, sequences) for column in range(labels.shape[1])
        ]
        super().__init__(*columns[0])
        self.n_levels = len(columns)
        self._columns = [self, *(ByClasses(*column) for column in columns[1:])]

    def at(self, column: int | None) -> ByClasses:
        """The truth by one column of the labels; None: by the last."""
        return self._columns[-1 if column is None else column]

    def are_relevant(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """The level, int8 `(Q, W)`: how many columns of the labels the queries `rows` `(Q,)` share with reference
        samples `columns` `(Q, W)`.
        """
        shared = super().are_relevant(rows, columns).astype(np.int8)
        for one in self._columns[1:]:
            shared += one.are_relevant(rows, columns)
        return shared

    @cached_property
    def of_level(self) -> np.ndarray:
        """`(N, L)` samples that each query can find and of which it shares exactly 1, 2 … L columns."""
        at_least = np.stack([one.relevant for one in self._columns[::-1]], 1)
        return at_least - np.pad(at_least[:, 1:], ((0, 0), (0, 1)))


def spans(starts: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each i of `(B,)` the numbers from `starts[i]` on, `counts[i]` of them: which i, and the numbers, `(P,)`
    each.
    """
    row = np.repeat(np.arange(len(starts)), counts)
    return row, np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts) + starts[row]
