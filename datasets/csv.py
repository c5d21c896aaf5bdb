"""Any images that a table names: --dataset_csv FILE, in the format of open-metric-learning.

A row is an image, or one box of it. Columns; those from is_query on are optional, and further ones are ignored:

    label, path, split           the class; the image, from --source or from the table's folder; train or validation.
                                 A validation row without a label is a distractor: it must be of the gallery alone
    labels                       a|b|c: all labels of the image; the column label may then be missing (`_several.py`)
    is_query, is_gallery         roles of validation rows (True or False; without the columns all have both)
    x_1, y_1, x_2, y_2           a box in pixels, to which the image is cropped
    category, sequence           the super-class; images of one sequence never retrieve each other
    category_2, category_3, …    classes of further levels, each coarser than the one before
    time, camera, group          for --split_scheme time_… and --split_groups: a date, a date and time (ISO 8601) or a
                                 year; the camera; images of one group stay on one side of the split
    camera, frame                for python -m evaluation tracks: a film, and the number of the frame in it

Tables of wildlife-datasets, with the column identity in place of label, are read too (`_wildlife.py`). The schemes
time_proportion, time_cutoff and open_set divide the rows themselves: the column split may be missing then.

Validation rows whose label is not in training are the test set; those whose label is in training are for validation.

--dataset_csv_lists FILE, a table with the columns query, kind (positive or junk) and path, says which images are
relevant to each query and which are ignored, in place of the labels, which its images may then lack. An image of
several labels is in the lists of all queries that share one; the column labels makes such lists by itself.
"""

import functools
import itertools
import math
import os
from collections import Counter
from pathlib import Path

from datasets import _groups, _layout, _lists, _several, _times, _wildlife
from datasets._images import Image, uncollected
from datasets._labels import means_nobody
from datasets._layout import Reading
from options.flags import Flag
from options.flags.roles import DATA
from options.flags.shared import OF_KNOWN_CLASSES
from utilities.errors import UserError
from utilities.files import expanded
from utilities.labels import present
from utilities.numbers import is_whole
from utilities.reading import Unreadable, parsing, read_csv

NEEDED = ("label", "path", "split")
ROLES = ("is_query", "is_gallery")
BOX = ("x_1", "y_1", "x_2", "y_2")
OF_SPLIT = ("time", "camera", "group")
KNOWN = {*NEEDED, _several.COLUMN, *ROLES, *BOX, *OF_SPLIT, "category", "sequence", "frame"}
OWN_LABELS = True
TRUTH = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}

FLAGS = {
    "--dataset_csv": Flag(
        str,
        None,
        "table of images with the columns label, path, split (train, validation), is_query, is_gallery and "
        "optionally labels (a|b|c: several of an image), x_1, y_1, x_2, y_2 (a box), category (super-class), "
        "category_2 … (coarser levels), sequence, time, camera, group; paths from --source or from the table's folder",
        metavar="FILE",
        # the tables may move
        role=DATA.but(fixed=None),
    ),
    "--dataset_csv_lists": Flag(
        str,
        None,
        "table with the columns query, kind (positive, junk), path: which images are relevant to each query, in "
        "place of those of its label, and which are ignored",
        metavar="FILE",
        role=DATA.but(fixed=None),
    ),
}


def check(opt) -> None:
    """The table is needed. Raises UserError."""
    if opt.dataset_csv is None:
        raise UserError(
            "--dataset csv needs --dataset_csv FILE, a table with the columns label, path, split and perhaps "
            "is_query, is_gallery"
        )


def has_validation(opt) -> bool:
    """Whether there are validation rows with training labels. Raises UserError as `read`."""
    path = expanded(opt.dataset_csv or "")
    return path.is_file() and "val" in _splits_of(_table(path, opt), opt)


def derived(opt) -> dict:
    """Values of unset flags: queries that no list names are left out."""
    # runs of earlier versions have no such flag
    has_lists = vars(opt).get("dataset_csv_lists") is not None
    return {"eval_skip_unmatched": 1} if has_lists else {}


