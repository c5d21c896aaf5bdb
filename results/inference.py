"""Statistics: means, deviations, what is shown to be worse than the best, correlations, tests.

An `Estimate` is a mean over seeds with its deviation and the number of seeds. Differences of two are tested by
Welch's t (`welch`, `difference`, `power`), all groups of a column against the best of them by simultaneous
intervals and a step-down test (`ranked`), p values of several tests are corrected by Holm. docs/statistics.md explains
the choices and measures their levels.
"""

import bisect
import math
from typing import NamedTuple

import numpy as np

from results.simultaneous import SEEDS_TO_SQUEEZE, gaps_to_best, worse_groups
from results.squeezing import FEWEST_GROUPS, simulated_pairs
from utilities.intervals import NEGLIGIBLE, interpolated, modulus_quantile, t_power, t_quantile, t_shift, two_sided

ALPHA = 0.05
SEEDS_TO_COMPARE = 3  # the fewest seeds of a group that is compared with the best
SEEDS_FOR_T3 = 5  # with fewer, Dunnett's T3 exceeds its level in large tables (benchmarks/marks.py)
GROUPS_TO_CORRELATE = 5  # with fewer, chance alone gives coefficients near 1
POWER = 0.8  # power from which a difference counts as one that the seeds can show
MOST_SEEDS = 10**6


class Estimate(NamedTuple):
    """Mean, standard deviation and number of seeds; the deviation is NaN if there are too few."""

    mean: float
    deviation: float
    count: int


def estimate(values, ddof: int = 1) -> Estimate:
    """Mean and deviation of the finite values."""
    values = np.asarray(values, dtype=np.float64)
    values = values[np.isfinite(values)]
    if not len(values):
        return Estimate(math.nan, math.nan, 0)
    deviation = math.nan
    if len(values) > max(ddof, 1):
        deviation = float(values.std(ddof=ddof))
    return Estimate(float(values.mean()), deviation, len(values))


def _welch(first: Estimate, second: Estimate) -> tuple[float, float]:
    """Standard error of the difference of two means, and its degrees of freedom (Welch-Satterthwaite).

    From estimates with ddof 1.
    """
    a = first.deviation**2 / first.count
    b = second.deviation**2 / second.count
    if a + b == 0:
        return 0.0, math.inf
    return math.sqrt(a + b), (a + b) ** 2 / (a**2 / (first.count - 1) + b**2 / (second.count - 1))


def welch(first: Estimate, second: Estimate) -> float:
    """Two-sided p of Welch's t-test of two means; NaN if one has fewer than two seeds.

    From estimates with ddof 1.
    """
    if min(first.count, second.count) < 2:
        return math.nan
    error, freedom = _welch(first, second)
    if not error:
        return float(first.mean == second.mean)
    return two_sided((first.mean - second.mean) / error, freedom)


def difference(first: Estimate, second: Estimate) -> tuple[float, float] | None:
    """Welch's 95 % interval of first - second, from estimates with ddof 1; None if one has fewer than two seeds."""
    if min(first.count, second.count) < 2:
        return None
    error, freedom = _welch(first, second)
    middle = first.mean - second.mean
    half = error and t_quantile(freedom) * error
    return middle - half, middle + half


def power(true: float, first: Estimate, second: Estimate) -> float:
    """Chance that Welch's test shows a true difference of two means; NaN if one has fewer than two seeds.

    From estimates with ddof 1.

    By the noncentral t distribution: exact for groups of equal size and deviation,
    else with Welch's degrees of freedom.
    """
    if min(first.count, second.count) < 2:
        return math.nan
    error, freedom = _welch(first, second)
    if not error:
        return float(true != 0)
    return t_power(true / error, freedom, ALPHA)


def seeds_needed(true: float, deviation: float) -> int | None:
    """The least number of seeds per group that shows a true difference with a power of `POWER`.

    Both groups have this deviation.

    None if the deviation is not known, or more than `MOST_SEEDS` would be needed.
    """

    def is_enough(count: int) -> bool:
        group = Estimate(0.0, deviation, count)
        return power(true, group, group) >= POWER

    if math.isnan(deviation) or not is_enough(MOST_SEEDS):
        return None
    # power rises with the number of seeds, so the least that suffices is found by bisection
    return bisect.bisect_left(range(MOST_SEEDS + 1), True, lo=2, key=is_enough)


