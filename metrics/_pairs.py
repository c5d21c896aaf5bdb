"""Distances of all pairs of a space's queries, streamed in tiles, of which only a few are in memory.

The queries are sorted by class. So the pairs of one class lie in a band along the diagonal, and all tiles beyond it
hold only pairs of different classes.
"""

from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch

from utilities.tensors import Products

# of a tile: 32 MB in float64
ROWS = 1024
COLUMNS = 4096
BINS = 2**16
DRAWN = 2048  # drawn pairs whose distances are computed at once, to fit the cache
COLLECTED = 20_000_000  # values that are sorted at once
EXACT = 10**9  # up to so many pairs, products are in float64; beyond, in float32
# bound of the error of products, relative to the largest squared norm
ROUNDING = {
    torch.float64: 1e-12,
    torch.float32: 1e-5,
}


class Tile(NamedTuple):
    """Squared distances `(B, W)` of the queries from `row` on to those from `column` on,
    both in the order of their classes.

    pairs: mask `(B, W)` of the pairs that count, each pair once in all tiles; None: all of the tile.
    """

    row: int
    column: int
    squares: torch.Tensor
    pairs: torch.Tensor | None

    @property
    def values(self) -> torch.Tensor:
        """Squared distances `(P,)` of the pairs that count."""
        return self.squares.reshape(-1) if self.pairs is None else self.squares[self.pairs]


