"""A set that searches in itself: the score of (i, j) is that of (j, i) and is computed once."""

import numpy as np
import torch

from metrics.neighbours.keys import COLUMN, LOWEST, as_keys, scores_of


class Triangle:
    """The blocks of queries in order, each against itself and the queries after it.

    Candidates that a tile holds for queries of later blocks wait for those blocks. When too many wait, they are pruned;
    when pruning does not help, the iteration ends early and leaves the remaining blocks to a plain search.
    """

    def __init__(self, search, needs: list):
        self.search = search
        self.needs = needs
        self.size = search.space.size
        self.limits = search.limits
        self.cuts = np.empty(self.size, dtype=np.float32)  # (N,) of all queries
        self.blocks = []
        # first row of a block -> [(rows in the block (P,) uint16, keys (P,)), ...]
        self.waiting = {}
        # number of keys in `waiting`
        self.n_waiting = 0

    def __iter__(self):
        """Yield (block, its candidates, the queries `(B,)` for which they suffice)."""
        if not self._set_cuts():
            return
        limit = self.limits.waiting
        for i, block in enumerate(self.blocks):
            if self.n_waiting > limit:
                self._prune(self.blocks[i:])
                if self.n_waiting > self.limits.waiting:
                    return
                # prune again only after as many more have come
                limit = max(self.limits.waiting, 2 * self.n_waiting)
            candidates = self._candidates(block)
            if candidates is None:
                return
            yield block, candidates, self.search.suffices(block, candidates, self.needs)
            block.queries = None

    def _set_cuts(self) -> bool:
        """Set the cuts of all queries. Returns whether the candidates that will wait are likely to fit."""
        expected = 0.0
        for start in range(0, self.size, self.limits.rows):
            block = self.search.ready(np.arange(start, min(start + self.limits.rows, self.size)))
            self.search.set_cuts(block, self.needs, 0)
            self.cuts[block.rows] = block.cuts
            expected += (
                float((self.search.sampled(block) >= block.cuts[:, None]).sum()) * self.size / len(self.search.sample)
            )
            # Both are computed again in the block's turn: kept, they would take as much memory as the input.
            block.queries = block.sampled = None
            self.blocks.append(block)
            self.waiting[start] = []
        # Half way through, half of all candidates are found, and half of these wait; pruning leaves no more than the
        # deepest need asks for.
        deepest = float(np.maximum.reduce([need.depth for need in self.needs]).sum())
        return min(expected / 4, deepest) <= self.limits.waiting

    def _candidates(self, block):
        """The block's candidates; None where the candidates, found or waiting,
        are too many (ties, which no depth bounds).
        """
        search = self.search
        first = int(block.rows[0])
        block.queries = search.ready(block.rows).queries
        cuts = torch.from_numpy(block.cuts).to(search.device)[:, None]
        parts = self.waiting.pop(first)
        n_found = sum(len(keys) for _, keys in parts)
        self.n_waiting -= n_found
        for start in range(first, self.size, self.limits.columns):
            scores = search.tile(block.queries, start)
            search.hidden(scores, block.rows, slice(start, start + scores.shape[1]))
            # columns that are the block's own queries
            n_own = len(block.rows) if start == first else 0
            scores[:, :n_own].fill_diagonal_(-np.inf)
            row, column, values = search.at_least(scores, cuts)
            parts.append((row.astype(np.uint16), as_keys(values, column + start)))
            n_found += len(row)
            self._leave(scores[:, n_own:], first, start + n_own)
            search.work.held = max(search.work.held, n_found + self.n_waiting)
            if n_found > self.limits.candidates or self.n_waiting > 3 * self.limits.waiting:
                return None
        return search.assembled(block, parts)

    def _leave(self, scores: torch.Tensor, first: int, start: int) -> None:
        """Let candidates among the scores `(B, W)` of the queries
        from `first` on wait for the queries from `start` on.
        """
        stop = start + scores.shape[1]
        rows = self.limits.rows
        cuts = torch.from_numpy(self.cuts[start:stop]).to(self.search.device)[None, :]
        row, column, values = self.search.at_least(scores, cuts)
        # numpy sorts numbers of 16 bits by radix, which is fast
        order = np.argsort(column.astype(np.uint16), kind="stable")
        column = column[order] + start
        keys = as_keys(values, row + first)[order]
        bounds = np.searchsorted(column, np.arange(start, stop + rows, rows))
        for base, begin, end in zip(range(start, stop, rows), bounds, bounds[1:], strict=False):
            if begin < end:
                self.waiting[base].append(((column[begin:end] - base).astype(np.uint16), keys[begin:end]))
        self.n_waiting += len(keys)

    def _prune(self, blocks: list) -> None:
        """Raise the cuts of the blocks and drop the waiting candidates below them."""
        self.search.work.pruned += self.n_waiting
        for block in blocks:
            first = int(block.rows[0])
            self.waiting[first] = [self._pruned(block, self.waiting[first])]
            self.cuts[block.rows] = block.cuts
        self.n_waiting = sum(len(keys) for parts in self.waiting.values() for _, keys in parts)

    def _pruned(self, block, parts: list) -> tuple[np.ndarray, np.ndarray]:
        """The block's (rows `(P,)`, keys `(P,)`) at or above its cuts,
        raised to the score at the needed depth among them.

        The score at a depth among some references is a lower bound of that among all.
        """
        if not parts:
            return np.zeros(0, dtype=np.uint16), np.zeros(0, dtype=np.int64)
        candidates = self.search.assembled(block, parts)
        row = np.repeat(np.arange(len(block.rows), dtype=np.uint16), candidates.counts)
        keys = candidates.keys[np.lexsort((candidates.keys, row))]
        cuts = []
        for need, hits in zip(self.needs, block.hits, strict=True):
            depth = need.depth[block.rows]
            rows = np.flatnonzero((depth > 0) & (candidates.counts >= depth))
            keys_at_depth = keys[candidates.offsets[rows] + depth[rows].astype(np.int64) - 1]
            at_depth = np.full(len(block.rows), LOWEST, dtype=np.float32)
            at_depth[rows] = scores_of(keys_at_depth) - 3 * block.noise[rows]
            cuts.append(np.maximum(hits, at_depth))
        block.cuts = np.maximum(block.cuts, np.minimum.reduce(cuts)).astype(np.float32)
        stays = keys <= as_keys(block.cuts, 0)[row] + COLUMN
        return row[stays], keys[stays]