def least_shown(first: Estimate, second: Estimate) -> float:
    """The true difference of two means that Welch's test shows with a power of `POWER`.

    NaN if one has fewer than two seeds.
    """
    if min(first.count, second.count) < 2:
        return math.nan
    error, freedom = _welch(first, second)
    return error and error * t_shift(POWER, freedom, t_quantile(freedom, 1 - ALPHA))


def pooled(estimates: list[Estimate]) -> Estimate:
    """The pooled deviation of groups, weighted by their degrees of freedom.

    `count` is the sum of these plus 1, `mean` is NaN.
    """
    estimable = [e for e in estimates if e.count > 1 and math.isfinite(e.deviation)]
    freedom = sum(e.count - 1 for e in estimable)
    deviation = math.nan
    if freedom:
        deviation = math.sqrt(sum((e.count - 1) * e.deviation**2 for e in estimable) / freedom)
    return Estimate(math.nan, deviation, freedom + 1)


def holm(p_values) -> np.ndarray:
    """Holm's step-down adjustment; NaN entries are not tested and stay NaN."""
    p_values = np.asarray(p_values, dtype=np.float64)
    adjusted = np.full(p_values.shape, np.nan)
    tested = np.flatnonzero(~np.isnan(p_values))
    order = tested[np.argsort(p_values[tested], kind="stable")]
    steps = p_values[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


def sign_test(differences) -> tuple[int, int, float]:
    """How many differences are above and below 0, and its two-sided p by the binomial distribution.

    p is 1 if all are 0.
    """
    from scipy.stats import binomtest

    differences = np.asarray(differences, dtype=np.float64)
    above = int((differences > 0).sum())
    below = int((differences < 0).sum())
    p = 1.0
    if above + below:
        p = float(binomtest(above, above + below).pvalue)
    return above, below, p


def critical(groups: int, seeds: int, freedom: float, is_squeezed: bool = False) -> float:
    """How many standard errors a group of a table may lie off its best.

    With a chance of 5 % some pair of equal groups lies farther off.

    All pairs, as any group may be the one that is chosen as best. Dunnett's T3 (JASA 75, 1980), and with fewer than
    `SEEDS_FOR_T3` seeds, unless the variances are squeezed, Student's t, Bonferroni-corrected. `freedom`: Welch's, of
    the two.
    """
    pairs = groups * (groups - 1) // 2
    if seeds < SEEDS_FOR_T3 and not is_squeezed:
        return t_quantile(freedom, 1 - ALPHA / pairs)
    return modulus_quantile(pairs, freedom)


class Place(NamedTuple):
    """A group in a ranking.

    `mark`: `best`, `close` (underlined: not significantly worse) or empty. `interval`: of its difference to the best,
    or None; those of a table hold together with 95 %.
    """

    mark: str = ""
    interval: tuple[float, float] | None = None


# for arrays of seeds, degrees of freedom and whether they are squeezed
_criticals = np.vectorize(critical, otypes=[float])


def ranked(estimates: list[Estimate], higher: bool | None) -> list[Place]:
    """The place of each group; estimates have ddof 1.

    The best is the best mean of two seeds or more. Another one has an interval if both have `SEEDS_TO_COMPARE`
    seeds, and is `close` if it is not significantly worse (`simultaneous.worse_groups`).
    """
    places = [Place()] * len(estimates)
    members = [i for i, e in enumerate(estimates) if e.count > 1 and math.isfinite(e.mean)]
    # the only one of its column is not the best of anything
    if higher is None or len(members) < 2:
        return places
    means = np.array([[estimates[i].mean for i in members]])
    variances = np.array([[estimates[i].deviation ** 2 for i in members]])
    counts = np.array([estimates[i].count for i in members])
    best = means.argmax(1) if higher else means.argmin(1)
    gaps = gaps_to_best(means, variances, counts, best)
    halves = gaps.half(len(members), _criticals)[0]
    worse = worse_groups(gaps, _criticals)[0]
    for place, i in enumerate(members):
        difference = float(means[0, place] - means[0, best[0]])
        mark = "best" if difference == 0 else ""
        if place == best[0] or gaps.seeds[0, place] < SEEDS_TO_COMPARE:
            places[i] = Place(mark)
            continue
        if not mark and not worse[place]:
            mark = "close"
        places[i] = Place(mark, (difference - float(halves[place]), difference + float(halves[place])))
    return places


def least_marked(estimates: list[Estimate]) -> float:
    """The true difference to the best that a table of such groups marks with a chance of `POWER`.

    NaN if no deviation is known.

    For the fewest seeds there, and the upper end of the 95 % interval of the pooled deviation,
    which few seeds know badly. Other groups may be marked before, which makes the chance higher.
    """
    comparable = [e for e in estimates if e.count >= SEEDS_TO_COMPARE]
    common = pooled(comparable)
    if len(comparable) < 2 or not common.deviation > 0:
        return math.nan
    seeds = min(e.count for e in comparable)
    group = Estimate(0.0, common.deviation * spread_of_deviation(common.count)[1], seeds)
    groups = sum(e.count > 1 for e in estimates)
    if seeds >= SEEDS_TO_SQUEEZE and len(comparable) >= FEWEST_GROUPS:
        return group.deviation * _least_squeezed(groups, len(comparable), seeds)
    error, freedom = _welch(group, group)
    return error * t_shift(POWER, freedom, critical(groups, seeds, freedom))


def _least_squeezed(groups: int, members: int, seeds: int) -> float:
    """`least_marked` with squeezed variances, in multiples of the deviation."""
    from scipy.optimize import brentq
    from scipy.special import ndtr

    errors, freedoms = simulated_pairs(members, seeds)
    halves = interpolated(lambda freedom: critical(groups, seeds, freedom, is_squeezed=True), freedoms) * errors
    error = math.sqrt(2 / seeds)

    def missing(true: float) -> float:
        return ndtr((true - halves) / error).mean() - POWER

    return brentq(missing, 0.0, halves.max() + NEGLIGIBLE * error)


def spread_of_deviation(count: int) -> tuple[float, float]:
    """95 % interval of the true deviation, in multiples of one over `count` values (chi-squared)."""
    from scipy.special import chdtri

    freedom = count - 1
    low = math.sqrt(freedom / chdtri(freedom, ALPHA / 2))
    high = math.sqrt(freedom / chdtri(freedom, 1 - ALPHA / 2))
    return low, high


class Comparison(NamedTuple):
    """Our mean against a published one.

    Welch's t and its degrees of freedom are NaN if one side has a single seed, or no deviation.
    """

    difference: float
    t: float
    freedom: float


def compare(ours: Estimate, published: Estimate) -> Comparison:
    """Difference of two means, from estimates with ddof 1."""
    difference = ours.mean - published.mean
    if min(ours.count, published.count) < 2 or math.isnan(published.deviation):
        return Comparison(difference, math.nan, math.nan)
    error, freedom = _welch(ours, published)
    if not error:
        return Comparison(difference, math.nan, math.nan)
    return Comparison(difference, difference / error, freedom)


def with_ddof_1(mean: float, deviation: float, count: int, ddof: int) -> Estimate:
    """A published deviation, stated with its ddof, as one with ddof 1."""
    if count < 2:
        return Estimate(mean, math.nan, count)
    return Estimate(mean, deviation * math.sqrt((count - ddof) / (count - 1)), count)


class Correlation(NamedTuple):
    """Pearson's and Spearman's coefficients over `count` points, with Pearson's p.

    NaN if they do not exist or there are too few.
    """

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
    x = np.asarray(x, dtype=np.float64)
    y = np.asarray(y, dtype=np.float64)
    in_both = np.isfinite(x) & np.isfinite(y)
    x = x[in_both]
    y = y[in_both]
    if units is not None and len(x):
        _, unit, members = np.unique(np.asarray(units)[in_both], return_inverse=True, return_counts=True)
        x = np.bincount(unit, x) / members
        y = np.bincount(unit, y) / members
    if len(x) < GROUPS_TO_CORRELATE or np.ptp(x) == 0 or np.ptp(y) == 0:
        return Correlation(math.nan, math.nan, math.nan, len(x))
    from scipy import stats

    r, p = stats.pearsonr(x, y)
    return Correlation(float(r), float(p), float(stats.spearmanr(x, y).statistic), len(x))
