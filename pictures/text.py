"""What all pictures share: colours of splits, and text that fits its place."""

import bisect
import os

import numpy as np

from pictures.fonts import drawable

# the same colours in every picture, of a run and of tables
SPLIT_COLOURS = {"train": "#8a8f98", "val": "#c2571a", "test": "#2b6ca3"}
# points
TITLE_SIZE = 11
LEAST_TITLE_SIZE = 7
HINTING = 0.97  # of a width: drawn letters are a little wider than their outlines
MARGIN = 12  # points between a title and the edge of its figure
SEPARATORS = " _-./"  # between the words of a name


def text_width(text: str, size: float) -> float:
    """Width in points of one line of `size` points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    return text_to_path.get_text_width_height_descent(text, FontProperties(size=size), ismath=False)[0]


def printable(text) -> str:
    """`text` on one line; unprintable characters become spaces, those that no font has a sign."""
    letters = [letter if letter.isprintable() else " " for letter in str(text)]
    return drawable("".join(letters))


def fitted(text, size: float, width: float) -> str:
    """`text` on one line of `size` points, cut to `width` points."""
    text = printable(text)
    if text_width(text, size) <= width:
        return text
    too_long = bisect.bisect_right(range(len(text)), width, key=lambda n: text_width(text[:n] + "…", size))
    return text[: max(too_long - 1, 0)] + "…"


def title_that_fits(text: str, width: float, size: float = TITLE_SIZE) -> dict:
    """`text` and `fontsize` of a title of at most `width` points: in a smaller font where it is too long, then cut."""
    text = printable(text)
    width = HINTING * width
    for smaller in np.arange(size, LEAST_TITLE_SIZE - 0.5, -0.5).tolist():
        if text_width(text, smaller) <= width:
            return {"text": text, "fontsize": smaller}
    return {"text": fitted(text, LEAST_TITLE_SIZE, width), "fontsize": LEAST_TITLE_SIZE}


def set_title(axis, text: str, size: float = TITLE_SIZE, reserved: float = 0.0) -> None:
    """Title an axis at its left, within the figure; `reserved`: points at the right that something else takes."""
    margin = axis.get_position().x0
    width = (1 - margin) * 72 * axis.figure.get_figwidth() - MARGIN - reserved
    fitting = title_that_fits(text, width, size)
    axis.set_title(fitting["text"], loc="left", fontsize=fitting["fontsize"], parse_math=False)


def set_suptitle(figure, text: str, size: float = TITLE_SIZE, **options) -> None:
    """Title a figure, within its width."""
    fitting = title_that_fits(text, 72 * figure.get_figwidth() - 2 * MARGIN, size)
    figure.suptitle(fitting["text"], fontsize=fitting["fontsize"], parse_math=False, **options)


def shortened(names, size: float, width: float) -> dict[str, str]:
    """Each name on one line of `size` points, at most `width` points wide.

    Leading words that another name has too are cut first, then the end.
    """
    ordered = sorted(set(names))
    # with the next
    shared = [len(os.path.commonprefix(neighbours)) for neighbours in zip(ordered, ordered[1:], strict=False)]
    short = {}
    for name, before, after in zip(ordered, [0, *shared], [*shared, 0], strict=True):
        common = max(before, after)
        starts = [i + 1 for i, letter in enumerate(name[:common]) if letter in SEPARATORS and i + 1 < len(name)]
        texts = [printable(name), *(f"…{printable(name[start:])}" for start in starts)]
        short[name] = next((text for text in texts if text_width(text, size) <= width), fitted(texts[-1], size, width))
    return short
