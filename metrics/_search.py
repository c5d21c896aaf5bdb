"""Exact ranks of the neighbours that matter, without sorting those that do not.

Every retrieval metric is a function of the ranks of the samples of the query's class (the relevant ones), and most queries have
found them all long before the depth to which a metric looks. So each query gets a cut: a score that nothing it needs can lie
below. It is the score of its farthest relevant sample (of its nearest one, where first hits suffice), or an estimate, from a
sample of the reference, of the score at the depth asked for, whichever is higher. One matrix product a tile of queries x
reference then gives all scores in float32, and only those above the cut are kept and sorted.

Ranks are those of float64 distances all the same. Neighbours whose float32 scores lie within rounding of each other are put in
order by their float64 distances; equal distances are put in order by the index in the reference, the lower one first. A query
is left out of its own neighbours by its index.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from tqdm import tqdm

ROWS = 1024  # queries a block
COLUMNS = 8192  # reference samples a tile: ROWS x COLUMNS float32 stay near the cores
KEPT = 24_000_000  # scores above the cuts that a block may keep (a few hundred MB)
SAMPLE = 1024  # reference samples from which the score at a depth is estimated
PAIRS = 256  # relevant samples of a query whose scores are looked at to set its cut
SLACK = 4.0  # rounding errors of a dot product of D terms, in units of sqrt(D) * unit roundoff
LOWEST = float(np.finfo(np.float32).min)
AFTER_ALL = np.iinfo(np.int64).max  # key of an empty slot


class Need(NamedTuple):
    """What has to be known of the first `depth` `(N,)` neighbours of each query: their "first" hit, "all" hits, or "every" one of them."""

    depth: np.ndarray
    what: str


class Neighbours(NamedTuple):
    """Nearest neighbours of some queries in order, as far as they are needed.

    rows `(Q,)`: which queries. columns `(Q, W)`: indices into the reference. relevant `(Q, W)`: same class? counts `(Q,)`: how
    many of the W slots are filled; an empty slot is not relevant.
    """

    rows: np.ndarray
    columns: np.ndarray
    relevant: np.ndarray
    counts: np.ndarray


class Search:
    """Neighbours of the queries of `space` in its reference.

    Scores are s = q.r - |r|^2/2, which orders the reference as the distance to q does. They are computed on features that are
    moved to the reference's mean and scaled to norms of at most 1 (distances keep their order, rounding gets smaller).
    """

    def __init__(self, space):
        self.space = space
        self.device = torch.device(space.device)
        m, d = space.reference_size, space.dimensions
        self.mean = sum(block.sum(0) for _, block in space.reference_blocks()) / max(m, 1)  # (D,)
        moved_norms = np.concatenate([np.sqrt(((block - self.mean) ** 2).sum(1)) for _, block in space.reference_blocks()] or [np.zeros(0)])
        self.scale = 1.0 / (moved_norms.max(initial=0.0) or 1.0)
        self.reference = torch.empty(m, d + 1)  # (M, D + 1), the last column is -|r|^2/2
        for start, block in space.reference_blocks():
            moved = (block - self.mean) * self.scale
            self.reference[start : start + len(block), :d] = torch.from_numpy(moved.astype(np.float32))
            self.reference[start : start + len(block), d] = torch.from_numpy((-0.5 * (moved**2).sum(1)).astype(np.float32))
        self.reference = self.reference.to(self.device)
        generator = np.random.default_rng(0)  # the sample only decides what is kept, never a result
        self.sample = torch.from_numpy(np.sort(generator.choice(m, min(m, SAMPLE), replace=False))).to(self.device)  # (S,)
        self.buffer = torch.empty(ROWS * min(COLUMNS, max(m, 1)), device=self.device)
        self.mask = torch.empty(len(self.buffer), dtype=torch.bool, device=self.device)

    def run(self, needs: list[Need], progress: bool = False):
        """Yield `Neighbours` in blocks until every query has had its turn, once.

        Args:
            needs: what has to be known of each query.
            progress: show a bar where the search is long.
        """
        size = self.space.size
        every = any(need.what == "every" for need in needs)
        deepest = max((float(np.max(need.depth)) for need in needs if need.what != "first"), default=0.0)
        bound = min(self.space.reference_size, 2 * deepest + 2 * SAMPLE)  # slots that a query may well need
        step = int(min(ROWS, max(1, KEPT // max(bound, 1))))
        waiting = [(np.arange(start, min(start + step, size)), 0) for start in range(size - 1 - (size - 1) % step, -1, -step)]
        long = progress and size * self.space.reference_size > 1e9
        precision = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")  # the error bound below is that of true float32
        try:
            with torch.no_grad(), tqdm(total=size, desc="neighbours", unit=" queries", disable=None if long else True) as bar:
                while waiting:
                    rows, attempt = waiting.pop()
                    block = self._block(rows)
                    found = self._candidates(block, needs, attempt)
                    if found is None:  # more was kept than planned: in two halves
                        half = len(rows) // 2
                        waiting += [(rows[half:], attempt), (rows[:half], attempt)]
                        continue
                    candidates, done = found
                    if not done.all():
                        waiting.append((rows[~done], attempt + 1))
                    bar.update(int(done.sum()))
                    yield from self._sorted(block, candidates, done, every)
        finally:
            torch.set_float32_matmul_precision(precision)

    def _block(self, rows: np.ndarray) -> "Block":
        """The queries of some rows, made ready."""
        features = (self.space.queries(rows) - self.mean) * self.scale  # (B, D) float64
        rounding = np.finfo(np.float32).eps / 2
        noise = SLACK * rounding * np.sqrt(self.space.dimensions + 4) * (np.sqrt((features**2).sum(1)) + 0.5)
        queries = torch.ones(len(rows), features.shape[1] + 1)
        queries[:, :-1] = torch.from_numpy(features)
        queries = queries.to(self.device)
        only_tile = self._tile(queries, 0) if self.space.reference_size <= COLUMNS else None
        return Block(rows, queries, noise.astype(np.float32), only_tile)

    def _tile(self, queries, start: int) -> torch.Tensor:
        """Scores `(B, W)` of the reference samples from `start` on, in the buffer that the next tile overwrites."""
        reference = self.reference[start : start + COLUMNS]
        scores = self.buffer[: len(queries) * len(reference)].view(len(queries), len(reference))
        return torch.mm(queries, reference.T, out=scores)

    def _candidates(self, block: "Block", needs: list[Need], attempt: int):
        """Candidates of a block of queries, and which queries they suffice for; None where they are too many at once."""
        nearest, farthest = self._relevant_scores(block)
        scores = {"first": nearest, "all": farthest, "every": np.full(len(block.rows), LOWEST)}
        by_hits = [scores[need.what] - 2 * block.noise for need in needs]
        cuts = np.full(len(block.rows), LOWEST)
        for need, hits in zip(needs, by_hits, strict=True):
            by_depth = self._scores_at(block, need.depth[block.rows], hits, attempt)
            cuts = np.maximum(by_depth, hits) if need is needs[0] else np.minimum(cuts, np.maximum(by_depth, hits))
        cuts = np.maximum(cuts, LOWEST).astype(np.float32)
        candidates = self._above(block, cuts)
        if candidates is None:
            return None
        done = np.ones(len(block.rows), dtype=bool)
        for need, hits in zip(needs, by_hits, strict=True):
            done &= (cuts <= hits) | (candidates.surely >= need.depth[block.rows]) | (cuts <= LOWEST)
        return candidates, done

    def _scores_at(self, block: "Block", depth, hits, attempt: int) -> np.ndarray:
        """Estimated score `(B,)` of the neighbour at `depth`, rather too low; `LOWEST` where the cut at `hits` is the higher one."""
        scores = np.full(len(block.rows), LOWEST, dtype=np.float32)
        m, s = self.space.reference_size, len(self.sample)
        expected = (depth + 1) * (s / m)  # place in the sample; + 1: the query itself may be in it
        places = (expected if s == m else expected + 3 * np.sqrt(expected) + 3) * 4**attempt  # so that few need another attempt
        if attempt > 3 or not (places < s).any():
            return scores
        if block.sampled is None:
            sampled = torch.mm(block.queries, self.reference[self.sample].T) if block.only_tile is None else block.only_tile[:, self.sample]
            block.sampled = sampled.cpu().numpy()  # (B, S)
        rows = np.flatnonzero(places < s)
        rows = rows[(block.sampled[rows] >= hits[rows, None]).sum(1) > places[rows]]  # the others' hits lie before the depth
        ranked = np.sort(block.sampled[rows], axis=1)
        scores[rows] = ranked[np.arange(len(rows)), s - 1 - places[rows].astype(np.int64)] - 3 * block.noise[rows]
        return scores

    def _relevant_scores(self, block: "Block"):
        """Scores `(B,)` of the nearest and of the farthest relevant sample, or bounds below them where a class is large."""
        space, rows = self.space, block.rows
        classes = space.labels[rows]
        sizes = space.class_sizes[classes]
        taken = np.minimum(sizes, PAIRS + 1)
        nearest = np.full(len(rows), np.inf, dtype=np.float32)  # nothing to find: no candidate is needed
        farthest = nearest.copy()
        ends = np.cumsum(taken)
        start = 0
        while start < len(rows):  # some ten thousand pairs at a time, to bound memory
            stop = max(start + 1, int(np.searchsorted(ends, (ends[start - 1] if start else 0) + 65536, side="right")))
            taken_here = taken[start:stop]
            row = np.repeat(np.arange(start, stop), taken_here)
            within = np.arange(len(row)) - np.repeat(np.cumsum(taken_here) - taken_here, taken_here)
            column = space.by_class[space.class_starts[classes[row]] + within]
            other = column != space.exclude[rows[row]]
            row, column = row[other], column[other]
            if len(row):
                scores = self._pair_scores(block, torch.from_numpy(row).to(self.device), torch.from_numpy(column).to(self.device))
                first = np.flatnonzero(np.diff(row, prepend=-1))
                nearest[row[first]] = np.maximum.reduceat(scores, first)
                farthest[row[first]] = np.minimum.reduceat(scores, first)
            start = stop
        farthest[sizes > taken] = LOWEST
        return nearest, farthest

    def _pair_scores(self, block: "Block", row: torch.Tensor, column: torch.Tensor) -> np.ndarray:
        """Scores `(P,)` of pairs of a block's query and a reference sample."""
        if block.only_tile is not None:
            scores = block.only_tile.view(-1).index_select(0, row * self.space.reference_size + column)
        else:
            scores = (block.queries.index_select(0, row) * self.reference.index_select(0, column)).sum(1)
        return scores.cpu().numpy()

    def _above(self, block: "Block", cuts: np.ndarray) -> "Candidates | None":
        """All reference samples at or above each query's cut, or None where they are more than a block may keep."""
        m, b = self.space.reference_size, len(block.rows)
        cut = torch.from_numpy(cuts).to(self.device)[:, None]
        exclude = self.space.exclude[block.rows]
        counts, surely, tiles = np.zeros(b, dtype=np.int64), np.zeros(b, dtype=np.int64), []
        sure = cuts + 2 * block.noise
        for start in range(0, m, COLUMNS):
            scores = self._tile(block.queries, start) if block.only_tile is None else block.only_tile
            width = scores.shape[1]
            own = np.flatnonzero((exclude >= start) & (exclude < start + width))
            scores[torch.from_numpy(own).to(self.device), torch.from_numpy(exclude[own] - start).to(self.device)] = -np.inf
            mask = torch.ge(scores, cut, out=self.mask[: b * width].view(b, width))
            if self.device.type == "cpu":
                flat = np.flatnonzero(mask.numpy())
                kept = scores.numpy().reshape(-1)[flat]
            else:
                index = torch.nonzero(mask.view(-1)).squeeze(1)
                flat, kept = index.cpu().numpy(), scores.view(-1)[index].cpu().numpy()
            bounds = np.searchsorted(flat, np.arange(b + 1, dtype=np.int64) * width)
            here = np.diff(bounds)
            row = np.repeat(np.arange(b), here)
            tiles.append((row, flat - row * width + start, kept, counts.copy(), bounds))
            counts += here
            surely += np.bincount(row[kept >= sure[row]], minlength=b)
            if counts.sum() > KEPT and b > 1:
                return None
        offsets = np.cumsum(counts) - counts
        if len(tiles) == 1:  # already query after query
            return Candidates(as_keys(kept, tiles[0][1]), offsets, counts, surely)
        keys = np.empty(int(counts.sum()), dtype=np.int64)
        for row, column, kept, before, bounds in tiles:
            keys[np.arange(len(row)) + (offsets + before - bounds[:-1])[row]] = as_keys(kept, column)
        return Candidates(keys, offsets, counts, surely)

    def _sorted(self, block, candidates, done, every):
        """`Neighbours` of the queries that are done, in groups of about as many candidates each."""
        chosen = np.flatnonzero(done)
        chosen = chosen[np.argsort(candidates.counts[chosen], kind="stable")]
        counts = candidates.counts[chosen]
        start = 0
        while start < len(chosen):
            stop = int(np.searchsorted(counts, max(32, 2 * counts[start]), side="right"))
            width = int(counts[stop - 1])
            stop = min(stop, start + max(1, KEPT // 4 // max(width, 1)))
            width = int(counts[stop - 1])
            group = chosen[start:stop]
            slots = np.arange(width)[None, :]
            filled = slots < candidates.counts[group][:, None]  # (Q, W)
            keys = np.full(filled.shape, AFTER_ALL)
            keys[filled] = candidates.keys[(candidates.offsets[group][:, None] + slots)[filled]]
            keys.sort(axis=1)
            yield self._settled(block.rows[group], keys, filled, 2 * block.noise[group], every)
            start = stop

    def _settled(self, rows, keys, filled, noise, every) -> Neighbours:
        """Put runs of neighbours closer together than rounding in order by float64 distances."""
        space = self.space
        columns = np.where(filled, keys & COLUMN, 0)
        relevant = (space.reference_labels[columns] == space.labels[rows][:, None]) & filled  # (Q, W)
        scores = scores_of(keys)  # descending, NaN where empty
        if keys.shape[1] > 1:
            with np.errstate(invalid="ignore"):
                close = scores[:, :-1] - scores[:, 1:] <= noise[:, None]  # (Q, W - 1): may i and i + 1 change places?
            mixed = close if every else close & (relevant[:, :-1] != relevant[:, 1:])
            affected = np.flatnonzero(mixed.any(1))
            for part in np.array_split(affected, 1 + len(affected) * keys.shape[1] // (KEPT // 8)):
                self._reorder(rows, part, columns, relevant, close, mixed)
        return Neighbours(rows, columns, relevant, filled.sum(1))

    def _reorder(self, rows, affected, columns, relevant, close, mixed) -> None:
        """Sort the runs of the `affected` rows that hold a mixed pair, in place."""
        if not len(affected):
            return
        begins = np.ones((len(affected), columns.shape[1]), dtype=bool)
        begins[:, 1:] = ~close[affected]
        run = np.cumsum(begins).reshape(begins.shape) - 1  # number of the run that a slot is in
        wanted = np.zeros(int(run[-1, -1]) + 1, dtype=bool)
        wanted[run[:, 1:][mixed[affected]]] = True
        row, slot = np.nonzero(wanted[run])
        own_run, column = run[row, slot], columns[affected[row], slot]
        distances = self.space.squared_distances(rows[affected[row]], column)
        order = np.lexsort((column, distances, own_run))  # own_run ascends already: slots keep their runs
        position = affected[row], slot
        columns[position] = column[order]
        relevant[position] = relevant[position][order]


@dataclass
class Block:
    """B queries: their rows, features with a 1 behind `(B, D + 1)`, error of their scores `(B,)`; what is known of their scores."""

    rows: np.ndarray
    queries: torch.Tensor
    noise: np.ndarray
    only_tile: torch.Tensor | None  # (B, M), where the whole reference is one tile
    sampled: np.ndarray | None = None  # (B, S), of the sample


class Candidates(NamedTuple):
    """Keys of all candidates of B queries, query after query; where each query's begin, how many they are, how many surely count."""

    keys: np.ndarray
    offsets: np.ndarray
    counts: np.ndarray
    surely: np.ndarray


COLUMN_BITS = 31
COLUMN = (1 << COLUMN_BITS) - 1


def as_keys(scores: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """int64 keys that ascend as float32 `scores` descend, then as `columns` ascend."""
    bits = (-scores).view(np.int32).astype(np.int64)
    bits ^= (bits >> 63) & 0x7FFFFFFF  # negative floats run backwards
    return ((bits + (1 << 31)) << COLUMN_BITS) | columns


def scores_of(keys: np.ndarray) -> np.ndarray:
    """The scores in keys; NaN for `AFTER_ALL`."""
    bits = (keys >> COLUMN_BITS) - (1 << 31)
    bits ^= (bits >> 63) & 0x7FFFFFFF
    return -bits.astype(np.int32).view(np.float32)
