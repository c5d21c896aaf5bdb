"""Tests and intervals of the study that results/inference.py does not have."""

import math
from typing import NamedTuple

import numpy as np

from results import inference
from utilities.intervals import t_quantile, two_sided

# The same sum in another order may differ by rounding: a drawn value this close to the observed one has reached it.
ROUNDING = 1 - 1e-12


def sign_flips(differences: np.ndarray, draws: int, rng: np.random.Generator) -> float:
    """Two-sided p of the mean of paired differences of any shape, by flipping signs.

    Without an effect both signs of a difference are equally likely.
    """
    flat = np.ravel(differences)
    signs = rng.integers(0, 2, (draws, flat.size)) * 2 - 1
    reached = np.abs(signs @ flat) >= abs(flat.sum()) * ROUNDING
    return (1 + int(reached.sum())) / (draws + 1)


def shuffled_f(values: np.ndarray, draws: int, rng: np.random.Generator) -> float:
    """p of one-way analysis of variance of `values` `(groups, seeds)`, by shuffling all values over the groups."""
    copies = np.broadcast_to(values.ravel(), (draws, values.size))
    shuffled = rng.permuted(copies, axis=1).reshape(draws, *values.shape)
    reached = _variance_between_groups(shuffled) >= _variance_between_groups(values) * ROUNDING
    return (1 + int(reached.sum())) / (draws + 1)


def _variance_between_groups(values: np.ndarray) -> np.ndarray:
    """Variance of the groups' means. With the total fixed, the F statistic rises with it."""
    return values.mean(axis=-1).var(axis=-1)


def bootstrap(
    x: list[np.ndarray], y: list[np.ndarray], units: list[int], draws: int, rng: np.random.Generator
) -> tuple[float, float]:
    """95 % interval of Pearson's coefficient over the groups' means.

    Losses are resampled, each with its twins, and seeds within each group.

    Args:
        x, y: one array `(seeds,)` per group, of the same runs.
        units: one number per group, the same for twins.
    """
    unit_numbers = np.unique(units)
    members = [np.flatnonzero(np.asarray(units) == number) for number in unit_numbers]
    means = np.empty((2, draws, len(x)))
    for group in range(len(x)):
        seeds = rng.integers(0, len(x[group]), (draws, len(x[group])))
        means[0, :, group] = x[group][seeds].mean(axis=1)
        means[1, :, group] = y[group][seeds].mean(axis=1)
    coefficients = np.full(draws, np.nan)
    # each draw has another number of points
    for draw in range(draws):
        chosen_units = rng.integers(0, len(unit_numbers), len(unit_numbers))
        chosen_groups = np.concatenate([members[unit] for unit in chosen_units])
        x_means, y_means = means[:, draw, chosen_groups]
        if np.ptp(x_means) > 0 and np.ptp(y_means) > 0:
            coefficients[draw] = np.corrcoef(x_means, y_means)[0, 1]
    if not np.isfinite(coefficients).any():
        return math.nan, math.nan
    low, high = np.nanpercentile(coefficients, [2.5, 97.5])
    return low, high


def welch_anova(groups: list[np.ndarray]) -> float:
    """p of Welch's test that groups `(seeds,)` have one mean; their deviations may differ (Biometrika 38, 1951).

    NaN if a group has no deviation.
    """
    from scipy.special import fdtrc

    counts = np.array([len(values) for values in groups], dtype=np.float64)
    means = np.array([values.mean() for values in groups])
    variances = np.array([values.var(ddof=1) for values in groups])
    if not variances.all():
        return math.nan
    weights = counts / variances
    k = len(groups)
    middle = (weights * means).sum() / weights.sum()
    doubt = ((1 - weights / weights.sum()) ** 2 / (counts - 1)).sum()
    between = (weights * (means - middle) ** 2).sum() / (k - 1)
    f = between / (1 + 2 * (k - 2) / (k**2 - 1) * doubt)
    return float(fdtrc(k - 1, (k**2 - 1) / (3 * doubt), f))


class Joint(NamedTuple):
    """A mean difference over several pairs of groups, with its 95 % interval and two-sided p."""

    difference: float
    interval: tuple[float, float]
    p: float


def joint_difference(pairs: list[tuple[inference.Estimate, inference.Estimate]]) -> Joint:
    """The mean over pairs of second - first, for these methods and further seeds.

    By Student's t with the degrees of freedom of Welch and Satterthwaite; the seeds of different groups are
    independent. From estimates with ddof 1.
    """
    difference = float(np.mean([second.mean - first.mean for first, second in pairs]))
    parts = [(e.deviation**2 / e.count, e.count - 1) for pair in pairs for e in pair]
    variance = sum(part for part, _ in parts)
    if not variance:
        return Joint(difference, (difference, difference), float(difference == 0))
    freedom = variance**2 / sum(part**2 / part_freedom for part, part_freedom in parts)
    error = math.sqrt(variance) / len(pairs)
    half = t_quantile(freedom) * error
    return Joint(difference, (difference - half, difference + half), two_sided(difference / error, freedom))
