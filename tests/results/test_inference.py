"""Statistics against scipy and against plain definitions."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from benchmarks import marks as benchmark
from results import inference
from results.inference import Estimate
from utilities import intervals

SPREAD = (Estimate(60, 0.5, 5), Estimate(60.2, 0.5, 5), Estimate(55, 0.5, 5))


SINGLE = Estimate(61, math.nan, 1)


samples = st.lists(st.floats(-100, 100, allow_nan=False), min_size=2, max_size=8)


def test_estimate():
    deviation = np.std([1, 2, 4], ddof=1)
    assert inference.estimate([1, 2, 4, math.nan]) == Estimate(pytest.approx(7 / 3), pytest.approx(deviation), 3)
    assert inference.estimate([1, 2, 4], ddof=0).deviation == pytest.approx(np.std([1, 2, 4]))
    for ddof in (0, 1):
        single = inference.estimate([5.0], ddof)
        assert single.mean == 5 and math.isnan(single.deviation) and single.count == 1, "by either ddof"
    assert inference.estimate([]).count == 0


@settings(deadline=None, max_examples=60)
@given(samples, samples)
def test_welch_is_scipys(a, b):
    if np.std(a) + np.std(b) < 1e-6:
        return
    expected = stats.ttest_ind(a, b, equal_var=False).pvalue
    assert inference.welch(inference.estimate(a), inference.estimate(b)) == pytest.approx(expected, rel=1e-6, abs=1e-12)


def test_without_spread_or_seeds():
    first = Estimate(1, 0, 3)
    second = Estimate(2, 0, 3)
    assert inference.welch(first, first) == 1 and inference.welch(first, second) == 0
    assert math.isnan(inference.welch(Estimate(1, math.nan, 1), Estimate(2, 0.1, 3)))
    assert inference.difference(Estimate(1, 0, 2), second) == (-1, -1)
    assert inference.ranked([Estimate(1, 0, 5), Estimate(2, 0, 5)], True) == [("", (-1, -1)), ("best", None)]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.one_of(st.floats(0, 1), st.just(math.nan)), max_size=9))
def test_holm_by_its_definition(p_values):
    adjusted = inference.holm(p_values)
    ordered = sorted(p for p in p_values if not math.isnan(p))
    for p, value in zip(p_values, adjusted, strict=True):
        if math.isnan(p):
            assert math.isnan(value)
            continue
        # The largest (m - j) p_(j) over all p_(j) that come before p, and p itself.
        candidates = [(len(ordered) - j) * q for j, q in enumerate(ordered) if q <= p]
        places = [j for j, q in enumerate(ordered) if q == p]
        assert value == pytest.approx(min(1, max(candidates[: places[0] + 1])), abs=1e-12) or len(places) > 1
    assert inference.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def marks(groups, higher):
    return [place.mark for place in inference.ranked(groups, higher)]


def test_marks():
    groups = [*SPREAD, SINGLE, Estimate(math.nan, math.nan, 0)]
    assert marks(groups, True) == ["close", "best", "", "", ""], "a mean of one seed is not the best"
    assert marks(groups, False) == ["", "", "best", "", ""]
    assert marks(groups, None) == [""] * 5
    assert marks(groups[:1], True) == [""] and marks(groups[2:], True) == [""] * 3, "a group alone is no winner"
    # nothing is said of two seeds
    for count, mark in ((2, ""), (3, "close"), (5, "close"), (9, "close")):
        assert marks([Estimate(60, 0.5, count), Estimate(60.01, 0.5, 5)], True) == [mark, "best"]
    assert marks([Estimate(60, 0.5, 5), Estimate(60.01, 0.5, 2), Estimate(50, 0.5, 5)], True) == ["", "best", ""]


def test_the_interval_to_the_best_of_two_is_welchs():
    """Of two groups; of more it is wider, and the mark is that of the interval."""
    rng = np.random.default_rng(0)
    for n, m in ((3, 3), (3, 5), (5, 6)):
        a = rng.normal(77, 3, n)
        b = rng.normal(96, 0.2, m)
        two = [inference.estimate(a), inference.estimate(b), Estimate(99, math.nan, 1)]
        places = inference.ranked(two, True)
        expected = stats.ttest_ind(a, b, equal_var=False).confidence_interval()
        assert places[0].interval == pytest.approx(tuple(expected), rel=1e-6)
        assert places[1] == ("best", None) and places[2] == ("", None)
        wider = inference.ranked([*two, Estimate(90, 1, 5)], True)[0].interval
        assert wider[0] < expected.low and wider[1] > expected.high


@pytest.mark.parametrize("number, freedom", [(1, 4), (3, 5.5), (36, 8), (300, 4), (300, 2.2), (10, 1e4)])
def test_the_studentised_maximum_modulus_by_drawing_it(number, freedom):
    rng = np.random.default_rng(0)
    moduli = np.abs(rng.standard_normal((20_000, number))).max(1) / np.sqrt(rng.chisquare(freedom, 20_000) / freedom)
    assert (moduli <= intervals.modulus_quantile(number, freedom)).mean() == pytest.approx(0.95, abs=0.005)


def sizes():
    """The tables that are simulated: those of 9 groups of 3 seeds in every run of the tests, all in the long ones."""
    for case in itertools.product(benchmark.KINDS, (2, 9, 25), (3, 4, 5)):
        # .09: two groups without spread are frequent; docs/statistics.md says so
        if case == ("rounded", 25, 3):
            continue
        is_long = case[1:] != (9, 3)
        yield pytest.param(*case, marks=pytest.mark.long) if is_long else case


@pytest.mark.parametrize(("kind", "groups", "seeds"), list(sizes()))
def test_of_equal_groups_none_is_marked_as_worse_in_95_of_100_tables(kind, groups, seeds):
    error, coverage, _ = benchmark.line(benchmark.present, kind, groups, seeds, tables=2000, seed=1)
    # the bounds of docs/statistics.md, .06 and .94, and 99 % of the noise
    noise = 2.6 * math.sqrt(0.06 * 0.94 / 2000)
    assert error <= 0.06 + noise and coverage >= 0.94 - noise


def test_least_marked_is_marked_in_80_of_100_tables():
    """Where the deviation is the upper bound of the one that was found."""
    groups = [Estimate(60.0, 0.5, 5)] * 4
    true = inference.least_marked(groups)
    upper = 0.5 * inference.spread_of_deviation(17)[1]
    rng = np.random.default_rng(0)
    values = rng.normal(0, upper, (1000, 4, 5))
    values[:, 0] -= true
    n_marked = 0
    for table in values:
        estimates = [inference.estimate(v) for v in table]
        # the two others are as good as the best, so that the first is judged among four
        for i in (2, 3):
            estimates[i] = estimates[i]._replace(mean=estimates[1].mean)
        n_marked += inference.ranked(estimates, True)[0].mark == ""
    assert n_marked / len(values) == pytest.approx(inference.POWER, abs=0.04)
    assert math.isnan(inference.least_marked([Estimate(1, 0.5, 2)] * 3))


def test_sign_test():
    for above, below in ((8, 0), (2, 6), (3, 3), (0, 1)):
        result = inference.sign_test([1.0] * above + [-1.0] * below + [0.0, math.nan])
        assert result == (above, below, pytest.approx(stats.binomtest(above, above + below).pvalue))
    assert inference.sign_test([0.0]) == (0, 0, 1.0)


def test_compare():
    ours = Estimate(64, 0.4, 5)
    theirs = inference.with_ddof_1(63.09, 0.46, 5, 0)
    assert theirs.deviation == pytest.approx(0.46 * math.sqrt(5 / 4))
    result = inference.compare(ours, theirs)
    expected = stats.ttest_ind_from_stats(64, 0.4, 5, 63.09, theirs.deviation, 5, equal_var=False)
    assert result.difference == pytest.approx(0.91) and result.t == pytest.approx(expected.statistic)
    assert 2 * stats.t.sf(result.t, result.freedom) == pytest.approx(expected.pvalue)
    for pair in ((SINGLE, theirs), (ours, SINGLE)):
        estimate = inference.compare(*pair)
        # no test of one seed
        assert math.isfinite(estimate.difference) and math.isnan(estimate.t) and math.isnan(estimate.freedom)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=5, max_size=12))
def test_correlation_is_scipys(pairs):
    x, y = np.array(pairs, dtype=float).T
    result = inference.correlation(x, y)
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        assert math.isnan(result.pearson)
        return
    assert result.pearson == pytest.approx(stats.pearsonr(x, y).statistic, abs=1e-9)
    assert result.spearman == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-9)
    assert result.p == pytest.approx(stats.pearsonr(x, y).pvalue, abs=1e-6)


def test_how_many_groups_a_correlation_is_of():
    x = [1.0, 2.0, 3.0, 4.0, math.nan]
    of_four = inference.correlation(x, x)
    assert np.isnan(of_four[:3]).all() and of_four.count == 4
    assert inference.correlation([*x, 5.0], [*x, 5.0]).pearson == pytest.approx(1)
    rng = np.random.default_rng(0)
    x, y = rng.random((2, 7))
    y[6] = math.nan
    result = inference.correlation(x, y, [0, 0, 2, 3, 4, 5, 5])
    expected = inference.correlation([(x[0] + x[1]) / 2, *x[2:6]], [(y[0] + y[1]) / 2, *y[2:6]])
    assert result.count == 5 and result == pytest.approx(expected), "groups of one unit count once"
