"""Texts of tables made brief: names of files in place of absolute paths."""

import re
from pathlib import Path

# an absolute path within a text
ABSOLUTE = re.compile(r"(?<![^\s|,:(=])~?/(?:[^\s/|,]+/)+[^\s/|,]*")


def brief(text: str) -> str:
    """A text in which the name of a file or folder stands for its absolute path."""
    if Path(text).is_absolute() and "|" not in text and ", " not in text:
        return Path(text).name or text
    return ABSOLUTE.sub(lambda path: Path(path[0]).name, text)


def brief_pair(first: str, second: str) -> tuple[str, str]:
    """Two different texts made brief; of two paths with the same name as many folders stay as tell them apart."""
    short = brief(first), brief(second)
    if short[0] != short[1]:
        return short
    parts = Path(first).parts, Path(second).parts
    for count in range(2, max(map(len, parts))):
        tails = tuple("/".join(("…", *path_parts[-count:])) for path_parts in parts)
        if tails[0] != tails[1]:
            return tails
    return first, second
