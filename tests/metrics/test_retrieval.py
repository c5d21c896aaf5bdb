"""All retrieval metrics against plain float64 loops, on spaces that are easy to get wrong."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import metrics
from tests.metrics._plain import assert_retrieval, random_space


@pytest.mark.parametrize("spread", [0.1, 0.7, 5.0])
def test_random_spaces(spread):
    assert_retrieval(*random_space(spread=spread))


def test_random_space_in_float32():
    features, labels = random_space(spread=0.8, seed=3)
    assert_retrieval(features.astype(np.float32), labels)


def test_ties_and_duplicates_lower_index_first_and_self_by_index():
    rng = np.random.default_rng(1)
    features = rng.integers(-2, 3, (100, 2)).astype(np.float32)  # 25 places for 100 samples: duplicates of every class, ties everywhere
    assert_retrieval(features, rng.integers(0, 6, 100))


def test_all_identical():
    assert_retrieval(np.ones((30, 4), dtype=np.float32) * 0.3, np.arange(30) % 4)
    assert_retrieval(np.zeros((9, 3)), np.arange(9) % 2)


def test_collapsed_far_from_the_origin():
    rng = np.random.default_rng(2)
    features = 1000.0 + 1e-6 * rng.standard_normal((80, 5))  # in float32 without a shift all of these are one point
    assert_retrieval(features, rng.integers(0, 5, 80))


def test_near_ties_below_float32_are_settled_in_float64():
    rng = np.random.default_rng(4)
    corners = rng.integers(0, 2, (90, 3)).astype(np.float64)
    assert_retrieval(corners + 1e-9 * rng.standard_normal((90, 3)), rng.integers(0, 7, 90))


def test_outlier_and_extreme_scales():
    features, labels = random_space(n=60)
    features[0] *= 1e6
    assert_retrieval(features, labels)
    assert_retrieval(features[1:] * 1e-25, labels[1:])
    assert_retrieval((features[1:] * 1e30).astype(np.float32), labels[1:])


def test_singletons_one_class_fewer_samples_than_k_and_single_sample():
    features, _ = random_space(n=20)
    assert_retrieval(features, np.arange(20))  # each alone
    assert_retrieval(features, np.r_[np.arange(10), np.zeros(10)].astype(int))  # some alone
    assert_retrieval(features, np.zeros(20, dtype=int))  # one class
    assert_retrieval(features[:3], np.array([0, 0, 1]))
    assert_retrieval(features[:1], np.array([5]))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 40), st.integers(1, 4), st.integers(1, 6), st.booleans())
def test_any_small_space(seed, n, d, classes, rounded):
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((n, d))
    features = np.round(2 * features) if rounded else features
    assert_retrieval(features, rng.integers(0, classes, n))


def test_what_is_said_where_no_query_counts():
    names = ["map_r", "mrr_macro", "e_recall@1", "mAP"]
    features, labels = random_space(n=4)[0], np.arange(4)
    assert metrics.compute(names, features, labels) == dict.fromkeys(names, 0.0)
    measured = metrics.compute(names, features, labels, uncounted=None)
    assert measured == {"map_r": None, "mrr_macro": None, "e_recall@1": 0.0, "mAP": 0.0}  # for the last two, alone counts as 0


def test_numbers_beyond_64_bits_are_those_beyond_the_reference():
    features, labels = random_space(n=30)
    heads = ["e_recall@", "precision@", "map@", "c_recall@", "rho_spectrum@", "rho_spectrum@-"]
    for parameter in ("9223372036854775807", "99999999999999999999", "9" * 5000):
        measured = metrics.compute([head + parameter for head in heads], features, labels)
        beyond = metrics.compute([head + "1000000" for head in heads], features, labels)
        assert list(measured.values()) == pytest.approx(list(beyond.values()), abs=1e-4, nan_ok=True)


def test_low_matmul_precision_of_the_training_does_not_leak_in():
    features, labels = random_space()
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        assert_retrieval(features, labels, ["map_r"])
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)


def test_agrees_with_pytorch_metric_learning():
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

    features, labels = random_space(n=150, classes=30, spread=0.8, seed=20)
    features = features.astype(np.float32)
    names = {
        "precision_at_1": "precision@1", "mean_average_precision_at_r": "map_r", "r_precision": "r_precision",
        "mean_reciprocal_rank": "mrr", "mean_average_precision": "map@149",
    }  # fmt: skip
    for averages, suffix in ((False, ""), (True, "_macro")):
        calculator = AccuracyCalculator(include=tuple(names), k=149, avg_of_avgs=averages, device=torch.device("cpu"))
        expected = calculator.get_accuracy(torch.from_numpy(features), torch.from_numpy(labels))
        measured = metrics.compute([name + suffix for name in names.values()], features, labels)
        for theirs, ours in names.items():
            assert measured[ours + suffix] == pytest.approx(expected[theirs], abs=1e-6), ours