def prepare(opt, source: Path) -> Path:
    """The folder of the images, `source` or the table's own: the first image found in either decides."""
    path = expanded(opt.dataset_csv)
    if not path.is_file():
        raise UserError(f"--dataset_csv {path}: no such file")
    places = list(dict.fromkeys((source, path.parent)))
    for name in _table(path, opt)["path"]:
        for place in places:
            if any(os.path.exists(place / spelling) for spelling in _layout.spellings(name)):
                return place
    raise UserError(
        f"--dataset_csv {path}: none of its images is there, neither below --source {places[0]} nor below {places[-1]}"
    )


@uncollected()
def read(opt, root: Path) -> Reading:
    """The images, classes in the order of their labels: of numbers if all are whole numbers, else of names.

    Raises UserError for rows without a label that are no distractors; `--allow_partial_dataset` leaves them out.
    """
    path = expanded(opt.dataset_csv)
    table = _table(path, opt)
    labels = table["label"]
    spellings = [spelling for name in table["path"] for spelling in _layout.spellings(name)]
    existing = _layout.existing(root, spellings)
    names = [_existing(name, existing) for name in table["path"]]
    splits = _splits_of(table, opt)
    images = _images(path, table, [os.path.join(root, name) for name in names], _groups.needs_times(opt))
    has_lists = opt.dataset_csv_lists is not None
    reading = Reading([], split_of=[])
    unlabelled = []
    for row in _order(labels):
        image = images[row]
        is_distractor = splits[row] != "train" and (has_lists or (image.is_gallery and not image.is_query))
        if not labels[row] and not is_distractor:
            if row not in table.unknown:
                unlabelled.append(row)
        elif names[row] not in existing:
            reading.missing.append(image.path)
        else:
            reading.images.append(image)
            reading.split_of.append(splits[row])
    labelled = zip(splits, labels, strict=True)
    reading.notes += _notes([split for split, label in labelled if label and not means_nobody(label, opt)])
    reading.notes += [*_repeated_columns(table), *_left_out(path, unlabelled, opt)]
    reading.notes += _wildlife.note(table.unknown, reading.images)
    _several.check(reading, any(image.sequence for image in images), opt)
    if has_lists:
        if any(image.sequence for image in images):
            raise UserError(
                f"--dataset_csv_lists {opt.dataset_csv_lists}: lists already name the ignored images: leave out the "
                f"column sequence of {path}"
            )
        # each spelling of a name -> its path
        path_of = {}
        for name, image in zip(table["path"], images, strict=True):
            path_of |= dict.fromkeys((name, *_layout.spellings(name)), image.path)
        reading.lists = {"": _lists.of_table(expanded(opt.dataset_csv_lists), path_of.get)}
    return reading


def _order(labels: list[str]) -> list[int]:
    """The rows by label, those without one last."""
    labelled = [row for row, label in enumerate(labels) if label]
    rows = [labelled[i] for i in _layout.by_label([labels[row] for row in labelled])]
    return rows + [row for row, label in enumerate(labels) if not label]


def _images(path: Path, table: "Table", paths: list[str], needs_times: bool) -> list[Image]:
    """The image of each row, whether its file exists or not.

    Args:
        paths: of each row. needs_times: times that cannot be read are refused, not left out.
    """
    boxes = _boxes(path, table)
    higher_names = zip(*(_optional(table, name) for name in _higher(table)), strict=True)
    # in the order of the fields of an `Image`
    columns = (
        paths,
        _optional(table, "label"),
        _optional(table, "category"),
        _role(path, table, "is_query"),
        _role(path, table, "is_gallery"),
        _optional(table, "sequence"),
        boxes,
        list(higher_names) or [()] * len(paths),
        [()] * len(paths),
        _times_of(path, table, needs_times),
        _optional(table, "camera"),
        _optional(table, "group"),
        [int(text) if text and is_whole(text) else -1 for text in _optional(table, "frame")],
        _several.of_column(_optional(table, _several.COLUMN)),
    )
    return [Image(*row) for row in zip(*columns, strict=True)]


