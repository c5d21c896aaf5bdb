"""Statistics: means and deviations, which groups are as good as the best and how far from it, correlations, z-scores."""

import bisect
import math
from typing import NamedTuple

import numpy as np

from utilities.intervals import t_power, t_quantile, t_shift, two_sided

ALPHA = 0.05
SEEDS_TO_UNDERLINE = 5  # with fewer, a mean three deviations worse is mostly not significantly worse
GROUPS_TO_CORRELATE = 5  # with fewer, chance alone gives coefficients near 1
POWER = 0.8  # power from which a difference counts as one that the seeds can show
MOST_SEEDS = 10**6


class Estimate(NamedTuple):
    """Mean, standard deviation and number of seeds; the deviation is NaN where there are too few."""

    mean: float
    deviation: float
    count: int


def estimate(values, ddof: int = 1) -> Estimate:
    """Mean and deviation of the finite values."""
    values = np.asarray(values, dtype=np.float64)
    values = values[np.isfinite(values)]
    if not len(values):
        return Estimate(math.nan, math.nan, 0)
    return Estimate(float(values.mean()), float(values.std(ddof=ddof)) if len(values) > max(ddof, 1) else math.nan, len(values))


def _welch(first: Estimate, second: Estimate) -> tuple[float, float]:
    """Standard error of the difference of two means, and its degrees of freedom (Welch-Satterthwaite); from estimates with ddof 1."""
    a, b = first.deviation**2 / first.count, second.deviation**2 / second.count
    if a + b == 0:
        return 0.0, math.inf
    return math.sqrt(a + b), (a + b) ** 2 / (a**2 / (first.count - 1) + b**2 / (second.count - 1))


def welch(first: Estimate, second: Estimate) -> float:
    """Two-sided p of Welch's t-test of two means, from estimates with ddof 1; NaN where one has fewer than two seeds."""
    if min(first.count, second.count) < 2:
        return math.nan
    error, freedom = _welch(first, second)
    return two_sided((first.mean - second.mean) / error, freedom) if error else float(first.mean == second.mean)


def difference(first: Estimate, second: Estimate) -> tuple[float, float] | None:
    """Welch's 95 % interval of first - second, from estimates with ddof 1; None where one has fewer than two seeds."""
    if min(first.count, second.count) < 2:
        return None
    error, freedom = _welch(first, second)
    middle, half = first.mean - second.mean, error and t_quantile(freedom) * error
    return middle - half, middle + half


def power(true: float, first: Estimate, second: Estimate) -> float:
    """Chance that Welch's test shows a true difference of two means, from estimates with ddof 1; NaN where one has fewer than two seeds.

    By the noncentral t distribution: exact for groups of equal size and deviation, else with Welch's degrees of freedom.
    """
    if min(first.count, second.count) < 2:
        return math.nan
    error, freedom = _welch(first, second)
    return t_power(true / error, freedom, ALPHA) if error else float(true != 0)


def seeds_needed(true: float, deviation: float) -> int | None:
    """The least number of seeds per group that shows a true difference of two groups of that deviation with a power of `POWER`.

    None where the deviation is not known, or more than `MOST_SEEDS` would be needed.
    """

    def is_enough(count: int) -> bool:
        group = Estimate(0.0, deviation, count)
        return power(true, group, group) >= POWER

    if math.isnan(deviation) or not is_enough(MOST_SEEDS):
        return None
    return bisect.bisect_left(range(MOST_SEEDS + 1), True, lo=2, key=is_enough)  # power rises with the number of seeds


def least_shown(first: Estimate, second: Estimate) -> float:
    """The true difference of two means that Welch's test shows with a power of `POWER`; NaN where one has fewer than two seeds."""
    if min(first.count, second.count) < 2:
        return math.nan
    error, freedom = _welch(first, second)
    return error and error * t_shift(POWER, freedom, ALPHA)


def pooled(estimates: list[Estimate]) -> Estimate:
    """The pooled deviation of groups, weighted by their degrees of freedom; `count` is the sum of these plus 1, `mean` is NaN."""
    known = [e for e in estimates if e.count > 1 and math.isfinite(e.deviation)]
    freedom = sum(e.count - 1 for e in known)
    deviation = math.sqrt(sum((e.count - 1) * e.deviation**2 for e in known) / freedom) if freedom else math.nan
    return Estimate(math.nan, deviation, freedom + 1)


def holm(p_values) -> np.ndarray:
    """Holm's step-down adjustment; NaN entries are not tested and stay NaN."""
    p_values = np.asarray(p_values, dtype=np.float64)
    adjusted = np.full(p_values.shape, np.nan)
    tested = np.flatnonzero(~np.isnan(p_values))
    order = tested[np.argsort(p_values[tested], kind="stable")]
    steps = p_values[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0) if len(order) else steps
    return adjusted


