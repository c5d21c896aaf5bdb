"""What the pictures show, against loops; that they are drawn from odd spaces too."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import metrics
from evaluation import Embedded, charts, pictures


class Things:
    def __init__(self, labels, names=True):
        self.labels = labels
        if names:
            self.class_names = {int(label): f"a class of a long name, ${label}$" for label in set(labels)}

    def __getitem__(self, index):
        return int(self.labels[index]), np.full((3, 8, 8), 9 * index % 256, dtype=np.uint8), index


def ranked(features, query):
    others = [j for j in range(len(features)) if j != query]
    return sorted(others, key=lambda j: (np.square(features[query].astype(float) - features[j].astype(float)).sum(), j))


def test_nearest_neighbours_with_ties():
    features = np.random.default_rng(0).integers(0, 4, size=(40, 3)).astype(np.float32)  # many duplicates
    queries = np.array([0, 7, 39])
    for query, found in zip(queries, pictures.nearest(features, queries, 5), strict=True):
        distances = np.square(features[found] - features[query]).sum(1).tolist()
        assert query not in found and len(set(found.tolist())) == 5
        assert distances == [np.square(features[j] - features[query]).sum() for j in ranked(features, query)[:5]]
    assert [len(found) for found in pictures.nearest(features[:3], np.array([1]), 7)] == [2]


def test_nearest_neighbours_of_distinct_points_are_in_order():
    features = np.random.default_rng(1).normal(size=(60, 8)).astype(np.float32)
    for query, found in enumerate(pictures.nearest(features, np.arange(60), 7)):
        assert found.tolist() == ranked(features, query)[:7]


def test_worst_queries():
    generator = np.random.default_rng(2)
    labels = np.repeat(np.arange(100, 130), generator.integers(1, 5, 30))
    features = generator.normal(size=(130, 4))[labels] * 0 + generator.normal(size=(len(labels), 4))
    features = (features + 1.5 * np.eye(130)[labels] @ generator.normal(size=(130, 4))).astype(np.float32)
    rows = []
    for query, label in enumerate(labels):
        order = ranked(features, query)
        right = [labels[j] == label for j in order]
        if any(right):
            count = sum(right)
            ap = sum(sum(right[: r + 1]) / (r + 1) for r in range(count) if right[r]) / count
            rows.append((ap, -(right.index(True) + 1), query))
    rows.sort()
    expected, seen = [], set()
    for ap, first, query in rows:
        if labels[query] not in seen:
            seen.add(labels[query])
            expected.append((query, f"AP {ap:.2f}\nfirst hit at {-first:,}"))
    queries, notes = pictures.worst_queries(features, labels, seed=1)
    assert [(int(query), note) for query, note in zip(queries, notes, strict=True)] == expected[: pictures.QUERIES]


def test_worst_queries_where_there_is_nothing_to_find():
    queries, notes = pictures.worst_queries(np.eye(5, dtype=np.float32), np.arange(5), seed=1)
    assert len(queries) == 0 and notes == []


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=30), st.integers(0, 5))
def test_pairs_are_of_one_class_and_of_two(classes, seed):
    labels = np.array(classes)
    (a, b), (c, d) = charts.sample_pairs(labels, seed)
    assert (labels[a] == labels[b]).all() and (a != b).all() and (labels[c] != labels[d]).all()
    assert (len(a) > 0) == (np.bincount(labels).max() > 1)
    assert (len(c) > 0) == (len(set(classes)) > 1)


def test_every_pair_is_as_likely():
    labels = np.array([0, 1, 0, 0, 1, 2])
    (a, b), _ = charts.sample_pairs(labels, 0)
    pairs, counts = np.unique(np.stack([a, b], 1), axis=0, return_counts=True)
    assert {tuple(pair) for pair in pairs.tolist()} == {(i, j) for i in range(6) for j in range(6) if i != j and labels[i] == labels[j]}
    assert np.abs(counts / counts.sum() - 1 / 8).max() < 0.01


def test_spectrum_is_the_metric():
    features = np.random.default_rng(0).normal(size=(30, 5))
    np.testing.assert_array_equal(charts.spectrum(features, 1), metrics.compute("rho_spectrum@0", features, np.zeros(30))["rho_spectrum@0"])


def test_tsne_takes_whole_classes():
    labels = np.array([3, 1, 2] * 10)
    chosen = charts.sample_classes(labels, 20, seed=5)
    assert len(chosen) == 20 and np.unique(labels[chosen], return_counts=True)[1].tolist() == [10, 10]
    assert np.array_equal(chosen, charts.sample_classes(labels, 20, seed=5))
    assert np.array_equal(charts.sample_classes(labels, 1000, seed=5), np.arange(30))


@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize(
    ("labels", "features"),
    [
        (np.repeat(np.arange(3), 4), np.random.default_rng(0).normal(size=(12, 4))),
        (np.zeros(6, dtype=int), np.random.default_rng(0).normal(size=(6, 4))),
        (np.arange(6), np.random.default_rng(0).normal(size=(6, 1))),
        (np.repeat(np.arange(3), 4), np.ones((12, 4))),
        (np.repeat(np.arange(3), 4), np.zeros((12, 4))),
        (np.zeros(1, dtype=int), np.ones((1, 2))),
    ],
    ids=["usual", "one class", "singletons in one dimension", "collapsed", "zero", "one image"],
)
def test_all_are_drawn_of_any_space(labels, features, tmp_path):
    opt = SimpleNamespace(evaltypes=["discriminative"], seed=1, eval_size_of_tsne=8)
    features = features.astype(np.float32)
    embedded = {
        "train": Embedded({"discriminative": features}, labels, 0.0, Things(labels, names=False)),
        "test": Embedded({"discriminative": features}, labels, 0.0, Things(labels)),
    }
    with np.errstate(all="ignore"):
        paths = pictures.draw(tmp_path, embedded, "test", opt, "$Group, epoch 1")
    names = {path.name for path in paths}
    assert {path.name for path in tmp_path.iterdir()} == names
    assert {"sample_recoveries.png", "spectrum.png", "distances.png"} <= names
    assert ("worst_queries.png" in names) == (len(set(labels)) < len(labels))
    assert ("tsne_test.png" in names) == (len(labels) >= 4)
