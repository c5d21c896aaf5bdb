"""Exact ranks of the neighbours that matter, without sorting those that do not.

Every retrieval metric is a function of the ranks of the samples of the query's class (the relevant ones), and most queries have
found them all long before the depth to which a metric looks. So each query gets a cut: a score that nothing it needs can lie
below. It is the score of its farthest relevant sample (of its nearest one, where first hits suffice), or an estimate, from a
sample of the reference, of the score at the depth asked for, whichever is higher. One matrix product a tile of queries x
reference then gives all scores in float32, and only those above the cut are kept and sorted. In a set that searches in itself
the score of (i, j) is that of (j, i) and is computed once.

Ranks are those of float64 distances all the same. Neighbours whose float32 scores lie within rounding of each other are put in
order by their float64 distances; equal distances are put in order by the index in the reference, the lower one first. A query
is left out of its own neighbours by its index. Where much has to be put in order, equal samples of the reference are found once:
a run of them is in order as it stands, and has one distance.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from tqdm import tqdm

from metrics._keys import AFTER_ALL, COLUMN, as_keys, scores_of

ROWS = 1024  # queries a block
COLUMNS = 8192  # reference samples a tile: ROWS x COLUMNS float32 stay near the cores
KEPT = 16_000_000  # scores above the cuts that a block may keep (a few hundred MB)
WAITING = 32_000_000  # scores that may wait for later blocks (10 bytes each), before what need not wait is left out
SAMPLE = 1024  # reference samples from which the score at a depth is estimated
PAIRS = 256  # relevant samples of a query whose scores are looked at to set its cut
FEW = 32  # pairs put in order for each reference sample, beyond which it pays to find the equal samples
SLACK = 4.0  # rounding errors of a dot product of D terms, in units of sqrt(D) * unit roundoff
LOWEST = float(np.finfo(np.float32).min)


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


def _product(queries: torch.Tensor, reference: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """Scores `(B, W)` of queries `(B, D + 2)` with references `(W, D + 2)` in true float32, as the bound of the rounding error wants it."""
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        return torch.mm(queries, reference.T, out=out)
    finally:
        torch.set_float32_matmul_precision(precision)


class Search:
    """Neighbours of the queries of `space` in its reference.

    Scores are s = q.r - |q|^2/2 - |r|^2/2, minus half the squared distance. They are computed on features that are moved to the
    reference's mean and scaled to norms of at most 1 (distances keep their order, rounding gets smaller).
    """

    def __init__(self, space):
        self.space = space
        self.device = torch.device(space.device)
        m, d = space.reference_size, space.dimensions
        self.mean = sum(block.sum(0) for _, block in space.reference_blocks()) / max(m, 1)  # (D,)
        moved_norms = np.concatenate([np.sqrt(((block - self.mean) ** 2).sum(1)) for _, block in space.reference_blocks()] or [np.zeros(0)])
        self.scale = 1.0 / (moved_norms.max(initial=0.0) or 1.0)
        self.reference = torch.ones(m, d + 2)  # (M, D + 2), behind the features stand 1 and -|r|^2/2
        for start, block in space.reference_blocks():
            moved = (block - self.mean) * self.scale
            self.reference[start : start + len(block), :d] = torch.from_numpy(moved)
            self.reference[start : start + len(block), d + 1] = torch.from_numpy(-0.5 * (moved**2).sum(1))
        self.reference = self.reference.to(self.device)
        generator = np.random.default_rng(0)  # the sample only decides what is kept, never a result
        self.sample = torch.from_numpy(np.sort(generator.choice(m, min(m, SAMPLE), replace=False))).to(self.device)  # (S,)
        self.buffer = torch.empty(ROWS * min(COLUMNS, max(m, 1)), device=self.device)
        self.mask = torch.empty(len(self.buffer), dtype=torch.bool, device=self.device)
        self.reordered = 0  # pairs put in order so far

    def run(self, needs: list[Need], progress: bool = False):
        """Yield `Neighbours` in blocks until every query has had its turn, once.

        Args:
            needs: what has to be known of each query.
            progress: show a bar where the search is long.
        """
        size = self.space.size
        every = any(need.what == "every" for need in needs)
        long = progress and size * self.space.reference_size > 1e9
        with tqdm(total=size, desc="neighbours", unit=" queries", disable=None if long else True) as bar:
            for block, candidates, done in self._blocks(needs):
                bar.update(int(done.sum()))
                yield from self._sorted(block, candidates, done, every)

    def _blocks(self, needs: list[Need]):
        """Yield (block, its candidates, the queries that they suffice for) until every query was among the last, once."""
        size = self.space.size
        waiting = []
        begin = 0
        if self.space.is_self_search and self.space.reference_size > COLUMNS:
            for block, candidates, done in self._triangle(needs):
                yield block, candidates, done
                begin = int(block.rows[-1]) + 1
                if not done.all():
                    waiting.append((block.rows[~done], 1))
        deepest = max((float(np.max(need.depth)) for need in needs if need.what != "first"), default=0.0)
        bound = min(self.space.reference_size, 2 * deepest + 2 * SAMPLE)  # candidates that a query may well have
        step = int(min(ROWS, max(1, KEPT // bound)))
        waiting += [(np.arange(start, min(start + step, size)), 0) for start in range(begin, size, step)][::-1]
        while waiting:
            rows, attempt = waiting.pop()
            block = self._block(rows)
            self._cut(block, needs, attempt)
            candidates = self._above(block)
            if candidates is None:  # more was kept than planned: in two halves
                half = len(rows) // 2
                waiting += [(rows[half:], attempt), (rows[:half], attempt)]
                continue
            done = self._suffices(block, candidates, needs)
            if not done.all():
                waiting.append((rows[~done], attempt + 1))
            yield block, candidates, done

    def _triangle(self, needs: list[Need]):
        """The blocks of a search in itself, each score computed once: that of (i, j) is that of (j, i).

        What the queries of later blocks need of a tile waits for them. Where much waits, the cuts of those queries rise to what lies
        deep enough among the scores they have; where that does not help, this ends early.
        """
        size = self.space.size
        cuts = np.empty(size, dtype=np.float32)
        blocks, expected = [], 0.0
        deepest = float(np.maximum.reduce([need.depth for need in needs]).sum())
        for start in range(0, size, ROWS):
            block = self._block(np.arange(start, min(start + ROWS, size)))
            self._cut(block, needs, 0)
            cuts[block.rows] = block.cuts
            expected += float((self._sampled(block) >= block.cuts[:, None]).sum()) * size / len(self.sample)
            block.queries = block.sampled = None  # made again when its turn comes: all of them at once are as large as the input
            blocks.append(block)
        # At half time half of the candidates are found, of which half wait; of many, those that the deepest need asks for.
        if min(expected / 4, deepest) > WAITING:
            return
        later = {int(block.rows[0]): [] for block in blocks}
        n_later, limit = 0, WAITING
        for i, block in enumerate(blocks):
            if n_later > limit:
                for other in blocks[i:]:
                    later[int(other.rows[0])] = [self._pruned(other, later[int(other.rows[0])], needs)]
                    cuts[other.rows] = other.cuts
                n_later = sum(len(keys) for parts in later.values() for _, keys in parts)
                if n_later > WAITING:
                    return
                limit = max(WAITING, 2 * n_later)  # so that as much again has come before it is done again
            first = int(block.rows[0])
            block.queries = self._block(block.rows).queries
            found = later.pop(first)
            n_found = sum(len(keys) for _, keys in found)
            n_later -= n_found
            for start in range(first, size, COLUMNS):
                scores = self._tile(block.queries, start)
                own = len(block.rows) if start == first else 0
                scores[:, :own].fill_diagonal_(-np.inf)
                row, column, kept = self._where(scores, torch.from_numpy(block.cuts).to(self.device)[:, None])
                found.append((row.astype(np.uint16), as_keys(kept, column + start)))
                n_found += len(row)
                others = slice(start + own, start + scores.shape[1])
                row, column, kept = self._where(scores[:, own:], torch.from_numpy(cuts[others]).to(self.device)[None, :])
                order = np.argsort(column.astype(np.uint16), kind="stable")  # 16 bits: by counting
                column, keys = column[order] + others.start, as_keys(kept, row + first)[order]
                bounds = np.searchsorted(column, np.arange(others.start, others.stop + ROWS, ROWS))
                for base, begin, end in zip(range(others.start, others.stop, ROWS), bounds, bounds[1:], strict=False):
                    if begin < end:
                        later[base].append(((column[begin:end] - base).astype(np.uint16), keys[begin:end]))
                n_later += len(keys)
                if n_found > KEPT or n_later > 3 * WAITING:  # ties, of which a need's depth bounds none
                    return
            candidates = self._assembled(block, found)
            del found
            yield block, candidates, self._suffices(block, candidates, needs)
            block.queries = None

    def _block(self, rows: np.ndarray) -> "Block":
        """The queries of some rows, made ready."""
        features = (self.space.queries(rows) - self.mean) * self.scale  # (B, D) float64
        squares = (features**2).sum(1)
        unit = np.finfo(np.float32).eps / 2
        noise = SLACK * unit * np.sqrt(self.space.dimensions + 4) * (np.sqrt(squares) + 0.5 * squares + 0.5)
        queries = torch.ones(len(rows), features.shape[1] + 2)
        queries[:, :-2] = torch.from_numpy(features)
        queries[:, -2] = torch.from_numpy(-0.5 * squares)
        block = Block(rows, queries.to(self.device), noise.astype(np.float32))
        if self.space.reference_size <= COLUMNS:
            block.only_tile = self._tile(block.queries, 0)
        return block

    def _tile(self, queries, start: int) -> torch.Tensor:
        """Scores `(B, W)` of the reference samples from `start` on, in the buffer that the next tile overwrites."""
        reference = self.reference[start : start + COLUMNS]
        scores = self.buffer[: len(queries) * len(reference)].view(len(queries), len(reference))
        return _product(queries, reference, out=scores)

    def _cut(self, block: "Block", needs: list[Need], attempt: int) -> None:
        """Set the block's cuts `(B,)`, and for each need the cut above which all its hits lie."""
        nearest, farthest = self._relevant_scores(block)
        scores = {"first": nearest, "all": farthest, "every": np.full(len(block.rows), LOWEST, dtype=np.float32)}
        block.hits = [scores[need.what] - 2 * block.noise for need in needs]
        cuts = [np.maximum(hits, self._scores_at(block, need, hits, attempt)) for need, hits in zip(needs, block.hits, strict=True)]
        block.cuts = np.maximum(np.minimum.reduce(cuts), LOWEST).astype(np.float32)

    def _suffices(self, block: "Block", candidates: "Candidates", needs: list[Need]) -> np.ndarray:
        """Boolean `(B,)`: do the candidates hold all that is needed of a query?"""
        done = np.ones(len(block.rows), dtype=bool)
        for need, hits in zip(needs, block.hits, strict=True):
            done &= (block.cuts <= hits) | (candidates.surely >= need.depth[block.rows]) | (block.cuts <= LOWEST)
        return done

    def _pruned(self, block: "Block", found: list, needs: list[Need]):
        """What is still needed of the (rows `(P,)`, keys `(P,)`) found for a block so far; the block's cuts rise to it.

        The score at a need's depth among some references is a lower bound of that among all.
        """
        if not found:
            return np.zeros(0, dtype=np.uint16), np.zeros(0, dtype=np.int64)
        candidates = self._assembled(block, found)
        row = np.repeat(np.arange(len(block.rows), dtype=np.uint16), candidates.counts)
        order = np.lexsort((candidates.keys, row))
        keys = candidates.keys[order]
        cuts = []
        for need, hits in zip(needs, block.hits, strict=True):
            depth = need.depth[block.rows]
            known = np.flatnonzero((depth > 0) & (candidates.counts >= depth))
            at_depth = np.full(len(block.rows), LOWEST, dtype=np.float32)
            at_depth[known] = scores_of(keys[candidates.offsets[known] + depth[known].astype(np.int64) - 1]) - 3 * block.noise[known]
            cuts.append(np.maximum(hits, at_depth))
        block.cuts = np.maximum(block.cuts, np.minimum.reduce(cuts)).astype(np.float32)
        kept = keys <= as_keys(block.cuts, 0)[row] + COLUMN
        return row[kept], keys[kept]

    def _sampled(self, block: "Block") -> np.ndarray:
        """Scores `(B, S)` of the sample of the reference."""
        if block.sampled is None:
            in_tile = block.only_tile is not None
            block.sampled = (
                (block.only_tile[:, self.sample] if in_tile else _product(block.queries, self.reference[self.sample])).cpu().numpy()
            )
        return block.sampled

    def _scores_at(self, block: "Block", need: Need, hits: np.ndarray, attempt: int) -> np.ndarray:
        """Estimated score `(B,)` of the last neighbour needed, rather too low; `LOWEST` where the cut at `hits` is the higher one."""
        scores = np.full(len(block.rows), LOWEST, dtype=np.float32)
        m, s = self.space.reference_size, len(self.sample)
        expected = (need.depth[block.rows] + 1) * (s / m)  # place in the sample; + 1: the query itself may be in it
        places = (expected if s == m else expected + 3 * np.sqrt(expected) + 3) * 4**attempt  # so that few need another attempt
        rows = np.flatnonzero(places < s)
        if attempt > 3 or not len(rows):
            return scores
        sampled = self._sampled(block)
        rows = rows[(sampled[rows] >= hits[rows, None]).sum(1) > places[rows]]  # the others' hits lie before the depth
        ranked = np.sort(sampled[rows], axis=1)
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

    def _where(self, scores: torch.Tensor, cut: torch.Tensor):
        """Rows, columns and values of the scores `(B, W)` at or above a cut that broadcasts to them, row after row."""
        b, w = scores.shape
        mask = torch.ge(scores, cut, out=self.mask[: b * w].view(b, w))
        if self.device.type == "cpu":
            flat = np.flatnonzero(mask.numpy())
        else:
            flat = torch.nonzero(mask.view(-1)).squeeze(1).cpu().numpy()
        row = np.repeat(np.arange(b), np.diff(np.searchsorted(flat, np.arange(b + 1, dtype=np.int64) * w)))
        column = flat - row * w
        if self.device.type == "cpu":
            kept = scores.numpy().reshape(-1)[flat] if scores.is_contiguous() else scores.numpy()[row, column]
        else:
            kept = torch.masked_select(scores, mask).cpu().numpy()
        return row, column, kept

    def _above(self, block: "Block") -> "Candidates | None":
        """All reference samples at or above each query's cut, or None where they are more than a block may keep."""
        cut = torch.from_numpy(block.cuts).to(self.device)[:, None]
        exclude = self.space.exclude[block.rows]
        found, size = [], 0
        for start in range(0, self.space.reference_size, COLUMNS):
            scores = self._tile(block.queries, start) if block.only_tile is None else block.only_tile
            own = np.flatnonzero((exclude >= start) & (exclude < start + scores.shape[1]))
            scores[torch.from_numpy(own).to(self.device), torch.from_numpy(exclude[own] - start).to(self.device)] = -np.inf
            row, column, kept = self._where(scores, cut)
            found.append((row.astype(np.uint16), as_keys(kept, column + start)))
            size += len(row)
            if size > KEPT and len(block.rows) > 1:
                return None
        return self._assembled(block, found)

    def _assembled(self, block: "Block", found: list) -> "Candidates":
        """Candidates of (rows `(P,)` uint16, keys `(P,)`) that several tiles gave."""
        row, keys = (np.concatenate(parts) for parts in zip(*found, strict=True))
        if len(found) > 1:
            order = np.argsort(row, kind="stable")  # 16 bits: by counting
            row, keys = row[order], keys[order]
        counts = np.bincount(row, minlength=len(block.rows))
        sure = as_keys(block.cuts + 2 * block.noise, 0)[row] + COLUMN  # the last key at or above that score
        surely = np.bincount(row[keys <= sure], minlength=len(block.rows))
        return Candidates(keys, np.cumsum(counts) - counts, counts, surely)

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
        chosen = wanted[run]
        self.reordered += np.count_nonzero(chosen)
        many = self.reordered > FEW * self.space.reference_size
        if many:
            found, place = columns[affected], self.space.places[columns[affected]]
            in_order = (place[:, :-1] == place[:, 1:]) & (found[:, :-1] < found[:, 1:])
            unsettled = np.zeros(len(wanted), dtype=bool)
            unsettled[run[:, 1:][~begins[:, 1:] & ~in_order]] = True
            chosen = (wanted & unsettled)[run]
        row, slot = np.nonzero(chosen)
        own_run, column = run[row, slot], columns[affected[row], slot]
        distances = self._distances(rows[affected], row, column) if many else self.space.squared_distances(rows[affected[row]], column)
        order = np.lexsort((column, distances, own_run))  # own_run ascends already: slots keep their runs
        position = affected[row], slot
        columns[position] = column[order]
        relevant[position] = relevant[position][order]

    def _distances(self, queries, row, column) -> np.ndarray:
        """Squared float64 distances `(P,)` from `queries[row]` to `column`, those of equal samples computed once where that is less."""
        space = self.space
        place = space.places[column]
        known = np.zeros(space.reference_size, dtype=bool)
        known[place] = True
        distinct = np.flatnonzero(known)  # a place is the first sample that stands there
        if len(queries) * len(distinct) > len(row) // 2:
            return space.squared_distances(queries[row], column)
        table = space.squared_distances(np.repeat(queries, len(distinct)), np.tile(distinct, len(queries)))
        return table.reshape(len(queries), -1)[row, (np.cumsum(known) - 1)[place]]


@dataclass
class Block:
    """B queries: their rows, features `(B, D + 2)` with -|q|^2/2 and 1 behind, the error of their scores `(B,)`; then what is found out."""

    rows: np.ndarray
    queries: torch.Tensor
    noise: np.ndarray
    only_tile: torch.Tensor | None = None  # (B, M), where the whole reference is one tile
    sampled: np.ndarray | None = None  # (B, S)
    cuts: np.ndarray | None = None  # (B,)
    hits: list | None = None  # a cut (B,) for each need


class Candidates(NamedTuple):
    """Keys of all candidates of B queries, query after query; where each query's begin, how many they are, how many surely count."""

    keys: np.ndarray
    offsets: np.ndarray
    counts: np.ndarray
    surely: np.ndarray
