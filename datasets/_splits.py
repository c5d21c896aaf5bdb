"""From the images that a data set's module read to the four splits: the same code for all data sets.

`half`, the field's convention, is here; the schemes with folds are in `_schemes.py`.
"""

import sys
from argparse import Namespace
from pathlib import Path

import numpy as np

from datasets import (
    _cache,
    _domains,
    _download,
    _files,
    _images,
    _labels,
    _layout,
    _lists,
    _oodml,
    _schemes,
    _transforms,
)
from datasets._image_set import ImageSet
from datasets._schemes import Classes, share
from utilities.errors import UserError
from utilities.files import expanded
from utilities.flags import has_folds

DEFAULT_SOURCE_PATH = "./Datasets"
KEEP_ROLES = ("half", "predefined")  # schemes whose test set is the data set's own


def check(opt, module) -> None:
    """Refuse impossible flags before anything is read. Raises UserError."""
    _schemes.check(opt)
    if opt.use_tv_split and not 0 < opt.tv_split_perc < 1:
        raise UserError(f"--tv_split_perc {opt.tv_split_perc:g}: expected a share between 0 and 1, both excluded")
    if (
        opt.download
        and not hasattr(module, "IMAGE_SIZE")
        and not getattr(getattr(module, "DOWNLOAD", None), "archives", ())
    ):
        by_hand = f": {module.DOWNLOAD.alternatives}" if hasattr(module, "DOWNLOAD") else ""
        raise UserError(f"--download: this data set has no source to fetch from{by_hand}. Leave it out")
    if opt.dataset_unknown_label and not getattr(module, "OWN_LABELS", False):
        names = " ".join(opt.dataset_unknown_label)
        raise UserError(
            f"--dataset_unknown_label {names}: only --dataset folder, csv, shards and a union of these have such "
            "labels: leave it out"
        )
    _transforms.check(opt, whole=hasattr(module, "IMAGE_SIZE"))
    if hasattr(module, "check"):
        module.check(opt)


