"""Shares of whole numbers."""

from fractions import Fraction
from math import ceil

import pytest

from utilities.numbers import share_of


@pytest.mark.parametrize("number", [0, 1, 7, 50, 100, 12345, 10**7])
def test_a_share_is_that_of_the_decimal_fraction_rounded_up(number):
    for percent in range(101):
        assert share_of(percent / 100, number) == ceil(Fraction(percent, 100) * number)
