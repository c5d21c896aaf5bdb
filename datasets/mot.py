"""Tracks of persons, or of anything, in films: the files of the MOT Challenge, --dataset_mot ROOT.

ROOT, ROOT/train, ROOT/val and ROOT/test hold sequences: folders with gt/gt.txt and img1/, as MOT17, MOT20, DanceTrack,
SportsMOT and SoccerNet have them (`_mot.py`). A track is a class, `SEQUENCE_ID`, as ids start again in each sequence.
Its crops of --mot_gap frames are a block, which stands for a camera: the crops of a query's own block are ignored, and
the first crop of each track and block is a query.

`python -m datasets.mot ROOT --out crops.csv [--write DIR]` writes the same crops as a table for --dataset csv.
"""

from collections import Counter
from pathlib import Path

from datasets import _mot, _reid
from datasets._images import Image, uncollected
from datasets._layout import Reading
from datasets._mot import Row, Sequence
from options.flags import Flag
from options.flags.roles import DATA
from utilities.errors import UserError
from utilities.files import expanded
from utilities.numbers import number, whole

EVALUATION_METRICS = _reid.EVALUATION_METRICS
derived = _reid.unset

FLAGS = {
    "--dataset_mot": Flag(
        str,
        None,
        "folder of sequences with gt/gt.txt and img1/, in it or in its train/, val/ and test/: MOT17, MOT20, "
        "DanceTrack, SportsMOT, SoccerNet",
        metavar="ROOT",
        # the folder may move
        role=DATA.but(fixed=None),
    ),
    "--mot_boxes": Flag(
        str,
        "gt",
        "gt: the boxes of the ground truth; det: those of det/det.txt, each with the id of the box that it overlaps "
        "by half or more, one to one",
        choices=["gt", "det"],
    ),
    "--mot_classes": Flag(
        whole(), [1], "classes of boxes that are read; boxes of class -1, none, always are", nargs="+"
    ),
    "--mot_visibility": Flag(number(0, 1), 0.0, "least visible share of a box, for files that have it"),
    "--mot_min_side": Flag(whole(1), 16, "least side of a crop in pixels, within the frame"),
    "--mot_stride": Flag(whole(1), 5, "every n-th box of a track is read: neighbours are near-duplicates"),
    "--mot_gap": Flag(whole(1), 30, "frames in a block; a query's own block of its track is ignored"),
    "--mot_split": Flag(
        str,
        "folders",
        "folders: train/ trains, test/ tests, if it has ground truth, and val/ validates, else val/ tests; half: of "
        "each sequence the first half of the frames trains, the second tests; sequences: --mot_test_sequences test",
        choices=["folders", "half", "sequences"],
    ),
    "--mot_val_sequences": Flag(
        str,
        None,
        "training sequences that validate",
        nargs="+",
        metavar="SEQUENCE",
        rules={"only_with": {"mot_split": ["folders", "sequences"]}},
    ),
    "--mot_test_sequences": Flag(
        str,
        None,
        "sequences that test",
        nargs="+",
        metavar="SEQUENCE",
        rules={"only_with": {"mot_split": ["sequences"]}},
    ),
}


def check(opt) -> None:
    """The folder is needed, and test sequences for a split by sequences. Raises UserError."""
    if opt.dataset_mot is None:
        raise UserError("--dataset mot needs --dataset_mot ROOT, a folder of sequences with gt/gt.txt and img1/")
    if opt.mot_split == "sequences" and not opt.mot_test_sequences:
        raise UserError("--mot_split sequences needs --mot_test_sequences SEQUENCE, the sequences that test")


def has_validation(opt) -> bool:
    """Whether sequences validate. Raises UserError as `read`."""
    root = expanded(opt.dataset_mot or "")
    return bool(opt.dataset_mot) and root.is_dir() and "val" in parts(_mot.sequences(root)[0], root, opt)


def prepare(opt, source: Path) -> Path:
    """The folder that the flag names. Raises UserError if there is none."""
    root = expanded(opt.dataset_mot)
    if not root.is_dir():
        raise UserError(f"--dataset_mot {root}: no such folder")
    return root


def parts(sequences: list[Sequence], root: Path, opt) -> list[str | None]:
    """train, val or test of each sequence; None under --mot_split half, which divides each. Raises UserError."""
    if opt.mot_split == "half":
        return [None] * len(sequences)
    if opt.mot_split == "sequences":
        by_sequence = ["train"] * len(sequences)
    else:
        by_sequence = [sequence.part for sequence in sequences]
        if "test" not in by_sequence:
            by_sequence = ["test" if part == "val" else part for part in by_sequence]
        if "" in by_sequence or not {"train", "test"} <= set(by_sequence):
            raise UserError(
                f"--dataset_mot {root}: --mot_split folders needs sequences with ground truth in train/ and in val/ or "
                "test/: take --mot_split half, or sequences with --mot_test_sequences"
            )
    names = [_mot.without_detector(sequence.name) for sequence in sequences]
    for part, sequence_names in {"val": opt.mot_val_sequences, "test": opt.mot_test_sequences}.items():
        flag = f"--mot_{part}_sequences"
        for name in sequence_names or ():
            if _mot.without_detector(name) not in names:
                raise UserError(f"{flag} {name}: no such sequence; there are {', '.join(names)}")
            row = names.index(_mot.without_detector(name))
            if by_sequence[row] != "train":
                raise UserError(f"{flag} {name}: the sequence is in {by_sequence[row]} already")
            by_sequence[row] = part
    if "train" not in by_sequence:
        raise UserError(f"--dataset_mot {root}: all {len(names)} sequences validate or test, and none trains")
    return by_sequence


