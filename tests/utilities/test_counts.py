"""Counts in words."""

from utilities.counts import count_of


def test_one_is_singular_and_all_others_are_plural():
    assert [count_of(count, "epoch") for count in (0, 1, 2, 1000)] == [
        "0 epochs",
        "1 epoch",
        "2 epochs",
        "1,000 epochs",
    ]
    assert [count_of(count, "query", "queries") for count in (1, 3)] == ["1 query", "3 queries"]
