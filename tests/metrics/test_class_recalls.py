"""Recall of the worst tenth of the classes, and the gap between super-classes, against plain loops."""

import numpy as np
import pytest

import metrics
from tests.builders import refused
from tests.metrics._plain import plain_per_query, random_space


def by_part(k, features, labels, parts, **options):
    hits = plain_per_query([f"e_recall@{k}"], features, labels, **options)[f"e_recall@{k}"]
    return sorted(np.mean([hit for hit, part in zip(hits, parts, strict=True) if part == wanted]) for wanted in set(parts))


@pytest.mark.parametrize("classes", [1, 3, 10, 11, 25, 80])
@pytest.mark.parametrize("k", [1, 4])
def test_the_worst_tenth_of_the_classes(classes, k):
    features, labels = random_space(n=120, classes=classes, seed=classes, spread=0.8)
    recalls = by_part(k, features, labels, labels.tolist())
    count = -(-len(recalls) // 10)
    measured = metrics.compute([f"e_recall@{k}_worst10", f"c_recall@{k}_worst10"], features, labels)
    assert measured[f"e_recall@{k}_worst10"] == pytest.approx(np.mean(recalls[:count]), abs=1e-12)
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    assert measured[f"c_recall@{k}_worst10"] == pytest.approx(np.mean(by_part(k, unit, labels, labels.tolist())[:count]), abs=1e-12)


def test_the_gap_between_super_classes():
    features, labels = random_space(n=120, classes=11, seed=3)
    names = np.array(["birds", "cars", "shoes"])[labels % 3]
    recalls = by_part(2, features, labels, names.tolist())
    measured = metrics.compute("e_recall@2_group_gap", features, labels, groups=names)
    assert measured["e_recall@2_group_gap"] == pytest.approx(recalls[-1] - recalls[0], abs=1e-12)
    reference, own = random_space(n=50, classes=11, seed=4)
    recalls = by_part(1, features, labels, names.tolist(), reference=reference, reference_labels=own)
    measured = metrics.compute(["e_recall@1_group_gap", "e_recall@1"], features, labels, reference, own, groups=names)
    assert measured["e_recall@1_group_gap"] == pytest.approx(recalls[-1] - recalls[0], abs=1e-12)


def test_no_gap_without_two_super_classes():
    for groups, said in ((None, "no super-classes"), (np.zeros(30, int), "a single super-class"), ([0, 1, 1], r"groups have shape \(3,\)")):
        with refused(said):
            metrics.compute("e_recall@1_group_gap", *random_space(n=30), groups=groups)


def test_classes_of_one_image_count_as_not_found():
    features = np.array([[0.0], [0.1], [1.0], [1.1], [5.0]])
    labels = [0, 0, 1, 1, 2]
    assert metrics.compute("e_recall@1_worst10", features, labels)["e_recall@1_worst10"] == 0.0
    assert metrics.compute("e_recall@1_worst10", features[:4], labels[:4])["e_recall@1_worst10"] == 1.0
    assert metrics.compute("e_recall@1_worst10", features[:1], labels[:1], uncounted=np.nan)["e_recall@1_worst10"] == 0.0
