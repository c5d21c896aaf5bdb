"""Recall at k and reciprocal rank, by hand."""

import pytest

from tests.metrics._plain import on_a_line


def test_recall_at_k():
    measured = on_a_line(["e_recall@1", "e_recall@2", "e_recall@5", "e_recall@6"])
    assert measured == {
        "e_recall@1": [1, 0, 0, 0], "e_recall@2": [1, 1, 0, 0], "e_recall@5": [1, 1, 0, 0], "e_recall@6": [1, 1, 1, 0],
    }  # fmt: skip


def test_reciprocal_rank_leaves_out_a_query_alone_in_its_class():
    assert on_a_line(["mrr"])["mrr"] == pytest.approx([1, 1 / 2, 1 / 6, float("nan")], nan_ok=True)
