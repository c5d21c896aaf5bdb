"""Ground truth by lists: which images are relevant to each query of a data set, and which are ignored (junk).

A data set's module lists them by the images' paths, in `Reading.lists`. `rows` turns the paths into rows of the test
images, for `ImageSet.lists`.
"""

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from datasets._images import Image
from utilities.errors import UserError
from utilities.reading import Unreadable, read_csv


class GroundTruth(NamedTuple):
    """What is listed for a query: the paths of its positives, and of its junk, which counts neither way."""

    positives: list[str]
    junk: list[str]


# protocol, "" if there is only one -> path of a query -> its ground truth
Lists = dict[str, dict[str, GroundTruth]]
# of a table of lists
COLUMNS = ("query", "kind", "path")
KINDS = ("positive", "junk")


def of_table(path: Path, locate: Callable[[str], str | None]) -> dict[str, GroundTruth]:
    """The ground truth of each query by a table with the columns query, kind (positive or junk) and path.

    `locate`: a name in the table -> the path of its image, None if there is none. Raises UserError for another table.
    """
    try:
        table = read_csv(path)
    except Unreadable as error:
        raise UserError(f"{path}: no table of comma-separated values ({error.reason})") from error
    if not table or [name.strip() for name in table[0]] != list(COLUMNS):
        raise UserError(f"{path}: the first row of a table of lists is {','.join(COLUMNS)}")
    truths = {}
    for number, row in enumerate(table[1:], start=2):
        kind = None
        if len(row) == len(COLUMNS):
            query, kind, name = map(str.strip, row)
        if kind not in KINDS:
            raise UserError(
                f"{path}, row {number}: {','.join(row)!r}, expected a query, {' or '.join(KINDS)}, and an image of "
                "the gallery"
            )
        query_path = _located(query, locate)
        image_path = _located(name, locate)
        if query_path is None or image_path is None:
            unknown_name = query if query_path is None else name
            raise UserError(f"{path}, row {number}: {unknown_name}: the data set's table has no such image")
        truth = truths.setdefault(query_path, GroundTruth([], []))
        if kind == "positive":
            truth.positives.append(image_path)
        else:
            truth.junk.append(image_path)
    return truths


def _located(name: str, locate: Callable[[str], str | None]) -> str | None:
    """The path of an image that a table names, perhaps with the backslashes of Windows."""
    path = locate(os.path.normpath(name))
    return locate(os.path.normpath(name.replace("\\", "/"))) if path is None else path


def rows(lists: Lists, images: list[Image], partial: bool) -> dict[str, tuple[list[list[int]], list[list[int]]]]:
    """Protocol -> for each query of `images`, in their order, the rows in `images` of its positives, and of its junk.

    Queries that a protocol does not list have neither. `partial`: names of images that are missing are left out. Raises
    UserError for such names otherwise, and for a listed name that two images have.
    """
    query_counts = Counter(image.path for image in images if image.is_query)
    ambiguous = {path for path, count in query_counts.items() if count > 1}
    gallery_rows = {}
    for row, image in enumerate(images):
        if image.is_gallery and gallery_rows.setdefault(image.path, row) != row:
            ambiguous.add(image.path)

    rows_by_protocol = {}
    for protocol, truths in lists.items():
        listed_paths = list(truths)
        unknown = [path for path in truths if path not in query_counts]
        for positives, junk in truths.values():
            listed_paths += [*positives, *junk]
            unknown += [path for path in (*positives, *junk) if path not in gallery_rows]
        if unknown and not partial:
            raise UserError(
                f"ground truth lists {unknown[0]}, which is not a query or not an image of the gallery here; so are "
                f"{len(unknown) - 1:,} others"
            )
        for path in listed_paths:
            if path in ambiguous:
                raise UserError(f"ground truth lists {path}, a name that two images have: it must be unique")
        positive_rows = []
        junk_rows = []
        for image in images:
            if image.is_query:
                positives, junk = truths.get(image.path, ((), ()))
                positive_rows.append(_rows_of(positives, gallery_rows))
                junk_rows.append(_rows_of(junk, gallery_rows))
        rows_by_protocol[protocol] = (positive_rows, junk_rows)
    return rows_by_protocol


def _rows_of(paths: list[str], gallery_rows: dict[str, int]) -> list[int]:
    """The rows of those paths that are in the gallery."""
    return [gallery_rows[path] for path in paths if path in gallery_rows]
