"""The one t-interval of the project against scipy's."""

import math

import numpy as np
import pytest
import scipy.stats

from utilities.intervals import difference_interval, share_interval, t_interval, t_quantile


def test_known_values():
    assert t_interval([0.5]) == {"mean": 0.5, "standard_error": None, "interval_95": None}
    interval = t_interval([1.0, 2.0, 3.0, 4.0])
    assert interval["mean"] == 2.5 and interval["standard_error"] == pytest.approx(math.sqrt(5 / 3) / 2)
    assert interval["interval_95"][1] - 2.5 == pytest.approx(3.182446305284263 * interval["standard_error"])


def test_it_is_scipys():
    for n in (2, 3, 5, 10):
        values = np.random.default_rng(n).standard_normal(n)
        expected = scipy.stats.t.interval(0.95, n - 1, values.mean(), scipy.stats.sem(values))
        assert t_interval(values)["interval_95"] == pytest.approx(expected, abs=1e-12)
        assert t_quantile(n - 0.5, 0.9) == pytest.approx(scipy.stats.t.ppf(0.95, n - 0.5), abs=1e-12)


def test_the_interval_of_a_share_is_wilsons():
    for hits, n in ((0, 5), (3, 10), (40, 40), (700, 1000)):
        expected = scipy.stats.binomtest(hits, n).proportion_ci(0.95, method="wilson")
        assert share_interval(hits / n, n) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_the_interval_of_a_difference_contains_it_with_95_percent():
    """Newcombe 1998, his method 10; never degenerate, and narrower with more queries."""
    generator = np.random.default_rng(3)
    for first, second, n in ((0.5, 0.55, 60), (0.9, 0.95, 40), (0.02, 0.05, 200)):
        draws = generator.binomial(n, [first, second], size=(4000, 2)) / n
        intervals = [difference_interval(a, b, n) for a, b in draws]
        covered = np.mean([low <= first - second <= high for low, high in intervals])
        assert 0.93 <= covered <= 0.99, (first, second, n)
    low, high = difference_interval(1.0, 1.0, 20)
    assert low < 0 < high and (high - low) > 4 * np.subtract(*difference_interval(1.0, 1.0, 400)[::-1])
