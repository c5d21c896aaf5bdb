"""A metric is a class `Metric` in a file of this folder, with its names, its range and its direction.

A file declares `NAMES`, name -> caption. A name may take a parameter: `e_recall@k` a whole number of at least 1,
`rho_spectrum@m` any whole number, `fnmr@fmr` a number between 0 and 1, and a suffix may follow, `e_recall@k_worst10`;
every other `@...` is part of the name. `c_`, `_macro` and `_level1` variants are added by `VARIANTS`.
"""

import math
from typing import NamedTuple

import numpy as np


def mean(values: np.ndarray) -> float:
    """Mean of `(N,)` numbers, rounded once and kept in their range,
    so that the mean of equal numbers is exactly that number.
    """
    return float(np.clip(math.fsum(values.tolist()) / len(values), values.min(), values.max()))


class Hits(NamedTuple):
    """The ranks at which Q queries retrieved their H relevant samples (hits) within the requested depth.

    Those are the samples of the query's class, or its positives where lists give these. queries `(H,)`: row of the
    hit's query, ascending. ranks `(H,)`: 1 for the nearest sample, ascending within a query; the query itself, its
    sequence and junk take none. orders `(H,)`: 1 for a query's first hit, 2 for its second. relevant `(Q,)`: samples to
    be found. sizes `(Q,)`: by classes the same, plus the query itself where it is in the reference.

    Where labels of L levels are compared, a hit is a sample that shares any of them: levels `(H,)`, how many, 1 to L;
    of_level `(Q, L)`, how many samples are to be found of each. Elsewhere all hits are of level 1.
    """

    queries: np.ndarray
    ranks: np.ndarray
    orders: np.ndarray
    relevant: np.ndarray
    sizes: np.ndarray
    levels: np.ndarray | None = None
    of_level: np.ndarray | None = None

    def by_level(self) -> tuple[np.ndarray, np.ndarray]:
        """`levels` and `of_level`."""
        if self.levels is None:
            return np.ones_like(self.queries), self.relevant[:, None]
        return self.levels, self.of_level

    def sum(self, values: np.ndarray) -> np.ndarray:
        """Sum `(Q,)` over each query's hits of `values` `(H,)`."""
        return np.bincount(self.queries, weights=values, minlength=len(self.relevant))

    def mean_precision(self, depth, divisor) -> np.ndarray:
        """Sum over the hits among the first `depth` neighbours of the precision at their rank,
        divided by `divisor`; `(Q,)`.

        Both are one number or `(Q,)`; where the divisor is 0, so is the value.
        """
        depth = np.broadcast_to(depth, self.relevant.shape)[self.queries]
        total = self.sum(np.where(self.ranks <= depth, self.orders / self.ranks, 0.0))
        return total / np.maximum(divisor, 1)


class Metric:
    """A number (or an array, where `is_array`) of one embedding space.

    Args:
        name: the key of `NAMES` that was requested.
        parameter: the number after the `@`, where the name takes one.
    """

    NAMES: dict[str, str] = {}
    RANGE = (0.0, 1.0)
    HIGHER_IS_BETTER = True
    is_array = False
    NEEDS_GROUPS = False  # it compares super-classes: `space.groups`
    SEARCHES = False  # it looks at neighbours in the reference; False: at the queries alone
    TAKES_RERANKED = True  # --rerank changes it, or leaves it as it is; False: it is refused
    UNDEFINED = "it is not defined on these images"  # why it is NaN
    CLASS_WISE = True  # it needs the classes of samples; False: embeddings alone, or what queries are to find
    # of "cosine" (c_: the same on normalised features), "macro" (mean of class means) and "level" (_level1: by another
    # column of the labels)
    VARIANTS = ()
    # the column of labels `(N, L)` that it reads; None: all of them, as levels
    column = 0

    def __init__(self, name: str, parameter: int | float | None = None):
        self.name = name
        self.parameter = parameter

    def value(self, space) -> "float | np.ndarray":
        """The metric of an `EmbeddingSpace`."""
        raise NotImplementedError

    @property
    def higher_is_better(self) -> bool:
        """Direction of this name."""
        return self.HIGHER_IS_BETTER

    @property
    def needs_levels(self) -> bool:
        """Whether it compares classes of other levels than the finest, and so needs labels `(N, L)`."""
        return self.column != 0

    @property
    def needs_unknown(self) -> bool:
        """Whether it is NaN unless some query has nothing to find."""
        return False

    @property
    def counts_query(self) -> bool:
        """Whether the query itself is counted into its class, so that lists and relevant items do not suffice."""
        return False

    @property
    def range(self) -> tuple[float, float]:
        """Lowest and highest possible value."""
        return self.RANGE


class RetrievalMetric(Metric):
    """A metric that is the mean over queries of a function of the ranks of what they are to find.

    Every retrieval metric of a space is scored in one pass over the queries; `depth` says how far this one looks.
    """

    SEARCHES = True
    UNDEFINED = "no query counts: none has anything to find"
    VARIANTS = ("cosine", "macro", "level")
    CLASS_WISE = False
    # True: hits after a query's first do not matter
    FIRST_HIT_ONLY = False

    @property
    def key(self) -> tuple:
        """By which the scores of a space are kept."""
        return self.name, self.parameter, self.column

    def depth(self, relevant: np.ndarray, sizes: np.ndarray) -> "np.ndarray | float":
        """Neighbours that matter, one number or `(Q,)`; `relevant`, `sizes` as in `Hits`. Infinite: all."""
        raise NotImplementedError

    def score(self, hits: Hits) -> np.ndarray:
        """The metric of each query, `(Q,)`; NaN for a query that is left out."""
        raise NotImplementedError

    def value(self, space, macro: bool = False) -> float:
        """Mean over the queries that count, or (`macro`) mean of the classes' means; NaN where no query counts."""
        labels = space.truth.at(self.column).labels if self.column else space.labels
        scores, labels = self.counted(space, labels)
        if not len(scores):
            return float("nan")
        if macro:
            scores = part_means(scores, labels)
        return mean(scores)

    def counted(self, space, parts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The scores of the queries that count, and their `parts` `(Q,)`, such as classes."""
        scores = space.scores([self])[self.key]
        counted = ~np.isnan(scores)
        return scores[counted], parts[counted]


def part_means(values: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """Mean of `values` `(Q,)` in each part, `(P,)`, in the order of the numbers `parts` `(Q,)`;
    of equal values exactly that value.
    """
    order = np.argsort(parts, kind="stable")
    parts = parts[order]
    values = values[order]
    first = np.flatnonzero(np.diff(parts, prepend=-1))
    means = np.add.reduceat(values, first) / np.diff(first, append=len(values))
    return np.clip(means, np.minimum.reduceat(values, first), np.maximum.reduceat(values, first))


def without_lone(values: np.ndarray, hits: Hits) -> np.ndarray:
    """`values` `(Q,)` with NaN for queries that have nothing to find."""
    return np.where(hits.relevant > 0, values, np.nan)


def up_to_each(counted: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """Of a list of each query, one after the other: how many entries up to each, itself included, are `counted` `(H,)`;
    `orders` `(H,)` from 1.
    """
    sums = np.cumsum(counted)
    # the first entry of each one's list
    firsts = np.arange(len(sums)) - orders + 1
    return sums - (sums - counted)[firsts]
