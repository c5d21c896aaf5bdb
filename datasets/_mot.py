"""Sequences of the MOT Challenge on disk: `gt/gt.txt`, `det/det.txt`, `img1/`, `seqinfo.ini`, and what they hold.

A row of a text file is frame, id, left, top, width, height, flag, class, visibility, separated by commas; frames and
pixels count from 1. Files with fewer columns have no class, or no visibility; -1 in their place means the same.
"""

import configparser
import functools
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from datasets import _images, _layout
from utilities.errors import UserError
from utilities.reading import parsing, read_text

GROUND_TRUTH = "gt/gt.txt"
DETECTIONS = "det/det.txt"
IMAGES = "img1"
# folders of sequences below the root -> the part that is theirs; SportsMOT has them in dataset/
PARTS = {"": "", "train": "train", "val": "val", "test": "test"}
PARTS |= {f"dataset/{part}": part for part in ("train", "val", "test")}
# MOT17 has each sequence three times, with one ground truth and three detectors; the first of these is read
DETECTORS = ("FRCNN", "SDP", "DPM")
OF_DETECTOR = re.compile(rf"(.+)-({'|'.join(DETECTORS)})")
# class or visibility of a box that has none
NONE = -1
COLUMNS = ("frame", "id", "left", "top", "width", "height", "flag")
# intersection over union of a detection and the box of ground truth that names it
LEAST_OVERLAP = 0.5


class Row(NamedTuple):
    """A row of a text file.

    Attributes:
        number: of the row, from 1.
        frame, track: number of the frame, and id; an id is unique in its sequence.
        box: x_1, y_1, x_2, y_2 in pixels, from 0.
        flag: 0: to be ignored. category: -1: none.
        visibility: from 0 to 1; None: not known.
    """

    number: int
    frame: int
    track: int
    box: tuple[float, float, float, float]
    flag: float
    category: int
    visibility: float | None


@dataclass(frozen=True)
class Sequence:
    """A folder with ground truth: its name, and the part in whose folder it lies, "" for none."""

    folder: Path
    part: str

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.name

    @functools.cached_property
    def frames(self) -> dict[int, str]:
        """Number of a frame -> path of its image. Raises UserError if there is none."""
        place = self.folder / IMAGES
        names = _layout.image_files(place) if place.is_dir() else []
        paths = {int(Path(name).stem): str(place / name) for name in names if Path(name).stem.isdecimal()}
        if not paths:
            raise UserError(f"{place}: no frames such as 000001.jpg: the sequence has {GROUND_TRUTH}, not its images")
        return paths

    @functools.cached_property
    def size(self) -> tuple[int, int]:
        """(height, width) of the frames, by the first."""
        return _images.size(self.frames[min(self.frames)])

    @functools.cached_property
    def length(self) -> int:
        """The number of frames, `seqLength` of seqinfo.ini. Raises UserError if it is not there."""
        path = self.folder / "seqinfo.ini"
        text = _settings(path).get("seqlength", "")
        if not text.isdecimal() or int(text) < 1:
            raise UserError(f"{path}: seqLength {text!r}, expected the number of frames, which --mot_split half needs")
        return int(text)

    @functools.cached_property
    def balls(self) -> set[int]:
        """Ids that are the ball by gameinfo.ini, which SoccerNet has."""
        path = self.folder / "gameinfo.ini"
        if not path.is_file():
            return set()
        names = ((name.rpartition("_")[2], text) for name, text in _settings(path).items() if "trackletid" in name)
        return {int(number) for number, text in names if number.isdecimal() and text.strip().startswith("ball")}


def _settings(path: Path) -> dict[str, str]:
    """The settings of an .ini file, names in lower case, of all sections together. Raises UserError."""
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    with parsing(path):
        try:
            parser.read_string(read_text(path, "--dataset mot needs it", encoding="utf-8-sig"))
        except configparser.Error as error:
            raise ValueError("no settings such as seqLength=600 below [Sequence]") from error
    return {name: value for section in parser.sections() for name, value in parser.items(section)}


def without_detector(name: str) -> str:
    """The name of a sequence of MOT17 without its detector; other names unchanged."""
    match = OF_DETECTOR.fullmatch(name)
    return match[1] if match else name


