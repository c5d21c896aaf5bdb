"""Division of the images into training, validation and test, fold by fold: `--split_scheme`.

A scheme is a function of counts and flags only; it gives each fold's indices of training, validation and test. `half`,
which has no folds, is in `_splits.py`.
"""

import hashlib
import os
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np

from datasets import _oodml
from datasets._images import Image
from options.flags.shared import has_folds
from utilities.errors import UserError
from utilities.reading import Unreadable, read_json
from utilities.registry import did_you_mean
from utilities.splits import SPLITS

Classes = dict[str, list[Image]]  # class name -> its images, classes in order


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
    has_folds = opt.split_scheme in BY_CLASSES or opt.split_scheme in BY_IMAGES
    return sets(opt) if has_folds else 1


def sets(opt) -> int:
    """How many of the parts serve once as validation: by default all."""
    return opt.split_partitions if opt.split_sets is None else opt.split_sets


def has_validation(opt) -> bool:
    """Whether the flags keep data for validation. Raises UserError for a split file that cannot be read."""
    if not has_folds(vars(opt)):
        return opt.use_tv_split
    return opt.split_scheme != "predefined" or (opt.split_file is not None and "val" in read_split_file(opt.split_file))


def check(opt) -> None:
    """Refuse flags that no data set can satisfy. Raises UserError."""
    if opt.split_file is not None and opt.split_scheme != "predefined":
        raise UserError(
            f"--split_file is read by --split_scheme predefined alone, not by {opt.split_scheme}: leave one of them out"
        )
    _oodml.check(opt)
    if not has_folds(vars(opt)):
        return
    if opt.use_tv_split:
        raise UserError(
            f"--use_tv_split cuts validation from --split_scheme half, and {opt.split_scheme} has its own: leave it out"
        )
    if opt.split_scheme == "predefined":
        _check_predefined(opt)
    else:
        _check_folds(opt)


def _check_predefined(opt) -> None:
    scheme = f"--split_scheme {opt.split_scheme}"
    if opt.split_shuffle is not None:
        raise UserError(
            f"--split_shuffle {opt.split_shuffle}: {scheme} names the content of each split, so there is no order to "
            "shuffle. Leave it out"
        )
    if opt.split_file is None:
        raise UserError(f"{scheme} needs --split_file splits.json: train, val and test with class names or image paths")
    read_split_file(opt.split_file)


def _check_folds(opt) -> None:
    if not 0 < opt.split_test_size < 1:
        raise UserError(f"--split_test_size {opt.split_test_size:g}: expected a share between 0 and 1, both excluded")
    if not 0 <= opt.split_test_start < 1:
        raise UserError(f"--split_test_start {opt.split_test_start:g}: expected a share from 0 to below 1")
    if opt.split_partitions < 2:
        raise UserError(
            f"--split_partitions {opt.split_partitions} must be at least 2: one part validates while the others train"
        )
    if not 1 <= sets(opt) <= opt.split_partitions:
        raise UserError(f"--split_sets {opt.split_sets} must be from 1 to --split_partitions {opt.split_partitions}")


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
    first_image = np.cumsum(sizes) - sizes  # of each class
    position = np.arange(len(class_of)) - first_image[class_of]  # of an image within its class
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
BY_IMAGES = {"closed_set": closed_set, "index": index}  # with these a class has the same label in all splits


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
    moved_to = np.arange(len(names))  # position -> position after the shuffle
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
        return [_predefined(classes, images, opt.split_file, root)]
    sizes = np.array([len(class_images) for class_images in classes.values()], dtype=np.int64)
    class_of = np.repeat(np.arange(len(sizes)), sizes)  # image -> its class
    if opt.split_scheme in BY_IMAGES:
        of_images = BY_IMAGES[opt.split_scheme](sizes, opt)
        _refuse_empty(of_images, len(images), "images", opt)
        groups = class_of if opt.split_scheme == "closed_set" else None
        return _shuffled(of_images, image_names(images), opt, keeps_test, groups)
    of_classes = BY_CLASSES[opt.split_scheme](len(classes), opt)
    _refuse_empty(of_classes, len(classes), "classes", opt)
    of_images = []
    for fold in _shuffled(of_classes, list(classes), opt, keeps_test):
        training, validation, testing = (np.flatnonzero(np.isin(class_of, part)) for part in fold)
        of_images.append(Fold(training, validation, testing))
    return of_images


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


def read_split_file(path: str) -> dict[str, list[str]]:
    """Split -> names, from `--split_file`. Raises UserError if it is missing, not JSON, or has another form."""
    try:
        content = read_json(os.path.expanduser(path))
    except Unreadable as error:
        raise UserError(f"--split_file {path}: {error.reason}") from error
    if not isinstance(content, dict) or not {"train", "test"} <= set(content) <= set(SPLITS):
        keys = ", ".join(map(str, content)) if isinstance(content, dict) else type(content).__name__
        raise UserError(
            f"--split_file {path}: expected an object with train, test and optionally val, found {keys or 'nothing'}"
        )
    for split, names in content.items():
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            raise UserError(
                f"--split_file {path}: {split} must be a list of class names or image paths, with one at least"
            )
    return content


def _predefined(classes: Classes, images: list[Image], path: str, root: Path | str) -> Fold:
    """The one fold of a split file; images that it does not name are left out.

    An entry is a class, or an image's path, absolute or below `root`.
    """
    class_rows = defaultdict(list)
    path_rows = defaultdict(list)  # a file with several boxes is several images
    for row, image in enumerate(images):
        class_rows[image.class_name].append(row)
        path_rows[os.path.normpath(image.path)].append(row)

    def rows_of(name: str) -> list[int]:
        if name in classes:
            return class_rows[name]
        return path_rows.get(os.path.normpath(os.path.join(root, name)), [])

    split_of = np.full(len(images), -1)
    content = read_split_file(path)
    for number, split in enumerate(SPLITS):
        for name in content.get(split, ()):
            rows = rows_of(name)
            if not rows:
                raise UserError(
                    f"--split_file {path}: {split} names {name!r}, no class and no image of the data set."
                    f"{did_you_mean(name, classes)}"
                )
            earlier = set(split_of[rows].tolist()) - {-1}
            if earlier:
                earlier_split = SPLITS[min(earlier)]
                splits = f"twice in {split}" if earlier_split == split else f"in {earlier_split} and in {split}"
                raise UserError(f"--split_file {path}: {name!r} is {splits}: splits must be disjoint, name it once")
            split_of[rows] = number
    training, validation, testing = (np.flatnonzero(split_of == number) for number in range(len(SPLITS)))
    if "val" not in content:
        validation = None
    return Fold(training, validation, testing)


def common_labels(parts) -> dict[str, int]:
    """Class name -> label for all splits of a fold, training classes first, so that their labels are 0..C-1."""
    labels = {}
    for images in parts:
        for image in images or ():
            labels.setdefault(image.class_name, len(labels))
    return labels
