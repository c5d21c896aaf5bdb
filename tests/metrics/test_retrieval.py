"""All retrieval metrics against plain float64 loops and by hand, on spaces that are easy to get wrong."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

import metrics
from tests.kit.plain_metrics import assert_retrieval, plain, random_space
from tests.kit.refusals import refused

NAN = float("nan")


def spaces():
    """Title -> features, labels, and a reference where there is one."""
    rng = np.random.default_rng(1)
    x, labels = random_space(n=60)
    queries, of_queries = random_space(n=50, classes=9, seed=5)
    gallery, of_gallery = random_space(n=70, classes=14, seed=6)
    keep = of_gallery != 3
    missing = {"reference": gallery[keep], "reference_labels": of_gallery[keep] + 2}
    in_reference, of_own = random_space(n=90, seed=7)
    in_reference[10] = in_reference[70]
    # the queries 0..29 stand at 50..79
    order = np.r_[40:90, :40]
    exclude = np.where(np.arange(30) % 5, np.arange(30) + 50, -1)
    itself = {"reference": in_reference[order], "reference_labels": of_own[order], "exclude": exclude}
    return {
        # 25 places for 100 samples: duplicates of every class, ties everywhere; the lower index is first, a sample
        # itself is left out by index
        "ties": (rng.integers(-2, 3, (100, 2)).astype(np.float32), rng.integers(0, 6, 100)),
        "identical": (np.ones((30, 4), dtype=np.float32) * 0.3, np.arange(30) % 4),
        "zero": (np.zeros((9, 3)), np.arange(9) % 2),
        # in float32 without a shift one point
        "far from the origin": (1000.0 + 1e-6 * rng.standard_normal((80, 5)), rng.integers(0, 5, 80)),
        # settled in float64
        "near ties": (rng.integers(0, 2, (90, 3)) + 1e-9 * rng.standard_normal((90, 3)), rng.integers(0, 7, 90)),
        "outlier": (np.concatenate([1e6 * x[:1], x[1:]]), labels),
        "small": (x * 1e-25, labels),
        "large": ((x * 1e30).astype(np.float32), labels),
        "each alone": (x, np.arange(60)),
        "some alone": (x, np.r_[np.arange(30), np.zeros(30)].astype(int)),
        "one class": (x, np.zeros(60, dtype=int)),
        "fewer than k": (x[:3], np.array([0, 0, 1])),
        "one sample": (x[:1], np.array([5])),
        "classes missing on either side": (queries, of_queries, missing),
        "queries in the reference": (in_reference[:30], of_own[:30], itself),
    }


@pytest.mark.parametrize("title", spaces())
def test_against_loops(title):
    features, labels, *gallery = spaces()[title]
    reference = gallery[0] if gallery else {}
    assert_retrieval(features, labels, **reference)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 40), st.integers(1, 4), st.integers(1, 6), st.booleans())
def test_any_small_space(seed, n, d, classes, rounded):
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((n, d))
    features = np.round(2 * features) if rounded else features
    assert_retrieval(features, rng.integers(0, classes, n))


def test_on_a_line_by_hand():
    """Queries of the classes a, b, c, d at 0 search in the classes a b a a b c at 1, 2, ..., 6."""
    expected = {
        "e_recall@1": [1, 0, 0, 0],
        "e_recall@2": [1, 1, 0, 0],
        "e_recall@5": [1, 1, 0, 0],
        "e_recall@6": [1, 1, 1, 0],
        "mrr": [1, 1 / 2, 1 / 6, NAN],
        "precision@1": [1, 0, 0, NAN],
        "precision@5": [3 / 5, 2 / 5, 0, NAN],
        "precision@10": [3 / 10, 2 / 10, 1 / 10, NAN],
        "r_precision": [2 / 3, 1 / 2, 0, NAN],
        "map_r": [(1 + 2 / 3) / 3, (1 / 2) / 2, 0, NAN],
        "map@2": [1 / 2, (1 / 2) / 2, 0, NAN],
        "map@5": [(1 + 2 / 3 + 3 / 4) / 3, (1 / 2 + 2 / 5) / 2, 0, NAN],
        "mAP_c": [(1 + 2 / 3) / 3, (1 / 2) / 2, 0, 0],
        "mAP": [(1 + 2 / 3 + 3 / 4) / 3, (1 / 2 + 2 / 5) / 2, 1 / 6, 0],
    }
    space = metrics.EmbeddingSpace(np.zeros((4, 1)), list("abcd"), np.arange(1.0, 7.0)[:, None], list("abaabc"))
    for name, values in metrics.per_query(list(expected), space).items():
        assert values.tolist() == pytest.approx(expected[name], nan_ok=True), name


def test_depths_of_the_published_forms():
    """Hits at the ranks 1, 1000, 1001, 1023 and 1024 of 1100."""
    ranks = np.array([1, 1000, 1001, 1023, 1024])
    labels = np.isin(np.arange(1, 1101), ranks).astype(int)
    hits = {"mAP_c": 1, "mAP_1000": 2, "mAP_lim": 4, "mAP": 5, "map@1000": 2}
    measured = metrics.compute(list(hits), np.zeros((1, 1)), [1], np.arange(1.0, 1101.0)[:, None], labels)
    precisions = np.arange(1, 6) / ranks
    assert measured == pytest.approx({name: precisions[:count].sum() / 5 for name, count in hits.items()}, abs=1e-12)


def test_where_no_query_counts_and_labels_of_mixed_types():
    names = ["map_r", "mrr_macro", "e_recall@1", "mAP"]
    features = random_space(n=8)[0]
    labels = np.arange(8)
    for reference in ({}, {"reference": features, "reference_labels": labels + 100}):
        measured = metrics.compute(names, features, labels, **reference, uncounted=None)
        # for the last two, alone counts as 0
        assert measured == {"map_r": None, "mrr_macro": None, "e_recall@1": 0.0, "mAP": 0.0}
    # neighbours that float64 cannot tell apart
    large = 2**60 + np.arange(4)
    options = {"reference": features[4:], "reference_labels": large.astype(np.uint64)}
    measured = metrics.compute(["map_r", "e_recall@4"], features[:4], large, **options)
    assert measured == {"e_recall@4": 1.0, "map_r": plain(["map_r"], features[:4], large, **options)["map_r"]}
    for of_queries, of_reference in (([0, 1, 2], ["0", "1", "2"]), (["0", "1", "2"], [0, 1, 2])):
        with refused("give numbers, or names"):
            metrics.compute(["e_recall@1"], np.eye(3), of_queries, np.eye(3), of_reference)


def test_numbers_beyond_64_bits_are_those_beyond_the_reference():
    features, labels = random_space(n=30)
    heads = ["e_recall@", "precision@", "map@", "c_recall@", "rho_spectrum@", "rho_spectrum@-"]
    expected = metrics.compute([head + "1000000" for head in heads], features, labels)
    for parameter in ("9223372036854775807", "9" * 5000):
        measured = metrics.compute([head + parameter for head in heads], features, labels)
        assert list(measured.values()) == pytest.approx(list(expected.values()), abs=1e-4, nan_ok=True)


@pytest.mark.parametrize(("averages", "suffix"), [(False, ""), (True, "_macro")])
def test_agrees_with_pytorch_metric_learning(averages, suffix):
    features, labels = random_space(n=150, classes=30, spread=0.8, seed=20)
    features = features.astype(np.float32)
    names = {
        "precision_at_1": "precision@1",
        "mean_average_precision_at_r": "map_r",
        "r_precision": "r_precision",
        "mean_reciprocal_rank": "mrr",
        "mean_average_precision": "map@149",
    }
    calculator = AccuracyCalculator(include=tuple(names), k=149, avg_of_avgs=averages, device=torch.device("cpu"))
    expected = calculator.get_accuracy(torch.from_numpy(features), torch.from_numpy(labels))
    measured = metrics.compute([name + suffix for name in names.values()], features, labels)
    assert measured == pytest.approx({ours + suffix: expected[theirs] for theirs, ours in names.items()}, abs=1e-6)