class Pairs:
    """The pairs i < j of the queries of an `EmbeddingSpace`.

    Attributes:
        labels: `(N,)` classes, ascending. same, other: number of pairs of one class, and of two. exact: whether there
        are few enough pairs
            to compare all in float64. tolerance: squared distances that differ by less count as equal.
    """

    def __init__(self, space):
        self.space = space
        self.device = torch.device(space.device)
        self.order = np.argsort(space.labels, kind="stable")
        self.labels = space.labels[self.order]
        self.size = space.size
        sizes = np.bincount(self.labels)
        self.ends = np.cumsum(sizes)[self.labels]  # (N,) where each query's class ends
        self.same = int((sizes * (sizes - 1) // 2).sum())
        self.other = self.size * (self.size - 1) // 2 - self.same
        parts = [slice(start, start + ROWS) for start in range(0, self.size, ROWS)]
        # (D,): without it products lose more digits
        self.mean = sum(space.queries(part).sum(0) for part in parts) / self.size
        self.reach = float(max(np.square(space.queries(part) - self.mean).sum(1).max() for part in parts))
        self.exact = self.same + self.other <= EXACT
        self.dtype = torch.float64 if self.exact else torch.float32
        self.tolerance = ROUNDING[self.dtype] * self.reach
        self.codes = torch.from_numpy(self.labels).to(self.device)

    def _features(self, start: int, stop: int) -> torch.Tensor:
        return torch.from_numpy(self.space.queries(self.order[start:stop]) - self.mean).to(self.device, self.dtype)

    def tiles(self, of_one_class: bool | None = None):
        """The tiles of the pairs: `of_one_class` (True), of two classes (False), or of all (None)."""
        for row in range(0, self.size, ROWS):
            stop = min(row + ROWS, self.size)
            features = self._features(row, stop)
            band = int(self.ends[stop - 1])
            squares = features.square().sum(1)
            last_column = band if of_one_class else self.size
            for column in range(row, last_column, COLUMNS):
                end = min(column + COLUMNS, self.size)
                partners = self._features(column, end)
                sums = squares[:, None] + partners.square().sum(1)
                # the rounding bound assumes products in full float32 precision
                with Products("highest"):
                    tile = torch.addmm(sums, features, partners.T, alpha=-2).clamp_min_(0)
                pairs = None
                # a tile on the diagonal has each pair twice: only one of them counts
                if column < stop:
                    pairs = torch.ones(tile.shape, dtype=torch.bool, device=self.device).triu_(row - column + 1)
                if of_one_class is not None and column < band:
                    agree = (self.codes[row:stop, None] == self.codes[column:end]) == of_one_class
                    pairs = agree if pairs is None else agree & pairs
                yield Tile(row, column, tile, pairs)

    def nth_others(self, ranks: list[int]) -> list[float]:
        """Squared distances at the `ranks`, from 0, among all pairs of two classes in ascending order;
        exact up to `tolerance`.
        """
        if self.other <= COLLECTED:
            return self._nth_of_few_others(ranks)
        bounds = [self._bounds(rank) for rank in ranks]
        below = [0] * len(ranks)
        filled = [0] * len(ranks)
        # filled in place: a list of small arrays pins the memory of the tiles
        between = [np.empty(size) for *_, size in bounds]
        for tile in self.tiles(of_one_class=False):
            values = tile.values
            for place, (low, high, size) in enumerate(bounds):
                below[place] += int((values < low).sum())
                if size:
                    inside = values[(values >= low) & (values <= high)].cpu().numpy()[: size - filled[place]]
                    between[place][filled[place] : filled[place] + len(inside)] = inside
                    filled[place] += len(inside)
        distances = []
        for place, rank in enumerate(ranks):
            ordered = np.sort(between[place][: filled[place]]) if filled[place] else [bounds[place][0]]
            distances.append(float(ordered[min(max(rank - below[place], 0), len(ordered) - 1)]))
        return distances

    def _nth_of_few_others(self, ranks: list[int]) -> list[float]:
        """The same where all pairs of two classes fit in memory."""
        distances = np.empty(self.other)
        start = 0
        for tile in self.tiles(of_one_class=False):
            values = tile.values.cpu().numpy()
            distances[start : start + len(values)] = values
            start += len(values)
        places = np.minimum(ranks, self.other - 1)
        return np.partition(distances, places)[places].tolist()

    def _bounds(self, rank: int) -> tuple[float, float, int]:
        """Bounds of the squared distance at `rank`, and the most pairs that can lie between;
        0 if the bounds agree up to `tolerance`.
        """
        low, high = self._range
        below, counts = self._coarse
        while True:
            place = min(int(np.searchsorted(below + np.cumsum(counts), rank, side="right")), BINS - 1)
            # values may fall into a neighbouring bin by rounding
            width = (high - low) / BINS
            slack = self.tolerance / 4
            high = low + (place + 1) * width + slack
            low = low + place * width - slack
            if high - low <= self.tolerance:
                return low, high, 0
            if counts[place] <= COLLECTED:
                return low, high, int(counts[max(place - 1, 0) : place + 2].sum())
            below, counts = self._histogram(low, high)

    @property
    def _range(self) -> tuple[float, float]:
        """Bounds of all squared distances."""
        return 0.0, 4.0 * self.reach + self.tolerance

    @cached_property
    def _coarse(self) -> tuple[int, np.ndarray]:
        return self._histogram(*self._range)

    def _histogram(self, low: float, high: float) -> tuple[int, np.ndarray]:
        """How many pairs of two classes lie below `low`, and how many
        in each of `BINS` parts of the rest up to `high`.
        """
        below = 0
        counts = np.zeros(BINS, dtype=np.int64)
        for tile in self.tiles(of_one_class=False):
            values = tile.values
            below += int((values < low).sum())
            values = values[(values >= low) & (values <= high)]
            places = ((values.double() - low) / ((high - low) or 1.0) * BINS).long().clamp_max_(BINS - 1)
            counts += torch.bincount(places, minlength=BINS).cpu().numpy()
        return below, counts

    def sample(self, of_one_class: bool, count: int, seed: int = 0) -> np.ndarray:
        """Squared distances `(count,)` of pairs of one class, or of two, drawn with replacement; ascending."""
        generator = np.random.default_rng(seed)
        starts = np.searchsorted(self.labels, self.labels)  # (N,) where each query's class begins
        sizes = self.ends - starts
        partners_of_query = sizes - 1 if of_one_class else self.size - sizes
        # number of pairs of all queries up to each one
        partners = np.cumsum(partners_of_query)
        parts = []
        for start in range(0, count, COLLECTED // 20):
            pairs = generator.integers(0, partners[-1], min(COLLECTED // 20, count - start))
            first = np.searchsorted(partners, pairs, side="right")
            place = pairs - (partners[first - 1] * (first > 0))
            if of_one_class:
                second = starts[first] + place
                second += second >= first
            else:
                second = place + sizes[first] * (place >= starts[first])
            for begin in range(0, len(first), DRAWN):
                parts.append(self._between(first[begin : begin + DRAWN], second[begin : begin + DRAWN]))
        return np.sort(np.concatenate(parts))

    def _between(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Squared distances `(P,)` of some pairs, by differences."""
        difference = self.space.queries(self.order[first]) - self.space.queries(self.order[second])
        return np.einsum("pd,pd->p", difference, difference)


def sampled(space) -> Pairs:
    """The pairs of a space's queries, made once."""
    return space.remember("pairs", lambda: Pairs(space))


def of_units(space) -> Pairs:
    """The pairs of a space's queries at unit length."""
    return sampled(space.remember("units", space.normalised))