def _times_of(path: Path, table: "Table", are_needed: bool) -> list[float | None]:
    """The time of each row in seconds, None for none.

    Raises UserError for a text that is no date, if times are needed: other tables may have a column of this name.
    """
    times = []
    for row, text in enumerate(_optional(table, "time"), start=2):
        time = None if text is None else _times.seconds(text)
        if are_needed and text is not None and time is None:
            raise UserError(f"--dataset_csv {path}, row {row}: time {text!r}, {_times.EXPECTED}")
        times.append(time)
    return times


def _optional(table: "Table", column: str) -> list[str | None]:
    """The values of a column, None for empty ones; of a missing column all None."""
    if column not in table:
        return [None] * len(table["path"])
    return [value or None for value in table[column]]


def _existing(name: str, existing: set[str]) -> str:
    """The spelling of a path that exists; the table's own if none does."""
    return next((spelling for spelling in _layout.spellings(name) if spelling in existing), name)


def _left_out(path: Path, unlabelled: list[int], opt) -> list[str]:
    """A note on rows that have no label and are no distractors. Raises UserError if they may not be left out."""
    if not unlabelled:
        return []
    if not opt.allow_partial_dataset:
        raise UserError(
            f"--dataset_csv {path}, row {unlabelled[0] + 2}: no label. Only a validation row of is_query False and "
            f"is_gallery True, a distractor, has none; in all {len(unlabelled):,} rows lack one (nan, None and null "
            "are none). Correct them, or leave them out with --allow_partial_dataset"
        )
    return [f"{len(unlabelled):,} rows without a label are left out, the first is row {unlabelled[0] + 2}"]


def _repeated_columns(table: "Table") -> list[str]:
    """A note on columns that the table has several times, of those that are read."""
    if not table.repeated:
        return []
    return [f"columns that the table has several times, of which the last is read: {', '.join(table.repeated)}"]


def _notes(splits: list[str]) -> list[str]:
    """Notes on the use of the validation rows."""
    if "val" not in splits:
        return []
    if "test" not in splits:
        return [
            "all validation labels are training labels: these rows validate and are the test set too, which so sees "
            "the choice of the epoch"
        ]
    return [
        f"{splits.count('val'):,} validation rows have labels that train: they validate, the other "
        f"{splits.count('test'):,} test"
    ]


class Table(dict):
    """Column -> its values; `repeated`: columns that stand in the file several times; `unknown`: places of rows of
    unknown identity in a table of wildlife-datasets.
    """

    repeated: tuple[str, ...] = ()
    unknown: set[int] = frozenset()


def _table(path: Path, opt) -> Table:
    """Column -> its values as strings (007 is not 7), empty if a row has none. A scheme that divides the rows itself
    needs no column split: all rows are of training if there is none.

    Raises UserError if it is not such a table.
    """
    with parsing(f"--dataset_csv {path}"):
        status = path.stat()
        needs_split = opt.split_scheme not in OF_KNOWN_CLASSES
        return _parsed(str(path), status.st_size, status.st_mtime_ns, needs_split, needs_split and not opt.evaluate_all)


# The table is read when the flags are checked, and again when the data are loaded.
@functools.lru_cache(maxsize=2)
@uncollected()
def _parsed(path: str, size: int, changed: int, needs_split: bool, needs_both: bool) -> Table:
    try:
        with parsing(path):
            header, *rows = read_csv(path)
    except Unreadable as error:
        raise UserError(f"--dataset_csv {path}: no table of comma-separated values ({error.reason})") from error
    header = [name.strip() for name in header]
    if "split" not in header and not needs_split:
        header.append("split")
        rows = [[*row, "train"] for row in rows]
    header, rows, unknown = _wildlife.converted(path, header, rows)
    header, rows = _several.with_first_label(path, header, rows)
    lacking = [name for name in NEEDED if name not in header]
    if not lacking and set(BOX) & set(header):
        lacking = [name for name in BOX if name not in header]
    if lacking:
        raise UserError(f"--dataset_csv {path}: no column {', '.join(lacking)} among {', '.join(header)}")
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise UserError(
                f"--dataset_csv {path}, row {number}: {len(row)} fields, its first row has {len(header)}: it is damaged"
            )
    table = _columns(header, rows)
    table.unknown = unknown
    _check_splits(path, table, needs_both)
    table["path"] = [os.path.normpath(path) for path in table["path"]]
    return table


