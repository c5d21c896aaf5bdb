"""Thresholds, calibration and its error repeatedst pinned values and plain loops."""

from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from evaluation import thresholds
from utilities.errors import UserError

SAME = [0.1, 0.3, 0.5, 0.9]
OTHER = [0.4, 0.6, 0.7, 0.8, 1.0]
DISTANCES = np.array(SAME + OTHER)
RIGHT = np.arange(9) < 4
ONES = np.ones(9)


def test_pinned_thresholds():
    assert thresholds.eer(DISTANCES, RIGHT) == (0.6, pytest.approx(0.225))
    assert thresholds.f1(DISTANCES, RIGHT) == (0.6, pytest.approx(0.75))
    assert thresholds.balanced(DISTANCES, RIGHT)[0] == 0.6


def _by_loop(distances, right, value):
    """The smallest of the best thresholds by `value` of false accept rate, false reject rate, and counts."""
    best = None
    for t in [*sorted(set(distances[np.isfinite(distances)].tolist())), np.inf]:
        hits = sum(d < t for d in distances[right])
        wrong = sum(d < t for d in distances[~right])
        score = round(value(hits, wrong, int(right.sum()), int((~right).sum())), 12)
        if best is None or score > best[1]:
            best = (t, score)
    return best


def test_thresholds_agree_with_loops_on_ties():
    values = {
        "eer": lambda hits, wrong, n, m: -abs(wrong / m - (1 - hits / n)),
        "f1": lambda hits, wrong, n, m: 2 * hits / (hits + wrong + n),
        "balanced": lambda hits, wrong, n, m: (hits / n + 1 - wrong / m) / 2,
    }
    generator = np.random.default_rng(0)
    for _ in range(30):
        distances = generator.integers(0, 9, 25) / 4
        distances[generator.random(25) < 0.1] = np.inf
        right = generator.random(25) < 0.4
        right[:2] = True, False
        for name, value in values.items():
            threshold, best = getattr(thresholds, name)(distances, right)
            expected = _by_loop(distances, right, value)
            assert threshold == expected[0], name
            if name != "eer":
                assert best == pytest.approx(expected[1])
        for rate in (0, 0.04, 0.3, 1):
            threshold = thresholds.far(distances, rate)
            assert (distances < threshold).mean() <= rate
            larger = [t for t in [*distances.tolist(), np.inf] if t > threshold]
            assert all((distances < t).mean() > rate for t in larger)


def test_far_of_each_class():
    generator = np.random.default_rng(1)
    classes = generator.integers(0, 6, 60)
    distances = generator.integers(0, 20, 60) / 10
    expected = [thresholds.far(distances[classes == name], 0.3) for name in np.unique(classes)]
    assert thresholds.limits(distances, classes, 0.3).tolist() == expected


def test_a_threshold_needs_both_kinds():
    for right in (np.ones(9, dtype=bool), np.zeros(9, dtype=bool)):
        for choose in (thresholds.eer, thresholds.f1, thresholds.balanced):
            with pytest.raises(UserError, match="needs both"):
                choose(DISTANCES, right)
        with pytest.raises(UserError, match="need right and wrong ones"):
            thresholds.fitted("isotonic", DISTANCES, right, ONES)


def test_pinned_decisions():
    truth = np.array(list("aaabbcuuuv"))
    answers = SimpleNamespace(
        distance=np.array([0.2, 0.5, 0.6, 0.3, 0.7, 0.4, 0.6, 0.9, 0.8, 0.35]),
        right=truth == np.array(list("aabbbcacbb")),
        known=np.isin(truth, ["a", "b", "c"]),
        label=truth,
    )
    decisions = thresholds.decisions(answers, 0.65)
    assert decisions.baks == pytest.approx(0.722222, abs=1e-6)
    assert decisions.baus == pytest.approx(0.333333, abs=1e-6)
    assert decisions.root == pytest.approx(0.490653, abs=1e-6)
    assert decisions.normalized_accuracy(0.6) == pytest.approx(0.6)
    everyone_known = SimpleNamespace(**{**vars(answers), "known": np.ones(10, dtype=bool)})
    assert np.isnan(thresholds.decisions(everyone_known, 0.65).baus)
    assert np.isnan(thresholds.decisions(everyone_known, 0.65).normalized_accuracy(0.6))


