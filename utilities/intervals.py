"""Student's t: the interval of a mean, and the quantile that all intervals of the project are made with."""

import math

import numpy as np

CONFIDENCE = 0.95


def t_quantile(freedom: float, confidence: float = CONFIDENCE) -> float:
    """How many standard errors an interval reaches to each side. (scipy.special: importing scipy.stats costs a second and 60 MB.)"""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + confidence) / 2))


def two_sided(t: float, freedom: float) -> float:
    """p of a t statistic."""
    from scipy.special import stdtr

    return float(2 * stdtr(freedom, -abs(t)))


def t_interval(values) -> dict:
    """`mean`, `standard_error` (ddof 1) and `interval_95`, `[low, high]`, of some values; the last two are None for a single value."""
    values = np.asarray(values, dtype=np.float64)
    n, mean = len(values), float(np.mean(values))
    if n < 2:
        return {"mean": mean, "standard_error": None, "interval_95": None}
    error = float(np.std(values, ddof=1) / math.sqrt(n))
    half = t_quantile(n - 1) * error
    return {"mean": mean, "standard_error": error, "interval_95": [mean - half, mean + half]}
