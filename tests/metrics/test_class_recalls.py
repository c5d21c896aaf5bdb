"""Recall of the worst tenth of the classes, and the gap between super-classes, against plain loops."""

import numpy as np
import pytest

import metrics
from tests.kit.plain_metrics import plain_per_query, random_space, unit
from tests.kit.refusals import refused

NAMES = [f"{head}_recall@{k}_{of}" for head in "ec" for k in (1, 4) for of in ("worst10", "group_gap")]


def by_part(hits, parts):
    return sorted(
        np.mean([hit for hit, part in zip(hits, parts, strict=True) if part == expected_rows])
        for expected_rows in set(parts)
    )


@pytest.mark.parametrize("classes", [1, 3, 10, 11, 80])
def test_the_worst_tenth_of_the_classes_and_the_gap_between_super_classes(classes):
    """80: some classes have one sample, which is not found."""
    features, labels = random_space(n=120, classes=classes, seed=classes, spread=0.8)
    groups = np.array(["birds", "cars", "shoes"])[np.arange(120) % 3]
    reference, own = random_space(n=50, classes=classes, seed=4)
    for given in ({}, {"reference": reference, "reference_labels": own}):
        expected = {}
        for name in NAMES:
            at, of = name[2:].split("_", 2)[:2]
            rows, there = (
                (features, given)
                if name[0] == "e"
                else (unit(features), {**given, "reference": unit(reference)} if given else {})
            )
            hits = plain_per_query([f"e_{at}"], rows, labels, **there)[f"e_{at}"]
            recalls = by_part(hits, (labels if of == "worst10" else groups).tolist())
            expected[name] = np.mean(recalls[: -(-len(recalls) // 10)]) if of == "worst10" else recalls[-1] - recalls[0]
        assert metrics.compute(NAMES, features, labels, **given, groups=groups) == pytest.approx(expected, abs=1e-12)
    alone = metrics.compute("e_recall@1_worst10", features[:1], labels[:1], uncounted=np.nan)
    assert alone == {"e_recall@1_worst10": 0.0}


def test_no_gap_without_two_super_classes():
    for groups, printed in (
        (None, "no super-classes"),
        (np.zeros(30, int), "a single super-class"),
        ([0, 1, 1], r"groups have shape \(3,\)"),
    ):
        with refused(printed):
            metrics.compute("e_recall@1_group_gap", *random_space(n=30), groups=groups)