def test_pinned_logistic():
    slope, intercept = thresholds.logistic(DISTANCES, RIGHT.astype(float), ONES)
    assert (slope, intercept) == (pytest.approx(-3.786683, abs=1e-6), pytest.approx(1.96472, abs=1e-6))
    calibration = thresholds.fitted("logistic", DISTANCES, RIGHT, ONES)
    assert calibration.slope == pytest.approx(-2.395453, abs=1e-6)
    assert calibration.intercept == pytest.approx(1.191791, abs=1e-6)
    assert calibration.odds == 0.8
    separable = thresholds.fitted("logistic", np.array([0.1, 0.2, 0.8, 0.9]), np.arange(4) < 2, np.ones(4))
    assert separable.slope == pytest.approx(-3.092454, abs=1e-6)
    assert separable.intercept == pytest.approx(1.546227, abs=1e-6)


def test_logistic_in_other_units_and_with_weights():
    generator = np.random.default_rng(2)
    distances = generator.uniform(0, 2, 300)
    right = generator.random(300) < 1 / (1 + np.exp(6 * distances - 5))
    counts = generator.integers(1, 4, 300)
    weighted = thresholds.logistic(distances, right.astype(float), counts.astype(float))
    reference = LogisticRegression(C=1e10, tol=1e-12, max_iter=1000).fit(distances[:, None], right, counts)
    assert weighted[0] == pytest.approx(reference.coef_[0, 0], rel=1e-4)
    scaled = thresholds.logistic(1000 * distances, right.astype(float), counts.astype(float))
    assert scaled[0] == pytest.approx(weighted[0] / 1000, rel=1e-8)
    assert thresholds.logistic(np.full(4, 0.5), np.array([1.0, 0, 0, 0]), np.ones(4)) == (
        0.0,
        pytest.approx(np.log(1 / 3)),
    )


def test_pinned_isotonic():
    calibration = thresholds.fitted("isotonic", DISTANCES, RIGHT, ONES)
    probabilities = calibration(np.array([0.1, 0.4, 0.5, 0.6, 0.9, 2]))
    assert probabilities.tolist() == pytest.approx([1, 0.5, 0.5, 0.25, 0.25, 0])
    assert thresholds.fitted("isotonic", np.append(DISTANCES, np.inf), np.append(RIGHT, False), np.ones(10)) is not None


def test_prior_by_bayes():
    probabilities = np.array([0.0, 0.2, 0.5, 1.0])
    changed = thresholds.with_prior(probabilities, 0.8, 0.01)
    for before, after in zip(probabilities[1:3], changed[1:3], strict=True):
        assert after / (1 - after) == pytest.approx(before / (1 - before) * (0.01 / 0.99) / 0.8)
    assert changed[[0, 3]].tolist() == [0, 1]
    assert thresholds.with_prior(probabilities, 0.8, None) is probabilities


def test_pinned_calibration_error():
    probabilities = np.array([0.05, 0.15, 0.35, 0.55, 0.65, 0.95, 1, 0])
    right = np.array([0, 0, 1, 1, 0, 1, 1, 0])
    assert thresholds.ece(probabilities, right, np.ones(8), 5) == pytest.approx(0.25)
    assert thresholds.ece(probabilities, right, np.ones(8), 4, adaptive=True) == pytest.approx(0.1)
    doubled = np.repeat(np.arange(8), [1, 3, 1, 1, 2, 1, 1, 1])
    counted_twice = thresholds.ece(probabilities[doubled], right[doubled], thresholds.class_weights(doubled), 5)
    assert counted_twice == pytest.approx(0.25)
    edges = np.array([0.0, 0.2, 0.2 + 1e-9, 0.6, 1.0])
    assert thresholds.bin_numbers(edges, 5).tolist() == [0, 0, 1, 2, 4]


def test_class_weights_and_fusion():
    assert thresholds.class_weights(np.array(["a", "b", "a", "c"])).tolist() == [0.5, 1, 0.5, 1]
    assert thresholds.fused([np.array([0.9]), np.array([0.4])]).tolist() == pytest.approx([0.65])
