"""Graded pairs of training images: --dataset_csv_pairs FILE, a table with the columns path_1, path_2 and grade."""

import math
from pathlib import Path
from typing import NamedTuple

import torch

from datasets._groups import rows_by_path, rows_named
from datasets._images import Image
from options.flags import Flag
from options.flags.roles import DATA
from utilities.errors import UserError
from utilities.files import expanded
from utilities.reading import Unreadable, read_records

FLAG = "--dataset_csv_pairs"
COLUMNS = ("path_1", "path_2", "grade")

FLAGS = {
    FLAG: Flag(
        str,
        None,
        "of --trainer pairs: table with the columns path_1, path_2, grade, of pairs of training images: the more alike "
        "two images, the higher their grade; paths as in --dataset_csv",
        metavar="FILE",
        role=DATA.but(fixed=None),
        rules={"only_with": {"dataset": ["csv"], "trainer": ["pairs"]}},
    ),
}


class GradedPairs(NamedTuple):
    """Pairs of training images: their rows `(P, 2)`, and their grades float64 `(P,)`."""

    rows: torch.Tensor
    grades: torch.Tensor


def read(name: str, training: list[Image], images: list[Image], root: Path | str) -> tuple[GradedPairs, list[str]]:
    """The pairs of a table whose images both train, and a note on those that are left out.

    Args:
        images: all of the data set, below `root`.

    Raises UserError for another table, for a path that is no image or several, a grade that is no finite number, an
    image with itself, a pair with two grades, and pairs that are all of one grade.
    """
    path = expanded(name)
    rows_of = rows_by_path(images)
    training_rows = rows_by_path(training)
    grade_of = {}
    n_left_out = 0
    for number, record in enumerate(_records(path), start=2):
        place = f"{FLAG} {path}, row {number}"
        grade = _grade(record["grade"], place)
        pair = []
        for column in COLUMNS[:2]:
            place_of_path = f"{place}: {column} {record[column]!r}"
            if not rows_named(record[column], rows_of, root):
                raise UserError(f"{place_of_path} is no image of the data set")
            rows = rows_named(record[column], training_rows, root)
            if len(rows) > 1:
                raise UserError(f"{place_of_path} is {len(rows)} images, boxes of one file")
            pair += rows
        if len(pair) < 2:
            n_left_out += 1
            continue
        _refuse_contradiction(tuple(pair), grade, grade_of, place)
        grade_of[tuple(pair)] = grade
    n_grades = len(set(grade_of.values()))
    if n_grades < 2:
        raise UserError(f"{FLAG} {path}: {len(grade_of)} pairs of training images of {n_grades} grades: it needs two")
    notes = [f"{FLAG}: {len(grade_of):,} pairs of training images, {n_grades:,} grades"]
    if n_left_out:
        notes.append(f"{FLAG}: {n_left_out:,} pairs are left out, as an image of theirs does not train")
    grades = torch.tensor(list(grade_of.values()), dtype=torch.float64)
    return GradedPairs(torch.tensor(list(grade_of)), grades), notes


def _records(path: Path) -> list[dict[str, str]]:
    """The rows of the table. Raises UserError if it is not such a table."""
    try:
        header, records = read_records(path)
    except Unreadable as error:
        raise UserError(f"{FLAG} {path}: {error.reason}") from error
    lacking = [column for column in COLUMNS if column not in header]
    if lacking:
        raise UserError(f"{FLAG} {path}: no column {', '.join(lacking)} among {', '.join(header)}")
    return records


def _refuse_contradiction(pair: tuple[int, int], grade: float, grade_of: dict, place: str) -> None:
    """Raise UserError for an image with itself, and for a pair that has another grade already."""
    if pair[0] == pair[1]:
        raise UserError(f"{place}: a pair of an image with itself")
    if grade_of.get(pair, grade) != grade:
        raise UserError(f"{place}: grade {grade:g}, and the pair has grade {grade_of[pair]:g} above")


def _grade(text: str, place: str) -> float:
    """A grade. Raises UserError unless it is a finite number."""
    try:
        grade = float(text)
    except ValueError:
        grade = math.nan
    if not math.isfinite(grade):
        raise UserError(f"{place}: grade {text!r}, expected a finite number")
    return grade
