"""Squeezed variances and step-down marks against slow definitions."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import digamma, polygamma

from benchmarks import marks as benchmark
from results import inference, squeezing
from results.inference import Estimate
from utilities import intervals


def plain_prior(variances, freedoms):
    """limma's fitFDist, with the trigamma function inverted by bisection."""
    rows = [
        (math.log(v) - float(digamma(f / 2)) + math.log(f / 2), f) for v, f in zip(variances, freedoms, strict=True)
    ]
    middle = sum(row[0] for row in rows) / len(rows)
    excess = sum((row[0] - middle) ** 2 for row in rows) / (len(rows) - 1)
    excess -= sum(float(polygamma(1, row[1] / 2)) for row in rows) / len(rows)
    if excess <= 0:
        total = sum(freedoms)
        return sum(v * f for v, f in zip(variances, freedoms, strict=True)) / total, math.inf
    low = 1e-9
    high = 1e9
    for _ in range(300):
        half = math.sqrt(low * high)
        if polygamma(1, half) > excess:
            low = half
        else:
            high = half
    return math.exp(middle + float(digamma(half)) - math.log(half)), 2 * half


def plain_squeezed(variances, freedoms):
    """By group: variance and degrees of freedom, as squeezing.py describes them."""
    members = [i for i, v in enumerate(variances) if v > 0]
    if len(members) < 3 or len(members) < len(variances) - 1:
        return list(zip(variances, freedoms, strict=True)), False
    scale, prior = plain_prior([variances[i] for i in members], [freedoms[i] for i in members])
    total = sum(freedoms[i] for i in members)
    groups = []
    for i, (variance, freedom) in enumerate(zip(variances, freedoms, strict=True)):
        if i not in members:
            groups.append((variance, freedom))
            continue
        mean = scale
        if prior < math.inf:
            mean = (freedom * variance + prior * scale) / (freedom + prior)
        gain = min(freedom + prior, total) - freedom
        groups.append((max(variance, mean), freedom + gain * min(1, scale / variance)))
    return groups, True


variances = st.one_of(st.floats(1e-3, 1e3), st.just(0.0), st.just(2.5))


@settings(deadline=None, max_examples=80)
@given(st.lists(st.tuples(variances, st.integers(1, 12)), min_size=1, max_size=9))
def test_squeezed_variances_by_their_definition(groups):
    values, freedoms = (list(column) for column in zip(*groups, strict=True))
    expected, is_expected = plain_squeezed(values, freedoms)
    raised, gained, is_squeezed = squeezing.squeezed(values, freedoms)
    assert bool(is_squeezed) == is_expected
    assert list(zip(raised, gained, strict=True)) == [pytest.approx(pair, rel=1e-6) for pair in expected]
    in_two_tables = squeezing.squeezed([values, [1.0] * len(values)], freedoms)
    assert in_two_tables[0][0] == pytest.approx(raised) and in_two_tables[1][0] == pytest.approx(gained)


def test_the_prior_is_recovered_from_many_variances():
    """Scale 4 and 6 degrees of freedom; and none is found where all true variances are equal."""
    rng = np.random.default_rng(0)
    true = 4 * 6 / rng.chisquare(6, 40_000)
    scale, freedom = squeezing.prior(true * rng.chisquare(4, 40_000) / 4, np.full(40_000, 4.0))
    assert scale == pytest.approx(4, rel=0.03) and freedom == pytest.approx(6, rel=0.06)
    ratio = stats.f(4, 6).rvs(200, random_state=rng)
    assert squeezing.prior(ratio * 9, np.full(200, 4.0))[0] == pytest.approx(9, rel=0.4)
    scale, freedom = squeezing.prior(np.full(5, 2.0), np.full(5, 4.0))
    assert scale == 2 and freedom == math.inf


@pytest.mark.parametrize("value", [1e-9, 0.3, 1.6449340668482264, 70.0, 1e9])
def test_the_inverse_of_the_trigamma_function(value):
    argument = squeezing.inverse_trigamma(np.array(value))
    assert polygamma(1, argument) == pytest.approx(value, rel=1e-6)


