"""The one t-interval of the project against scipy's."""

import math

import numpy as np
import pytest
import scipy.stats

from utilities.intervals import t_interval, t_quantile


def test_known_values():
    assert t_interval([0.5]) == {"mean": 0.5, "standard_error": None, "interval_95": None}
    found = t_interval([1.0, 2.0, 3.0, 4.0])
    assert found["mean"] == 2.5 and found["standard_error"] == pytest.approx(math.sqrt(5 / 3) / 2)
    assert found["interval_95"][1] - 2.5 == pytest.approx(3.182446305284263 * found["standard_error"])


def test_it_is_scipys():
    for n in (2, 3, 5, 10):
        values = np.random.default_rng(n).standard_normal(n)
        told = scipy.stats.t.interval(0.95, n - 1, values.mean(), scipy.stats.sem(values))
        assert t_interval(values)["interval_95"] == pytest.approx(told, abs=1e-12)
        assert t_quantile(n - 0.5, 0.9) == pytest.approx(scipy.stats.t.ppf(0.95, n - 0.5), abs=1e-12)
