"""Splits in which training classes are tested too: by time, with unknown classes, and by whole groups of images.

A scheme takes a `Table` and returns the split of each image: 0 training, 2 test (`utilities.splits.SPLITS`), -1 left
out. The images of a group have one split.
"""

import math
from typing import NamedTuple

import numpy as np

from datasets import _times
from utilities.errors import UserError

TRAINING = 0
TEST = 2
LEFT_OUT = -1
LEAST_TIMED = 0.9  # share of the images that must have a time
TOLERANCE = 1e-6  # of shares and products of shares


class Table(NamedTuple):
    """What a scheme knows of the N images of C classes, in class order.

    Attributes:
        classes: `(N,)`, the number of each image's class.
        groups: `(N,)`, the number of each image's group.
        times: `(N,)`, in seconds (`_times.py`), NaN for none.
        image_order: `(N,)`, the rows in the order in which images are taken (that of `--split_shuffle`).
        class_order: `(C,)`, the classes in the order in which they are taken.
        units: `(C,)`, equal for classes that share a group, directly or over further classes.
    """

    classes: np.ndarray
    groups: np.ndarray
    times: np.ndarray
    image_order: np.ndarray
    class_order: np.ndarray
    units: np.ndarray

    @property
    def sizes(self) -> np.ndarray:
        """The number of images of each class `(C,)`."""
        return np.bincount(self.classes, minlength=len(self.units))


def half_up(value: float) -> int:
    """The nearest whole number, the higher one of two."""
    return math.floor(value + 0.5 + TOLERANCE)


def held_out(table: Table, targets: np.ndarray) -> np.ndarray:
    """Which images are held out from training, bool `(N,)`: whole groups, about `targets` `(C,)` images of each class.

    In the order of the table a group is held out if that brings the number of its class nearer to the target. The first
    group of a class trains. A group of several classes is decided by the first of them.
    """
    of_class = table.image_order[np.argsort(table.classes[table.image_order], kind="stable")]
    rows_of_classes = np.split(of_class, np.cumsum(table.sizes)[:-1])
    rows_of_group = _rows_by_number(table.groups)
    training_groups = {int(table.groups[rows[0]]) for rows in rows_of_classes if len(rows)}
    is_held_out = np.zeros(len(table.classes), dtype=bool)
    for rows, target in zip(rows_of_classes, targets.tolist(), strict=True):
        count = int(is_held_out[rows].sum())
        groups, first, sizes = np.unique(table.groups[rows], return_index=True, return_counts=True)
        for position in np.argsort(first).tolist():
            group = int(groups[position])
            size = int(sizes[position])
            is_decided = group in training_groups or is_held_out[rows_of_group[group][0]]
            if is_decided or abs(count + size - target) >= abs(count - target):
                continue
            is_held_out[rows_of_group[group]] = True
            count += size
    return is_held_out


def _rows_by_number(numbers: np.ndarray) -> list[np.ndarray]:
    """The rows of each number from 0 on."""
    return np.split(np.argsort(numbers, kind="stable"), np.cumsum(np.bincount(numbers))[:-1])


def training_groups(table: Table) -> np.ndarray:
    """Whether an image is of the first group of a class, bool `(N,)`."""
    order = table.image_order
    _, first = np.unique(table.classes[order], return_index=True)
    return np.isin(table.groups, table.groups[order[first]])


def time_cutoff(table: Table, opt) -> np.ndarray:
    """The split of each image `(N,)`: before --split_time training, then test, after --split_time_end left out.

    A group is where its first image is in time; an image without a time is where its group is, alone it is left out.
    """
    times = _group_times(table, opt)
    begin = _times.seconds(opt.split_time)
    split = np.where(times < begin, TRAINING, TEST)
    if opt.split_time_end is not None:
        split[times >= _times.end(opt.split_time_end)] = LEFT_OUT
    split[np.isnan(times)] = LEFT_OUT
    return split


def time_proportion(table: Table, opt) -> np.ndarray:
    """The split of each image `(N,)`: the first dates of each class train, the last ones test.

    Of m dates min(m - 1, round(r m)) train, halves rounded up, r = 1 - --split_test_size; a lone date trains. A group
    is where its first image is in time; one of several classes trains if it does in one of them.
    """
    times = _group_times(table, opt)
    is_timed = ~np.isnan(times)
    days = np.floor(times / _times.DAY)
    is_training = np.zeros(len(times), dtype=bool)
    for rows in _rows_by_number(table.classes):
        rows = rows[is_timed[rows]]
        dates = np.unique(days[rows])
        n_training = len(dates)
        if n_training > 1:
            n_training = min(n_training - 1, half_up((1 - opt.split_test_size) * n_training))
        is_training[rows] = np.isin(days[rows], dates[:n_training])
    is_training = np.isin(table.groups, table.groups[is_training])
    return np.where(is_training, TRAINING, np.where(is_timed, TEST, LEFT_OUT))


def _group_times(table: Table, opt) -> np.ndarray:
    """The earliest time of each image's group `(N,)`, NaN if none of its images has one.

    Raises UserError if too few images have a time.
    """
    n_timed = int((~np.isnan(table.times)).sum())
    if n_timed < LEAST_TIMED * len(table.times) - TOLERANCE:
        raise UserError(
            f"--split_scheme {opt.split_scheme}: {n_timed:,} of {len(table.times):,} images have a time "
            f"({n_timed / len(table.times):.0%}), and {LEAST_TIMED:.0%} are needed; times are those of EXIF data "
            "(--dataset folder) or of the column time (--dataset csv)"
        )
    earliest = np.full(int(table.groups.max()) + 1, math.inf)
    np.minimum.at(earliest, table.groups, np.where(np.isnan(table.times), math.inf, table.times))
    earliest[np.isinf(earliest)] = math.nan
    return earliest[table.groups]


def open_set(table: Table, opt) -> np.ndarray:
    """The split of each image `(N,)`: unknown classes test alone, the others train and test.

    Classes, joined by their groups, are taken until they hold the share --split_unknown of the images. Of a known class
    of n images round(r' n) train, at least 1 and at most n - 1, with r' such that the share of all training images is
    1 - --split_test_size (`known_share`).

    Raises UserError if no class is left.
    """
    sizes = table.sizes
    n_images = len(table.classes)
    is_unknown = np.zeros(len(sizes), dtype=bool)
    for number in table.class_order.tolist():
        if sizes[is_unknown].sum() >= opt.split_unknown * n_images - TOLERANCE:
            break
        is_unknown |= table.units == table.units[number]
    if is_unknown.all():
        raise UserError(
            f"--split_unknown {opt.split_unknown:g} leaves none of the {len(sizes):,} classes for training: lower it"
        )
    n_unknown = int(sizes[is_unknown].sum())
    share = known_share(n_images, n_unknown, 1 - opt.split_test_size)
    targets = np.array([size - known_training(size, share) for size in sizes.tolist()])
    targets[is_unknown] = 0
    is_test = held_out(table, targets) | is_unknown[table.classes]
    return np.where(is_test, TEST, TRAINING)


def known_share(n_images: int, n_unknown: int, share: float) -> float:
    """The share of the images of known classes that trains, so that `share` of all images does; from 0 to 1."""
    return min(max(share * n_images / (n_images - n_unknown), 0.0), 1.0)


def known_training(size: int, share: float) -> int:
    """How many of a known class's images train: at least 1, and at most all but one."""
    return max(1, min(half_up(share * size), size - 1))


SCHEMES = {"time_proportion": time_proportion, "time_cutoff": time_cutoff, "open_set": open_set}
