"""The interval of the difference of two methods, from what each query of each of their runs found: classes and seeds both are drawn.

The population: classes as those of the test set, and training runs of the two methods with other seeds. Both methods search with the same
queries, so a draw takes the same classes for both (paired), as many as there are, with replacement, and of each method's seeds as many as there
are. A mean over queries becomes a ratio: the classes' sums over the classes' sizes.

Few seeds are the crux. The spread of five means contains, beside that of the seeds, what classes and queries add to it by chance, which the draw
of classes holds already; and drawing 5 of 5 seeds gives 4/5 of their variance, with quantiles of a normal distribution. So (1) what the seeds
add is their variance over the number of seeds, less the part that is the interaction of seeds and classes (two-way analysis of variance), not
below 0; the drawn means are stretched to it; (2) the quantiles of the draws are moved away from the difference by the quotient of Student's t
and the normal quantile, with the degrees of freedom of both parts (Satterthwaite). benchmarks/paired.py measures the coverage:
94 to 96 % for 2 to 10 seeds and 30 or 100 classes, where plain percentiles hold the truth in 90 to 98 %.
"""

import math
from typing import NamedTuple

import numpy as np

from utilities.intervals import CONFIDENCE, t_quantile

DRAWS = 10_000
BLOCK = 250  # draws at once: their weights of 11,316 classes are 23 MB


class Outcomes(NamedTuple):
    """Sums over the queries of each class, `(S, C)`, in the runs of S seeds; `sizes` `(C,)`: queries that count."""

    sums: np.ndarray
    sizes: np.ndarray

    @property
    def means(self) -> np.ndarray:
        """`(S,)` mean over the queries of each run."""
        return self.sums.sum(1) / self.sizes.sum()


class Difference(NamedTuple):
    """Difference of two methods' means, its 95 % interval, its standard error, and the degrees of freedom that the seeds leave it."""

    value: float
    low: float
    high: float
    error: float
    freedom: float


def class_outcomes(values: list[np.ndarray], classes: np.ndarray) -> Outcomes:
    """Outcomes of runs.

    Args:
        values: of each run `(N,)`, NaN for queries that do not count, which are the same in all.
        classes: `(N,)` classes of the queries, numbered from 0.
    """
    counted = ~np.isnan(values[0])
    n = int(classes.max()) + 1
    sizes = np.bincount(classes[counted], minlength=n)
    sums = np.stack([np.bincount(classes[counted], one[counted], minlength=n) for one in values])
    return Outcomes(sums[:, sizes > 0], sizes[sizes > 0].astype(np.float64))


def drawn_means(parts: list[Outcomes], draws: int = DRAWS, seed: int = 0) -> list[np.ndarray]:
    """`(draws, S)` of each of several outcomes on the same C classes: the runs' means over the classes of each draw."""
    generator = np.random.default_rng(seed)
    n = len(parts[0].sizes)
    columns = np.concatenate([np.concatenate([part.sums, part.sizes[None]]) for part in parts]).T.copy()  # (C, sum of S + 1)
    totals = np.empty((draws, columns.shape[1]))
    for start in range(0, draws, BLOCK):
        count = min(BLOCK, draws - start)
        chosen = generator.integers(0, n, (count, n)) + n * np.arange(count)[:, None]
        weights = np.bincount(chosen.reshape(-1), minlength=count * n).reshape(count, n).astype(np.float64)
        totals[start : start + count] = weights @ columns
    bounds = np.cumsum([0] + [len(part.sums) + 1 for part in parts])
    return [totals[:, a : b - 1] / totals[:, b - 1 : b] for a, b in zip(bounds, bounds[1:], strict=False)]


def difference(first: Outcomes, second: Outcomes, drawn: tuple[np.ndarray, np.ndarray], seed: int = 0) -> Difference:
    """First - second, whose `drawn_means` are `drawn`, with its interval; of one seed a method, over classes alone."""
    value = float(first.means.mean() - second.means.mean())
    ours, theirs = (one.mean(1) for one in drawn)
    by_classes = float((ours - theirs).var(ddof=1))
    parts = [_seeds(first), _seeds(second)]
    added = max(0.0, sum(part.variance - part.interaction for part in parts))
    whole = sum(part.variance for part in parts)
    stretch = math.sqrt(added / whole) if whole else 0.0
    generator = np.random.default_rng([seed, 1])
    moved = [_drawn_seeds(one, len(drawn[0]), generator) * stretch for one in (first, second)]
    draws = ours - theirs + moved[0] - moved[1]
    doubt = sum(part.variance**2 / part.freedom for part in parts if part.freedom) + by_classes**2 / max(len(first.sizes) - 1, 1)
    freedom = (by_classes + added) ** 2 / doubt if doubt else math.inf
    # what is taken off for the interaction could leave less than the part that is known worst: no sum of variances has so little
    freedom = max(freedom, min([part.freedom for part in parts if part.freedom] + [max(len(first.sizes) - 1, 1)]))
    widened = t_quantile(freedom) / t_quantile(math.inf) if freedom > 0 else math.nan
    tail = (1 - CONFIDENCE) / 2
    low, high = (value + (float(bound) - value) * widened for bound in np.quantile(draws, [tail, 1 - tail]))
    return Difference(value, low, high, math.sqrt(by_classes + added), freedom)


class Seeds(NamedTuple):
    """Of the mean over the seeds: its variance by the spread of their means, of that the part of the interaction with classes; freedom."""

    variance: float
    interaction: float
    freedom: int


def _seeds(outcomes: Outcomes) -> Seeds:
    count, n = outcomes.sums.shape
    if count < 2:
        return Seeds(0.0, 0.0, 0)
    means = outcomes.means
    shares = (outcomes.sums - means[:, None] * outcomes.sizes) / outcomes.sizes.sum()  # (S, C): what each class adds to a mean
    residuals = shares - shares.mean(0)
    interaction = float((residuals**2).sum()) * n / max(n - 1, 1) / ((count - 1) * count)
    return Seeds(float(means.var(ddof=1)) / count, interaction, count - 1)


def _drawn_seeds(outcomes: Outcomes, draws: int, generator) -> np.ndarray:
    """`(draws,)` means of as many seeds as there are, drawn with replacement, less the mean of all; with the variance of a mean of so many."""
    means = outcomes.means - outcomes.means.mean()
    count = len(means)
    if count < 2:
        return np.zeros(draws)
    return means[generator.integers(0, count, (draws, count))].mean(1) * math.sqrt(count / (count - 1))
