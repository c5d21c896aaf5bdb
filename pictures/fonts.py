"""Characters that the default font of matplotlib does not have, such as Chinese ones: another font, or a sign.

`drawable` is called for every text that users choose. An installed font that has the missing characters is added behind
the default one, and matplotlib takes it for these alone. Without one, characters are replaced, or names by numbers.
"""

import contextlib
import functools
from collections.abc import Callable

from utilities.files import refuse_link

REPLACEMENT = "\N{WHITE SQUARE}"
# begins the names of fonts that have a sign in place of each character
PLACEHOLDERS = "Last Resort"


@functools.lru_cache(maxsize=256)
def _characters(path: str) -> frozenset[int]:
    """Code points of a font file; none of one that cannot be drawn at any size, or read."""
    from matplotlib.ft2font import FT2Font

    with contextlib.suppress(OSError, RuntimeError):
        font = FT2Font(path)
        if font.scalable:
            return frozenset(font.get_charmap())
    return frozenset()


@functools.lru_cache(maxsize=64)
def _characters_of(families: tuple[str, ...]) -> frozenset[int]:
    """Code points of the fonts of several families."""
    from matplotlib.font_manager import FontProperties, findfont

    return frozenset().union(*(_characters(findfont(FontProperties(family=[family]))) for family in families))


@functools.lru_cache(maxsize=1024)
def _family_with(characters: frozenset[int], fonts: int) -> str | None:
    """The installed upright font that has the most of the characters; None if none has any.

    `fonts`: their number.
    """
    from matplotlib.font_manager import fontManager

    best = None
    highest = 0
    for font in fontManager.ttflist:
        if font.style != "normal" or font.name.startswith(PLACEHOLDERS):
            continue
        count = len(characters & _characters(font.fname))
        if count > highest:
            best = font.name
            highest = count
    return best


def _missing(text: str) -> set[int]:
    """Code points of a text that no font has, after a font for them was looked for and added."""
    if text.isascii():
        return set()
    import matplotlib
    from matplotlib.font_manager import fontManager

    characters = {ord(letter) for letter in text if not letter.isspace()}
    families = matplotlib.rcParams["font.family"]
    missing = characters - _characters_of(tuple(families))
    family = None
    if missing:
        family = _family_with(frozenset(missing), len(fontManager.ttflist))
    if family is not None and family not in families:
        families = [*families, family]
        matplotlib.rcParams["font.family"] = families
        missing -= _characters_of(tuple(families))
    return missing


def drawable(text) -> str:
    """`text` with a sign in place of each character that no installed font has."""
    text = str(text)
    missing = _missing(text)
    letters = [REPLACEMENT if ord(letter) in missing else letter for letter in text]
    return "".join(letters)


def names_or_numbers(names: dict, number: Callable[[object], str]) -> dict:
    """Key -> its name; where an installed font lacks a character of the name, `number(key)`, such as `class 7`."""
    texts = {}
    for key, name in names.items():
        texts[key] = str(name)
        if _missing(str(name)):
            texts[key] = number(key)
    return texts


def _is_in_first_font(text: str) -> bool:
    """Whether the default font has all characters of a text."""
    if text.isascii():
        return True
    import matplotlib

    first = _characters_of(tuple(matplotlib.rcParams["font.family"][:1]))
    return all(ord(letter) in first or letter.isspace() for letter in text)


def save_figure(figure, path, **how) -> None:
    """`figure.savefig(path, **how)` with all its texts `drawable`. Raises UserError if `path` is a link."""
    refuse_link(path)
    import matplotlib
    from matplotlib.text import Text

    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            labels = [label.get_text() for label in axis.get_ticklabels()]
            # matplotlib writes tick labels anew when it draws the figure, unless they are fixed
            if not all(map(_is_in_first_font, labels)):
                axis.set_ticks(axis.get_majorticklocs(), labels=list(map(drawable, labels)))
    for text in figure.findobj(Text):
        if not _is_in_first_font(text.get_text()):
            text.set_text(drawable(text.get_text()))
            text.set_fontfamily(matplotlib.rcParams["font.family"])
    figure.savefig(path, **how)
