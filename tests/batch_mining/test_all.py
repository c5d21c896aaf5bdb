"""Every valid triplet, once."""

from hypothesis import given, settings
from hypothesis import strategies as st

import batch_mining
from tests.batch_mining._reference import all_triplets, as_lists, batch_of


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=12))
def test_every_triplet_once(labels):
    assert sorted(as_lists(*batch_mining.select("all")(*batch_of(labels)))) == sorted(all_triplets(labels))