def _check_splits(path: str, table: Table, needs_both: bool) -> None:
    """Raise UserError for rows without a path or split, and unless there are rows of both splits if they are needed."""
    for name in ("path", "split"):
        if "" in table[name]:
            raise UserError(f"--dataset_csv {path}, row {table[name].index('') + 2}: no {name}")
    for number, split in enumerate(table["split"], start=2):
        if split not in ("train", "validation"):
            raise UserError(f"--dataset_csv {path}, row {number}: split {split!r}, expected train or validation")
    splits = set(table["split"])
    if needs_both and len(splits) < 2:
        raise UserError(
            f"--dataset_csv {path}: {len(table['split']):,} rows, all of split {'/'.join(splits)}: it needs both, "
            "unless --evaluate_all measures them alone"
        )


def _columns(header: list[str], rows: list[list[str]]) -> Table:
    """The columns that are read; the last of several with one name."""
    read_names = {*KNOWN, *_higher(header)}
    columns = zip(*rows, strict=True) if rows else [()] * len(header)
    table = Table()
    counts = Counter()
    for name, column in zip(header, columns, strict=True):
        if name in read_names:
            table[name] = [value.strip() for value in column]
            counts[name] += 1
    table.repeated = tuple(name for name, times in counts.items() if times > 1)
    for name in {"label", "category", "sequence", *OF_SPLIT, *_higher(header)} & set(table):
        table[name] = list(map(present, table[name]))
    return table


def _higher(names) -> list[str]:
    """Those of the names of columns that are levels above the super-class.

    They are category_2, category_3 and on, up to the first that is missing.
    """
    if "category" not in names:
        return []
    levels = (f"category_{level}" for level in itertools.count(2))
    return list(itertools.takewhile(lambda name: name in names, levels))


def _splits_of(table: dict[str, list], opt) -> list[str]:
    """train, val or test of each row. Validation rows of nobody, `--dataset_unknown_label`, are of the test set."""
    rows = list(zip(table["label"], table["split"], strict=True))
    trained = {label for label, split in rows if split == "train" and not means_nobody(label, opt)}
    splits = []
    for label, split in rows:
        if split == "validation":
            split = "val" if label in trained else "test"
        splits.append(split)
    return splits


def _role(path: Path, table: dict[str, list], column: str) -> list[bool]:
    """Whether each row has a role: all training rows do, and all rows without such a column."""
    if column not in table:
        return [True] * len(table["path"])
    role = []
    rows = zip(table[column], table["split"], strict=True)
    for row, (value, split) in enumerate(rows, start=2):
        has_role = split == "train" or TRUTH.get(value.lower())
        if has_role is None:
            place = f"--dataset_csv {path}, row {row}"
            raise UserError(f"{place}: {column} {value!r} of a validation row, expected True or False")
        role.append(has_role)
    return role


def _boxes(path: Path, table: dict[str, list]) -> list[tuple | None]:
    """The box of each row; None for the whole image."""
    if BOX[0] not in table:
        return [None] * len(table["path"])
    boxes = []
    for row, values in enumerate(zip(*(table[name] for name in BOX), strict=True), start=2):
        if not any(map(present, values)):
            boxes.append(None)
            continue
        box = _numbers(values)
        if box is None or not (0 <= box[0] < box[2] < math.inf and 0 <= box[1] < box[3] < math.inf):
            raise UserError(
                f"--dataset_csv {path}, row {row}: box {', '.join(values)}; expected 0 <= x_1 < x_2 and 0 <= y_1 < "
                "y_2, or none"
            )
        boxes.append(box)
    return boxes


def _numbers(values) -> tuple[float, ...] | None:
    """The values as numbers; None if one is no number."""
    try:
        return tuple(map(float, values))
    except ValueError:
        return None
