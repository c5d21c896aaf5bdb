"""Precision, R-precision and the forms of average precision, by hand."""

import numpy as np
import pytest

import metrics
from tests.metrics._plain import on_a_line

NAN = float("nan")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("precision@1", [1, 0, 0, NAN]),
        ("precision@5", [3 / 5, 2 / 5, 0, NAN]),
        ("precision@10", [3 / 10, 2 / 10, 1 / 10, NAN]),
        ("r_precision", [2 / 3, 1 / 2, 0, NAN]),
        ("map_r", [(1 + 2 / 3) / 3, (1 / 2) / 2, 0, NAN]),
        ("map@2", [1 / 2, (1 / 2) / 2, 0, NAN]),
        ("map@5", [(1 + 2 / 3 + 3 / 4) / 3, (1 / 2 + 2 / 5) / 2, 0, NAN]),
        ("mAP_c", [(1 + 2 / 3) / 3, (1 / 2) / 2, 0, 0]),
        ("mAP", [(1 + 2 / 3 + 3 / 4) / 3, (1 / 2 + 2 / 5) / 2, 1 / 6, 0]),
    ],
)
def test_on_a_line(name, expected):
    assert on_a_line([name])[name] == pytest.approx(expected, nan_ok=True)


def test_depths_of_the_published_forms():
    """Hits at the ranks 1, 1000, 1001, 1023 and 1024 of 1100."""
    ranks = np.array([1, 1000, 1001, 1023, 1024])
    labels = np.isin(np.arange(1, 1101), ranks).astype(int)
    reference = np.arange(1.0, 1101.0)[:, None]
    measured = metrics.compute(["mAP_c", "mAP_1000", "mAP_lim", "mAP", "map@1000"], np.zeros((1, 1)), [1], reference, labels)
    precisions = np.arange(1, 6) / ranks
    expected = {
        name: precisions[:hits].sum() / 5 for name, hits in (("mAP_c", 1), ("mAP_1000", 2), ("mAP_lim", 4), ("mAP", 5), ("map@1000", 2))
    }
    assert measured == pytest.approx(expected, abs=1e-12)
