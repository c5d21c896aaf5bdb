"""A data set as it lies on disk: found or fetched, read, and compared with what is published.

`locate` finds the folder, `read_labelled` reads it, `check` groups the images by class and part: `Contents`. How flags
divide the parts further is in `_splits.py`.
"""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from datasets import _download, _fixes, _groups, _labels, _layout, _schemes
from datasets._images import Image
from datasets._schemes import Classes
from utilities.errors import UserError
from utilities.files import expanded
from utilities.splits import SPLITS

DEFAULT_SOURCE_PATH = "./Datasets"


class Parts(NamedTuple):
    """Classes of training, of validation (None if the data set has no such part) and of test."""

    training: Classes
    validation: Classes | None
    testing: Classes


@dataclass(frozen=True)
class Contents:
    """A data set whose images are read and counted.

    Attributes:
        name, module, root: the data set, and the folder where it was found.
        reading: what its module read.
        classes: class name -> its images.
        parts: its own training, validation and test classes, before flags cut validation from training.
        classless: images without a class.
        partial: a text on how it differs from the published one; None if it does not.
    """

    name: str
    module: ModuleType
    root: Path
    reading: _layout.Reading
    classes: Classes
    parts: Parts
    classless: list[Image]
    partial: str | None


def source_of(module, opt) -> Path:
    """The parent folder of a data set by the flags, else its default."""
    if opt.source_path:
        return expanded(opt.source_path)
    if hasattr(module, "default_source_path"):
        return expanded(module.default_source_path())
    return expanded(DEFAULT_SOURCE_PATH)


def locate(name: str, module, opt, source: Path) -> Path:
    """The data set's folder: made or named by the module itself, found under `source`, or downloaded to it."""
    if hasattr(module, "prepare"):
        return module.prepare(opt, source)
    root = _layout.find(name, module, source)
    if root is None and opt.download:
        _download.fetch(name, module.DOWNLOAD, source)
        root = _layout.find(name, module, source)
    if root is None:
        raise _layout.not_found(name, module, source)
    return root


def read_labelled(module, opt, root: Path) -> _layout.Reading:
    """What a data set's module reads, with the groups of --split_groups.

    Labels of users: corrected, without those that mean nobody, and with notes on them.
    """
    reading = module.read(opt, root)
    if getattr(module, "OWN_LABELS", False):
        reading = _fixes.applied(reading, opt, root)
        reading = _labels.without_nobody(reading, opt)
        reading.notes += _labels.alike_notes(reading)
    _groups.resolve(reading, opt, root)
    return reading


def check(name: str, module, opt, root: Path, reading: _layout.Reading) -> Contents:
    """Group the images of a reading by class and part.

    Raises UserError if there are too few classes, or if the data set differs from the published one and
    `--allow_partial_dataset` is not given.
    """
    classes = by_class(image for image in reading.images if image.class_name is not None)
    for class_name in classes:
        if class_name != class_name.encode(errors="replace").decode():
            raise UserError(
                f"--dataset {name}: the name of class {ascii(class_name)} is no text (UTF-8): rename its folder"
            )
    if len(classes) < 2 and reading.lists is None:
        number = "1 class" if classes else "no class"
        items = "images" if reading.rows is None else "rows"
        raise UserError(f"--dataset {name}: {number} with {items} in {root}; training and test need one each at least")
    parts = parts_of(classes, reading, opt, keeps_test=has_split(module))
    classless = [image for image in reading.images if image.class_name is None]
    partial = _layout.difference(
        f"{name} in {root}",
        reading,
        _layout.published_counts(module, opt),
        images_of(parts.training),
        images_of(parts.testing),
        classless,
    )
    if partial is not None:
        _accept_partial(partial, module, opt)
    return Contents(name, module, root, reading, classes, parts, classless, partial or reading.partial)


def _accept_partial(partial: str, module, opt) -> None:
    """Print that the data set is not the published one. Raises UserError unless the flags allow it."""
    if not opt.allow_partial_dataset:
        remedy = "correct the list or the files"
        if hasattr(module, "DOWNLOAD"):
            remedy = f"fetch it anew ({module.DOWNLOAD.alternatives})"
        raise UserError(
            f"{partial}. It is incomplete or has stray files: {remedy}, or go on with --allow_partial_dataset"
        )
    print(f"WARNING: {partial}. Results do not compare with published ones (--allow_partial_dataset)", file=sys.stderr)


def has_split(module) -> bool:
    """Whether there is a published split, whose test set only the flags of a scheme's test set may change."""
    return hasattr(module, "PUBLISHED")


def parts_of(classes: Classes, reading: _layout.Reading, opt, keeps_test: bool) -> Parts:
    """Training, validation and test, before the flags cut validation from training.

    By the data set's own split if it has one, else by its list of training classes, else by the field's convention: the
    first half of the classes trains. `keeps_test`: --split_shuffle leaves the test set unchanged.
    """
    if reading.split_of is not None:
        by_split = {split: {} for split in SPLITS}
        for image, split in zip(reading.images, reading.split_of, strict=True):
            if image.class_name is not None:
                by_split[split].setdefault(image.class_name, []).append(image)
        return Parts(by_split["train"], by_split["val"] or None, by_split["test"] or by_split["val"])
    names = list(classes)
    train_classes = reading.train_classes
    if train_classes is None:
        seed = None if keeps_test else opt.split_shuffle
        order = _schemes.mixed(names, seed)
        train_classes = {names[i] for i in order[: len(names) // 2]}
        if opt.split_scheme == "half":
            train_classes = _groups.follow(train_classes, classes)
    training = {}
    testing = {}
    for name in names:
        part = training if name in train_classes else testing
        part[name] = classes[name]
    if not training or not testing:
        raise UserError(
            f"{len(names)} classes, {len(training)} for training and {len(testing)} for test: both need at least one"
        )
    return Parts(training, None, testing)


def by_class(images: Iterable[Image]) -> Classes:
    """Class -> its images, classes in the order of their first images."""
    classes: Classes = {}
    for image in images:
        classes.setdefault(image.class_name, []).append(image)
    return classes


def images_of(classes: Classes | None) -> list[Image] | None:
    """The images of all classes, in order; None for None."""
    if classes is None:
        return None
    return [image for images in classes.values() for image in images]
