"""Mean cosine distances within and between classes, against double loops."""

import numpy as np
import pytest

import metrics
from tests.kit.plain_metrics import DISTS, random_space


def cosine_distance(a, b):
    norms = np.linalg.norm(a) * np.linalg.norm(b)
    return 1.0 - float(np.dot(a, b)) / norms if norms else 1.0


def plain_dists(features, labels):
    intra = []
    means = []
    for label in sorted(set(labels.tolist())):
        of_class = features[labels == label].astype(np.float64)
        means.append(of_class.mean(0))
        if len(of_class) > 1:
            intra.append(
                np.mean(
                    [cosine_distance(a, b) for i, a in enumerate(of_class) for j, b in enumerate(of_class) if i != j]
                )
            )
    inter = [cosine_distance(a, b) for i, a in enumerate(means) for j, b in enumerate(means) if i != j]
    intra, inter = (np.mean(values) if values else np.nan for values in (intra, inter))
    return {"dists@intra": intra, "dists@inter": inter, "dists@intra_over_inter": intra / inter}


def test_dists():
    # a space in which no class has a pair
    cases = [(np.eye(3), np.arange(3))]
    for classes in (1, 3, 40):
        features, labels = random_space(n=60, classes=classes, seed=13)
        # a singleton
        labels[2] = classes + 1 if classes > 1 else 0
        cases.append((features, labels))
    for features, labels in cases:
        assert metrics.compute(DISTS, features, labels) == pytest.approx(
            plain_dists(features, labels), abs=1e-12, nan_ok=True
        )


@pytest.mark.parametrize("size", [2, 60, 20_000])
def test_distances_of_identical_and_of_opposite_points(size):
    features = np.repeat(np.random.default_rng(size).standard_normal((1, 33)), size, axis=0)
    measured = metrics.compute(DISTS, features, np.arange(size) % 7 // 4)
    inter = 0.0 if size > 2 else np.nan
    assert measured == pytest.approx(
        {"dists@intra": 0.0, "dists@inter": inter, "dists@intra_over_inter": np.nan}, abs=0, nan_ok=True
    )
    opposite = metrics.compute(DISTS, features[:1] * [[1], [1], [-1], [-1]], [0, 0, 1, 1])
    assert opposite == {"dists@intra": 0.0, "dists@inter": 2.0, "dists@intra_over_inter": 0.0}
