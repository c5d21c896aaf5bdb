"""Tables of wildlife-datasets, read as those of --dataset csv: identity, path, bbox, species, split.

`identity` is the label; `unknown` and an empty one are none. `bbox` is [x, y, width, height] in pixels, `species` the
super-class. `split` is train and test, or database and query: an image of the database is in the gallery alone, a query
in none. A table that has the column label is one of open-metric-learning, whatever else it has.
"""

import re

from datasets._images import Image
from utilities.errors import UserError
from utilities.labels import present

LABEL = "identity"
UNKNOWN = "unknown"
BOX = ("x_1", "y_1", "x_2", "y_2")
# split -> that of --dataset csv, is_query, is_gallery; None: as the table's own columns say
SPLITS = {
    "train": ("train", None, None),
    "validation": ("validation", None, None),
    "test": ("validation", None, None),
    "database": ("validation", "False", "True"),
    "query": ("validation", "True", "False"),
}
NUMBERS = re.compile(r"\[?\s*([^,\s\]]+)[,\s]+([^,\s]+)[,\s]+([^,\s]+)[,\s]+([^,\s\]]+)\s*\]?")


def converted(path: str, header: list[str], rows: list[list[str]]) -> tuple[list[str], list[list[str]], set[int]]:
    """Columns and rows as --dataset csv has them, further ones included; and the places of rows of unknown identity.

    Tables of other columns, and damaged ones, stay as they are. Raises UserError, with the row, for a box or a split
    that is none.
    """
    is_damaged = any(len(row) != len(header) for row in rows)
    if LABEL not in header or "label" in header or is_damaged:
        return header, rows, set()
    names = [row[header.index(LABEL)].strip() for row in rows]
    unknown = {place for place, name in enumerate(names) if not present(name) or name.lower() == UNKNOWN}
    added = {"label": ["" if place in unknown else name for place, name in enumerate(names)]}
    if "species" in header and "category" not in header:
        added["category"] = [row[header.index("species")] for row in rows]
    if "bbox" in header and not set(BOX) & set(header):
        boxes = [_box(path, number, row[header.index("bbox")].strip()) for number, row in enumerate(rows, start=2)]
        for column, name in enumerate(BOX):
            added[name] = [box[column] for box in boxes]
    if "split" in header:
        added |= _splits(path, header, rows, unknown)
    # those of `added` last: of several columns with one name --dataset csv would read them, and note the others
    places = [place for place, name in enumerate(header) if name not in added]
    further_columns = zip(*added.values(), strict=True)
    table = [[*(row[place] for place in places), *values] for row, values in zip(rows, further_columns, strict=True)]
    return [*(header[place] for place in places), *added], table, unknown


def _box(path: str, number: int, text: str) -> tuple[str, str, str, str]:
    """x_1, y_1, x_2, y_2 of a box, all empty for an empty one."""
    if not present(text):
        return "", "", "", ""
    match = NUMBERS.fullmatch(text)
    try:
        x, y, width, height = map(float, match.groups())
    except (AttributeError, ValueError) as error:
        raise UserError(f"--dataset_csv {path}, row {number}: bbox {text!r}, expected [x, y, width, height]") from error
    return str(x), str(y), str(x + width), str(y + height)


def _splits(path: str, header: list[str], rows: list[list[str]], unknown: set[int]) -> dict[str, list[str]]:
    """The columns split, is_query and is_gallery. Nobody's images are no queries."""
    added = {"split": [], "is_query": [], "is_gallery": []}
    for number, row in enumerate(rows, start=2):
        split = row[header.index("split")].strip()
        if split not in SPLITS:
            raise UserError(f"--dataset_csv {path}, row {number}: split {split!r}, expected {', '.join(SPLITS)}")
        name, *roles = SPLITS[split]
        added["split"].append(name)
        for column, role in zip(("is_query", "is_gallery"), roles, strict=True):
            if role is None:
                role = row[header.index(column)] if column in header else "True"
            added[column].append(role)
    for place in unknown:
        added["is_query"][place] = "False"
    return added


def note(unknown: set[int], images: list[Image]) -> list[str]:
    """A note on rows of unknown identity: which of them are distractors, and that the others are left out."""
    if not unknown:
        return []
    n_distractors = sum(image.class_name is None for image in images)
    return [
        f"{len(unknown):,} rows without a known identity: {n_distractors:,} are in the gallery without a class, "
        f"{len(unknown) - n_distractors:,} are left out"
    ]
