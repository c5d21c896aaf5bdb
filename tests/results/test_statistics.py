"""Statistics against scipy and against plain definitions."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from results import statistics
from results.statistics import Estimate

samples = st.lists(st.floats(-100, 100, allow_nan=False), min_size=2, max_size=8)


def test_estimate():
    assert statistics.estimate([1, 2, 4, math.nan]) == Estimate(pytest.approx(7 / 3), pytest.approx(np.std([1, 2, 4], ddof=1)), 3)
    assert statistics.estimate([1, 2, 4], ddof=0).deviation == pytest.approx(np.std([1, 2, 4]))
    for ddof in (0, 1):
        one = statistics.estimate([5.0], ddof)
        assert one.mean == 5 and math.isnan(one.deviation) and one.count == 1, "one seed has no deviation, by either ddof"
    assert statistics.estimate([]).count == 0


@settings(deadline=None, max_examples=60)
@given(samples, samples)
def test_welch_is_scipys(a, b):
    if np.std(a) + np.std(b) < 1e-6:
        return
    expected = stats.ttest_ind(a, b, equal_var=False).pvalue
    assert statistics.welch(statistics.estimate(a), statistics.estimate(b)) == pytest.approx(expected, rel=1e-6, abs=1e-12)


def test_welch_without_spread_or_seeds():
    assert statistics.welch(Estimate(1, 0, 3), Estimate(1, 0, 3)) == 1 and statistics.welch(Estimate(1, 0, 3), Estimate(2, 0, 3)) == 0
    assert math.isnan(statistics.welch(Estimate(1, math.nan, 1), Estimate(2, 0.1, 3)))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.one_of(st.floats(0, 1), st.just(math.nan)), max_size=9))
def test_holm_by_its_definition(p_values):
    adjusted = statistics.holm(p_values)
    there = [p for p in p_values if not math.isnan(p)]
    for p, value in zip(p_values, adjusted, strict=True):
        if math.isnan(p):
            assert math.isnan(value)
            continue
        # The largest (m - j) p_(j) over all p_(j) that come before p, and p itself.
        ordered = sorted(there)
        candidates = [(len(there) - j) * q for j, q in enumerate(ordered) if q <= p]
        last = max(j for j, q in enumerate(ordered) if q == p)
        first = min(j for j, q in enumerate(ordered) if q == p)
        assert value == pytest.approx(min(1, max(candidates[: first + 1])), abs=1e-12) or first != last


def test_holm_known():
    assert statistics.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_marks():
    groups = [
        Estimate(60, 0.5, 5),
        Estimate(60.2, 0.5, 5),
        Estimate(55, 0.5, 5),
        Estimate(59.9, math.nan, 1),
        Estimate(math.nan, math.nan, 0),
    ]
    assert statistics.marks(groups, True) == ["close", "best", "", "", ""]
    assert statistics.marks(groups, False) == ["", "", "best", "", ""]
    assert statistics.marks(groups, None) == [""] * 5
    assert statistics.marks(groups[:1], True) == [""], "a group alone is no winner"


def test_compare():
    ours, theirs = Estimate(64, 0.4, 5), statistics.with_ddof_1(63.09, 0.46, 5, 0)
    assert theirs.deviation == pytest.approx(0.46 * math.sqrt(5 / 4))
    result = statistics.compare(ours, theirs)
    assert (
        result.difference == pytest.approx(0.91)
        and result.z == pytest.approx(0.91 / math.sqrt(0.16 / 5 + theirs.deviation**2 / 5))
        and not result.assumed
    )
    alone = statistics.compare(Estimate(64, math.nan, 1), theirs)
    assert alone.assumed and alone.z == pytest.approx(0.91 / math.sqrt(theirs.deviation**2 * 1.2))
    assert math.isnan(statistics.compare(ours, Estimate(63, math.nan, 1)).z)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=3, max_size=12))
def test_correlation_is_scipys(pairs):
    x, y = np.array(pairs, dtype=float).T
    result = statistics.correlation(x, y)
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        assert math.isnan(result.pearson)
        return
    assert result.pearson == pytest.approx(stats.pearsonr(x, y).statistic, abs=1e-9)
    assert result.spearman == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-9)
    assert result.p == pytest.approx(stats.pearsonr(x, y).pvalue, abs=1e-6)
