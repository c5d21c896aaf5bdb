"""Queries that search in a reference of its own: query and gallery sets."""

import numpy as np
import pytest

import metrics
from tests.metrics._plain import assert_retrieval, plain, random_space
from utilities.errors import UserError


def test_query_and_gallery_with_classes_missing_on_either_side():
    queries, labels = random_space(n=50, classes=9, seed=5)
    gallery, gallery_labels = random_space(n=70, classes=14, seed=6)
    keep = gallery_labels != 3
    options = {"reference": gallery[keep], "reference_labels": gallery_labels[keep] + 2}
    assert set(labels) - set(options["reference_labels"]) and set(options["reference_labels"]) - set(labels)
    assert_retrieval(queries, labels, **options)
    nothing = metrics.compute(["e_recall@1", "map_r", "mAP"], queries, labels, reference=gallery, reference_labels=gallery_labels + 100)
    assert nothing == {"e_recall@1": 0.0, "map_r": 0.0, "mAP": 0.0}


def test_reference_that_holds_the_queries():
    features, labels = random_space(n=90, seed=7)
    features[10] = features[70]
    reference = np.concatenate([features[40:], features[:40]])  # the queries 0..29 stand at 50..79
    options = {"reference": reference, "reference_labels": np.concatenate([labels[40:], labels[:40]])}
    exclude = np.where(np.arange(30) % 5, np.arange(30) + 50, -1)
    assert_retrieval(features[:30], labels[:30], exclude=exclude, **options)


def test_labels_of_mixed_types_do_not_meet_as_floats():
    features, _ = random_space(n=8)
    large = 2**60 + np.arange(4)  # neighbours that float64 cannot tell apart
    options = {"reference": features[4:], "reference_labels": large.astype(np.uint64)}
    measured = metrics.compute(["map_r", "e_recall@4"], features[:4], large, **options)
    assert measured["e_recall@4"] == 1.0 and measured["map_r"] == plain(["map_r"], features[:4], large, **options)["map_r"]


def test_labels_of_numbers_are_not_compared_with_names():
    for labels, reference_labels in (([0, 1, 2], ["0", "1", "2"]), (["0", "1", "2"], [0, 1, 2])):
        with pytest.raises(UserError, match="give numbers, or names"):
            metrics.compute(["e_recall@1"], np.eye(3), labels, np.eye(3), reference_labels)
    assert metrics.compute(["e_recall@1"], np.eye(3), ["a", "bb", "c"], np.eye(3), ["a", "bb", "c"]) == {"e_recall@1": 1.0}
