"""Bootstrap interval of the difference of two methods, from the per-query results of their runs.

Both classes and seeds are resampled.

Population: classes like those of the test set, and training runs of the two methods with other seeds. Both methods
search with the same queries, so a draw takes the same classes for both (paired), as many as there are, with
replacement; and of each method's seeds as many as there are. A mean over queries becomes a ratio: the classes' sums
over the classes' sizes.

Few seeds are the crux, for two reasons. The spread of five means includes what classes and queries add by chance, which
the draw of classes already covers; and drawing 5 of 5 seeds gives only 4/5 of their variance, with normal quantiles. So
(1) the seeds contribute their variance over the number of seeds, less the part due to the interaction of seeds and
classes (two-way analysis of variance), at least 0, and the drawn means are scaled to it; (2) the quantiles of the draws
are moved away from the difference by the ratio of Student's t quantile to the normal one, with the combined degrees of
freedom of seeds and classes (Satterthwaite), which different numbers of seeds lower (`_doubt`). benchmarks/paired.py
measures the coverage: 94 to 96 % for 2 to 10 seeds and 30 or 100 classes, where plain percentiles contain the truth in
87 to 98 %.
"""

import math
from typing import NamedTuple

import numpy as np

from utilities.intervals import CONFIDENCE, t_quantile

DRAWS = 10_000
# draws at once: their weights for 11,316 classes take 23 MB
BLOCK = 250


class Outcomes(NamedTuple):
    """Sums over the queries of each class, `(S, C)`, for the runs of S seeds; `sizes` `(C,)`: queries that count."""

    sums: np.ndarray
    sizes: np.ndarray

    @property
    def means(self) -> np.ndarray:
        """`(S,)` mean over the queries of each run."""
        return self.sums.sum(1) / self.sizes.sum()


class Difference(NamedTuple):
    """Difference of two methods' means, 95 % interval, standard error, degrees of freedom (seeds and classes)."""

    value: float
    low: float
    high: float
    error: float
    freedom: float


def class_outcomes(values: list[np.ndarray], classes: np.ndarray) -> Outcomes:
    """Outcomes of runs.

    Args:
        values: one array `(N,)` per run; NaN for queries that do not count, the same ones in all runs.
        classes: `(N,)` classes of the queries, numbered from 0.
    """
    counted = ~np.isnan(values[0])
    n = int(classes.max()) + 1
    sizes = np.bincount(classes[counted], minlength=n)
    sums = np.stack([np.bincount(classes[counted], run_values[counted], minlength=n) for run_values in values])
    return Outcomes(sums[:, sizes > 0], sizes[sizes > 0].astype(np.float64))


def drawn_means(parts: list[Outcomes], draws: int = DRAWS, seed: int = 0) -> list[np.ndarray]:
    """For each of several outcomes on the same C classes `(draws, S)`: the runs' means over the drawn classes."""
    generator = np.random.default_rng(seed)
    n = len(parts[0].sizes)
    tables = [np.concatenate([part.sums, part.sizes[None]]) for part in parts]  # (S + 1, C) each
    columns = np.concatenate(tables).T.copy()
    totals = np.empty((draws, columns.shape[1]))
    for start in range(0, draws, BLOCK):
        count = min(BLOCK, draws - start)
        chosen = generator.integers(0, n, (count, n)) + n * np.arange(count)[:, None]
        weights = np.bincount(chosen.reshape(-1), minlength=count * n).reshape(count, n).astype(np.float64)
        totals[start : start + count] = weights @ columns
    means = []
    start = 0
    for table in tables:
        # column of the draws' sizes
        size = start + len(table) - 1
        means.append(totals[:, start:size] / totals[:, size : size + 1])
        start = size + 1
    return means


