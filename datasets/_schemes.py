"""Division of the images into training, validation and test, fold by fold: `--split_scheme`.

A scheme is a function of counts and flags only; it gives each fold's indices of training, validation and test. `half`,
which has no folds, is in `_splits.py`.
"""

import hashlib
import math
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from datasets import _groups, _held_out, _split_file, _times
from datasets._images import Image
from options.flags.shared import has_folds
from utilities.counts import count_of
from utilities.errors import UserError

# class name -> its images, classes in order
Classes = dict[str, list[Image]]


class Fold(NamedTuple):
    """Ascending indices of classes or of images."""

    training: np.ndarray
    validation: np.ndarray | None
    testing: np.ndarray


def share(count: int, part: float) -> int:
    """The share `part` of `count`, rounded down, up to float error: .29 of 100 is 29."""
    return int(count * part + 1e-6)


def count(opt) -> int:
    """The number of folds that the flags make."""
    return 1 if opt.split_scheme == "predefined" or not has_folds(vars(opt)) else sets(opt)


def sets(opt) -> int:
    """How many of the parts serve once as validation: by default all."""
    return opt.split_partitions if opt.split_sets is None else opt.split_sets


def has_validation(opt) -> bool:
    """Whether the flags keep data for validation. Raises UserError for a split file that cannot be read."""
    if not has_folds(vars(opt)):
        return opt.use_tv_split
    return opt.split_scheme != "predefined" or (
        opt.split_file is not None and "val" in _split_file.read(opt.split_file)
    )


def mixed(names: list[str], seed: int | None) -> list[int]:
    """The indices of `names` in the order in which they are cut: unchanged, or shuffled by `--split_shuffle`.

    The order is that of a hash of seed and name: independent of package versions, and unchanged for the others when a
    name is added.
    """
    order = range(len(names))
    if seed is None:
        return list(order)
    digests = [hashlib.sha256(os.fsencode(f"{seed} {name}")).digest() for name in names]
    return sorted(order, key=digests.__getitem__)


def image_names(images: list[Image]) -> list[str]:
    """The names by which images are shuffled; independent of the data set's location."""
    return [f"{image.class_name}/{os.path.basename(image.path)}" for image in images]


def class_disjoint(n: int, opt) -> list[Fold]:
    """Folds of classes: test is `[n * start, n * (start + size))`, wrapping round the end.

    The others, in order, are cut into equal parts. Bounds are rounded down, as in `half`. Where the parts cannot be
    equal, the first ones get one more. Fold i validates on part i and trains on all other parts.
    """
    begin = share(n, opt.split_test_start)
    end = share(n, opt.split_test_start + opt.split_test_size)
    testing, remaining = _wrapped(n, begin, end - begin)
    parts = np.array_split(remaining, opt.split_partitions)
    folds = []
    for i in range(sets(opt)):
        training = np.concatenate(parts[:i] + parts[i + 1 :])
        folds.append(Fold(training, parts[i], testing))
    return folds


