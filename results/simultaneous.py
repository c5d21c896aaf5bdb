"""Groups of a table against its best: standard errors, and which groups are marked as worse; for many tables at once.

`Gaps` has each group's difference to the best of its table. results/inference.py makes the intervals and marks of one
table with them, benchmarks/marks.py measures the error of the same functions on simulated tables.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from results.squeezing import squeezed

# the fewest seeds for squeezed variances and step-down marks
SEEDS_TO_SQUEEZE = 4


class Gaps(NamedTuple):
    """Groups and the best of their table, `(T, k)`.

    Attributes:
        difference: how much worse the group's mean is.
        error, freedom: standard error of the difference and its degrees of freedom (Welch-Satterthwaite).
        seeds: the fewer of the two groups.
        is_squeezed: whether both variances are squeezed.
    """

    difference: np.ndarray
    error: np.ndarray
    freedom: np.ndarray
    seeds: np.ndarray
    is_squeezed: np.ndarray

    def half(self, groups: int, critical: Callable) -> np.ndarray:
        """Half of the intervals, in tables of so many groups.

        Args:
            critical: standard errors for arrays of (groups, seeds, freedom, is_squeezed).
        """
        half = np.zeros(self.error.shape)
        differs = self.error > 0
        if differs.any():
            values = critical(groups, self.seeds[differs], self.freedom[differs], self.is_squeezed[differs])
            half[differs] = values * self.error[differs]
        return half

    def at(self, index) -> "Gaps":
        """The gaps at an index of the arrays."""
        return Gaps(*(part[index] for part in self))


def _with_best(variances: np.ndarray, freedom: np.ndarray, counts: np.ndarray, best: np.ndarray) -> tuple:
    """Standard error of the difference to the best, and its degrees of freedom, `(T, k)` both."""
    rows = np.arange(len(variances))
    squares = variances / counts
    best_squares = squares[rows, best, None]
    total = squares + best_squares
    doubt = squares**2 / freedom + best_squares**2 / freedom[rows, best, None]
    return np.sqrt(total), np.divide(total**2, doubt, out=np.full(total.shape, math.inf), where=doubt > 0)


def gaps_to_best(
    means: np.ndarray, variances: np.ndarray, counts: np.ndarray, best: np.ndarray, squeeze: Callable | None = squeezed
) -> Gaps:
    """The gaps of T tables.

    Args:
        means, variances: of the groups' seeds, `(T, k)`.
        counts: `(k,)` numbers of seeds, 2 or more.
        best: `(T,)` the best group of each table.
        squeeze: see `squeezing.squeezed`; None: variances stay as they are.
    """
    difference = np.abs(means[np.arange(len(means)), best, None] - means)
    seeds = np.minimum(counts, counts[best][:, None])
    freedom = np.broadcast_to(counts - 1.0, means.shape)
    error, welch = _with_best(variances, freedom, counts, best)
    is_squeezed = np.zeros(means.shape, dtype=bool)
    members = counts >= SEEDS_TO_SQUEEZE
    if squeeze and members.any():
        raised = variances.copy()
        gained = freedom.copy()
        raised[:, members], gained[:, members], tables = squeeze(variances[:, members], counts[members] - 1)
        is_squeezed = tables[:, None] & (seeds >= SEEDS_TO_SQUEEZE)
        squeezed_error, squeezed_welch = _with_best(raised, gained, counts, best)
        error = np.where(is_squeezed, squeezed_error, error)
        welch = np.where(is_squeezed, squeezed_welch, welch)
    return Gaps(difference, error, welch, seeds, is_squeezed)


def worse_groups(gaps: Gaps, critical: Callable) -> np.ndarray:
    """Which groups are significantly worse than the best, `(T, k)`.

    With fewer than `SEEDS_TO_SQUEEZE` seeds: the interval excludes 0. Else step-down, as in Hansen's model confidence
    set (Econometrica 79, 2011): the group with the largest gap, in units of its interval, is tested first. If it is
    worse, the next one is tested as in a table with one group fewer.
    """
    tables, groups = gaps.error.shape
    half = gaps.half(groups, critical)
    stepwise = (gaps.seeds >= SEEDS_TO_SQUEEZE) & (gaps.difference > 0)
    worse = ~stepwise & (gaps.difference > half)
    distance = np.divide(gaps.difference, half, out=np.full(half.shape, math.inf), where=half > 0)
    farthest_first = np.argsort(np.where(stepwise, -distance, 1.0), axis=1, kind="stable")
    rows = np.arange(tables)
    for step in range(groups - 1):
        places = (rows, farthest_first[rows, step])
        tested = gaps.at(places)
        goes_on = stepwise[places] & (tested.difference > tested.half(groups - step, critical))
        rows = rows[goes_on]
        worse[rows, farthest_first[rows, step]] = True
    return worse
