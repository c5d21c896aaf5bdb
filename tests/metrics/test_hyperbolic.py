"""Neighbours by hyperbolic distance against float64 loops of Moebius addition."""

import math

import numpy as np
import pytest

import metrics
from metrics.neighbours.search import Limits, Search
from tests.kit.plain_metrics import unit
from tests.utilities.test_hyperbolic import moebius_distance
from utilities.hyperbolic import Ball


def points(n=60, d=5, seed=0, scale=1.2, dtype=np.float32):
    """Clouds of classes, some longer than 2.3, with duplicates and a zero vector."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(9, size=n)
    x = scale * generator.normal(size=(9, d))[labels] + 0.7 * generator.normal(size=(n, d))
    x[7] = x[3]
    x[11] = x[3]
    x[12] = x[30]
    x[20] = 0
    return x.astype(dtype), labels


def by_loops(features, reference, left_out, c, r):
    """Of each query the reference, nearest first; equal up to rounding are clipped points seen from the origin."""
    results = []
    for query, itself in zip(features.tolist(), left_out, strict=True):
        distances = [
            (round(moebius_distance(query, sample, c, r), 10), j) for j, sample in enumerate(reference.tolist())
        ]
        results.append([j for _, j in sorted(distances) if j != itself])
    return results


@pytest.mark.parametrize(
    ("c", "r", "dtype"),
    [(0.1, 2.3, np.float32), (1.0, 2.3, np.float64), (0.3, 1e6, np.float32), (2.0, 0.8, np.float64)],
)
def test_neighbours_are_those_of_loops_whatever_the_limits(c, r, dtype):
    features, labels = points(dtype=dtype)
    expected = by_loops(features, features, range(60), c, r)
    space = metrics.space_of(Ball(c, r), features, labels)
    assert space.neighbours(59).tolist() == expected
    all_limits = []
    if (c, r) == (0.1, 2.3):
        all_limits = [Limits(columns=16, rows=4, sample=9), Limits(rows=4, sample=5, candidates=40)]
    for limits in all_limits:
        space.search = Search(vars(space.search)["space"], limits)
        assert space.neighbours(59).tolist() == expected, limits


def test_what_is_no_search_stays_euclidean_of_the_tangent_vectors():
    features, labels = points(seed=3)
    names = ["nmi", "f1", "c_nmi", "rho_spectrum@1", "dists@intra", "c_recall@1", "c_map_r"]
    assert metrics.compute(names, features, labels) == metrics.compute(names, features, labels, ball=Ball(0.1, 2.3))
    values = metrics.compute(["e_recall@1", "map_r", "mAP"], features, labels, ball=Ball(0, 2.3))
    cosine = metrics.compute(["c_recall@1", "c_map_r", "c_mAP"], features, labels)
    assert list(values.values()) == list(cosine.values()), "curvature 0 is the sphere"
    at_length = unit(features)
    at_length[20] = at_length[0]
    assert metrics.compute("c_map_r", at_length, labels, ball=Ball(0.1, 2.3)) == metrics.compute(
        "c_map_r", at_length, labels
    )


def test_near_the_border_and_collapsed():
    generator = np.random.default_rng(1)
    lengths = np.array([1.0, 3.0, 6.0, 9.0, 9.5])
    features = (lengths[:, None] * np.array([[0.6, 0.8]])).astype(np.float32)
    space = metrics.space_of(Ball(1.0, 1e6), features, np.arange(5))
    assert space.neighbours(4).tolist() == [[1, 2, 3, 4], [0, 2, 3, 4], [1, 3, 4, 0], [4, 2, 1, 0], [3, 2, 1, 0]]
    near = (np.array([[0.5, 0.5]]) + 1e-5 * generator.normal(size=(40, 2))).astype(np.float32)
    space = metrics.space_of(Ball(1.0, 2.3), near, np.arange(40))
    assert space.neighbours(10).tolist() == [row[:10] for row in by_loops(near, near, range(40), 1.0, 2.3)]
    collapsed = metrics.space_of(Ball(1.0, 2.3), np.ones((30, 3), dtype=np.float32), np.zeros(30))
    for query, row in enumerate(collapsed.neighbours(3).tolist()):
        assert row == [j for j in range(30) if j != query][:3]
    assert math.isfinite(metrics.compute("mAP", 1e5 * features, np.zeros(5), ball=Ball(100.0, 1e6))["mAP"])
