"""Shares of whole numbers."""

import math
from fractions import Fraction
from math import ceil

import pytest

from utilities.numbers import OutOfRange, is_whole, share_of, whole


@pytest.mark.parametrize("number", [0, 1, 7, 50, 100, 12345, 10**7])
def test_a_share_is_that_of_the_decimal_fraction_rounded_up(number):
    for percent in range(101):
        assert share_of(percent / 100, number) == ceil(Fraction(percent, 100) * number)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_whole_number_is_finite(value):
    with pytest.raises(OutOfRange, match="must be finite"):
        whole(1).check(value)


def test_whole_numbers_of_files():
    assert is_whole("0") and is_whole("007") and is_whole("9" * 1000)
    assert not any(map(is_whole, ("", "-1", "1.5", "9" * 5000, "²")))
