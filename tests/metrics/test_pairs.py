"""Metrics over all pairs (fnmr, opis, alignment, uniformity) against double loops in float64, whatever the tiles."""

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

import metrics
from metrics import _pairs, fnmr
from tests.kit.plain_metrics import random_space, unit

BASES = ["fnmr@.01", "fnmr@.1", "fnmr@.5"]


NAMES = [*BASES, "c_fnmr@.1", "fnmr@.1_low", "fnmr@.1_high", "opis", "alignment", "uniformity"]


def squares(features, labels):
    """Squared distances of the pairs i < j with their classes, by differences."""
    features = np.asarray(features, dtype=np.float64)
    pairs = [(i, j) for i in range(len(features)) for j in range(i + 1, len(features))]
    return [(float(((features[i] - features[j]) ** 2).sum()), labels[i], labels[j]) for i, j in pairs]


def plain_fnmr(features, labels, fmr):
    pairs = squares(features, labels)
    positive = [d for d, a, b in pairs if a == b]
    negative = sorted(d for d, a, b in pairs if a != b)
    if not positive or not negative:
        return np.nan
    limit = negative[int(fmr * len(negative) + 1e-9)]
    return np.mean([d >= limit for d in positive])


def plain_opis(features, labels):
    pairs = [(1 - d / 2, a, b) for d, a, b in squares(unit(features), labels)]
    similarities = sorted((s for s, a, b in pairs if a != b), reverse=True)
    classes = [c for c in sorted(set(labels)) if list(labels).count(c) > 1]
    if not similarities or not classes:
        return np.nan
    low, high = (similarities[int(fmr * len(similarities) + 1e-9)] for fmr in (0.1, 0.01))
    variances = []
    for t in np.linspace(low, high, 101) + 1e-12:
        utilities = []
        for c in classes:
            sensitivity = np.mean([s > t for s, a, b in pairs if a == b == c])
            specificity = 1 - np.mean([s > t for s, a, b in pairs if (a == c) != (b == c)])
            total = sensitivity + specificity
            utility = 2 * sensitivity * specificity / total if total else 0.0
            utilities.append(utility)
        variances.append(np.var(utilities))
    return np.mean(variances)


def plain(features, labels):
    features = np.asarray(features, dtype=np.float64)
    labels = list(labels)
    all_pairs = squares(unit(features), labels)
    positive = [d for d, a, b in all_pairs if a == b]
    values = {f"fnmr@{fmr}": plain_fnmr(features, labels, float(fmr)) for fmr in (".01", ".1", ".5")}
    values |= {f"fnmr@.1_{side}": values["fnmr@.1"] for side in ("low", "high")}
    return {
        **values,
        "c_fnmr@.1": plain_fnmr(unit(features), labels, 0.1),
        "opis": plain_opis(features, labels),
        "alignment": np.mean(positive) if positive else np.nan,
        "uniformity": np.log(np.mean([np.exp(-2 * d) for d, *_ in all_pairs])) if all_pairs else np.nan,
    }


def assert_plain(features, labels):
    measured = metrics.compute(NAMES, features, labels)
    raised = features.float().numpy() if isinstance(features, torch.Tensor) else features
    assert measured == pytest.approx(plain(raised, np.asarray(labels)), abs=1e-9, nan_ok=True)


def test_all_pairs():
    generator = np.random.default_rng(7)
    for classes in (1, 2, 9, 40):
        assert_plain(*random_space(n=41, classes=classes, seed=classes, spread=0.7))
    # at most 27 points, one of them 0
    assert_plain(generator.integers(-1, 2, (40, 3)).astype(float), generator.integers(0, 5, 40))
    # separated classes
    assert_plain(np.eye(4)[np.arange(28) % 4] + 1e-3 * generator.standard_normal((28, 4)), np.arange(28) % 4)
    # pairs of one kind, or none
    for features, labels in ((np.ones((1, 2)), [0]), (np.eye(3), [0, 1, 2]), (np.eye(3), [0, 0, 0])):
        assert_plain(features, labels)
    features, labels = random_space(n=20, classes=4, seed=8)
    assert_plain(np.concatenate([features, features]), np.concatenate([labels, labels]))
    for dtype in (torch.bfloat16, torch.float32):
        assert_plain(torch.from_numpy(features).to(dtype), labels)


