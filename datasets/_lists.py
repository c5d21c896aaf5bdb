"""Ground truth by lists: what each query of a data set is to find, and what is junk to it, by paths as a reader has
them, then by rows.
"""

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from datasets._images import Image
from utilities.errors import UserError
from utilities.reading import Unreadable, read_csv

Found = tuple[list[str], list[str]]  # paths of a query's positives, and of its junk
Lists = dict[str, dict[str, Found]]  # protocol, "" where there is one alone -> path of a query -> what is listed for it
# of a table of lists
COLUMNS = ("query", "kind", "path")
KINDS = ("positive", "junk")


def of_table(path: Path, located: Callable[[str], str | None]) -> dict[str, Found]:
    """The lists of a table with the columns query, kind (positive or junk) and path. `located`: a name in it -> the
    path of its image, None for none.

    Raises UserError for another table.
    """
    try:
        table = read_csv(path)
    except Unreadable as error:
        raise UserError(f"{path}: no table of comma-separated values ({error.reason})") from error
    if not table or [name.strip() for name in table[0]] != list(COLUMNS):
        raise UserError(f"{path}: the first row of a table of lists is {','.join(COLUMNS)}")
    found = {}
    for number, row in enumerate(table[1:], start=2):
        query, kind, name = map(str.strip, row) if len(row) == len(COLUMNS) else ("", "", "")
        if kind not in KINDS:
            raise UserError(
                f"{path}, row {number}: {','.join(row)!r}, expected a query, {' or '.join(KINDS)}, and an image of "
                "the gallery"
            )
        images = [_located(image, located) for image in (query, name)]
        if None in images:
            raise UserError(
                f"{path}, row {number}: {(query, name)[images.index(None)]}: the data set's table has no such image"
            )
        found.setdefault(images[0], ([], []))[KINDS.index(kind)].append(images[1])
    return found


def _located(name: str, located: Callable[[str], str | None]) -> str | None:
    """The path of an image that a table names, perhaps with the backslashes of Windows."""
    path = located(os.path.normpath(name))
    return located(os.path.normpath(name.replace("\\", "/"))) if path is None else path


def rows(lists: Lists, images: list[Image], partial: bool) -> dict[str, tuple[list[list[int]], list[list[int]]]]:
    """Protocol -> for each query of `images`, in their order, the rows in `images` of its positives, and of its junk.

    Queries that a protocol does not list have neither. Names of images that are not there are left out where `partial`.
    Raises UserError for other names, and for a listed name that two images have.
    """
    queries = Counter(image.path for image in images if image.is_query)
    places = {}
    twice = {path for path, count in queries.items() if count > 1}
    for row, image in enumerate(images):
        if image.is_gallery and places.setdefault(image.path, row) != row:
            twice.add(image.path)
    found = {}
    for protocol, of in lists.items():
        listed = [(path, path in queries) for path in of] + [
            (path, path in places) for both in of.values() for kind in both for path in kind
        ]
        unknown = [path for path, there in listed if not there]
        if unknown and not partial:
            raise UserError(
                f"ground truth lists {unknown[0]}, which is no query or no image of the gallery here, as are "
                f"{len(unknown) - 1:,} others"
            )
        for path, _ in listed:
            if path in twice:
                raise UserError(f"ground truth lists {path}, a name that two images have: it must be unique")
        of_query = [of.get(image.path, ((), ())) for image in images if image.is_query]
        found[protocol] = tuple(
            [[places[path] for path in both[kind] if path in places] for both in of_query] for kind in (0, 1)
        )
    return found
