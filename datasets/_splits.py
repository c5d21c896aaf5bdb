"""From what a data set's module read to the four splits: the same code for all of them.

`half`, the field's habit, is here; the schemes with folds are in `_schemes.py`.
"""

import sys
from pathlib import Path

from datasets import _download, _images, _layout, _schemes, _transforms
from datasets._images import ImageSet
from datasets._schemes import Classes, share
from utilities.errors import UserError
from utilities.flags import has_folds


def check(opt, module) -> None:
    """Refuse what cannot work before anything is read. Raises UserError."""
    _schemes.check(opt)
    if opt.use_tv_split and not 0 < opt.tv_split_perc < 1:
        raise UserError(f"--tv_split_perc {opt.tv_split_perc:g}: expected a share between 0 and 1, both excluded")
    if opt.download and not hasattr(module, "DOWNLOAD") and not hasattr(module, "IMAGE_SIZE"):
        raise UserError("--download: this data set has no source to fetch from. Leave it out")
    _transforms.check(opt, whole=hasattr(module, "IMAGE_SIZE"))
    if hasattr(module, "check"):
        module.check(opt)


def halves(classes: Classes, train_classes: set[str] | None) -> tuple[Classes, Classes]:
    """Training and test by the field's habit: the first half of the classes trains, unless the data set says which do."""
    names = list(classes)
    if train_classes is None:
        train_classes = set(names[: len(names) // 2])
    training = {name: classes[name] for name in names if name in train_classes}
    testing = {name: classes[name] for name in names if name not in train_classes}
    if not training or not testing:
        raise UserError(f"{len(names)} classes, {len(training)} for training and {len(testing)} for test: both need at least one")
    return training, testing


def half(training: Classes, testing: Classes, opt) -> tuple[Classes, Classes | None, Classes]:
    """The halves, with validation cut from training where the flags ask for it."""
    if not opt.use_tv_split:
        return training, None, testing
    cut = cut_by_samples if opt.tv_split_by_samples else cut_by_classes
    return *cut(training, opt.tv_split_perc), testing


def _images_of(classes: Classes | None) -> list | None:
    return None if classes is None else [image for images in classes.values() for image in images]


def cut_by_classes(training: Classes, part: float) -> tuple[Classes, Classes]:
    """The first share of the classes trains, the others validate."""
    names = list(training)
    n_training = share(len(names), part)
    if not 0 < n_training < len(names):
        raise UserError(
            f"--tv_split_perc {part:g} of {len(names)} training classes leaves {n_training} for training and {len(names) - n_training} for "
            "validation: both need at least one"
        )
    return {name: training[name] for name in names[:n_training]}, {name: training[name] for name in names[n_training:]}


def cut_by_samples(training: Classes, part: float) -> tuple[Classes, Classes]:
    """The first share of each class's images trains, at least one; the others validate. A class with one image validates nothing."""
    cuts = {name: max(share(len(images), part), 1) for name, images in training.items()}
    validation = {name: images[cuts[name] :] for name, images in training.items() if len(images) > cuts[name]}
    if not validation:
        raise UserError(f"--tv_split_perc {part:g} of each class's images leaves none for validation: lower it, or split by classes")
    return {name: images[: cuts[name]] for name, images in training.items()}, validation


def build(name: str, module, opt, source: Path, input_size: int | None, fold: int = 0) -> dict[str, ImageSet | None]:
    """The four splits of a data set, in one fold of `--split_scheme`.

    Raises UserError where it is missing, or not the published one and `--allow_partial_dataset` is not given.
    """
    check(opt, module)
    root = _locate(name, module, opt, source)
    reading = module.read(opt, root)
    classes: Classes = {}
    for image in reading.images:
        classes.setdefault(image.class_name, []).append(image)
    if len(classes) < 2:
        raise UserError(f"--dataset {name}: {len(classes)} classes with images in {root}; training and test need one each at least")
    published = halves(classes, reading.train_classes)
    partial = _layout.difference(name, module, root, reading, *map(_images_of, published))
    if partial is not None:
        if not opt.allow_partial_dataset:
            way_out = f"fetch it anew ({module.DOWNLOAD.alternatives})"
            raise UserError(f"{partial}. It is incomplete or has stray files: {way_out}, or go on with --allow_partial_dataset")
        print(f"WARNING: {partial}. Results do not compare with published ones (--allow_partial_dataset)", file=sys.stderr)

    if has_folds(vars(opt)):
        training, validation, testing = _schemes.divide(classes, opt, fold, root)
    else:
        training, validation, testing = map(_images_of, half(*published, opt))
    labels = _schemes.common_labels((training, validation, testing)) if opt.split_scheme in _schemes.BY_IMAGES else None
    image_size = getattr(module, "IMAGE_SIZE", None)
    for_training, for_test = _transforms.build(opt, input_size, image_size)
    splits = {}
    for split, images, transform in (
        ("training", training, for_training), ("validation", validation, for_test), ("testing", testing, for_test),
        ("evaluation", training, for_test),
    ):  # fmt: skip
        pixels = None
        if image_size is not None and images is not None:  # small images of one size stay in memory; evaluation shares training's
            pixels = splits["training"].pixels if split == "evaluation" else _images.decode_grey([image.path for image in images])
        splits[split] = None if images is None else ImageSet(images, transform, pixels, name, split, root, labels)
        if images is not None:
            splits[split].partial, splits[split].notes = partial, reading.notes
    return splits


def _locate(name: str, module, opt, source: Path) -> Path:
    """The data set's folder: made or named by the module itself, found under `source`, or downloaded to there."""
    if hasattr(module, "prepare"):
        return module.prepare(opt, source)
    root = _layout.find(name, module, source)
    if root is None and opt.download:
        _download.fetch(name, module.DOWNLOAD, source)
        root = _layout.find(name, module, source)
    if root is None:
        raise _layout.not_found(name, module, source)
    return root