def parts(classes: Classes, reading: _layout.Reading, opt, keeps_test: bool) -> tuple[Classes, Classes | None, Classes]:
    """Training, validation (where the data set has its own) and test, before the flags cut validation from training.

    By the data set's folders where these name the splits, else by its list of training classes, else by the field's
    convention: the first half of the classes trains.
    """
    if reading.split_of is not None:
        by_part = {part: {} for part in _schemes.SPLITS}
        for image, part in zip(reading.images, reading.split_of, strict=True):
            if image.class_name is not None:
                by_part[part].setdefault(image.class_name, []).append(image)
        return by_part["train"], by_part["val"] or None, by_part["test"] or by_part["val"]
    names = list(classes)
    train_classes = reading.train_classes
    if train_classes is None:
        order = _schemes.mixed(names, None if keeps_test else opt.split_shuffle)
        train_classes = {names[i] for i in order[: len(names) // 2]}
    training = {name: classes[name] for name in names if name in train_classes}
    testing = {name: classes[name] for name in names if name not in train_classes}
    if not training or not testing:
        raise UserError(
            f"{len(names)} classes, {len(training)} for training and {len(testing)} for test: both need at least one"
        )
    return training, None, testing


def _images_of(classes: Classes | None) -> list | None:
    return None if classes is None else [image for images in classes.values() for image in images]


def cut_by_classes(training: Classes, opt, groups: list[list[str]] | None = None) -> tuple[Classes, Classes]:
    """The first `--tv_split_perc` of the classes of each group trains, the others validate. Both come in the order of
    `training`.

    Args:
        groups: lists of class names, each in the order in which it is cut; None: one list of all classes, in their
            order. Groups too small to have a training class are cut together.
    """
    names = list(training)
    kept = set()
    large = [group for group in groups or [names] if share(len(group), opt.tv_split_perc)]
    small = [name for group in groups or [names] if group not in large for name in group]
    for group in (*large, small):
        order = _schemes.mixed(group, opt.split_shuffle)
        kept |= {group[i] for i in order[: share(len(group), opt.tv_split_perc)]}
    if not 0 < len(kept) < len(names):
        raise UserError(
            f"--tv_split_perc {opt.tv_split_perc:g} of {len(names)} training classes leaves {len(kept)} for training "
            f"and {len(names) - len(kept)} for validation: both need at least one"
        )
    return {name: training[name] for name in names if name in kept}, {
        name: training[name] for name in names if name not in kept
    }


def cut_by_samples(training: Classes, opt) -> tuple[Classes, Classes]:
    """The first `--tv_split_perc` of each class's images trains, at least one; the others validate. A class with one
    image only trains.
    """
    first = {}
    rest = {}
    for name, images in training.items():
        order = _schemes.mixed(_schemes.image_names(images), opt.split_shuffle)
        kept = set(order[: max(share(len(images), opt.tv_split_perc), 1)])
        first[name] = [image for i, image in enumerate(images) if i in kept]
        if len(kept) < len(images):
            rest[name] = [image for i, image in enumerate(images) if i not in kept]
    if not rest:
        part = f"{opt.tv_split_perc:g}"
        raise UserError(
            f"--tv_split_perc {part} of each class's images leaves none for validation: lower it, or split by classes"
        )
    return first, rest


def _divided(
    classes: Classes, published: tuple, reading, module, opt, fold: int, root: Path
) -> tuple[list, list | None, list]:
    """The training, validation and test images by `--split_scheme`. `published`: the result of `parts`."""
    if has_folds(vars(opt)):
        if reading.split_of is not None and opt.split_scheme != "predefined":
            return _folds_of_training(published, reading, opt, fold, root)
        return _schemes.divide(classes, opt, fold, root, keeps_test=_has_split(module))
    training, validation, testing = _oodml.parts(classes, opt) if opt.split_scheme == _oodml.SCHEME else published
    if opt.use_tv_split:
        if validation is not None:
            raise UserError(f"--use_tv_split cuts validation from training, and {root} has its own: leave it out")
        groups = module.validation_groups(list(training)) if hasattr(module, "validation_groups") else None
        training, validation = (
            cut_by_samples(training, opt) if opt.tv_split_by_samples else cut_by_classes(training, opt, groups)
        )
    return tuple(map(_images_of, (training, validation, testing)))


def _folds_of_training(published: tuple, reading, opt, fold: int, root: Path) -> tuple[list, list, list]:
    """The folds of `--split_scheme` within the training part of a data set that names its own; its test part is that of
    all folds.

    A scheme that goes by classes cuts those of each domain by themselves.
    """
    training, validation, testing = published
    if validation is not None:
        raise UserError(
            f"--split_scheme {opt.split_scheme} cuts validation from training, and {root} has its own: leave it out"
        )
    without_test = Namespace(**{**vars(opt), "split_test_size": 0.0, "split_test_start": 0.0})
    groups = (
        _domains.validation_groups(list(training))
        if reading.by_domain and opt.split_scheme in _schemes.BY_CLASSES
        else [list(training)]
    )
    divided = [_schemes.divide({name: training[name] for name in group}, without_test, fold, root) for group in groups]
    training, validation = ([image for group in divided for image in group[part]] for part in (0, 1))
    return training, validation, _images_of(testing)


def _without_roles(images: list | None, reading, opt) -> list | None:
    """The images; with both roles for each where a scheme divides the classes anew, as roles belong to the data set's
    own test set.
    """
    own_split = reading.split_of is not None and opt.split_scheme != _oodml.SCHEME  # which divides all classes anew
    if (
        images is None
        or opt.split_scheme in KEEP_ROLES
        or own_split
        or all(image.is_query and image.is_gallery for image in images)
    ):
        return images
    _tell_without_roles(reading, opt)
    return [image._replace(is_query=True, is_gallery=True) for image in images]


def _tell_without_roles(reading, opt) -> None:
    """Note, once, that the data set's roles are not used."""
    note = (
        f"--split_scheme {opt.split_scheme}: query and gallery are those of the data set's own test set; here all "
        "images ask and are found"
    )
    reading.notes += [note] if note not in reading.notes else []


def of_super_classes(images: list, name: str) -> list:
    """The images in their order, with their super-classes as classes. Raises UserError where there are none, or only
    one.
    """
    supers = {image.super_name for image in images}
    if None in supers:
        raise UserError(
            f"--label_level_train 1: --dataset {name} has no super-classes; online_products, glyphs and a folder "
            "X/<super>/<class>/ do, and inshop, inaturalist2018, csv and shards"
        )
    if len(supers) < 2:
        raise UserError(
            f"--label_level_train 1: all training images are of the super-class {min(supers)!r}: training needs two"
        )
    return [
        image._replace(
            class_name=image.super_name,
            super_name=next(iter(image.higher_names), None),
            higher_names=image.higher_names[1:],
        )
        for image in images
    ]


def _has_split(module) -> bool:
    """Whether there is a published split, whose test set only the flags of a scheme's test set may change."""
    return hasattr(module, "PUBLISHED")


def labelled_reading(module, opt, root: Path) -> _layout.Reading:
    """What a data set's module reads. Labels of the user: without those that mean nobody, and with notes on them."""
    reading = module.read(opt, root)
    if getattr(module, "OWN_LABELS", False):
        reading = _labels.without_nobody(reading, opt)
        reading.notes += _labels.alike_notes(reading)
    return reading


def checked(name: str, module, opt, root: Path, reading: _layout.Reading) -> tuple[Classes, tuple, list, str | None]:
    """Of a data set's reading its classes, its `parts`, its images of no class, and how it differs from the published
    one (None: it does not).

    Raises UserError where it differs and `--allow_partial_dataset` is not given.
    """
    classes: Classes = {}
    for image in reading.images:
        if image.class_name is not None:
            classes.setdefault(image.class_name, []).append(image)
    for class_name in classes:
        if class_name != class_name.encode(errors="replace").decode():
            raise UserError(
                f"--dataset {name}: the name of class {ascii(class_name)} is no text (UTF-8): rename its folder"
            )
    if len(classes) < 2 and reading.lists is None:
        raise UserError(
            f"--dataset {name}: {len(classes)} classes with images in {root}; training and test need one each at least"
        )
    published = parts(classes, reading, opt, keeps_test=_has_split(module))
    of_none = [image for image in reading.images if image.class_name is None]
    partial = _layout.difference(
        name, module, opt, root, reading, _images_of(published[0]), _images_of(published[2]), of_none
    )
    if partial is not None:
        if not opt.allow_partial_dataset:
            fetch = (
                f"fetch it anew ({module.DOWNLOAD.alternatives})"
                if hasattr(module, "DOWNLOAD")
                else "correct the list or the files"
            )
            raise UserError(
                f"{partial}. It is incomplete or has stray files: {fetch}, or go on with --allow_partial_dataset"
            )
        print(
            f"WARNING: {partial}. Results do not compare with published ones (--allow_partial_dataset)", file=sys.stderr
        )
    return classes, published, of_none, partial or reading.partial


def images_by_split(name: str, module, opt, root: Path, reading: _layout.Reading) -> dict[str, list | None]:
    """The images of a reading: `training`, `validation`, `testing` -> images, None where there is no such split.

    Raises UserError where `build` does.
    """
    classes, published, of_none, _ = checked(name, module, opt, root, reading)
    training, validation, testing = _split(classes, published, reading, name, module, opt, 0, root)
    return {"training": training, "validation": validation, "testing": [*testing, *of_none]}


def _split(
    classes: Classes, published: tuple, reading, name: str, module, opt, fold: int, root: Path
) -> tuple[list | None, list | None, list]:
    """Training, validation and test images by the flags, with the roles that they have there; `published`: the result
    of `parts`.
    """
    is_test_only = getattr(module, "TEST_ONLY", False)
    if opt.evaluate_all and reading.lists is not None and not is_test_only:
        raise UserError(
            f"--evaluate_all: lists say what the queries of --dataset {name} find, and its training images have none: "
            "leave it out"
        )
    if opt.evaluate_all or is_test_only:
        return None, None, _images_of(classes if reading.lists is None else published[2])
    divided = _divided(classes, published, reading, module, opt, fold, root)
    return tuple(_without_roles(images, reading, opt) for images in divided)


def build(
    name: str, module, opt, source: Path, input_size: int | None, fold: int = 0, interpolation: str | None = None
) -> dict[str, ImageSet | None]:
    """The four splits of a data set, in one fold of `--split_scheme`.

    Raises UserError where it is missing, or not the published one and `--allow_partial_dataset` is not given.
    """
    check(opt, module)
    root = locate(name, module, opt, source)
    reading = labelled_reading(module, opt, root)
    classes, published, of_none, partial = checked(name, module, opt, root, reading)
    training, validation, testing = _split(classes, published, reading, name, module, opt, fold, root)
    draws = module.role_draws(opt, testing) if hasattr(module, "role_draws") else None
    if draws is not None and not (opt.evaluate_all or opt.split_scheme in KEEP_ROLES):
        _tell_without_roles(reading, opt)
        draws = None
    testing = [*testing, *of_none]
    files = _files.Files(reading.images, root)
    notes = _notes(reading, files, {"training": training, "validation": validation, "testing": testing}, opt)
    fingerprint = files.fingerprint()
    class_lists = files.class_lists({"training": training, "validation": validation, "testing": testing})
    labels = _schemes.common_labels((training, validation, testing)) if opt.split_scheme in _schemes.BY_IMAGES else None
    image_size = getattr(module, "IMAGE_SIZE", None)
    for_training, for_test = _transforms.build(opt, input_size, image_size, interpolation)
    read = _cache.reader(opt, name, root, files, grey=image_size is not None)
    splits = {}
    for split, images, transform in (
        ("training", training, for_training),
        ("validation", validation, for_test),
        ("testing", testing, for_test),
        ("evaluation", training, for_test),
    ):
        pixels = None
        if (
            image_size is not None and images is not None
        ):  # small images of one size stay in memory; evaluation shares training's
            pixels = (
                splits["training"].pixels
                if split == "evaluation"
                else _images.decode_grey([image.path for image in images], read)
            )
        supers = split == "training" and opt.label_level_train == 1
        numbers = None if supers else labels
        images = of_super_classes(images, name) if supers and images is not None else images
        splits[split] = (
            None if images is None else ImageSet(images, transform, pixels, name, split, root, numbers, read, read.text)
        )
        if images is not None:
            splits[split].partial, splits[split].notes, splits[split].fingerprint = partial, notes, fingerprint
            splits[split].class_lists, splits[split].by_domain = class_lists, reading.by_domain
            if split == "testing" and draws is not None:
                splits[split].draw_roles(np.pad(draws, ((0, 0), (0, len(of_none))), constant_values=True))
            if split == "testing" and reading.lists is not None:
                splits[split].lists = _lists.rows(reading.lists, images, opt.allow_partial_dataset)
    return splits


def _notes(reading, files: _files.Files, splits: dict, opt) -> list[str]:
    """Notes on the data to print at the start, one line each."""
    notes = list(reading.notes)
    if opt.split_scheme == _oodml.SCHEME:
        by_file = _oodml.of_file(opt).get("fid")
        notes.append(
            f"ooDML split {opt.oodml_id} of {opt.oodml_file}"
            + (f", whose FID is {by_file:.4g} by the file" if by_file is not None else "")
        )
    if opt.split_shuffle is not None:
        notes.append(f"--split_shuffle {opt.split_shuffle}: the order is mixed before it is cut")
    if not reading.made:
        transparent = files.transparent()
        if transparent is not None:
            notes.append(f"there are images with transparency: white stands behind them, as behind {transparent}")
        notes.append(_files.dark_16_bit(files.paths))
        notes += [_files.repeated(splits), _files.copies_found(*files.copies(), splits)]
    return [note for note in notes if note is not None]


def source_of(module, opt) -> Path:
    """The parent folder of a data set by the flags, else its default."""
    return expanded(opt.source_path or getattr(module, "default_source_path", lambda: DEFAULT_SOURCE_PATH)())


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
