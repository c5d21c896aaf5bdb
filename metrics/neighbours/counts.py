"""Ranks of relevant items by counting, on a GPU. They are those of the search that sorts.

The j-th nearest relevant item of a query has the rank j + the number of nearer items that are not relevant. So nothing
is sorted but the relevant items of each query, and only ranks leave the device. One matrix product gives the scores of
a block of queries with the whole reference; items above the query's cut are looked up among its relevant items. Where
the scores of a relevant and another item are within rounding of each other, their float64 distances decide, and where
these are within the rounding of a sum in another order, those that NumPy computes (`EmbeddingSpace`).
"""

import numpy as np
import torch

from metrics.neighbours.search import Need, Search, product

ENTRIES = 2**26  # scores of a block; where nothing bounds the depth, it takes up to 2.5 GB
PAIRS = 2**24  # near ties of a block
PAIRS_PER_QUERY = 2**16  # more are left to the search that sorts, which knows equal samples
FLOATS = 2**24  # numbers of float64 that are compared at once


class RankCounts:
    """Ranks of the hits of queries.

    Args:
        search: a `Search` of a space whose features are on the device.
        needs: one or several of one column of the labels, with the goals "first" or "all".
    """

    def __init__(self, search: Search, needs: list[Need]):
        self.search = search
        self.space = search.space
        self.tensors = search.space.tensors
        self.device = search.device
        self.goal = "first" if all(need.goal == "first" for need in needs) else "all"
        self.depth = np.maximum.reduce([need.depth for need in needs]).astype(np.int64)
        self.column = needs[0].column
        self.truth = self.space.truth.at(self.column)
        self.size = search.space.reference_size
        # of the sums of two distances, here and by NumPy
        self.rounding = (search.space.dimensions + 8) * np.finfo(np.float64).eps

    def run(self, rows: slice, progress: bool = False):
        """Yield queries `(B,)`, each once, with their hits: place in the queries `(H,)`, ascending, and rank `(H,)`."""
        queries = np.arange(rows.start, rows.stop)
        finds = self.truth.relevant[queries] > 0
        yield queries[~finds], np.zeros(0, np.int64), np.zeros(0, np.int64)
        queries = queries[finds]
        n_blocks = -(-len(queries) * self.size // ENTRIES)
        todo = [(block, True) for block in np.array_split(queries, max(n_blocks, 1)) if len(block)]
        with self.search.bar(len(queries), progress) as bar:
            while todo:
                queries, estimated = todo.pop()
                block = Block(self, queries, estimated)
                if block.n_pairs > PAIRS_PER_QUERY * len(queries):
                    bar.update(len(queries))
                    yield from self._sorted(queries)
                elif block.n_pairs > PAIRS and len(queries) > 1:
                    todo += [(half, estimated) for half in np.array_split(queries, 2)]
                else:
                    done = block.done()
                    bar.update(int(done.sum()))
                    yield block.hits(done)
                    if not done.all():
                        todo.append((queries[~done], False))

    def _sorted(self, queries: np.ndarray):
        """As `run`, by the search that sorts."""
        for part in np.split(queries, np.flatnonzero(np.diff(queries) > 1) + 1):
            for block in self.search.run([Need(self.depth, self.goal, self.column)], rows=slice(part[0], part[-1] + 1)):
                # of labels of several levels: how many of them are shared
                relevant = block.relevant >= max(self.space.truth.n_levels - self.column, 1)
                places, slots = np.nonzero(relevant)
                yield block.rows, places, slots + 1


class Block:
    """Some queries, each with R > 0 relevant items, H together: how many other items are nearer than each.

    Args:
        counts: the `RankCounts`. queries: `(B,)`. estimated: leave out items that are probably too far away for the
            depth; `done` says of which queries this was wrong.
    """

    def __init__(self, counts: RankCounts, queries: np.ndarray, estimated: bool):
        self.counts = counts
        self.queries = queries
        self.device = counts.device
        self.depth = self._sent(counts.depth[queries])
        moved, noise = counts.search.moved_queries(queries)
        # bound of the rounding error of the difference of two scores
        noise = 2 * noise
        scores = product(moved, counts.search.reference)  # (B, M)
        counts.search.hidden(scores, queries, slice(None))
        self._set_relevant(scores, noise)
        last = self.relevant[self.ends - 1] if counts.goal == "first" else self.relevant[self.starts]
        cut = last - noise
        if estimated:
            cut = torch.maximum(cut, self._scores_at_depth(scores) - noise)
        self._set_nearer(scores, cut)
        # whether all items that may be nearer were looked at, or enough of them
        self.settled = (self.low >= cut[self.row]) | (self.nearer >= self.depth[self.row])

    def _sent(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(self.device)

    def _set_relevant(self, scores: torch.Tensor, noise: torch.Tensor) -> None:
        """Take the relevant items from the scores, each query's in ascending order of theirs: row and column `(H,)`,
        the scores above and below which another one is surely nearer, or farther, and each query's first and last.
        """
        truth = self.counts.truth
        m = self.counts.size
        row, column = truth.first_relevant(self.queries, m)
        hidden_row, hidden_column = truth.hidden_pairs(self.queries)
        sizes = np.bincount(row, minlength=len(self.queries))
        self.ends = self._sent(np.cumsum(sizes))
        self.starts = self.ends - self._sent(sizes)
        self.row = self._sent(row)
        column = self._sent(column)
        scores = scores.view(-1)
        places = self.row * m + column
        relevant = scores[places]
        for ignored in (places, self._sent(hidden_row * m + hidden_column)):
            scores.index_fill_(0, ignored, -np.inf)
        order = sortable(self.row, relevant).argsort()
        self.column = column[order]
        self.relevant = relevant[order]
        self.high = self.relevant + noise[self.row]
        self.low = self.relevant - noise[self.row]

    def _scores_at_depth(self, scores: torch.Tensor) -> torch.Tensor:
        """Estimated score `(B,)` at the depth, erring low, from those of a sample of the reference."""
        sample = self.counts.search.sample
        share = len(sample) / self.counts.size
        expected = self.depth * share
        if share < 1:
            # + 3 sigma: few queries need another attempt
            expected = expected + 3 * expected.sqrt() + 3
        ranked = scores[:, sample].sort(1, descending=True).values
        places = expected.long()
        ranked = ranked.gather(1, places.clamp(max=len(sample) - 1)[:, None]).squeeze(1)
        return torch.where(places < len(sample), ranked, -np.inf)

    def _set_nearer(self, scores: torch.Tensor, cut: torch.Tensor) -> None:
        """Count the other items `(H,)` that are surely nearer than each relevant one, and list those that may be."""
        b, m = scores.shape
        candidates = (scores >= cut[:, None]).view(-1).nonzero().squeeze(1)  # (C,)
        rows = candidates.div(m, rounding_mode="floor")
        keys = sortable(rows, scores.view(-1)[candidates])
        # the first relevant item than which a candidate may not surely be nearer, and the first that is surely nearer
        begin = torch.searchsorted(sortable(self.row, self.high), keys)
        end = torch.searchsorted(sortable(self.row, self.low), keys, right=True)
        at = torch.zeros(len(self.row) + 1, dtype=torch.int64, device=self.device)
        at.index_add_(0, begin, torch.ones_like(begin))
        # number of candidates of all queries up to each one
        n_candidates = torch.searchsorted(rows, torch.arange(b, device=self.device), right=True)
        self.nearer = n_candidates[self.row] - at.cumsum(0)[:-1]
        near = (end > begin).nonzero().squeeze(1)
        self.near = candidates[near] - rows[near] * m
        self.begin = begin[near]
        self.widths = (end - begin)[near]
        self.n_pairs = int(self.widths.sum())

    def done(self) -> np.ndarray:
        """Which queries `(B,)` are settled; of a first hit alone the nearest relevant item decides."""
        if self.counts.goal == "first":
            return self.settled[self.ends - 1].cpu().numpy()
        n_open = torch.zeros_like(self.ends).index_add_(0, self.row, (~self.settled).long())
        return (n_open == 0).cpu().numpy()

    def hits(self, done: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The queries that are `done`, and their hits as `RankCounts.run` gives them."""
        self._decide_near_ties()
        m = self.counts.size
        keys = (self.row * (m + 1) + self.nearer).sort().values
        orders = torch.arange(len(keys), device=self.device) - self.starts[self.row]
        ranks = keys - self.row * (m + 1) + orders + 1
        chosen = (ranks <= self.depth[self.row]) & self._sent(done)[self.row]
        if self.counts.goal == "first":
            chosen &= orders == 0
        n_hits = torch.zeros_like(self.ends).index_add_(0, self.row, chosen.long())
        # one copy to the host, of 4 bytes for a query and for a hit
        numbers = torch.cat([n_hits, ranks[chosen]]).int().cpu().numpy().astype(np.int64)
        n_hits, ranks = np.split(numbers, [len(done)])
        return self.queries[done], np.repeat(np.arange(done.sum()), n_hits[done]), ranks

    def _decide_near_ties(self) -> None:
        """Add to the counts the items near a relevant one's score that are nearer than it: by their float64 distances,
        of equal ones the lower index.
        """
        offsets = self.begin - (self.widths.cumsum(0) - self.widths)
        items = torch.arange(self.n_pairs, device=self.device)
        items += offsets.repeat_interleave(self.widths, output_size=self.n_pairs)
        rivals = self.near.repeat_interleave(self.widths, output_size=self.n_pairs)
        step = max(1, FLOATS // self.counts.space.dimensions)
        for item, rival in zip(items.split(step), rivals.split(step), strict=True):
            self.nearer.index_add_(0, item, self._is_nearer(item, rival).long())

    def _is_nearer(self, item: torch.Tensor, rival: torch.Tensor) -> torch.Tensor:
        """Whether reference samples `rival` `(P,)` are nearer to the query than its relevant ones `item` `(P,)`."""
        tensors = self.counts.tensors
        queries = self._sent(self.queries)[self.row[item]]
        column = self.column[item]
        of_queries = tensors.queries(queries)
        relevant = tensors.references(column)
        features = tensors.references(rival)
        equal = (relevant == features).all(1)
        to_relevant = (of_queries - relevant).square().sum(1)
        to_other = (of_queries - features).square().sum(1)
        nearer = torch.where(equal, rival < column, to_other < to_relevant)
        within_rounding = (to_other - to_relevant).abs() <= self.counts.rounding * (to_other + to_relevant)
        unsure = (within_rounding & ~equal).nonzero().squeeze(1)
        if len(unsure):
            rows, rival, column = torch.stack([queries[unsure], rival[unsure], column[unsure]]).cpu().numpy()
            space = self.counts.space
            to_other = space.squared_distances(rows, rival)
            to_relevant = space.squared_distances(rows, column)
            decided = (to_other < to_relevant) | ((to_other == to_relevant) & (rival < column))
            nearer[unsure] = self._sent(decided)
        return nearer


def sortable(rows: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """int64 keys `(P,)` that ascend with the rows, in a row with the float32 scores."""
    # -0 becomes 0, whose bits differ
    bits = (scores + 0.0).view(torch.int32).long()
    # read as whole numbers, the bits of negative floats run backwards
    bits ^= (bits >> 63) & 0x7FFFFFFF
    return (rows << 32) + bits + 2**31
