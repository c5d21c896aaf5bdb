"""Text files of pairs for verification: LFW's pairs.txt, and lists of two paths and whether they show one class.

LFW: the first line says how many folds there are and how many pairs of each kind a fold has, the others are
`name i j` or `name1 i name2 j`, image i of a name being `name/name_000i` with any ending. Names may have spaces.

Lists of paths: `path1 path2 1` or `1 path1 path2` in each line, 0 for two classes, perhaps below a heading. Fields are
separated by tabs, commas or spaces; paths with spaces need tabs or commas. A path is that of a row of the features
where one of the two ends with the other, folder by folder.
"""

import csv
from pathlib import PurePath
from typing import NamedTuple

import numpy as np

from utilities.errors import UserError
from utilities.reading import Unreadable, parsing, read_text

SAME = {"1": True, "true": True, "+1": True, "0": False, "false": False, "-1": False}
EXPECTED = "a text file that begins with two numbers, as LFW's pairs.txt with 10 300, or with two paths and 1 or 0"


class TextPairs(NamedTuple):
    """Rows of the features `(P, 2)`, whether a pair is of one class `(P,)`, and the number of folds, if given."""

    rows: np.ndarray
    is_same: np.ndarray
    folds: int | None


def read(path: str, paths: np.ndarray | None) -> TextPairs:
    """The pairs of a text file. `paths`: of the rows of the features.

    Raises UserError for a file of another kind, and for images that are not among the paths, or several times.
    """
    try:
        text = read_text(path, encoding="utf-8-sig")
    except Unreadable as error:
        raise UserError(f"{path}: neither an .npz file of pairs nor {EXPECTED}") from error
    with parsing(path):
        return _of_text(path, text, paths)


def _of_text(path: str, text: str, paths: np.ndarray | None) -> TextPairs:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    header = lines[0].split() if lines else []
    is_lfw = len(header) == 2 and all(word.isdecimal() for word in header)
    is_list = any(_labelled(line) is not None for line in lines[:2])
    if not is_lfw and not is_list:
        raise UserError(f"{path}: neither an .npz file of pairs nor {EXPECTED}")
    if paths is None:
        raise UserError(f"{path} names images, and the features have no paths: --dump_embeddings writes them")
    if is_lfw:
        return _of_lfw(path, lines[1:], *map(int, header), paths)
    return _of_paths(path, lines, paths)


def _of_lfw(path: str, lines: list[str], folds: int, each: int, paths: np.ndarray) -> TextPairs:
    rows_of = {}
    for row, image in enumerate(map(str, paths)):
        rows_of.setdefault("/".join(PurePath(image).with_suffix("").parts[-2:]), []).append(row)
    rows = []
    is_same = []
    for number, line in enumerate(lines, start=1):
        readings = _lfw_readings(line)
        if not readings:
            expected = "`name i j` or `name1 i name2 j`"
            if len(line.split()) > 4:
                expected += "; between names with spaces, tabs"
            raise UserError(f"{path}: pair {number} is {line!r}, expected {expected}")
        keys = readings[0]
        for first_image, second_image in readings:
            if first_image in rows_of and second_image in rows_of:
                keys = (first_image, second_image)
                break
        rows.append([_row(path, number, key, rows_of.get(key, [])) for key in keys])
        is_same.append(keys[0].rpartition("/")[0] == keys[1].rpartition("/")[0])
    if len(rows) != 2 * folds * each:
        expected = f"{folds} folds of {each} of each kind: {2 * folds * each}"
        raise UserError(f"{path}: {len(rows)} pairs, but its first line says {expected}")
    return TextPairs(np.array(rows), np.array(is_same), folds)


def _lfw_readings(line: str) -> list[tuple[str, str]]:
    """The two images, `name/name_000i`, that a line may mean: without tabs, a name's spaces separate fields too."""
    fields = [field.strip() for field in line.split("\t")]
    separator = "\t"
    if len(fields) == 1:
        fields = line.split()
        separator = " "
    # `name i j`, then `name1 i name2 j` with each place at which the second name may begin.
    pairs = [[(separator.join(fields[:-2]), number) for number in fields[-2:]]]
    for place in range(2, len(fields) - 1):
        halves = fields[:place], fields[place:]
        pairs.append([(separator.join(half[:-1]), half[-1]) for half in halves])
    readings = []
    for pair in pairs:
        if all(name and "\t" not in name and number.isdecimal() for name, number in pair):
            readings.append(tuple(f"{name}/{name}_{int(number):04d}" for name, number in pair))
    return readings


def _of_paths(path: str, lines: list[str], paths: np.ndarray) -> TextPairs:
    # the pairs begin below the heading, where the file has one
    start = 0 if _labelled(lines[0]) is not None else 1
    finder = _PathFinder(paths)
    rows = []
    is_same = []
    for number, line in enumerate(lines[start:], start=1):
        labelled = _labelled(line)
        if labelled is None:
            expected = "two paths and 1 or 0, with tabs where paths have spaces"
            raise UserError(f"{path}: pair {number} is {line!r}, expected {expected}")
        rows.append([_row(path, number, name, finder.rows(name)) for name in labelled[:2]])
        is_same.append(labelled[2])
    return TextPairs(np.array(rows), np.array(is_same), None)


def _labelled(line: str) -> tuple[str, str, bool] | None:
    """The two paths of a line, and whether they are of one class; None where it is no such line."""
    for fields in (line.split("\t"), _comma_separated(line), line.split()):
        fields = [field.strip() for field in fields]
        if len(fields) != 3:
            continue
        if fields[2].lower() in SAME:
            return fields[0], fields[1], SAME[fields[2].lower()]
        if fields[0].lower() in SAME:
            return fields[1], fields[2], SAME[fields[0].lower()]
    return None


def _comma_separated(line: str) -> list[str]:
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []


def _row(path: str, number: int, name: str, rows: list[int]) -> int:
    """The one row that an image has. Raises UserError if it has none, or several."""
    if not rows:
        raise UserError(f"{path}: pair {number} names {name}, which is not among the paths of the features")
    if len(rows) > 1:
        raise UserError(f"{path}: pair {number} names {name}, the path of {len(rows)} rows: give more of its path")
    return rows[0]


class _PathFinder:
    """The rows of paths that a listed path may mean: those that end with it, or with which it ends."""

    def __init__(self, paths: np.ndarray):
        self.parts = [PurePath(str(path)).parts for path in paths]
        self.whole = {}
        self.ends = {}
        for row, parts in enumerate(self.parts):
            self.whole.setdefault(parts, []).append(row)

    def rows(self, name: str) -> list[int]:
        """The rows that `name` means; whole paths come before ends of paths."""
        rows = self._rows_of(PurePath(name).parts)
        return rows or self._rows_of(PurePath(name.replace("\\", "/")).parts)

    def _rows_of(self, parts: tuple[str, ...]) -> list[int]:
        for start in range(len(parts)):
            if parts[start:] in self.whole:
                return self.whole[parts[start:]]
        if len(parts) not in self.ends:
            self.ends[len(parts)] = ends = {}
            for row, longer in enumerate(self.parts):
                ends.setdefault(longer[-len(parts) :], []).append(row)
        return self.ends[len(parts)].get(parts, [])
