"""A search whose first neighbours are put into another order; what lies behind them stays behind."""

from collections.abc import Callable

import numpy as np

from metrics.neighbours.search import Need, Neighbours


class Reordered:
    """Each query's first `depth` neighbours by falling score, equal ones in the order of before. Called as a `Search`.

    Ignored items, such as the query itself, its sequence and junk, are gone before the first are counted.

    Args:
        space: the queries and the reference.
        search: what gives the lists, a `Search` or another re-ranking.
        depth: how many of each list get a score.
        scores: rows `(Q,)` of queries, columns `(Q, W)` of the reference, which of these are there `(Q, W)` -> `(Q, W)`
            float64, higher is nearer; what it gives for an empty slot is not read.
    """

    def __init__(self, space, search, depth: int, scores: Callable[..., np.ndarray]):
        self.space = space
        self.first_search = search
        self.depth = depth
        self.scores = scores
        self.unit = search.unit

    def run(self, needs: list[Need], progress: bool = False, rows: slice | None = None):
        """Yield `Neighbours` in blocks, in which each query comes once; see `Search.run`."""
        first = Need(np.minimum(self.depth, self.space.visible), "every")
        for block in self.first_search.run([*needs, first], progress, rows):
            yield self._reordered(block)

    def _reordered(self, block: Neighbours) -> Neighbours:
        width = min(self.depth, block.columns.shape[1])
        if not width:
            return block
        columns = block.columns[:, :width]
        filled = np.arange(width) < block.counts[:, None]
        scores = np.where(filled, self.scores(block.rows, columns, filled), -np.inf)
        order = np.argsort(-scores, axis=1, kind="stable")
        parts = {}
        for name in ("columns", "relevant"):
            values = getattr(block, name).copy()
            values[:, :width] = np.take_along_axis(values[:, :width], order, axis=1)
            parts[name] = values
        return block._replace(**parts)
