"""Student's t: the interval of a mean, and the quantile that all intervals of the project are made with."""

import functools
import math

import numpy as np

CONFIDENCE = 0.95
NODES = 400  # of the integral of the studentised maximum modulus
INVERSE_FREEDOM = np.linspace(1 / 400, 1, 60)  # where quantiles are computed that many degrees of freedom need
# shift in standard errors beyond which a rejection with the wrong sign has a chance below 1e-9 (scipy: NaN from 7.6 on)
NEGLIGIBLE = 6.0

_legendre = functools.cache(np.polynomial.legendre.leggauss)


def t_quantile(freedom: float, confidence: float = CONFIDENCE) -> float:
    """How many standard errors an interval reaches to each side. (scipy.special: importing scipy.stats costs a second
    and 60 MB.)
    """
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + confidence) / 2))


def two_sided(t: float, freedom: float) -> float:
    """Two-sided p-value of a t statistic."""
    from scipy.special import stdtr

    return float(2 * stdtr(freedom, -abs(t)))


def t_power(shift: float, freedom: float, alpha: float = 1 - CONFIDENCE) -> float:
    """Power of a two-sided t-test whose true mean lies `shift` standard errors from the null hypothesis
    (noncentral t distribution).
    """
    from scipy.special import nctdtr

    bound = t_quantile(freedom, 1 - alpha)
    shift = abs(shift)
    wrong = nctdtr(freedom, shift, -bound) if shift < NEGLIGIBLE else 0.0
    missed = nctdtr(freedom, shift, bound)
    # scipy gives NaN for some shifts above 35, where the test always rejects
    if math.isnan(missed):
        missed = 0.0
    return float(1 - missed + wrong)


def t_shift(power: float, freedom: float, bound: float) -> float:
    """The shift in standard errors at which a t beyond `bound` has the chance `power` (noncentral t distribution)."""
    from scipy.special import nctdtrinc

    return float(nctdtrinc(freedom, 1 - power, bound))


@functools.cache
def modulus_quantile(number: int, freedom: float) -> float:
    """Quantile of the studentised maximum modulus: the largest of `number` independent |t| that share one deviation of
    `freedom` degrees.
    """
    from scipy import optimize
    from scipy.special import chdtri, gammaln, ndtr

    low, high = np.sqrt(chdtri(freedom, [1 - 1e-12, 1e-12]))
    nodes, weights = _legendre(NODES)
    chi = low + (high - low) * (nodes + 1) / 2
    density = (freedom - 1) * np.log(chi) - chi**2 / 2 - (freedom / 2 - 1) * math.log(2) - gammaln(freedom / 2)
    weights = weights * (high - low) / 2 * np.exp(density)

    def missing(bound: float) -> float:
        within = number * np.log1p(-2 * ndtr(-bound * chi / math.sqrt(freedom)))
        return float(weights @ np.exp(within)) - CONFIDENCE

    return optimize.brentq(
        missing, t_quantile(freedom, CONFIDENCE) - 0.01, t_quantile(freedom, 1 - (1 - CONFIDENCE) / number) + 0.01
    )


def interpolated(quantile, freedom: np.ndarray) -> np.ndarray:
    """`quantile(freedom)`, which takes long, between points in 1 / freedom."""
    values = [quantile(float(1 / inverse)) for inverse in INVERSE_FREEDOM]
    return np.interp(1 / np.maximum(freedom, 1.0), INVERSE_FREEDOM, values)


def t_interval(values) -> dict:
    """`mean`, `standard_error` (ddof 1) and `interval_95`, `[low, high]`, of some values;
    the last two are None for a single value.
    """
    values = np.asarray(values, dtype=np.float64)
    n = len(values)
    mean = float(np.mean(values))
    if n < 2:
        return {"mean": mean, "standard_error": None, "interval_95": None}
    error = float(np.std(values, ddof=1) / math.sqrt(n))
    half = t_quantile(n - 1) * error
    return {"mean": mean, "standard_error": error, "interval_95": [mean - half, mean + half]}


def share_interval(share: float, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a mean of n values from 0 to 1: right for shares of hits, too wide for other values."""
    z = t_quantile(math.inf)
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return centre - half, centre + half


def difference_interval(first: float, second: float, n: int) -> tuple[float, float]:
    """95 % interval of `first - second`, independent means of n values from 0 to 1 each (Newcombe 1998, method 10).

    Values of the same queries rise and fall together, which makes it too wide, not too narrow.
    """
    first_low, first_high = share_interval(first, n)
    second_low, second_high = share_interval(second, n)
    below = math.hypot(first - first_low, second_high - second)
    above = math.hypot(first_high - first, second - second_low)
    return first - second - below, first - second + above


def class_interval(numerators, denominators, classes) -> dict:
    """`value` = sum of numerators / sum of denominators, and its `low` and `high`, the 95 % interval over classes.

    Classes, not queries, are a sample, each with all of its queries: Student's t of the classes' parts in the value
    (linearised). The bounds are None for a single class or a sum of 0.

    Args:
        numerators, denominators: `(N,)` of the queries; of a mean the denominators are 1.
        classes: `(N,)` whole numbers from 0.
    """
    denominators = np.broadcast_to(np.asarray(denominators, dtype=np.float64), np.shape(numerators))
    total = float(denominators.sum())
    if not total:
        return {"value": math.nan, "low": None, "high": None}
    value = float(np.sum(numerators)) / total
    parts = np.bincount(classes, np.asarray(numerators) - value * denominators)
    parts = parts[np.bincount(classes) > 0] / total
    n = len(parts)
    if n < 2:
        return {"value": value, "low": None, "high": None}
    half = t_quantile(n - 1) * math.sqrt(n / (n - 1) * float(parts @ parts))
    return {"value": value, "low": value - half, "high": value + half}