def mlrc(n: int, opt) -> list[Fold]:
    """The Reality Check's folds (arXiv 2003.08505): fold p of P trains from position p/P of the other classes on.

    It validates on the classes that follow, wrapping round. Every fold trains on equally many classes; if the parts are
    not equal, a few classes never validate.
    """
    partitions = opt.split_partitions
    testing, remaining = _wrapped(n, share(n, opt.split_test_start), share(n, opt.split_test_size))
    n_validation = share(n, (1 - opt.split_test_size) / partitions)
    n_training = len(remaining) - n_validation
    folds = []
    for p in range(sets(opt)):
        rolled = np.roll(remaining, -(p * len(remaining) // partitions))
        folds.append(Fold(np.sort(rolled[:n_training]), np.sort(rolled[n_training:]), testing))
    return folds


def closed_set(sizes: np.ndarray, opt) -> list[Fold]:
    """Folds of images: the rule of `class_disjoint` within every class of `sizes` images.

    The images that are not test are dealt to the parts in turn, across classes, so that the parts of a class and the
    parts as a whole are equal to within one image. Every class trains in every fold: at least one of its images is not
    test, and where only one is not, it never validates.
    """
    begin = np.floor(sizes * opt.split_test_start + 1e-6).astype(np.int64)
    end = np.floor(sizes * (opt.split_test_start + opt.split_test_size) + 1e-6).astype(np.int64)
    n_testing = np.minimum(end - begin, sizes - 1)
    class_of = np.repeat(np.arange(len(sizes)), sizes)
    # index of the first image of each class
    first_image = np.cumsum(sizes) - sizes
    # position of each image within its class
    position = np.arange(len(class_of)) - first_image[class_of]
    is_test = (position - begin[class_of]) % sizes[class_of] < n_testing[class_of]
    may_validate = (sizes - n_testing > 1)[class_of]
    dealt = np.flatnonzero(~is_test & may_validate)
    part = np.full(len(class_of), -1)
    part[dealt] = np.arange(len(dealt)) % opt.split_partitions
    testing = np.flatnonzero(is_test)
    return [Fold(np.flatnonzero(~is_test & (part != i)), np.flatnonzero(part == i), testing) for i in range(sets(opt))]


def index(sizes: np.ndarray, opt) -> list[Fold]:
    """The rule of `class_disjoint` for images in class order, regardless of their class."""
    return class_disjoint(int(sizes.sum()), opt)


BY_CLASSES = {"class_disjoint": class_disjoint, "mlrc": mlrc}
FOLDS_OF_IMAGES = {"closed_set": closed_set, "index": index}
# with these a class has the same label in all splits
BY_IMAGES = {**FOLDS_OF_IMAGES, **_held_out.SCHEMES}


def _wrapped(n: int, begin: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """`length` numbers below `n` from `begin` on, wrapping round the end, and the others; both ascending."""
    chosen = np.zeros(0, dtype=bool)
    if n:
        chosen = (np.arange(n) - begin) % n < length
    return np.flatnonzero(chosen), np.flatnonzero(~chosen)


def _shuffled(
    folds: list[Fold], names: list[str], opt, keeps_test: bool, groups: np.ndarray | None = None
) -> list[Fold]:
    """The folds after the permutation of `--split_shuffle`.

    Args:
        folds: of positions in the unshuffled order.
        names: the name at each position. groups: ascending numbers; positions are permuted only within a group of equal
            numbers.
        keeps_test: the test set is left unchanged.
    """
    if opt.split_shuffle is None:
        return folds
    # position -> position after the shuffle
    moved_to = np.arange(len(names))
    movable = np.setdiff1d(moved_to, folds[0].testing) if keeps_test else moved_to.copy()
    order = np.array(mixed([names[i] for i in movable], opt.split_shuffle), dtype=np.int64)
    if groups is not None:
        order = order[np.argsort(groups[movable][order], kind="stable")]
    moved_to[movable] = movable[order]
    shuffled = []
    for fold in folds:
        training, validation, testing = (np.sort(moved_to[part]) for part in fold)
        shuffled.append(Fold(training, validation, testing))
    return shuffled


def divide(
    classes: Classes, opt, fold: int, root: Path | str, keeps_test: bool = False
) -> tuple[list, list | None, list]:
    """The training, validation and test images of one fold, in the data set's order.

    Args:
        keeps_test: `--split_shuffle` leaves the test set unchanged, as the data set has a published split.

    Raises UserError if the flags leave one of them empty, there is no such fold, or the split file does not fit.
    """
    if not 0 <= fold < count(opt):
        raise UserError(
            f"fold {fold}: --split_scheme {opt.split_scheme} makes {count(opt)} (--split_sets), counted from 0"
        )
    images = [image for class_images in classes.values() for image in class_images]
    all_folds = folds(classes, images, opt, root, keeps_test)
    _verify(all_folds, len(images))
    training, validation, testing = all_folds[fold]
    validation_images = None
    if validation is not None:
        validation_images = _at(validation, images)
    return _at(training, images), validation_images, _at(testing, images)


def _at(rows: np.ndarray, images: list[Image]) -> list[Image]:
    """The images of these rows."""
    return [images[row] for row in rows.tolist()]


def folds(classes: Classes, images: list[Image], opt, root: Path | str = "", keeps_test: bool = False) -> list[Fold]:
    """Every fold's indices in `images`, the images of `classes` in order. Raises UserError as `divide`."""
    if opt.split_scheme == "predefined":
        return [Fold(*_split_file.rows_of_splits(classes, images, opt.split_file, root))]
    if opt.split_scheme in _held_out.SCHEMES:
        return [_fold_of_known_classes(classes, images, opt)]
    has_groups = any(image.group is not None for image in images)
    if opt.split_scheme == "closed_set" and has_groups:
        all_folds = _closed_set_of_groups(table_of(classes, images, opt), opt)
        _refuse_empty(all_folds, len(images), "images", opt)
        return all_folds
    sizes = np.array([len(class_images) for class_images in classes.values()], dtype=np.int64)
    # image -> its class
    class_of = np.repeat(np.arange(len(sizes)), sizes)
    if opt.split_scheme in FOLDS_OF_IMAGES:
        all_folds = FOLDS_OF_IMAGES[opt.split_scheme](sizes, opt)
        _refuse_empty(all_folds, len(images), "images", opt)
        blocks = class_of if opt.split_scheme == "closed_set" else None
        all_folds = _shuffled(all_folds, image_names(images), opt, keeps_test, blocks)
        leaders = _groups.leading_rows(_groups.numbers_of(images)) if has_groups else None
        return _following(all_folds, leaders, opt)
    of_classes = BY_CLASSES[opt.split_scheme](len(classes), opt)
    _refuse_empty(of_classes, len(classes), "classes", opt)
    all_folds = []
    for fold in _shuffled(of_classes, list(classes), opt, keeps_test):
        training, validation, testing = (np.flatnonzero(np.isin(class_of, part)) for part in fold)
        all_folds.append(Fold(training, validation, testing))
    leaders = _groups.leading_rows(_units(list(classes), images)[class_of]) if has_groups else None
    return _following(all_folds, leaders, opt)


def _units(names: list[str], images: list[Image]) -> np.ndarray:
    """The number of each class's unit `(C,)`: classes that share a group, directly or over further ones, are one."""
    leader_of = _groups.leading_classes(images)
    number_of = {name: number for number, name in enumerate(names)}
    return np.array([number_of[leader_of[name]] for name in names])


def _following(all_folds: list[Fold], leaders: np.ndarray | None, opt) -> list[Fold]:
    """The folds in which each image is where its leading image `(N,)` is; None: every image is its own.

    Raises UserError if a part is empty then.
    """
    if leaders is None:
        return all_folds
    followed = []
    for fold in all_folds:
        part_of = np.full(len(leaders), _held_out.LEFT_OUT)
        for number, rows in enumerate(fold):
            part_of[rows] = number
        parts = [np.flatnonzero(part_of[leaders] == number) for number in range(len(fold))]
        is_needed = [True, True, opt.split_test_size > 0]
        if not all(len(part) for part, needed in zip(parts, is_needed, strict=True) if needed):
            raise UserError(
                f"--split_scheme {opt.split_scheme}: the groups of --split_groups join so many images that training, "
                "validation or test of a fold is empty: look at the notes of --check_data, or lower --split_partitions"
            )
        followed.append(Fold(*parts))
    return followed


def table_of(classes: Classes, images: list[Image], opt) -> _held_out.Table:
    """What the schemes of `_held_out.py` know of the images of `classes`, in order."""
    names = list(classes)
    sizes = [len(class_images) for class_images in classes.values()]
    times = [math.nan if image.time is None else image.time for image in images]
    return _held_out.Table(
        np.repeat(np.arange(len(sizes)), sizes),
        _groups.numbers_of(images),
        np.array(times),
        np.array(mixed(image_names(images), opt.split_shuffle), dtype=np.int64),
        np.array(mixed(names, opt.split_shuffle), dtype=np.int64),
        _units(names, images),
    )


def _closed_set_of_groups(table: _held_out.Table, opt) -> list[Fold]:
    """Folds of whole groups, as those of `closed_set` of images.

    Test has about --split_test_size of each class. The other groups are dealt to the parts in turn, across classes, but
    for the first group of a class, which trains in every fold.
    """
    is_test = _held_out.held_out(table, table.sizes * opt.split_test_size)
    is_dealt = ~is_test & ~_held_out.training_groups(table)
    order = table.image_order[np.argsort(table.classes[table.image_order], kind="stable")]
    dealt_groups = list(dict.fromkeys(table.groups[order[is_dealt[order]]].tolist()))
    if is_test.any() and len(dealt_groups) < opt.split_partitions:
        raise UserError(
            f"--split_partitions {opt.split_partitions} is too many: {count_of(len(dealt_groups), 'group')} of images "
            "left for validation, as the first group of each class trains in every fold and others test"
        )
    part_of_group = np.full(int(table.groups.max()) + 1, -1)
    part_of_group[dealt_groups] = np.arange(len(dealt_groups)) % opt.split_partitions
    part = part_of_group[table.groups]
    testing = np.flatnonzero(is_test)
    return [Fold(np.flatnonzero(~is_test & (part != i)), np.flatnonzero(part == i), testing) for i in range(sets(opt))]


def _fold_of_known_classes(classes: Classes, images: list[Image], opt) -> Fold:
    """The one division of a scheme of `_held_out.py`. Raises UserError if no image trains, or none tests."""
    split = _held_out.SCHEMES[opt.split_scheme](table_of(classes, images, opt), opt)
    training = np.flatnonzero(split == _held_out.TRAINING)
    testing = np.flatnonzero(split == _held_out.TEST)
    if not len(training) or not len(testing):
        raise UserError(
            f"--split_scheme {opt.split_scheme}: of {len(images):,} images {len(training):,} train, {len(testing):,} "
            f"test: both need at least one{_times_of(images)}"
        )
    return Fold(training, None, testing)


def _times_of(images: list[Image]) -> str:
    """The first and the last time of the images as text; empty without any."""
    times = [image.time for image in images if image.time is not None]
    return f"; their times are {_times.text_of(min(times))} to {_times.text_of(max(times))}" if times else ""


def _refuse_empty(folds: list[Fold], n: int, units: str, opt) -> None:
    n_test = len(folds[0].testing)
    if opt.split_test_size and not 0 < n_test < n:
        raise UserError(
            f"--split_test_size {opt.split_test_size:g} of {n:,} {units} from --split_test_start "
            f"{opt.split_test_start:g} leaves {n_test} for test and {n - n_test} for training: both need at least one"
        )
    has_empty_part = any(not len(fold.training) or not len(fold.validation) for fold in folds)
    if opt.split_partitions > n - n_test or has_empty_part:
        raise UserError(
            f"--split_partitions {opt.split_partitions} is too many for the {n - n_test:,} {units} that are not test: "
            "training and validation need at least one in each fold"
        )


def _verify(folds: list[Fold], n: int) -> None:
    """Assert what every scheme promises.

    Splits are disjoint in each fold, validation is disjoint over folds, test is the same in all.
    """
    validated = np.zeros(n, dtype=np.int64)
    for fold in folds:
        times = np.zeros(n, dtype=np.int64)
        for part in fold:
            if part is not None:
                np.add.at(times, part, 1)
        assert times.max() <= 1, "an image is in two splits"
        assert np.array_equal(fold.testing, folds[0].testing), "the test images differ between folds"
        if fold.validation is not None:
            validated[fold.validation] += 1
    assert validated.max() <= 1, "an image validates in two folds"


def common_labels(parts) -> dict[str, int]:
    """Class name -> label for all splits of a fold, training classes first, so that their labels are 0..C-1."""
    labels = {}
    for images in parts:
        for image in images or ():
            labels.setdefault(image.class_name, len(labels))
    return labels
