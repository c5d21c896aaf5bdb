"""Ground truth of queries: relevant and ignored items of the reference, from labels and sequences or from lists.

`ByClasses`, `ByLevels` and `ByLists` have the same methods, which the search, the ranking metrics and re-ranking read;
nothing else knows which one it is. Ignored items (the query itself, its sequence, junk) are left out of rankings.
"""

from functools import cached_property
from typing import NamedTuple

import numpy as np

from metrics import _hidden
from utilities.errors import UserError


class Lists(NamedTuple):
    """The positives and the junk of each of Q queries, as indices into the reference, query after query.

    indptr `(Q + 1,)`: the list of query q lies from `indptr[q]` to `indptr[q + 1]` of `indices`,
    as in scipy's sparse matrices.
    """

    positive_indptr: np.ndarray
    positive_indices: np.ndarray
    junk_indptr: np.ndarray | None = None
    junk_indices: np.ndarray | None = None

    @classmethod
    def of(cls, positives, junk=None) -> "Lists":
        """From one sequence of indices for each query; `junk` likewise, None if there is none."""
        if junk is None:
            junk = [()] * len(positives)
        return cls(*_packed(positives), *_packed(junk))

    def __len__(self):
        return len(self.positive_indptr) - 1

    def part(self, rows: np.ndarray) -> "Lists":
        """The lists of the queries `rows`."""
        positives = _part(self.positive_indptr, self.positive_indices, rows)
        if self.junk_indptr is None:
            return Lists(*positives)
        return Lists(*positives, *_part(self.junk_indptr, self.junk_indices, rows))

    def each(self, kind: str) -> list[np.ndarray]:
        """One array of indices for each query, of its `positive` samples or its `junk`."""
        indptr = getattr(self, f"{kind}_indptr")
        if indptr is None:
            return [np.zeros(0, np.int64)] * len(self)
        indices = getattr(self, f"{kind}_indices")
        return np.split(np.asarray(indices), np.asarray(indptr)[1:-1])

    def checked(self, size: int, reference_size: int, exclude: np.ndarray) -> "Lists":
        """int64 arrays, each list ascending.
        Raises UserError for what cannot be the lists of `size` queries of a reference.

        Args:
            exclude: `(size,)` index of each query in the reference, -1 where it is not there.
        """
        junk_indptr = self.junk_indptr
        if junk_indptr is None:
            junk_indptr = np.zeros(size + 1, np.int64)
        junk_indices = self.junk_indices
        if junk_indices is None:
            junk_indices = np.zeros(0, np.int64)
        positive_indptr, positives = _checked("positive", *self[:2], size, reference_size)
        rows, columns = np.divmod(positives, reference_size)
        themselves = np.flatnonzero(columns == exclude[rows])
        if len(themselves):
            first = themselves[0]
            raise UserError(
                f"positive_indices: query {rows[first]} lists itself, {columns[first]}: an image is not its own "
                "positive."
            )
        junk_indptr, ignored = _checked("junk", junk_indptr, junk_indices, size, reference_size)
        conflicts = np.intersect1d(positives, ignored)
        if len(conflicts):
            query, index = divmod(int(conflicts[0]), reference_size)
            raise UserError(f"query {query} lists {index} among its positives and its junk: it is one of them.")
        return Lists(positive_indptr, columns, junk_indptr, ignored % reference_size)


def _packed(lists) -> tuple[np.ndarray, np.ndarray]:
    """indptr `(Q + 1,)` and indices `(P,)` of one sequence of indices for each query."""
    indices = [index for indices in lists for index in indices]
    return np.cumsum([0, *map(len, lists)]), np.array(indices, dtype=np.int64)