def sign_test(differences) -> tuple[int, int, float]:
    """How many differences are above and below 0, and the two-sided p of that by the binomial distribution; 1 where all are 0."""
    from scipy.stats import binomtest

    differences = np.asarray(differences, dtype=np.float64)
    above, below = int((differences > 0).sum()), int((differences < 0).sum())
    return above, below, float(binomtest(above, above + below).pvalue) if above + below else 1.0


class Place(NamedTuple):
    """A group in a ranking.

    `mark`: `best`, `close` (underlined) or empty. `interval`: 95 %, of its difference to the best, or None. `is_small`: its seeds and
    those of the best show a true difference of that size with less than `POWER`.
    """

    mark: str = ""
    interval: tuple[float, float] | None = None
    is_small: bool = False


def ranked(estimates: list[Estimate], higher: bool | None, alpha: float = ALPHA) -> list[Place]:
    """The place of each group; estimates have ddof 1.

    The best is the best mean of two seeds or more. The others are tested against it (Welch, two-sided, Holm-corrected) where both have
    `SEEDS_TO_UNDERLINE` seeds; `close` are those that are not significantly worse.
    """
    means = np.array([e.mean if e.count > 1 else math.nan for e in estimates], dtype=np.float64)
    if higher is None or np.isfinite(means).sum() < 2:  # the only one of its column is not the best of anything
        return [Place()] * len(means)
    first = int(np.nanargmax(means if higher else -means))
    best = estimates[first]
    is_tested = [best.count >= SEEDS_TO_UNDERLINE <= e.count and i != first for i, e in enumerate(estimates)]
    adjusted = holm([welch(e, best) if tested else math.nan for e, tested in zip(estimates, is_tested, strict=True)])
    marks = ["best" if mean == best.mean else "close" if p >= alpha else "" for mean, p in zip(means, adjusted, strict=True)]
    places = [Place(mark, difference(e, best), is_small(e, best)) for mark, e in zip(marks, estimates, strict=True)]
    places[first] = Place("best")
    return places


def is_small(first: Estimate, second: Estimate) -> bool:
    """Whether the seeds of two means would show a true difference of the size found with less than `POWER`."""
    return power(first.mean - second.mean, first, second) < POWER


class Comparison(NamedTuple):
    """Our mean against a published one."""

    difference: float
    z: float
    assumed: bool  # our own deviation is unknown (one seed) and taken to be the published one
    is_small: bool  # see `is_small`


def compare(ours: Estimate, published: Estimate) -> Comparison:
    """Difference of two means and its z-score, difference / sqrt(s1^2 / n1 + s2^2 / n2), from estimates with ddof 1."""
    difference = ours.mean - published.mean
    assumed = ours.count == 1
    deviation = published.deviation if assumed else ours.deviation
    if ours.count == 0 or math.isnan(deviation) or math.isnan(published.deviation):
        return Comparison(difference, math.nan, False, False)
    error = math.sqrt(deviation**2 / ours.count + published.deviation**2 / published.count)
    return Comparison(difference, difference / error if error else math.nan, assumed, is_small(ours, published))


def with_ddof_1(mean: float, deviation: float, count: int, ddof: int) -> Estimate:
    """A published deviation, stated with its ddof, as one with ddof 1."""
    return Estimate(mean, deviation * math.sqrt((count - ddof) / (count - 1)) if count > 1 else math.nan, count)


class Correlation(NamedTuple):
    """Pearson's and Spearman's coefficients over `count` points, with Pearson's p; NaN where they do not exist or there are too few."""

    pearson: float
    p: float
    spearman: float
    count: int


def correlation(x, y, units=None) -> Correlation:
    """Correlations of two quantities over the groups that have both; NaN with fewer than `GROUPS_TO_CORRELATE` points.

    Args:
        x, y: `(n,)` numbers of the groups.
        units: `(n,)` whole numbers; groups with the same number are not independent and count as one, with their mean.
    """
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    both = np.isfinite(x) & np.isfinite(y)
    x, y = x[both], y[both]
    if units is not None and len(x):
        _, unit, members = np.unique(np.asarray(units)[both], return_inverse=True, return_counts=True)
        x, y = np.bincount(unit, x) / members, np.bincount(unit, y) / members
    if len(x) < GROUPS_TO_CORRELATE or np.ptp(x) == 0 or np.ptp(y) == 0:
        return Correlation(math.nan, math.nan, math.nan, len(x))
    from scipy import stats

    r, p = stats.pearsonr(x, y)
    return Correlation(float(r), float(p), float(stats.spearmanr(x, y).statistic), len(x))