def test_no_tile_no_bound_no_shift_and_no_reference_changes_a_value(monkeypatch):
    features, labels = random_space(n=70, classes=6, seed=5)
    expected = metrics.compute(NAMES, features, labels)
    assert metrics.compute("fnmr@.1", features + 1e4, labels)["fnmr@.1"] == pytest.approx(expected["fnmr@.1"])
    assert metrics.compute(NAMES, features, labels, features[:7] + 1, labels[:7]) == expected
    for rows, columns in ((7, 14), (16, 16), (1, 1000), (64, 5)):
        monkeypatch.setattr(_pairs, "ROWS", rows)
        monkeypatch.setattr(_pairs, "COLUMNS", columns)
        assert metrics.compute(NAMES, features, labels) == pytest.approx(expected, abs=1e-12), (rows, columns)
    # Not all pairs may be collected at once, but those of one bin may
    monkeypatch.setattr(_pairs, "COLLECTED", 500)
    assert metrics.compute(NAMES, features, labels) == pytest.approx(expected, abs=1e-12)
    # With three bins the bounds are narrowed again and again
    monkeypatch.setattr(_pairs, "BINS", 3)
    monkeypatch.setattr(_pairs, "COLLECTED", 2)
    assert metrics.compute(NAMES, features, labels) == pytest.approx(expected, abs=1e-9)
    # exact in binary fractions too
    assert [fnmr.n_accepted(*case) for case in ((0.29, 100), (0.1, 30), (0.01, 99))] == [29, 3, 0]


# the mean of which is exact but for the first: no distance has any rounding
@pytest.mark.parametrize("value", [np.pi, 1, 0, 1e-160])
def test_a_collapsed_space_matches_nothing_rightly(value):
    measured = metrics.compute(NAMES, np.full((40, 3), float(value)), np.arange(40) % 4)
    assert measured["fnmr@.01"] == measured["fnmr@.5"] == measured["c_fnmr@.1"] == 1.0
    assert measured["uniformity"] == measured["alignment"] == measured["opis"] == 0.0


def test_of_a_sample_the_interval_is_told(monkeypatch, capsys):
    features, labels = random_space(n=300, classes=8, seed=12)
    names = ["fnmr@.1", "opis", "uniformity", "alignment"]
    exact = metrics.compute(names, features, labels)
    monkeypatch.setattr(_pairs, "EXACT", 100)
    monkeypatch.setattr(fnmr, "SAMPLE", 2000)
    sampled = metrics.compute([*names, "fnmr@.1_low", "fnmr@.1_high"], features, labels)
    rate = sampled["fnmr@.1"]
    low = sampled["fnmr@.1_low"]
    high = sampled["fnmr@.1_high"]
    assert low <= min(rate, exact["fnmr@.1"]) < max(rate, exact["fnmr@.1"]) <= high
    assert sampled["uniformity"] == pytest.approx(exact["uniformity"], abs=1e-5)
    assert sampled["opis"] == pytest.approx(exact["opis"], rel=0.3)
    (line,) = capsys.readouterr().out.splitlines()
    assert "95 % interval" in line and "2,000 of 39" in line and "pairs of two classes and 2,000 of 5" in line


def test_the_interval_of_a_sample_holds_the_value_of_all_pairs(monkeypatch):
    """Nominal 95 %: of 200 samples, fewer than 180 would have a chance of less than one in a thousand."""
    features, labels = random_space(n=80, classes=8, seed=13)
    exact = metrics.compute("fnmr@.1", features, labels)["fnmr@.1"]
    # of the 398 pairs of one class the first size draws all
    for size in (400, 300, 200):
        monkeypatch.setattr(fnmr, "SAMPLE", size)
        held = 0
        for seed in range(200):
            pairs = _pairs.Pairs(metrics.EmbeddingSpace(features, labels))
            draw = pairs.sample
            pairs.sample = lambda of_one_class, count, seed=0, trial=seed, draw=draw: draw(
                of_one_class, count, 2 * trial + seed
            )
            rate = fnmr.sampled(pairs, 0.1)
            held += rate.low <= exact <= rate.high
        assert held >= 180, (size, held)


def test_drawn_pairs_are_of_all_pairs_alike():
    """Each pair of one class, and of two, is drawn about as often: a chi-squared test at one in a thousand."""
    generator = np.random.default_rng(14)
    labels = np.array([0, 0, 0, 1, 1, 2, 3, 3])
    # every pair has a distance of its own
    features = generator.permutation(3.0 ** np.arange(8))[:, None]
    pairs = _pairs.Pairs(metrics.EmbeddingSpace(features, labels))
    for of_one_class, n_pairs in ((True, 5), (False, 23)):
        drawings = pairs.sample(of_one_class, 20_000, seed=3)
        kinds, times = np.unique(np.round(drawings, 6), return_counts=True)
        assert len(kinds) == n_pairs == (pairs.same if of_one_class else pairs.other)
        assert set(kinds) == {round(d, 6) for d, a, b in squares(features, labels) if (a == b) == of_one_class}
        assert chisquare(times).pvalue > 1e-3