def _part(indptr: np.ndarray, indices: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """indptr and indices of the queries `rows` alone."""
    counts = np.diff(indptr)[rows]
    return np.cumsum([0, *counts]), indices[spans(np.asarray(indptr)[rows], counts)[1]]


def _checked(kind: str, indptr, indices, size: int, reference_size: int) -> tuple[np.ndarray, np.ndarray]:
    """int64 indptr, and keys `query * reference_size + index`, ascending; see `Lists.checked`."""
    indptr = _hidden.as_numpy(indptr)
    indices = _hidden.as_numpy(indices)
    indptr_fits = indptr.dtype.kind in "iu" and indptr.shape == (size + 1,)
    indices_fit = indices.ndim == 1 and (not indices.size or indices.dtype.kind in "iu")
    if not indptr_fits or not indices_fit:
        raise UserError(
            f"{kind}_indptr must be ({size + 1},) whole numbers, one more than there are queries, and {kind}_indices "
            "(P,) whole numbers."
        )
    indptr = indptr.astype(np.int64)
    indices = indices.astype(np.int64)
    if indptr[0] != 0 or indptr[-1] != len(indices) or (np.diff(indptr) < 0).any():
        raise UserError(f"{kind}_indptr must rise from 0 to {len(indices)}, the number of {kind}_indices.")
    rows = np.repeat(np.arange(size), np.diff(indptr))
    outside = (indices < 0) | (indices >= reference_size)
    if outside.any():
        place = int(outside.argmax())
        raise UserError(
            f"{kind}_indices: query {rows[place]} lists {indices[place]}, which is outside the reference of "
            f"{reference_size}."
        )
    keys = np.sort(rows * reference_size + indices)
    repeated = keys[1:][np.diff(keys) == 0]
    if len(repeated):
        query, index = divmod(int(repeated[0]), reference_size)
        raise UserError(f"{kind}_indices: query {query} lists {index} twice.")
    return indptr, keys


class ByLists:
    """Positives and junk as `Lists` say. Junk and the query itself are ignored.

    Attributes as those of `ByClasses`.
    """

    n_levels = 1
    sequences = None
    # junk of one query may be a positive of another
    is_symmetric = False

    def __init__(self, lists: Lists, reference_size: int, exclude: np.ndarray):
        self.lists = lists
        self.reference_size = reference_size
        self.exclude = exclude
        self.relevant = np.diff(lists.positive_indptr)
        # queries that are items themselves
        in_reference = np.flatnonzero(exclude >= 0)
        rows = np.concatenate([np.repeat(np.arange(len(lists)), np.diff(lists.junk_indptr)), in_reference])
        columns = np.concatenate([lists.junk_indices, exclude[in_reference]])
        self._hidden_keys = np.unique(rows * reference_size + columns)
        self._starts = np.searchsorted(self._hidden_keys, np.arange(len(lists) + 1) * reference_size)
        self._hidden_counts = np.diff(self._starts)
        self.visible = reference_size - self._hidden_counts
        self.sizes = self.relevant

    @cached_property
    def _positive_keys(self) -> np.ndarray:
        """`query * reference_size + index` of all positives, ascending."""
        rows = np.repeat(np.arange(len(self.lists)), self.relevant)
        return rows * self.reference_size + self.lists.positive_indices

    def are_relevant(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Whether reference samples `columns` `(Q, W)` are positives of the queries `rows` `(Q,)`."""
        keys = rows[:, None] * self.reference_size + columns
        if not len(self._positive_keys):
            return np.zeros(keys.shape, dtype=bool)
        places = np.minimum(np.searchsorted(self._positive_keys, keys), len(self._positive_keys) - 1)
        return self._positive_keys[places] == keys

    def first_relevant(self, rows: np.ndarray, limit: int) -> tuple[np.ndarray, np.ndarray]:
        """Positions in `rows` and columns, `(P,)` each, of at most `limit` positives of each of the queries `rows`,
        query after query.
        """
        row, places = spans(self.lists.positive_indptr[rows], np.minimum(self.relevant[rows], limit))
        return row, self.lists.positive_indices[places]

    def listed(self, rows: np.ndarray) -> np.ndarray:
        """How many samples `first_relevant` chooses from, for each of the queries `rows`."""
        return self.relevant[rows]

    def hidden_pairs(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Positions in `rows` and columns, `(P,)` each, of the ignored samples, one by one."""
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
    """The samples of a query's class are relevant to it; its own image and those of its own sequence are ignored.

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
        n_classes = int(max(self.labels.max(), self.reference_labels.max())) + 1
        return np.bincount(self.reference_labels, minlength=n_classes)

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
        """How many samples `first_relevant` chooses from, for each of the queries `rows`:
        those of its class, hidden ones too.
        """
        return self._class_sizes[self.labels[rows]]

    def first_relevant(self, rows: np.ndarray, limit: int) -> tuple[np.ndarray, np.ndarray]:
        """Positions in `rows` and columns, `(P,)` each, of the visible ones among the first `limit` samples
        of each query's class.
        """
        row, places = spans(self._class_starts[self.labels[rows]], np.minimum(self.listed(rows), limit))
        column = self._by_class[places]
        is_visible = column != self.exclude[rows[row]]
        if self.sequences is not None:
            is_visible &= self.sequences[0][rows[row]] != self.sequences[1][column]
        return row[is_visible], column[is_visible]

    def hidden_pairs(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Positions in `rows` and columns, `(P,)` each, of the queries' own images;
        sequences are compared as numbers, not listed.
        """
        places = np.flatnonzero(self.exclude[rows] >= 0)
        return places, self.exclude[rows[places]]

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
    """Classes of several levels. The samples of a query's class in the last column are relevant, those that share more
    columns more so.

    Args:
        labels, reference_labels: `(N, L)`, `(M, L)` numbers from 0, nested, column 0 the finest. The others as those of
            `ByClasses`, whose attributes and methods are by column 0, but for `are_relevant`.
    """

    def __init__(self, labels, reference_labels, exclude, sequences):
        super().__init__(labels[:, 0], reference_labels[:, 0], exclude, sequences)
        self.n_levels = labels.shape[1]
        self._columns = [self]
        for column in range(1, self.n_levels):
            self._columns.append(ByClasses(labels[:, column], reference_labels[:, column], exclude, sequences))

    def at(self, column: int | None) -> ByClasses:
        """The truth by one column of the labels; None: by the last."""
        if column is None:
            column = -1
        return self._columns[column]

    def are_relevant(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """The level, int8 `(Q, W)`: how many columns of the labels the queries `rows` `(Q,)` share with reference
        samples `columns` `(Q, W)`.
        """
        shared = super().are_relevant(rows, columns).astype(np.int8)
        for column in self._columns[1:]:
            shared += column.are_relevant(rows, columns)
        return shared

    @cached_property
    def of_level(self) -> np.ndarray:
        """`(N, L)` samples that each query can find and of which it shares exactly 1, 2 … L columns."""
        at_least = np.stack([column.relevant for column in self._columns[::-1]], 1)
        return at_least - np.pad(at_least[:, 1:], ((0, 0), (0, 1)))


def spans(starts: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each i of `(B,)` the numbers from `starts[i]` on, `counts[i]` of them:
    which i, and the numbers, `(P,)` each.
    """
    row = np.repeat(np.arange(len(starts)), counts)
    return row, np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts) + starts[row]
