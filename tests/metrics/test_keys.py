"""Scores and columns packed into integers sort as neighbours do."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from metrics._keys import AFTER_ALL, COLUMN, LOWEST, as_keys, scores_of

SCORES = st.floats(width=32, allow_nan=False).map(lambda score: score + 0.0)  # -0.0 is 0.0


@given(st.lists(st.tuples(SCORES, st.integers(0, COLUMN)), min_size=1, max_size=20))
def test_keys_sort_by_descending_score_then_column(pairs):
    scores, columns = np.array([s for s, _ in pairs], dtype=np.float32), np.array([c for _, c in pairs])
    keys = as_keys(scores, columns)
    assert np.array_equal(scores_of(keys), scores) and np.array_equal(keys & COLUMN, columns)
    assert [pairs[i] for i in np.argsort(keys, kind="stable")] == sorted(pairs, key=lambda pair: (-pair[0], pair[1]))
    assert (keys < AFTER_ALL).all()


def test_an_empty_slot_has_no_score_and_comes_last():
    assert np.isnan(scores_of(np.array([AFTER_ALL]))).all()
    assert (as_keys(np.array([-np.inf, LOWEST], dtype=np.float32), np.array([COLUMN, COLUMN])) < AFTER_ALL).all()