def plain_marks(groups, higher=True):
    """Marks and intervals by definition, every pair with its own loop."""
    counts = [len(values) for values in groups]
    means = [float(np.mean(values)) for values in groups]
    sign = 1 if higher else -1
    best = max(range(len(groups)), key=lambda i: sign * means[i])
    unsqueezed = [(float(np.var(values, ddof=1)), len(values) - 1) for values in groups]
    members = [i for i, count in enumerate(counts) if count >= 4]
    squeezed, is_squeezed = plain_squeezed([unsqueezed[i][0] for i in members], [unsqueezed[i][1] for i in members])
    by_group = dict(zip(members, squeezed, strict=True))

    def reach(i, remaining):
        is_pair = is_squeezed and i in by_group and best in by_group
        source = by_group if is_pair else unsqueezed
        parts = [(source[j][0] / counts[j], source[j][1]) for j in (i, best)]
        error = math.sqrt(sum(part[0] for part in parts))
        if not error:
            return 0.0
        freedom = error**4 / sum(part[0] ** 2 / part[1] for part in parts)
        pairs = remaining * (remaining - 1) // 2
        if is_pair or min(counts[i], counts[best]) >= 5:
            return error * intervals.modulus_quantile(pairs, freedom)
        return error * float(stats.t.ppf(1 - 0.025 / pairs, freedom))

    compared = [i for i in range(len(groups)) if i != best and min(counts[i], counts[best]) >= 3]
    worse = set()
    for i in compared:
        if min(counts[i], counts[best]) == 3 and abs(means[i] - means[best]) > reach(i, len(groups)):
            worse.add(i)
    remaining = [i for i in compared if min(counts[i], counts[best]) > 3]
    groups_left = len(groups)
    while remaining:
        farthest = max(remaining, key=lambda i: abs(means[i] - means[best]) / (reach(i, len(groups)) or 1e-300))
        if abs(means[farthest] - means[best]) <= reach(farthest, groups_left):
            break
        worse.add(farthest)
        remaining.remove(farthest)
        groups_left -= 1
    halves = {i: reach(i, len(groups)) for i in compared}
    return plain_places(means, best, halves, worse)


def plain_places(means, best, halves, worse):
    """Mark and interval of each group; those in `halves` are compared."""
    places = []
    for i, mean in enumerate(means):
        mark = "close" if i in halves and i not in worse else ""
        if mean == means[best]:
            mark = "best"
        interval = None
        if i in halves:
            difference = mean - means[best]
            interval = pytest.approx((difference - halves[i], difference + halves[i]), rel=1e-6)
        places.append((mark, interval))
    return places


@pytest.mark.parametrize("seeds", [(3,), (4,), (5,), (10,), (3, 5), (2, 4, 7), (4, 4, 3, 12)])
@pytest.mark.parametrize("higher", [True, False])
def test_marks_and_intervals_by_their_definition(seeds, higher):
    rng = np.random.default_rng(len(seeds))
    for groups, step in ((2, 0), (4, 1.0), (7, 0.4), (7, 0)):
        for rounded in (False, True):
            table = []
            for i in range(groups):
                values = rng.normal(step * i, 1, seeds[i % len(seeds)])
                if rounded:
                    values = values.round()
                table.append(values)
            places = inference.ranked([inference.estimate(values) for values in table], higher)
            assert list(places) == plain_marks(table, higher)


@pytest.mark.parametrize("kind", benchmark.KINDS)
@pytest.mark.parametrize("seeds", [3, 4, 6])
def test_the_benchmark_simulates_the_procedure_of_the_tables(kind, seeds):
    rng = np.random.default_rng(2)
    values = benchmark.simulated(kind, 12, 6, seeds, rng)
    true = benchmark.true_means(6)["spread"]
    marked, _, holds = benchmark.measured(benchmark.present, values, true)
    for table in range(len(values)):
        estimates = [inference.estimate(group) for group in values[table] + true[:, None]]
        places = inference.ranked(estimates, True)
        assert [place.mark == "" for place in places] == marked[table].tolist()
        best = [place.mark for place in places].index("best")
        within = [p.interval[0] <= true[i] - true[best] <= p.interval[1] for i, p in enumerate(places) if p.interval]
        assert all(within) == holds[table]


def test_steps_mark_more_and_intervals_stay():
    """Five far groups are marked; the sixth is then judged between two, not among seven."""
    groups = [Estimate(60, 1, 5), Estimate(58.3, 1, 5), *[Estimate(20 - i, 1, 5) for i in range(5)]]
    places = inference.ranked(groups, True)
    assert places[1].mark == "" and places[1].interval[1] > 0, "marked, although the simultaneous interval holds 0"
    assert inference.ranked([*groups[:2], *[Estimate(60, 1, 5)] * 5], True)[1].mark == "close"
    assert inference.ranked([group._replace(count=3) for group in groups], True)[1].mark == "close", "of three seeds"


def test_columns_that_are_not_squeezed():
    constant = Estimate(50, 0, 5)
    assert inference.ranked([constant], True) == [("", None)]
    assert inference.ranked([constant] * 3, True) == [("best", None), ("best", (0, 0)), ("best", (0, 0))]
    assert inference.ranked([constant, constant, Estimate(49, 0, 5)], True)[2] == ("", (-1, -1))
    mixed = [constant, constant, Estimate(49, 1, 5), Estimate(48, 2, 5)]
    half = inference.critical(4, 5, 4) / math.sqrt(5)
    assert inference.ranked(mixed, True)[2].interval == pytest.approx((-1 - half, -1 + half))
    two_seeds = [Estimate(50, 1, 2), Estimate(49, 1, 2), Estimate(10, 1, 2)]
    assert inference.ranked(two_seeds, True) == [("best", None), ("", None), ("", None)]
