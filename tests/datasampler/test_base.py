import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from datasampler._base import draw_within, random_below


def test_random_below_is_uniform():
    torch.manual_seed(0)
    drawn = random_below(torch.full((30000,), 7))
    assert chisquare(torch.bincount(drawn, minlength=7)).pvalue > 1e-3


def test_random_below_stays_below_large_bounds():
    torch.manual_seed(0)
    bounds = torch.tensor([1, 2, 2**40, 2**61]).repeat(1000)
    drawn = random_below(bounds)
    assert (drawn >= 0).all() and (drawn < bounds).all()


@pytest.mark.parametrize(("size", "count"), [(5, 2), (4, 3), (3, 3), (6, 1)])
def test_draw_within_gives_every_subset_equally_often(size, count):
    torch.manual_seed(0)
    drawn = draw_within(torch.full((20000,), size), count).sort(1).values
    subsets = list(itertools.combinations(range(size), count))
    counts = [int((drawn == torch.tensor(subset)).all(1).sum()) for subset in subsets]
    assert sum(counts) == 20000
    assert len(subsets) == 1 or chisquare(counts).pvalue > 1e-3


@given(st.lists(st.integers(1, 9), min_size=1, max_size=20), st.integers(0, 9))
def test_draw_within_is_distinct_where_the_size_allows(sizes, count):
    drawn = draw_within(torch.tensor(sizes), count)
    assert drawn.shape == (len(sizes), count)
    for size, row in zip(sizes, drawn.tolist(), strict=True):
        assert all(0 <= position < size for position in row)
        assert len(set(row)) == min(size, count)