def difference(
    first: Outcomes, second: Outcomes, class_draws: tuple[np.ndarray, np.ndarray], seed: int = 0
) -> Difference:
    """First - second with its interval. With one seed per method, the interval covers classes alone.

    Args:
        class_draws: the `drawn_means` of both.
    """
    value = float(first.means.mean() - second.means.mean())
    by_class = class_draws[0].mean(1) - class_draws[1].mean(1)
    class_variance = float(by_class.var(ddof=1))
    class_freedom = max(len(first.sizes) - 1, 1)
    parts = [_seeds(first), _seeds(second)]
    added = max(0.0, sum(part.variance - part.interaction for part in parts))
    total_variance = sum(part.variance for part in parts)
    stretch = 0.0
    if total_variance:
        stretch = math.sqrt(added / total_variance)
    generator = np.random.default_rng([seed, 1])
    by_first_seeds = _drawn_seeds(first, len(by_class), generator) * stretch
    by_second_seeds = _drawn_seeds(second, len(by_class), generator) * stretch
    draws = by_class + by_first_seeds - by_second_seeds
    # degrees of freedom (Satterthwaite); a method with one seed has no part in them
    with_freedom = [part for part in parts if part.freedom]
    doubt = _doubt(with_freedom) + class_variance**2 / class_freedom
    freedom = (class_variance + added) ** 2 / doubt if doubt else math.inf
    # Subtracting the interaction could leave fewer degrees of freedom than the smallest component has, which no sum of
    # variances has.
    freedom = max(freedom, min([part.freedom for part in with_freedom] + [class_freedom]))
    widened = t_quantile(freedom) / t_quantile(math.inf) if freedom > 0 else math.nan
    tail = (1 - CONFIDENCE) / 2
    low, high = (value + (float(bound) - value) * widened for bound in np.quantile(draws, [tail, 1 - tail]))
    return Difference(value, low, high, math.sqrt(class_variance + added), freedom)


def intervals(parts: list[Outcomes], seed: int = 0) -> list[Difference]:
    """The mean of each of several outcomes on the same classes with its interval: its difference from a method whose
    values are all 0.
    """
    differences = []
    for outcomes, means in zip(parts, drawn_means(parts, seed=seed), strict=True):
        zeros = Outcomes(np.zeros_like(outcomes.sums[:1]), outcomes.sizes)
        differences.append(difference(outcomes, zeros, (means, np.zeros((len(means), 1))), seed))
    return differences


def interval(outcomes: Outcomes, seed: int = 0) -> Difference:
    """One method's mean with its interval."""
    return intervals([outcomes], seed)[0]


class Seeds(NamedTuple):
    """One method's mean over its seeds.

    `variance`: by the spread of the seeds' means. `interaction`: the part due to interaction with classes.
    """

    variance: float
    interaction: float
    freedom: int


def _doubt(parts: list[Seeds]) -> float:
    """The squared standard error of the seeds' variance, halved; 0 for no parts.

    Of different numbers of seeds at least what it is if the seeds of both methods vary alike. Otherwise the interval is
    too short whenever the method of few seeds seems to vary little by chance.
    """
    observed = sum(part.variance**2 / part.freedom for part in parts)
    total = sum(part.variance for part in parts)
    weights = [1 / (part.freedom + 1) for part in parts]
    shares = sum((weight / sum(weights)) ** 2 / part.freedom for weight, part in zip(weights, parts, strict=True))
    return max(observed, total**2 * shares)


def _seeds(outcomes: Outcomes) -> Seeds:
    count, n = outcomes.sums.shape
    if count < 2:
        return Seeds(0.0, 0.0, 0)
    means = outcomes.means
    # (S, C): contribution of each class to a mean
    shares = (outcomes.sums - means[:, None] * outcomes.sizes) / outcomes.sizes.sum()
    residuals = shares - shares.mean(0)
    interaction = float((residuals**2).sum()) * n / max(n - 1, 1) / ((count - 1) * count)
    return Seeds(float(means.var(ddof=1)) / count, interaction, count - 1)


def _drawn_seeds(outcomes: Outcomes, draws: int, generator) -> np.ndarray:
    """`(draws,)` means of as many seeds as there are, with replacement, less their overall mean.

    They are scaled to the variance of such means.
    """
    means = outcomes.means - outcomes.means.mean()
    count = len(means)
    if count < 2:
        return np.zeros(draws)
    return means[generator.integers(0, count, (draws, count))].mean(1) * math.sqrt(count / (count - 1))
