"""Shapes of images: a side or (height, width), and sides that are multiples of a patch."""


def pair(size) -> tuple[int, int]:
    """(height, width) of a side, or of both."""
    return (size, size) if isinstance(size, int) else (*size,)


def side_or_pair(size):
    """The side of a square for two equal ones, else (height, width); None for None."""
    if size is None or isinstance(size, int):
        return size
    return size[0] if len(set(size)) == 1 else tuple(size)


def nearest_multiples(size, patch) -> tuple[int, int]:
    """(height, width), each side at the nearest multiple of the patch's, at least one patch. Both: a side, or two."""
    sides = zip(pair(size), pair(patch), strict=True)
    return tuple(max(round(side / length), 1) * length for side, length in sides)


def in_words(size) -> str:
    """`256 x 128` of a side, or of (height, width)."""
    return " x ".join(map(str, pair(size)))


def flag_words(size) -> str:
    """The words of a flag that takes a side, or height and width: `224`, `256 128`."""
    size = side_or_pair(size)
    return str(size) if isinstance(size, int) else " ".join(map(str, size))
