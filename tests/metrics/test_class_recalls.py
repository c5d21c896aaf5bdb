"""Recall of the worst tenth of the classes, and the gap between super-classes, against plain loops."""

import numpy as np
import pytest

import metrics
from tests.kit.plain_metrics import plain_per_query, random_space, unit
from tests.kit.refusals import refused


def hits_by_part(hits, parts):
    """The mean of the hits of each part, ascending."""
    parts = np.asarray(parts)
    return sorted(np.mean(np.asarray(hits)[parts == part]) for part in set(parts.tolist()))


def worst_tenth(recalls):
    return np.mean(recalls[: -(-len(recalls) // 10)])


NAMES = [f"{head}_recall@{k}_{measure}" for head in "ec" for k in (1, 4) for measure in ("worst10", "group_gap")]


@pytest.mark.parametrize("classes", [1, 3, 10, 11, 80])
def test_the_worst_tenth_of_the_classes_and_the_gap_between_super_classes(classes):
    """80: some classes have one sample, which is not found."""
    features, labels = random_space(n=120, classes=classes, seed=classes, spread=0.8)
    groups = np.array(["birds", "cars", "shoes"])[np.arange(120) % 3]
    reference, reference_labels = random_space(n=50, classes=classes, seed=4)
    for gallery in ({}, {"reference": reference, "reference_labels": reference_labels}):
        at_length = {name: unit(array) if name == "reference" else array for name, array in gallery.items()}
        expected = {}
        for name in NAMES:
            base, measure = name[2:].split("_", 2)[:2]
            rows, searched = (unit(features), at_length) if name[0] == "c" else (features, gallery)
            hits = plain_per_query([f"e_{base}"], rows, labels, **searched)[f"e_{base}"]
            if measure == "worst10":
                expected[name] = worst_tenth(hits_by_part(hits, labels))
            else:
                expected[name] = np.ptp(hits_by_part(hits, groups))
        assert metrics.compute(NAMES, features, labels, **gallery, groups=groups) == pytest.approx(expected, abs=1e-12)
    single = metrics.compute("e_recall@1_worst10", features[:1], labels[:1], uncounted=np.nan)
    assert single == {"e_recall@1_worst10": 0.0}


def test_no_gap_without_two_super_classes():
    for groups, printed in (
        (None, "no super-classes"),
        (np.zeros(30, int), "a single super-class"),
        ([0, 1, 1], r"groups have shape \(3,\)"),
    ):
        with refused(printed):
            metrics.compute("e_recall@1_group_gap", *random_space(n=30), groups=groups)
