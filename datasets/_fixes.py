"""Corrections of labels, `--dataset_fixes FILE`: a table that the page of `python -m retrieval explore` saves.

A row names an image and what is wrong with it. Columns; the last two may be left out:

    path           the image: below the data set's folder, from the working folder, or in full
    problem        wrong label, duplicate, or no class (the image shows none of the classes)
    label          the class that the image had when it was marked; the row is refused if it has another one by now
    right_label    of a wrong label: the class to which the image belongs; empty if it is not known

An image with a right label gets this class; every other image of the table is left out. The page puts an apostrophe
before text that a spreadsheet would compute, such as `=1+1`; it is removed here.
"""

import hashlib
import os
import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from datasets._groups import rows_by_path, rows_named
from datasets._images import Image
from datasets._layout import Reading
from utilities.counts import count_of
from utilities.errors import UserError
from utilities.files import expanded
from utilities.reading import Unreadable, read_csv
from utilities.registry import did_you_mean
from utilities.splits import SPLITS, WORDS

FLAG = "--dataset_fixes"
WRONG_LABEL = "wrong label"
PROBLEMS = (WRONG_LABEL, "duplicate", "no class")
NEEDED = ("path", "problem")
COLUMNS = (*NEEDED, "label", "right_label")
GUARDED = re.compile("'+[=+\\-@\t\r\n＝＋－＠]")  # text before which the page has put an apostrophe
MOST_NAMES = 5  # classes that a note names


class Fix(NamedTuple):
    """A row of the table. `path`: as written, after `applied` that of the image below the data set's folder."""

    path: str
    problem: str
    label: str
    right_label: str


class Classes:
    """The classes of a reading before it is corrected."""

    def __init__(self, reading: Reading):
        # class -> its first image
        self.first = {}
        # class -> the splits that it is in; {None} if the data set has no split of its own
        self.splits = {}
        split_of = reading.split_of or [None] * len(reading.images)
        for image, split in zip(reading.images, split_of, strict=True):
            self.first.setdefault(image.class_name, image)
            self.splits.setdefault(image.class_name, set()).add(split)
        self.rank = {name: place for place, name in enumerate(self.first)}

    def relabelled(self, image: Image, split: str | None, name: str) -> tuple[Image, str | None]:
        """The image and its split if `name` is its class.

        It has the super-classes of this class, and is in a split that the class is in.
        """
        like = self.first[name]
        image = image._replace(class_name=name, super_name=like.super_name, higher_names=like.higher_names)
        if split in self.splits[name]:
            return image, split
        split = next(candidate for candidate in SPLITS if candidate in self.splits[name])
        return image._replace(is_query=True, is_gallery=True), split


def applied(reading: Reading, opt, root: Path) -> Reading:
    """The reading with the corrections of `--dataset_fixes`, and a note that counts them.

    If a data set has its own split and the right class of an image is in other parts only, the image goes to the first
    of these. Raises UserError for a table that cannot be read, for a row that does not fit the data set, and if a part
    of the data set loses all of its images. `--allow_partial_dataset` passes over images that are not there.
    """
    if opt.dataset_fixes is None:
        return reading
    path = expanded(opt.dataset_fixes)
    if reading.lists is not None:
        raise UserError(
            f"{FLAG} {path}: lists, not labels, say which images are relevant to a query: correct the lists, and leave "
            "it out"
        )
    classes = Classes(reading)
    fix_of, notes = _located(path, reading, classes, root, opt.allow_partial_dataset)
    images = []
    split_of = []
    n_moved = 0
    for row, image in enumerate(reading.images):
        split = reading.split_of[row] if reading.split_of is not None else None
        if row in fix_of:
            name = fix_of[row].right_label
            if not name:
                continue
            image, new_split = classes.relabelled(image, split, name)
            n_moved += new_split != split
            split = new_split
        images.append(image)
        split_of.append(split)
    order = sorted(range(len(images)), key=lambda row: classes.rank[images[row].class_name])
    if reading.split_of is not None:
        _refuse_empty_splits(path, set(reading.split_of) - set(split_of))
        reading.split_of = [split_of[row] for row in order]
    reading.images = [images[row] for row in order]
    reading.fixes = tuple(fix_of[row] for row in sorted(fix_of))
    remaining = {image.class_name for image in images}
    empty_classes = [name for name in classes.first if name not in remaining]
    reading.notes.append(_note(path, reading.fixes, n_moved, empty_classes, notes))
    return reading


def in_fingerprint(fingerprint: dict, reading: Reading) -> dict:
    """The fingerprint of a data set's files and of its corrections, if it has any."""
    if not reading.fixes:
        return fingerprint
    lines = sorted(f"{fix.path}\0{fix.right_label}\n" for fix in reading.fixes)
    fixes = hashlib.sha256(os.fsencode("".join(lines))).hexdigest()
    sha256 = hashlib.sha256(f"{fingerprint['sha256']} {fixes}".encode()).hexdigest()
    return {**fingerprint, "sha256": sha256, "fixes": fixes}


