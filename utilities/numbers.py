"""Types of numeric flags that declare the allowed range: `type=whole(1)`, `type=number(above=0, most=1)`.

The command line, --config files, saved runs, search bounds and `select(…, flag=value)` pass values through these types.
The help prints the range.
"""

import argparse
import math
import numbers

LARGEST = 10**6  # default bound of a number: losses square and exponentiate, and larger ones overflow in float32
MOST_64 = 2**63 - 1  # default bound of a whole number: seeds and sizes have 64 bits
WIDEST = 2**16  # dimensions of a layer: more than any published network has; a square matrix of that side fills 17 GB

# digits of a number in a file
MOST_DIGITS = 1000


class OutOfRange(argparse.ArgumentTypeError):
    """A number that the flag does not allow; the message is the rule, `must be at least 1`."""


class Range:
    """A numeric flag's type: called with a text it gives the number, or raises `argparse.ArgumentTypeError`.

    Args:
        kind: int or float.
        least, most: bounds that are allowed themselves. above, below: bounds that are not.
        special: one value outside the bounds with a meaning of its own, such as -1 for "as the other flag".
        inf: infinity is allowed. NaN never is.
        word: a text that is allowed in place of a number, such as "all".
        off: a text that unsets the flag, such as "none" for a value that a saved run has.
    """

    def __init__(
        self,
        kind: type,
        least=None,
        most=None,
        *,
        above=None,
        below=None,
        special=None,
        inf: bool = False,
        word: str | None = None,
        off: str | None = None,
    ):
        self.kind = kind
        self.least = least
        self.most = most
        self.above = above
        self.below = below
        self.special = special
        self.inf = inf
        self.word = word
        self.off = off
        # argparse calls a type by its `__name__`
        self.__name__ = kind.__name__
        largest = LARGEST
        self._digits = "g"
        self._noun = "a number"
        if kind is int:
            largest = MOST_64
            self._digits = ""
            self._noun = "a whole number"
        self._low = _first((least, above), -largest)
        self._high = _first((most, below), largest)

    def __call__(self, text: str):
        """The number that a text stands for, or the allowed word; None for the text that unsets the flag."""
        if self.off is not None and text == self.off:
            return None
        if self.word is not None and text == self.word:
            return text
        try:
            value = self.kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"invalid {self.kind.__name__} value: {text!r}") from None
        self.check(value)
        return value

    def check(self, value) -> None:
        """Raise `OutOfRange`, with the rule, for a value that the flag does not allow."""
        if self.word is not None and value == self.word:
            return
        if not isinstance(value, numbers.Real) or isinstance(value, bool):
            raise OutOfRange(f"must be {self._noun}")
        if value == self.special or (self.inf and value == math.inf):
            return
        if self.kind is int and math.isfinite(value) and value != int(value):
            raise OutOfRange(f"must be {self._noun}")
        broken = self._broken_bound(value)
        if broken is None:
            return
        if self.inf:
            broken += ", or inf"
        if self.special is not None:
            broken += f", or {self.special:g}"
        raise OutOfRange(f"must be {broken}")

    def _broken_bound(self, value) -> str | None:
        """The bound that a number breaks, in words; None for a number within the bounds."""
        if not math.isfinite(value):
            return "finite"
        if self.above is not None and value <= self.above:
            return f"above {self._low:{self._digits}}"
        if value < self._low:
            return f"at least {self._low:{self._digits}}"
        if self.below is not None and value >= self.below:
            return f"below {self._high:{self._digits}}"
        if value > self._high:
            return f"at most {self._high:{self._digits}}"
        return None

    @property
    def rule(self) -> str:
        """The declared bounds as text, `above 0 and at most 1`; empty if there are none."""
        if self.least is not None and self.most is not None:
            text = f"from {self.least:g} to {self.most:{self._digits}}"
        else:
            bounds = (("at least", self.least), ("above", self.above), ("at most", self.most), ("below", self.below))
            text = " and ".join(f"{word} {bound:g}" for word, bound in bounds if bound is not None)
        if text and self.inf:
            text += ", or inf"
        if self.word is not None:
            text += f", or {self.word}"
        if self.special is not None:
            text += f", or {self.special:g}"
        return text


def _first(bounds: tuple, default):
    """The first bound that is given."""
    for bound in bounds:
        if bound is not None:
            return bound
    return default


def whole(least=None, most=None, *, special=None, word=None, off=None) -> Range:
    """The type of a flag that takes a whole number of 64 bits, `least` to `most`, or the `special` one, or a `word`;
    `off` unsets it.
    """
    return Range(int, least, most, special=special, word=word, off=off)


def number(least=None, most=None, *, above=None, below=None, special=None, inf: bool = False) -> Range:
    """The type of a flag that takes a finite number within the bounds, up to `LARGEST` where none is given; `inf`
    allows infinity too.
    """
    return Range(float, least, most, above=above, below=below, special=special, inf=inf)


class OneOrTwo(argparse.Action):
    """A flag with `nargs="+"` of one value, kept as it is, or of two, kept as a list:
    `--crop_size 224`, `--crop_size 256 128`.
    """

    def __call__(self, parser, namespace, values, option_string=None):
        """See argparse."""
        if len(values) > 2:
            parser.error(f"argument {option_string}: takes one value or two, not {len(values)}")
        if len(values) == 1:
            values = values[0]
        setattr(namespace, self.dest, values)


def share_of(share: float, number: int) -> int:
    """`share * number`, rounded up, without the rounding error of binary floats: .07 of 100 is 7."""
    return math.ceil(share * number * (1 - 1e-12))


def is_whole(text: str) -> bool:
    """Whether a text is a whole number from 0 on that can be converted: Python refuses thousands of digits."""
    return text.isdecimal() and len(text) <= MOST_DIGITS