@uncollected()
def read(opt, root: Path) -> Reading:
    """The crops by track, sequences by name, tracks by id, and the frames of a track in order.

    Raises UserError for a damaged row, a row whose frame is not there, and if nothing is left.
    """
    sequences, notes = _mot.sequences(root)
    reading = Reading([], split_of=[], notes=notes)
    counts = Counter()
    for sequence, part in zip(sequences, parts(sequences, root, opt), strict=True):
        _add(reading, sequence, part, _rows(sequence, opt, counts), opt)
    n_rows = counts.pop("rows")
    left_out = ", ".join(f"{count:,} {reason}" for reason, count in counts.items() if count) or "none"
    note = f"{n_rows:,} rows of ground truth, {len(reading.images):,} crops; left out: {left_out}"
    if not reading.images:
        raise UserError(f"--dataset_mot {root}: {note}: nothing is left")
    reading.notes.append(note)
    if opt.mot_split == "half":
        reading.notes.append("--mot_split half: the same persons, in later frames, are in training and test")
    return reading


def _rows(sequence: Sequence, opt, counts: Counter) -> list[Row]:
    """The rows that become crops, their boxes within the frame, by track and frame; counts the others by reason."""
    rows = _mot.ground_truth(sequence)
    path = sequence.folder / _mot.GROUND_TRUTH
    absent = next((row for row in rows if row.frame not in sequence.frames), None)
    if absent is not None and not opt.allow_partial_dataset:
        raise UserError(f"{path}, row {absent.number}: frame {absent.frame} is not in {sequence.folder / _mot.IMAGES}")
    unseen = next((row for row in rows if row.visibility is None), None)
    if opt.mot_visibility and unseen is not None:
        raise UserError(f"--mot_visibility {opt.mot_visibility:g}: {path}, row {unseen.number}, has no visibility")
    counts["rows"] += len(rows)
    if opt.mot_boxes == "det":
        matched = _mot.detected(sequence, [row for row in rows if row.track >= 0])
        anonymous = [row for row in rows if row.track < 0]
        counts["without a detection"] += len(rows) - len(matched) - len(anonymous)
        rows = matched + anonymous
    fitting = []
    for row in rows:
        row = row._replace(box=_within(row.box, sequence.size))
        reason = _reason(row, sequence, opt)
        if reason is None:
            fitting.append(row)
        else:
            counts[reason] += 1
    fitting.sort(key=lambda row: (row.track, row.frame))
    # track -> place of its next box among its boxes
    places = Counter()
    crops = []
    for row in fitting:
        if places[row.track] % opt.mot_stride == 0:
            crops.append(row)
        places[row.track] += 1
    counts[f"between the boxes of --mot_stride {opt.mot_stride}"] += len(fitting) - len(crops)
    return crops


def _reason(row: Row, sequence: Sequence, opt) -> str | None:
    """Why a row becomes no crop; None if it does."""
    x_1, y_1, x_2, y_2 = row.box
    reasons = {
        "with an id below 0": row.track < 0,
        "with flag 0": row.flag == 0,
        "of other classes": row.category not in (-1, *opt.mot_classes),
        "of the ball": row.track in sequence.balls,
        "below --mot_visibility": row.visibility is not None and row.visibility < opt.mot_visibility,
        f"smaller than --mot_min_side {opt.mot_min_side}": min(x_2 - x_1, y_2 - y_1) < opt.mot_min_side,
    }
    return next((reason for reason, applies in reasons.items() if applies), None)


def _within(box: tuple, size: tuple[int, int]) -> tuple[float, float, float, float]:
    """The part of a box in a frame of `size`, (height, width)."""
    height, width = size
    x_1, y_1, x_2, y_2 = box
    return max(x_1, 0), max(y_1, 0), min(x_2, width), min(y_2, height)


def _add(reading: Reading, sequence: Sequence, part: str | None, rows: list[Row], opt) -> None:
    """Add the crops of a sequence, with their roles if they test or validate."""
    blocks = set()
    for row in rows:
        split = part
        if split is None:
            split = "train" if row.frame <= sequence.length // 2 + 1 else "test"
        class_name = f"{sequence.name}_{row.track}"
        block = f"{class_name} {(row.frame - 1) // opt.mot_gap}"
        path = sequence.frames.get(row.frame)
        if path is None:
            reading.missing.append(str(sequence.folder / _mot.IMAGES / f"{row.frame:06d}.jpg"))
            continue
        is_first = (split, block) not in blocks
        blocks.add((split, block))
        reading.images.append(
            Image(
                path,
                class_name,
                is_query=split == "train" or is_first,
                sequence=block,
                box=row.box,
                camera=sequence.name,
                frame=row.frame,
            )
        )
        reading.split_of.append(split)


if __name__ == "__main__":
    from datasets._mot_table import run

    run()
