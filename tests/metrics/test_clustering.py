"""NMI, AMI and pairwise F1, against scikit-learn and a double loop."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import metrics
from tests.metrics._plain import random_space
from utilities.errors import UserError


def plain_f1(labels, clusters):
    together = found = true = 0
    for i in range(len(labels)):
        for j in range(i):
            together += labels[i] == labels[j] and clusters[i] == clusters[j]
            found += clusters[i] == clusters[j]
            true += labels[i] == labels[j]
    if not found + true:
        return 1.0
    if not together:
        return 0.0
    precision, recall = together / found, together / true
    return 2 * precision * recall / (precision + recall)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 60), st.integers(1, 12), st.integers(1, 12))
def test_clustering_metrics_agree_with_scikit_learn(seed, n, classes, parts):
    from sklearn.metrics import adjusted_mutual_info_score, normalized_mutual_info_score

    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    clusters = np.where(rng.random(n) < 0.4, labels, rng.integers(0, parts, n))
    measured = metrics.compute(["nmi", "ami", "f1"], rng.standard_normal((n, 2)), labels, clusters=clusters)
    assert measured["nmi"] == pytest.approx(normalized_mutual_info_score(labels, clusters), abs=1e-10)
    assert measured["f1"] == pytest.approx(plain_f1(labels, clusters), abs=1e-12)
    expected = adjusted_mutual_info_score(labels, clusters)
    if abs(expected) < 1e3:  # where chance explains everything, both are a quotient of rounding errors
        assert measured["ami"] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("partition", ["one", "each"])
def test_clustering_limits(partition):
    from sklearn.metrics import adjusted_mutual_info_score, normalized_mutual_info_score

    labels = np.zeros(8, int) if partition == "one" else np.arange(8)
    for clusters in (np.zeros(8, int), np.arange(8), np.arange(8) % 3):
        measured = metrics.compute(["nmi", "ami", "f1"], np.ones((8, 1)), labels, clusters=clusters)
        assert measured["nmi"] == pytest.approx(normalized_mutual_info_score(labels, clusters), abs=1e-12)
        assert measured["ami"] == pytest.approx(adjusted_mutual_info_score(labels, clusters), abs=1e-9)
        assert measured["f1"] == pytest.approx(plain_f1(labels, clusters), abs=1e-12)


def test_of_several_kmeans_starts_the_measures_are_means():
    names, rough = ["nmi", "ami", "f1", "c_nmi"], random_space(n=200, classes=8, spread=1.5, seed=18)
    apart = [metrics.compute(names, *rough, seed=seed) for seed in range(3)]
    together = metrics.compute(names, *rough, seed=range(3))
    for name in names:
        assert together[name] == pytest.approx(np.mean([one[name] for one in apart]), abs=1e-12)
    assert metrics.compute(names, *rough, seed=[2]) == apart[2]
    clusters = np.arange(200) % 8
    assert metrics.compute(names, *rough, clusters=clusters, seed=range(3)) == metrics.compute(names, *rough, clusters=clusters)
    for seeds in ([], [0.5], "012"):
        with pytest.raises(UserError, match="no whole number"):
            metrics.compute(names, *rough, seed=seeds)
