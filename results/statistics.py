"""Numbers from numbers: means, deviations, which groups are as good as the best, correlations, z-scores."""

import math
from typing import NamedTuple

import numpy as np

ALPHA = 0.05


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


def _two_sided(t: float, freedom: float) -> float:
    """p of a t statistic. (scipy.special, because importing scipy.stats costs a second and 60 MB.)"""
    from scipy.special import stdtr

    return float(2 * stdtr(freedom, -abs(t)))


def welch(first: Estimate, second: Estimate) -> float:
    """Two-sided p of Welch's t-test of two means, from estimates with ddof 1; NaN where one has fewer than two seeds."""
    if min(first.count, second.count) < 2:
        return math.nan
    a, b = first.deviation**2 / first.count, second.deviation**2 / second.count
    if a + b == 0:
        return float(first.mean == second.mean)
    freedom = (a + b) ** 2 / (a**2 / (first.count - 1) + b**2 / (second.count - 1))  # Welch-Satterthwaite
    return _two_sided((first.mean - second.mean) / math.sqrt(a + b), freedom)


def holm(p_values) -> np.ndarray:
    """Holm's step-down adjustment; NaN entries are no tests and stay NaN."""
    p_values = np.asarray(p_values, dtype=np.float64)
    adjusted = np.full(p_values.shape, np.nan)
    tested = np.flatnonzero(~np.isnan(p_values))
    order = tested[np.argsort(p_values[tested], kind="stable")]
    steps = p_values[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0) if len(order) else steps
    return adjusted


def marks(estimates: list[Estimate], higher: bool | None, alpha: float = ALPHA) -> list[str]:
    """`best` for the best mean, `close` for those not significantly worse, else empty.

    Every other group is tested against the best one (Welch, two-sided), Holm-corrected over these tests. Estimates have ddof 1.
    """
    means = np.array([e.mean for e in estimates], dtype=np.float64)
    if higher is None or np.isfinite(means).sum() < 2:  # the only one of its column is not the best of anything
        return [""] * len(means)
    best = int(np.nanargmax(means if higher else -means))
    adjusted = holm([math.nan if i == best else welch(e, estimates[best]) for i, e in enumerate(estimates)])
    return ["best" if means[i] == means[best] else "close" if adjusted[i] >= alpha else "" for i in range(len(means))]


def untested(estimates: list[Estimate], marked: list[str]) -> bool:
    """Whether the best mean, by `marks`, is of one seed: then nothing was tested against it."""
    return "best" in marked and estimates[marked.index("best")].count == 1


class Comparison(NamedTuple):
    """Our mean against a published one."""

    difference: float
    z: float
    assumed: bool  # our own deviation is unknown (one seed) and taken to be the published one


def compare(ours: Estimate, published: Estimate) -> Comparison:
    """Difference of two means and its z-score, difference / sqrt(s1^2 / n1 + s2^2 / n2), from estimates with ddof 1."""
    difference = ours.mean - published.mean
    assumed = ours.count == 1
    deviation = published.deviation if assumed else ours.deviation
    if ours.count == 0 or math.isnan(deviation) or math.isnan(published.deviation):
        return Comparison(difference, math.nan, False)
    error = math.sqrt(deviation**2 / ours.count + published.deviation**2 / published.count)
    return Comparison(difference, difference / error if error else math.nan, assumed)


def with_ddof_1(mean: float, deviation: float, count: int, ddof: int) -> Estimate:
    """A published deviation, stated with its ddof, as one with ddof 1."""
    return Estimate(mean, deviation * math.sqrt((count - ddof) / (count - 1)) if count > 1 else math.nan, count)


class Correlation(NamedTuple):
    """Pearson's and Spearman's coefficients over `count` groups, with Pearson's p; NaN where they do not exist."""

    pearson: float
    p: float
    spearman: float
    count: int


def correlation(x, y) -> Correlation:
    """Correlations of two quantities over the groups that have both."""
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    both = np.isfinite(x) & np.isfinite(y)
    x, y = x[both], y[both]
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return Correlation(math.nan, math.nan, math.nan, len(x))
    r = _pearson(x, y)
    p = _two_sided(r * math.sqrt((len(x) - 2) / (1 - r * r)), len(x) - 2) if abs(r) < 1 else 0.0
    return Correlation(r, p, _pearson(_ranks(x), _ranks(y)), len(x))


def _pearson(x: np.ndarray, y: np.ndarray) -> float:
    x, y = x - x.mean(), y - y.mean()
    return float(np.clip(x @ y / math.sqrt((x @ x) * (y @ y)), -1, 1))


def _ranks(x: np.ndarray) -> np.ndarray:
    """Ranks from 1; of ties their mean."""
    _, inverse, counts = np.unique(x, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]