def sequences(root: Path) -> tuple[list[Sequence], list[str]]:
    """The sequences with ground truth below a folder, by name, each of MOT17 once; and notes on those not read.

    Raises UserError if there are none, or two of one name.
    """
    versions_by_name = {}
    without_truth = []
    for path, part in _folders(root):
        if (path / GROUND_TRUTH).is_file():
            versions_by_name.setdefault(without_detector(path.name), []).append(Sequence(path, part))
        elif (path / IMAGES).is_dir():
            without_truth.append(path.relative_to(root).as_posix())
    if not versions_by_name:
        raise UserError(
            f"--dataset_mot {root}: no sequence there, nor in its train/, val/ or test/: a sequence is a folder with "
            f"{GROUND_TRUTH} and {IMAGES}/"
        )
    chosen = [_first(versions_by_name[name]) for name in sorted(versions_by_name)]
    notes = []
    n_folders = sum(map(len, versions_by_name.values()))
    if n_folders > len(chosen):
        notes.append(
            f"{n_folders} folders are {len(chosen)} sequences: one detector of each is read, as {chosen[0].name}"
        )
    if without_truth:
        notes.append(f"sequences without {GROUND_TRUTH} are not read: {len(without_truth)}, as {without_truth[0]}")
    return chosen, notes


def _folders(root: Path) -> Iterator[tuple[Path, str]]:
    """The folders that may be sequences, each with its part."""
    for folder, part in PARTS.items():
        if (root / folder).is_dir():
            for entry in _layout.visible(root / folder):
                yield Path(entry.path), part


def _first(versions: list[Sequence]) -> Sequence:
    """The version of a sequence that is read. Raises UserError for two folders of one name, or in two parts."""
    first, *copies = sorted(versions, key=_order_of_detector)
    for version in copies:
        if version.name == first.name or version.part != first.part:
            raise UserError(f"{first.folder} and {version.folder} are one sequence: keep one of them")
    return first


def _order_of_detector(sequence: Sequence) -> int:
    match = OF_DETECTOR.fullmatch(sequence.name)
    return DETECTORS.index(match[2]) if match else 0


def read_rows(path: Path) -> list[Row]:
    """The rows of a text file. Raises UserError, with the row, for one that is damaged."""
    text = read_text(path, "--dataset mot needs it", encoding="utf-8-sig")
    return [_row(path, number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]


def _row(path: Path, number: int, line: str) -> Row:
    fields = line.strip().split(",")
    place = f"{path}, row {number}"
    if len(fields) < len(COLUMNS):
        raise UserError(f"{place}: {len(fields)} columns, expected at least {', '.join(COLUMNS)}")
    try:
        values = [float(field) for field in fields[:9]]
    except ValueError:
        values = [math.nan]
    if not all(map(math.isfinite, values)) or values[0] % 1 or values[1] % 1:
        raise UserError(f"{place}: {line.strip()!r} is not of numbers, frame and id whole ones")
    frame, track, x, y, width, height, flag, *optional = values
    if width <= 0 or height <= 0:
        raise UserError(f"{place}: a box of {width:g} x {height:g} pixels")
    category, visibility = (*optional, NONE, NONE)[:2]
    if visibility < 0:
        visibility = None
    box = (x - 1, y - 1, x - 1 + width, y - 1 + height)
    return Row(number, int(frame), int(track), box, flag, int(category), visibility)


def ground_truth(sequence: Sequence) -> list[Row]:
    """The rows of a sequence's ground truth, also those of ids below 0.

    Raises UserError for damaged rows and for an id that a frame has twice.
    """
    path = sequence.folder / GROUND_TRUTH
    rows = read_rows(path)
    seen = set()
    for row in rows:
        if row.track >= 0 and (row.frame, row.track) in seen:
            raise UserError(f"{path}, row {row.number}: frame {row.frame} has id {row.track} twice")
        seen.add((row.frame, row.track))
    return rows


def detected(sequence: Sequence, rows: list[Row]) -> list[Row]:
    """The rows of ground truth that a detection overlaps, with its box; one to one, by falling overlap."""
    detections_by_frame = by_frame(read_rows(sequence.folder / DETECTIONS))
    matched = []
    for frame, frame_rows in by_frame(rows).items():
        detections = detections_by_frame.get(frame, [])
        overlaps = overlap([row.box for row in frame_rows], [detection.box for detection in detections])
        while overlaps.size and overlaps.max() >= LEAST_OVERLAP:
            i, j = np.unravel_index(overlaps.argmax(), overlaps.shape)
            matched.append(frame_rows[i]._replace(box=detections[j].box))
            overlaps[i] = 0
            overlaps[:, j] = 0
    return matched


def by_frame(rows: Iterable[Row]) -> dict[int, list[Row]]:
    """Frame -> its rows."""
    frames = {}
    for row in rows:
        frames.setdefault(row.frame, []).append(row)
    return frames


def overlap(first: list, second: list) -> np.ndarray:
    """Intersection over union `(n, m)` of n and m boxes, each x_1, y_1, x_2, y_2."""
    a = np.array(first, dtype=np.float64).reshape(-1, 1, 4)
    b = np.array(second, dtype=np.float64).reshape(1, -1, 4)
    sides = np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2])
    intersection = sides.clip(0).prod(-1)
    areas = [(boxes[..., 2:] - boxes[..., :2]).prod(-1) for boxes in (a, b)]
    return intersection / (areas[0] + areas[1] - intersection)
