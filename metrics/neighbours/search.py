"""Exact neighbours, without sorting all distances.

Every retrieval metric is a function of the ranks of the samples of the query's class (the relevant ones), most of which
are among the nearest. So each query gets a cut: a score below which lies nothing that it needs. The cut is the score of
its farthest relevant sample (of its nearest one, where first hits suffice), or the score at the needed depth, estimated
from a sample of the reference, whichever is higher. One matrix product for each tile of queries x reference gives all
scores in float32; only candidates, scores at or above the cut, are kept and sorted. Where an estimate was too high, the
query is searched again.

Ranks are those of float64 distances all the same: `ties.py` orders neighbours whose float32 scores lie within rounding
of each other. A query is left out of its own neighbours by its index, and the samples of its own sequence with it. A
search of a set in itself computes each score once (`triangle.py`).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from tqdm import tqdm

from metrics.neighbours.keys import AFTER_ALL, COLUMN, LOWEST, as_keys, scores_of
from metrics.neighbours.ties import Ties
from metrics.neighbours.triangle import Triangle
from utilities.tensors import Products

# rounding errors of a dot product of D terms, in units of sqrt(D) * unit roundoff
SLACK = 4.0


@dataclass(frozen=True)
class Limits:
    """Sizes that bound memory and time. No result depends on them."""

    rows: int = 1024  # queries a block; at most 65,536, for 16 bits
    columns: int = 8192  # reference samples a tile, a multiple of `rows`: a tile of float32 stays near the cores
    candidates: int = 16_000_000  # of a block (a few hundred MB)
    waiting: int = 32_000_000  # candidates that wait for later blocks (10 bytes each)
    sample: int = 1024  # reference samples from which the score at a depth is estimated
    pairs: int = 256  # relevant samples of a query whose scores set its cut; a larger class sets none
    near_ties: int = 32  # per reference sample, above which equal samples are looked for


@dataclass
class Work:
    """Counts of the work that a search has done so far."""

    scores: int = 0  # computed in float32
    held: int = 0  # most candidates in memory at once
    pruned: int = 0  # waiting candidates that pruning looked at
    reordered: int = 0  # near ties put in order
    distances: int = 0  # computed in float64


class Need(NamedTuple):
    """Depth `(N,)` to which each query's neighbours matter, and which of them:
    the "first" hit, "all" hits, or "every" neighbour.

    column: of labels of several levels, by which they are hits; None: the last, which has the most.
    """

    depth: np.ndarray
    goal: str
    column: int | None = 0


class Neighbours(NamedTuple):
    """Nearest neighbours of Q queries, nearest first, as far as they are needed.

    rows `(Q,)`: the queries. columns `(Q, W)`: indices into the reference. relevant `(Q, W)`: of the query's class or
    not; where labels have several levels, how many of these are the query's. counts `(Q,)`: filled slots of the W; an
    empty slot is not relevant.
    """

    rows: np.ndarray
    columns: np.ndarray
    relevant: np.ndarray
    counts: np.ndarray


def product(queries: torch.Tensor, reference: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """Scores `(B, W)` of queries `(B, D + 2)` with references `(W, D + 2)` in full float32,
    no TF32, as the rounding bound assumes.
    """
    with Products("highest"):
        return torch.mm(queries, reference.T, out=out)


class Search:
    """Neighbours of the queries of `space` in its reference. They are the same whichever queries are searched together.

    A score is q.r - |q|^2/2 - |r|^2/2, minus half the squared distance. Features are first centred on the reference's
    mean and scaled to norms of at most 1 in the reference: distances keep their order, rounding gets smaller.

    Args:
        space: an `EmbeddingSpace`.
        limits: sizes of blocks and buffers.
    """

    # queries are split over processes in multiples of it
    unit = 1

    def __init__(self, space, limits: Limits | None = None):
        self.space = space
        self.limits = limits or Limits()
        self.work = Work()
        self.ties = Ties(space, self.limits, self.work)
        self.device = torch.device(space.device)
        # on a CPU numpy is faster than torch; the ranks are the same
        self.in_numpy = self.device.type == "cpu"
        # whence features come: tensors where the device keeps them, else arrays
        self.source = space.tensors or space
        m = space.reference_size
        d = space.dimensions
        self.mean = sum(block.sum(0) for _, block in self.source.reference_blocks()) / max(m, 1)  # (D,)
        longest = 0.0
        for _, block in self.source.reference_blocks():
            longest = max(longest, float(((block - self.mean) ** 2).sum(1).max()))
        self.scale = 1.0 / (np.sqrt(longest) or 1.0)
        self.reference = None  # (M, D + 2), see `_moved`; None: a reference in a file, whose rows are made when needed
        if not space.mapped:
            self.reference = torch.empty(m, d + 2, dtype=torch.float32, device=self.device)
            for start, block in self.source.reference_blocks():
                self.reference[start : start + len(block)] = self._moved(block)
        self.sequences = None  # (M,)
        if space.truth.sequences is not None:
            self.sequences = torch.from_numpy(space.truth.sequences[1]).to(self.device)
        # the sample decides what is kept, never a result
        generator = np.random.default_rng(0)
        sample = np.sort(generator.choice(m, min(m, self.limits.sample), replace=False))
        self.sample = torch.from_numpy(sample).to(self.device)  # (S,)
        tile = self.limits.rows * min(self.limits.columns, max(m, 1))
        self.buffer = torch.empty(tile, dtype=torch.float32, device=self.device)
        self.mask = torch.empty(len(self.buffer), dtype=torch.bool, device=self.device)

    def run(self, needs: list[Need], progress: bool = False, rows: slice | None = None):
        """Yield `Neighbours` in blocks, in which each query comes once.

        Args:
            needs: at least one.
            progress: show a bar where the search is long.
            rows: the queries that are searched, those from `start` to `stop`; None: all.
        """
        rows = rows or slice(0, self.space.size)
        ordered = max((int(np.max(need.depth)) for need in needs if need.goal == "every"), default=0)
        depths = np.maximum.reduce([need.depth for need in needs])
        with self.bar(rows.stop - rows.start, progress) as bar:
            for block, candidates, done in self._blocks(needs, rows):
                bar.update(int(done.sum()))
                yield from self._sorted(block, candidates, done, depths, ordered)

    def bar(self, size: int, progress: bool) -> tqdm:
        """A bar for `size` queries, shown where the search is long."""
        long = progress and size * self.space.reference_size > 1e9
        # None: tqdm shows the bar on a terminal only
        disable = None if long else True
        return tqdm(total=size, desc="neighbours", unit=" queries", disable=disable)

    def _blocks(self, needs: list[Need], rows: slice):
        """Yield (block, its candidates, the queries `(B,)` for which they suffice) until they have sufficed for each
        query of `rows`.
        """
        limits = self.limits
        todo = []  # (rows, how often they were searched)
        begin = rows.start
        size = rows.stop
        if self.space.is_self_search and size - begin == self.space.size and self.space.reference_size > limits.columns:
            for block, candidates, done in Triangle(self, needs):
                yield block, candidates, done
                begin = int(block.rows[-1]) + 1
                if not done.all():
                    todo.append((block.rows[~done], 1))
        deepest = max((float(np.max(need.depth)) for need in needs if need.goal != "first"), default=0.0)
        # candidates that a query is likely to have
        likely = min(self.space.reference_size, 2 * deepest + 2 * limits.sample)
        step = int(min(limits.rows, max(1, limits.candidates // likely)))
        todo += [(np.arange(start, min(start + step, size)), 0) for start in range(begin, size, step)][::-1]
        while todo:
            rows, attempt = todo.pop()
            block = self.ready(rows)
            self.set_cuts(block, needs, attempt)
            candidates = self._above(block)
            # too many candidates: the block is split into two halves
            if candidates is None:
                half = len(rows) // 2
                todo += [(rows[half:], attempt), (rows[:half], attempt)]
                continue
            done = self.suffices(block, candidates, needs)
            if not done.all():
                todo.append((rows[~done], attempt + 1))
            yield block, candidates, done

    def ready(self, rows: np.ndarray) -> "Block":
        """The block of some queries: features, rounding errors and, of a small reference, all scores."""
        queries, noise = self.moved_queries(rows)
        block = Block(rows, queries.to(self.device), noise.cpu().numpy())
        if self.space.reference_size <= self.limits.columns:
            block.only_tile = self.hidden(self.tile(block.queries, 0), rows, slice(None))
        return block

    def moved_queries(self, rows: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows `(B, D + 2)` of queries: centred and scaled, -|q|^2/2, 1; and the bound `(B,)` of the rounding error of
        a score.
        """
        features = torch.as_tensor((self.source.queries(rows) - self.mean) * self.scale)  # (B, D) float64
        squares = (features**2).sum(1)
        unit = np.finfo(np.float32).eps / 2
        noise = SLACK * unit * np.sqrt(self.space.dimensions + 4) * (squares.sqrt() + 0.5 * squares + 0.5)
        queries = torch.ones(len(rows), features.shape[1] + 2, dtype=torch.float32, device=features.device)
        queries[:, :-2] = features
        queries[:, -2] = -0.5 * squares
        return queries, noise.float()

    def _moved(self, features: "np.ndarray | torch.Tensor") -> torch.Tensor:
        """Rows `(W, D + 2)` of reference features `(W, D)`: centred and scaled, 1, -|r|^2/2."""
        moved = torch.as_tensor((features - self.mean) * self.scale)
        rows = torch.ones(len(moved), moved.shape[1] + 2, dtype=torch.float32, device=moved.device)
        rows[:, :-2] = moved
        rows[:, -1] = -0.5 * (moved**2).sum(1)
        return rows

    def _references(self, columns: slice | torch.Tensor) -> torch.Tensor:
        """Rows `(W, D + 2)` of some reference samples."""
        if self.reference is None:
            columns = columns if isinstance(columns, slice) else columns.cpu().numpy()
            return self._moved(self.space.references(columns)).to(self.device)
        return self.reference[columns] if isinstance(columns, slice) else self.reference.index_select(0, columns)

    def tile(self, queries, start: int) -> torch.Tensor:
        """Scores `(B, W)` of the reference samples from `start` on, in the buffer that the next tile overwrites."""
        reference = self._references(slice(start, start + self.limits.columns))
        self.work.scores += len(queries) * len(reference)
        scores = self.buffer[: len(queries) * len(reference)].view(len(queries), len(reference))
        return product(queries, reference, out=scores)

    def hidden(self, scores: torch.Tensor, rows: np.ndarray, columns) -> torch.Tensor:
        """The scores `(B, W)` of queries `rows` with reference samples `columns`,
        in place -inf where both are of one sequence.
        """
        if self.sequences is None:
            return scores
        queries = torch.from_numpy(self.space.truth.sequences[0][rows]).to(self.device)
        return scores.masked_fill_(queries[:, None] == self.sequences[columns][None, :], -np.inf)

    def set_cuts(self, block: "Block", needs: list[Need], attempt: int) -> None:
        """Set the block's cuts and, for each need, the cuts at or above which all its hits lie."""
        scores = {}
        for column in {need.column for need in needs}:
            nearest, scores["all", column] = self._relevant_scores(block, self.space.truth.at(column))
            scores["first", column] = nearest
            # the nearest sample is no farther than the nearest relevant one; of farther ones nothing is known
            scores["every", column] = np.where(np.isinf(nearest), LOWEST, nearest)
        block.hits = []
        for need in needs:
            hits = scores[need.goal, need.column] - 2 * block.noise
            if need.goal == "every":
                hits[need.depth[block.rows] > 1] = LOWEST
            block.hits.append(hits)
        cuts = [
            np.maximum(hits, self._scores_at(block, need, hits, attempt))
            for need, hits in zip(needs, block.hits, strict=True)
        ]
        block.cuts = np.maximum(np.minimum.reduce(cuts), LOWEST).astype(np.float32)

    def suffices(self, block: "Block", candidates: "Candidates", needs: list[Need]) -> np.ndarray:
        """Boolean `(B,)`: whether the candidates hold all that is needed of a query."""
        done = np.ones(len(block.rows), dtype=bool)
        for need, hits in zip(needs, block.hits, strict=True):
            done &= (block.cuts <= hits) | (candidates.surely >= need.depth[block.rows]) | (block.cuts <= LOWEST)
        return done

    def sampled(self, block: "Block") -> np.ndarray:
        """Scores `(B, S)` of the sample of the reference."""
        if block.sampled is None:
            if block.only_tile is not None:
                scores = block.only_tile[:, self.sample]
            else:
                scores = self.hidden(product(block.queries, self._references(self.sample)), block.rows, self.sample)
            block.sampled = scores.cpu().numpy()
        return block.sampled

    def _scores_at(self, block: "Block", need: Need, hits: np.ndarray, attempt: int) -> np.ndarray:
        """Estimated score `(B,)` at the need's depth, erring low, lower each `attempt`;
        `LOWEST` where the cuts `hits` are higher.
        """
        scores = np.full(len(block.rows), LOWEST, dtype=np.float32)
        m = self.space.reference_size
        s = len(self.sample)
        # the query itself and junk are not ranked, but may be in the sample
        unranked = self.space.truth.unranked(block.rows)
        # expected rank in the sample of what has the rank `depth` in the reference
        expected = (need.depth[block.rows] + unranked) * (s / m)
        if s < m:
            # + 3 sigma: few queries need another attempt
            expected = expected + 3 * np.sqrt(expected) + 3
        places = expected * 4**attempt
        rows = np.flatnonzero(places < s)
        if attempt > 3 or not len(rows):
            return scores
        sampled = self.sampled(block)
        # the other queries have all their hits before the depth
        rows = rows[(sampled[rows] >= hits[rows, None]).sum(1) > places[rows]]
        ranked = np.sort(sampled[rows], axis=1)
        scores[rows] = ranked[np.arange(len(rows)), s - 1 - places[rows].astype(np.int64)] - 3 * block.noise[rows]
        return scores

    def _relevant_scores(self, block: "Block", truth):
        """Scores `(B,)` of the nearest and of the farthest relevant sample;
        lower bounds in a large class, inf without any.
        """
        space = self.space
        rows = block.rows
        sizes = truth.listed(rows)
        counts = np.minimum(sizes, self.limits.pairs + 1)
        nearest = np.full(len(rows), np.inf, dtype=np.float32)
        farthest = nearest.copy()
        ends = np.cumsum(counts)
        start = 0
        # about 65,536 pairs at a time, fewer from a file, to bound memory
        while start < len(rows):
            before = ends[start - 1] if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, before + min(65536, space.block), side="right")))
            row, column = truth.first_relevant(rows[start:stop], self.limits.pairs + 1)
            row = row + start
            if len(row):
                scores = self._pair_scores(
                    block, torch.from_numpy(row).to(self.device), torch.from_numpy(column).to(self.device)
                )
                first = np.flatnonzero(np.diff(row, prepend=-1))
                nearest[row[first]] = np.maximum.reduceat(scores, first)
                farthest[row[first]] = np.minimum.reduceat(scores, first)
            start = stop
        farthest[sizes > counts] = LOWEST
        # all samples looked at are of the query's sequence
        nearest[(sizes > counts) & np.isinf(nearest)] = LOWEST
        return nearest, farthest

    def _pair_scores(self, block: "Block", row: torch.Tensor, column: torch.Tensor) -> np.ndarray:
        """Scores `(P,)` of pairs of a block's query and a reference sample."""
        if block.only_tile is not None:
            scores = block.only_tile.view(-1).index_select(0, row * self.space.reference_size + column)
        else:
            scores = (block.queries.index_select(0, row) * self._references(column)).sum(1)
        return scores.cpu().numpy()

    def at_least(self, scores: torch.Tensor, cut: torch.Tensor):
        """Rows, columns and values, `(P,)` each, of the scores `(B, W)` at or above the cuts, which broadcast to them;
        row after row.
        """
        b, w = scores.shape
        mask = torch.ge(scores, cut, out=self.mask[: b * w].view(b, w))
        if self.in_numpy:
            flat = np.flatnonzero(mask.numpy())
        else:
            flat = torch.nonzero(mask.view(-1)).squeeze(1).cpu().numpy()
        row = np.repeat(np.arange(b), np.diff(np.searchsorted(flat, np.arange(b + 1, dtype=np.int64) * w)))
        column = flat - row * w
        if not self.in_numpy:
            values = torch.masked_select(scores, mask).cpu().numpy()
        elif scores.is_contiguous():
            values = scores.numpy().reshape(-1)[flat]
        else:
            values = scores.numpy()[row, column]
        return row, column, values

    def _above(self, block: "Block") -> "Candidates | None":
        """All reference samples at or above each query's cut, None where they are more than a block may keep."""
        cut = torch.from_numpy(block.cuts).to(self.device)[:, None]
        hidden_rows, hidden_columns = self.space.truth.hidden_pairs(block.rows)
        parts = []
        size = 0
        for start in range(0, self.space.reference_size, self.limits.columns):
            if block.only_tile is None:
                scores = self.tile(block.queries, start)
                self.hidden(scores, block.rows, slice(start, start + scores.shape[1]))
            else:
                scores = block.only_tile
            in_tile = (hidden_columns >= start) & (hidden_columns < start + scores.shape[1])
            rows_in_tile = torch.from_numpy(hidden_rows[in_tile]).to(self.device)
            columns_in_tile = torch.from_numpy(hidden_columns[in_tile] - start).to(self.device)
            scores[rows_in_tile, columns_in_tile] = -np.inf
            row, column, values = self.at_least(scores, cut)
            parts.append((row.astype(np.uint16), as_keys(values, column + start)))
            size += len(row)
            self.work.held = max(self.work.held, size)
            if size > self.limits.candidates and len(block.rows) > 1:
                return None
        return self.assembled(block, parts)

    def assembled(self, block: "Block", parts: list) -> "Candidates":
        """Candidates from the (rows `(P,)` uint16, keys `(P,)`) of several tiles."""
        row = np.concatenate([rows for rows, _ in parts])
        keys = np.concatenate([keys for _, keys in parts])
        if len(parts) > 1:
            # numpy sorts numbers of 16 bits by radix, which is fast
            order = np.argsort(row, kind="stable")
            row = row[order]
            keys = keys[order]
        counts = np.bincount(row, minlength=len(block.rows))
        # within a score keys ascend by column: + COLUMN makes the score's last key
        sure = as_keys(block.cuts + 2 * block.noise, 0)[row] + COLUMN
        surely = np.bincount(row[keys <= sure], minlength=len(block.rows))
        return Candidates(keys, np.cumsum(counts) - counts, counts, surely)

    def _sorted(self, block, candidates, done, depths, ordered: int):
        """Yield `Neighbours` of the done queries, to the depths `(N,)` and a little beyond,
        grouped by similar candidate counts; see `Ties.settle` for `ordered`.
        """
        chosen = np.flatnonzero(done)
        chosen = chosen[np.argsort(candidates.counts[chosen], kind="stable")]
        counts = candidates.counts[chosen]
        start = 0
        while start < len(chosen):
            stop = int(np.searchsorted(counts, max(32, 2 * counts[start]), side="right"))
            width = int(counts[stop - 1])
            stop = min(stop, start + max(1, self.limits.candidates // 4 // max(width, 1)))
            width = max(int(counts[stop - 1]), 1)
            group = chosen[start:stop]
            slots = np.arange(width)[None, :]
            filled = slots < candidates.counts[group][:, None]  # (Q, W)
            keys = np.full(filled.shape, AFTER_ALL)
            keys[filled] = candidates.keys[(candidates.offsets[group][:, None] + slots)[filled]]
            keys.sort(axis=1)
            rows = block.rows[group]
            scores = scores_of(keys)
            noise = 2 * block.noise[group]
            last = np.maximum(np.minimum(depths[rows], candidates.counts[group]).astype(np.int64) - 1, 0)  # (Q,) slots
            # scores further below the last needed one rank after it despite rounding
            with np.errstate(invalid="ignore"):
                least = np.nextafter(scores[np.arange(len(rows)), last] - noise, -np.inf, dtype=np.float32)
                filled &= scores >= least[:, None]
            counts_of_rows = filled.sum(1)
            slots = slice(counts_of_rows.max(initial=0))
            scores = np.where(filled, scores, np.nan)[:, slots]
            filled = filled[:, slots]
            columns = np.where(filled, keys[:, slots] & COLUMN, 0)
            relevant = self.space.truth.are_relevant(rows, columns) * filled  # (Q, W)
            self.ties.settle(rows, columns, relevant, scores, noise, ordered)
            yield Neighbours(rows, columns, relevant, counts_of_rows)
            start = stop


@dataclass
class Block:
    """B queries of one search."""

    rows: np.ndarray  # (B,)
    queries: torch.Tensor  # (B, D + 2): the features, -|q|^2/2, 1
    noise: np.ndarray  # (B,) bound of the rounding error of a score
    only_tile: torch.Tensor | None = None  # (B, M) scores, where the whole reference is one tile
    sampled: np.ndarray | None = None  # (B, S) scores
    cuts: np.ndarray | None = None  # (B,)
    # of each need the cuts (B,) at or above which all its hits lie
    hits: list | None = None


class Candidates(NamedTuple):
    """Candidates of B queries, query after query."""

    keys: np.ndarray  # (P,)
    offsets: np.ndarray  # (B,) first key of each query
    counts: np.ndarray  # (B,) keys of each query
    surely: np.ndarray  # (B,) how many of them are above the cut despite rounding