def read(path: Path) -> list[Fix]:
    """The rows of a table of corrections. Raises UserError."""
    try:
        table = read_csv(path)
    except Unreadable as error:
        raise UserError(f"{FLAG} {path}: no table of comma-separated values ({error.reason})") from error
    header = [name.strip() for name in table[0]] if table else []
    lacking = [name for name in NEEDED if name not in header]
    if lacking:
        raise UserError(f"{FLAG} {path}: no column {', '.join(lacking)} among {', '.join(header) or 'none'}")
    for number, name in enumerate(header):
        if name not in COLUMNS or name in header[:number]:
            raise UserError(f"{FLAG} {path}: column {name!r}, expected each of {', '.join(COLUMNS)} once")
    fixes = []
    for number, fields in enumerate(table[1:], start=2):
        if len(fields) != len(header):
            raise UserError(
                f"{FLAG} {path}, row {number}: {len(fields)} fields, its first row has {len(header)}: it is damaged"
            )
        fixes.append(_fix(dict(zip(header, fields, strict=True)), f"{FLAG} {path}, row {number}"))
    if not fixes:
        raise UserError(f"{FLAG} {path}: it names no image: leave it out")
    return fixes


def _fix(fields: dict[str, str], place: str) -> Fix:
    """A row of the table; `place`: of the row, for messages. Raises UserError."""
    texts = {name: _unguarded(text) for name, text in fields.items()}
    problem = texts["problem"].strip().lower()
    right_label = texts.get("right_label", "")
    if problem not in PROBLEMS:
        raise UserError(f"{place}: problem {problem!r}, expected {', '.join(PROBLEMS[:-1])} or {PROBLEMS[-1]}")
    if right_label and problem != WRONG_LABEL:
        raise UserError(f"{place}: problem {problem!r} and a right label {right_label!r}: only a {WRONG_LABEL} has one")
    return Fix(texts["path"], problem, texts.get("label", ""), right_label)


def _unguarded(text: str) -> str:
    """A field without the apostrophe that keeps a spreadsheet from computing it."""
    return text[1:] if GUARDED.match(text) else text


def _located(
    path: Path, reading: Reading, classes: Classes, root: Path, partial: bool
) -> tuple[dict[int, Fix], list[str]]:
    """Row of the reading -> its correction; and texts on rows of the table without effect. Raises UserError.

    `partial`: images that are not there are passed over.
    """
    rows_of = rows_by_path(reading.images)
    # row of the reading -> row of the table
    numbers = {}
    fix_of = {}
    counts = Counter()
    for number, fix in enumerate(read(path), start=2):
        place = f"{FLAG} {path}, row {number}"
        rows = rows_named(fix.path, rows_of, root)
        if not rows and partial:
            counts["of images that are missing"] += 1
            continue
        _check_image(fix.path, rows, place)
        row = rows[0]
        image = reading.images[row]
        _check_label(fix, image.class_name, classes, place)
        label = fix.label or image.class_name or ""
        fix = fix._replace(path=image.path.removeprefix(f"{root}{os.sep}"), label=label)
        if fix_of.setdefault(row, fix) != fix:
            raise UserError(f"{place}: {fix.path} is marked otherwise in row {numbers[row]}: remove one of them")
        if numbers.setdefault(row, number) != number:
            counts["repeated"] += 1
    return fix_of, [f"rows without effect, {reason}: {count:,}" for reason, count in counts.items()]


def _check_image(name: str, rows: list[int], place: str) -> None:
    """Raise UserError unless the path in a row of the table is that of one image."""
    if not rows:
        raise UserError(f"{place}: {name} is no image of the data set")
    if len(rows) > 1:
        raise UserError(
            f"{place}: {name} is the file of {len(rows)} images of the data set (boxes, or rows of its table): correct "
            "its table"
        )


def _check_label(fix: Fix, class_name: str | None, classes: Classes, place: str) -> None:
    """Raise UserError if an image has another class than when it was marked, and for an impossible right label."""
    if fix.label and class_name is not None and fix.label != class_name:
        raise UserError(
            f"{place}: {fix.path} was marked in class {fix.label!r}, and is of class {class_name!r} now: remove the row"
        )
    if not fix.right_label:
        return
    if fix.right_label not in classes.first:
        names = filter(None, classes.first)
        hint = did_you_mean(fix.right_label, names)
        raise UserError(f"{place}: right label {fix.right_label!r} is no class of the data set.{hint}")
    if fix.right_label == class_name:
        raise UserError(f"{place}: {fix.path} is of class {class_name!r} already: remove the row")


def _refuse_empty_splits(path: Path, empty_splits: set[str]) -> None:
    """Raise UserError if there are splits of which all images are left out."""
    for split in SPLITS:
        if split in empty_splits:
            raise UserError(f"{FLAG} {path}: no image is left in {WORDS[split]}")


def _note(path: Path, fixes: tuple[Fix, ...], n_moved: int, empty_classes: list[str], texts: list[str]) -> str:
    """The line on what the corrections change."""
    n_relabelled = sum(bool(fix.right_label) for fix in fixes)
    problems = Counter(fix.problem for fix in fixes if not fix.right_label)
    note = f"{FLAG} {path}: {count_of(n_relabelled, 'image')} relabelled, {problems.total():,} left out"
    if problems:
        counts = [f"{problems[name]:,} {name}" for name in PROBLEMS if name in problems]
        note += f" ({', '.join(counts)})"
    if n_moved:
        texts = [f"{n_moved:,} relabelled images are in another split now, that of their class", *texts]
    if empty_classes:
        names = ", ".join(map(str, empty_classes[:MOST_NAMES]))
        if len(empty_classes) > MOST_NAMES:
            names += " …"
        texts = [*texts, f"classes without an image now: {names}"]
    return "; ".join([note, *texts])
