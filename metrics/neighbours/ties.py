"""Neighbours whose float32 scores lie within rounding of each other, put in the order of their float64 distances.

The scores of a query are sorted, and each has a bound on its rounding. Only neighbours whose scores differ by less than
that bound may be in the wrong order; slots that are chained by such differences form a run. A run is sorted by its
float64 distances, equal ones by their index, and no other slot moves. Where only the order of relevant and other
samples matters, runs that hold one kind alone stay as they are.
"""

import numpy as np


class Ties:
    """The second, exact pass of a search. Equal distances are ordered by the index in the reference,
    the lower one first.

    In a collapsed space most samples are equal, and each query ties with all of them. So once many neighbours have
    been reordered, equal samples are identified: in the order of their index they need no sorting, and their distance
    is computed once.
    """

    def __init__(self, space, limits, work):
        self.space = space
        self.limits = limits
        self.work = work

    def settle(self, rows, columns, relevant, scores, noise, ordered: int) -> None:
        """Order near ties in place.

        Args:
            rows: `(Q,)` the queries. columns, relevant: `(Q, W)` as in `Neighbours`.
            scores: `(Q, W)` descending, NaN where empty.
            noise: `(Q,)` difference up to which two scores may be in the wrong order.
            ordered: how many of the first slots must be in order; further near ties only where they are of a relevant
                and another sample.
        """
        if scores.shape[1] < 2:
            return
        with np.errstate(invalid="ignore"):
            # (Q, W - 1): slots i and i + 1 may have to change places
            close = scores[:, :-1] - scores[:, 1:] <= noise[:, None]
        mixed = close & (relevant[:, :-1] != relevant[:, 1:])
        mixed[:, :ordered] |= close[:, :ordered]
        affected = np.flatnonzero(mixed.any(1))
        n_parts = 1 + len(affected) * scores.shape[1] // max(self.limits.candidates // 8, 1)
        for part in np.array_split(affected, n_parts):
            if len(part):
                self._reorder(rows, part, columns, relevant, close, mixed)

    def _reorder(self, rows, affected, columns, relevant, close, mixed) -> None:
        """Sort, in the `affected` rows, the runs of near ties that hold a mixed pair."""
        begins = np.ones((len(affected), columns.shape[1]), dtype=bool)
        begins[:, 1:] = ~close[affected]
        # number of each slot's run
        run = np.cumsum(begins).reshape(begins.shape) - 1
        # of each run, whether it holds a mixed pair
        is_mixed = np.zeros(int(run[-1, -1]) + 1, dtype=bool)
        is_mixed[run[:, 1:][mixed[affected]]] = True
        chosen = is_mixed[run]
        self.work.reordered += int(np.count_nonzero(chosen))
        # many near ties: equal samples
        shares = self.work.reordered > self.limits.near_ties * self.space.reference_size
        # leave out runs of equal samples that are in order
        if shares:
            samples = columns[affected]
            place = self.space.places[samples]
            in_order = (place[:, :-1] == place[:, 1:]) & (samples[:, :-1] < samples[:, 1:])
            unsettled = np.zeros(len(is_mixed), dtype=bool)
            unsettled[run[:, 1:][~begins[:, 1:] & ~in_order]] = True
            chosen = (is_mixed & unsettled)[run]
        row, slot = np.nonzero(chosen)
        run_of_slot = run[row, slot]
        column = columns[affected[row], slot]
        if shares:
            distances = self._shared_distances(rows[affected], row, column)
        else:
            distances = self._distances(rows[affected[row]], column)
        # run_of_slot ascends already: each run keeps its slots
        order = np.lexsort((column, distances, run_of_slot))
        position = affected[row], slot
        columns[position] = column[order]
        relevant[position] = relevant[position][order]

    def _shared_distances(self, queries, row, column) -> np.ndarray:
        """Squared distances `(P,)` from `queries[row]` to `column`;
        computed once for equal samples, where that is less work.
        """
        place = self.space.places[column]
        is_first = np.zeros(self.space.reference_size, dtype=bool)
        is_first[place] = True
        # the first of each set of equal samples
        distinct = np.flatnonzero(is_first)
        if len(queries) * len(distinct) > len(row) // 2:
            return self._distances(queries[row], column)
        table = self._distances(np.repeat(queries, len(distinct)), np.tile(distinct, len(queries)))
        return table.reshape(len(queries), -1)[row, (np.cumsum(is_first) - 1)[place]]

    def _distances(self, rows, columns) -> np.ndarray:
        self.work.distances += len(rows)
        return self.space.squared_distances(rows, columns)
