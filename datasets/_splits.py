"""From a data set's images to its splits: the same code for all data sets.

`build` returns the four splits as `ImageSet`s. `half`, the field's convention, is here; the schemes with folds are
in `_schemes.py`. Roles (query, gallery) belong to the data set's own test set: a scheme that divides the classes
anew drops them.
"""

from argparse import Namespace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from datasets import (
    _cache,
    _domains,
    _files,
    _fixes,
    _groups,
    _held_out,
    _images,
    _lists,
    _oodml,
    _pairs,
    _reading,
    _rows,
    _schemes,
    _several,
    _split_report,
    _split_rules,
    _transforms,
)
from datasets._image_set import ImageSet, Origin
from datasets._images import Image
from datasets._reading import Contents, by_class, images_of
from datasets._schemes import Classes, share
from options.flags.shared import OF_KNOWN_CLASSES, has_folds
from utilities.errors import UserError

# schemes whose test set is the data set's own
KEEP_ROLES = ("half", "predefined")


class Division(NamedTuple):
    """The images of each split; None if there is no such split. Test images without a class are not among them."""

    training: list[Image] | None
    validation: list[Image] | None
    testing: list[Image]


def check(opt, module) -> None:
    """Refuse impossible flags before anything is read. Raises UserError."""
    _split_rules.check(opt)
    if opt.use_tv_split and not 0 < opt.tv_split_perc < 1:
        raise UserError(f"--tv_split_perc {opt.tv_split_perc:g}: expected a share between 0 and 1, both excluded")
    is_rendered = hasattr(module, "IMAGE_SIZE")
    download = getattr(module, "DOWNLOAD", None)
    if opt.download and not is_rendered and (download is None or not download.archives):
        by_hand = "" if download is None else f": {download.alternatives}"
        raise UserError(f"--download: this data set has no source to fetch from{by_hand}. Leave it out")
    if opt.dataset_unknown_label and not getattr(module, "OWN_LABELS", False):
        names = " ".join(opt.dataset_unknown_label)
        raise UserError(
            f"--dataset_unknown_label {names}: only --dataset folder, csv, shards and a union of these have such "
            "labels: leave it out"
        )
    if opt.dataset_fixes is not None and (opt.dataset == "union" or not getattr(module, "OWN_LABELS", False)):
        raise UserError(
            f"--dataset_fixes {opt.dataset_fixes}: only labels of --dataset folder, csv and shards are corrected: "
            "leave it out"
        )
    _transforms.check(opt, shown_whole=is_rendered)
    if hasattr(module, "check"):
        module.check(opt)


def cut_by_classes(training: Classes, opt, groups: list[list[str]] | None = None) -> tuple[Classes, Classes]:
    """The first `--tv_split_perc` of the classes of each group, which trains, and the others, which validate.

    Both come in the order of `training`.

    Args:
        groups: lists of class names, each in the order in which it is cut; None: one list of all classes, in their
            order. Groups too small to have a training class are cut together.
    """
    names = list(training)
    groups = groups or [names]
    large = [group for group in groups if share(len(group), opt.tv_split_perc)]
    small = [name for group in groups if group not in large for name in group]
    train_names = set()
    for group in (*large, small):
        order = _schemes.mixed(group, opt.split_shuffle)
        train_names |= {group[i] for i in order[: share(len(group), opt.tv_split_perc)]}
    train_names = _groups.follow(train_names, training)
    if not 0 < len(train_names) < len(names):
        raise UserError(
            f"--tv_split_perc {opt.tv_split_perc:g} of {len(names)} training classes leaves {len(train_names)} for "
            f"training and {len(names) - len(train_names)} for validation: both need at least one"
        )
    remaining = {}
    validation = {}
    for name in names:
        part = remaining if name in train_names else validation
        part[name] = training[name]
    return remaining, validation


def cut_by_samples(training: Classes, opt) -> tuple[Classes, Classes]:
    """The first `--tv_split_perc` of each class's images, at least one, which train; the others validate.

    A class with a single image only trains. With --split_groups whole groups validate, as test of `closed_set`.
    """
    if any(image.group is not None for image in images_of(training)):
        remaining, validation = _cut_by_groups(training, opt)
    else:
        remaining, validation = _cut_by_images(training, opt)
    if not validation:
        raise UserError(
            f"--tv_split_perc {opt.tv_split_perc:g} of each class's images leaves none for validation: lower it, or "
            "split by classes"
        )
    return remaining, validation


def _cut_by_images(training: Classes, opt) -> tuple[Classes, Classes]:
    remaining = {}
    validation = {}
    for name, images in training.items():
        order = _schemes.mixed(_schemes.image_names(images), opt.split_shuffle)
        train_rows = set(order[: max(share(len(images), opt.tv_split_perc), 1)])
        remaining[name] = [image for row, image in enumerate(images) if row in train_rows]
        if len(train_rows) < len(images):
            validation[name] = [image for row, image in enumerate(images) if row not in train_rows]
    return remaining, validation


def _cut_by_groups(training: Classes, opt) -> tuple[Classes, Classes]:
    images = images_of(training)
    table = _schemes.table_of(training, images, opt)
    n_training = [max(share(size, opt.tv_split_perc), 1) for size in table.sizes.tolist()]
    validates = _held_out.held_out(table, table.sizes - n_training)
    remaining = by_class(image for image, is_held_out in zip(images, validates, strict=True) if not is_held_out)
    return remaining, by_class(image for image, is_held_out in zip(images, validates, strict=True) if is_held_out)


def divide(contents: Contents, opt, fold: int = 0) -> Division:
    """The images of each split by the flags, with the roles that they have there."""
    reading = contents.reading
    is_test_only = getattr(contents.module, "TEST_ONLY", False)
    if opt.evaluate_all and reading.lists is not None and not is_test_only:
        raise UserError(
            f"--evaluate_all: lists say what the queries of --dataset {contents.name} find, and its training images "
            "have none: leave it out"
        )
    if opt.evaluate_all or is_test_only:
        testing = contents.classes if reading.lists is None else contents.parts.testing
        return Division(None, None, images_of(testing))
    division = _by_scheme(contents, opt, fold)
    testing = [*division.testing, *contents.classless]
    _groups.refuse_divided({"training": division.training, "validation": division.validation, "test": testing}, opt)
    return Division(*(_without_roles(images, reading, opt) for images in division))


def _by_scheme(contents: Contents, opt, fold: int) -> Division:
    """The images of each split by `--split_scheme`."""
    reading = contents.reading
    if opt.split_scheme in OF_KNOWN_CLASSES:
        training, validation, testing = _schemes.divide(contents.classes, opt, fold, contents.root)
        if opt.use_tv_split:
            training, validation = map(images_of, _cut(by_class(training), contents.module, opt))
        return Division(training, validation, testing)
    if has_folds(vars(opt)):
        if reading.split_of is not None and opt.split_scheme != "predefined":
            return _folds_of_training(contents, opt, fold)
        keeps_test = _reading.has_split(contents.module)
        return Division(*_schemes.divide(contents.classes, opt, fold, contents.root, keeps_test))
    training, validation, testing = contents.parts
    if opt.split_scheme == _oodml.SCHEME:
        training, validation, testing = _oodml.parts(contents.classes, opt)
    if opt.use_tv_split:
        if validation is not None:
            raise UserError(
                f"--use_tv_split cuts validation from training, and {contents.root} has its own: leave it out"
            )
        training, validation = _cut(training, contents.module, opt)
    return Division(images_of(training), images_of(validation), images_of(testing))


def _cut(training: Classes, module, opt) -> tuple[Classes, Classes]:
    """Training and validation of --use_tv_split."""
    if opt.tv_split_by_samples:
        return cut_by_samples(training, opt)
    groups = module.validation_groups(list(training)) if hasattr(module, "validation_groups") else None
    return cut_by_classes(training, opt, groups)


def _folds_of_training(contents: Contents, opt, fold: int) -> Division:
    """The folds of `--split_scheme` in the training part of a data set with its own split; all have its test part.

    A scheme that goes by classes cuts those of each domain separately.
    """
    classes, validation_classes, testing = contents.parts
    if validation_classes is not None:
        raise UserError(
            f"--split_scheme {opt.split_scheme} cuts validation from training, and {contents.root} has its own: leave "
            "it out"
        )
    without_test = Namespace(**{**vars(opt), "split_test_size": 0.0, "split_test_start": 0.0})
    groups = [list(classes)]
    if contents.reading.by_domain and opt.split_scheme in _schemes.BY_CLASSES:
        groups = _domains.validation_groups(list(classes))
    training = []
    validation = []
    for group in groups:
        group_classes = {name: classes[name] for name in group}
        group_training, group_validation, _ = _schemes.divide(group_classes, without_test, fold, contents.root)
        training += group_training
        validation += group_validation
    return Division(training, validation, images_of(testing))


def _without_roles(images: list | None, reading, opt) -> list | None:
    """The images, each as query and gallery image if a scheme divides the classes anew."""
    divides_anew = opt.split_scheme in (_oodml.SCHEME, *OF_KNOWN_CLASSES)
    has_own_split = reading.split_of is not None and not divides_anew
    if images is None or opt.split_scheme in KEEP_ROLES or has_own_split:
        return images
    if all(image.is_query and image.is_gallery for image in images):
        return images
    _note_without_roles(reading, opt)
    return [image._replace(is_query=True, is_gallery=True) for image in images]


def _note_without_roles(reading, opt) -> None:
    """Note, once, that the data set's roles are not used."""
    note = (
        f"--split_scheme {opt.split_scheme}: query and gallery are roles of the data set's own test set; here every "
        "image has both"
    )
    if note not in reading.notes:
        reading.notes.append(note)


def of_super_classes(images: list, name: str) -> list:
    """The images with their super-classes as classes. Raises UserError if there are none, or only one."""
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
    coarser = []
    for image in images:
        next_super = image.higher_names[0] if image.higher_names else None
        coarser.append(
            image._replace(class_name=image.super_name, super_name=next_super, higher_names=image.higher_names[1:])
        )
    return coarser


def images_by_split(contents: Contents, opt) -> dict[str, list | None]:
    """`training`, `validation`, `testing` -> images, None if there is no such split. Raises UserError as `build`."""
    return _with_classless(divide(contents, opt), contents)


def _with_classless(division: Division, contents: Contents) -> dict[str, list | None]:
    return {**division._asdict(), "testing": [*division.testing, *contents.classless]}


def build(name: str, module, opt, source: Path, shape: _transforms.Shape, fold: int = 0) -> dict[str, ImageSet | None]:
    """The four splits of a data set, in one fold of `--split_scheme`; those that there are not are None.

    Raises UserError if it is missing, or not the published one and `--allow_partial_dataset` is not given.
    """
    check(opt, module)
    width = _rows.width_of(module, opt)
    _rows.check_input(name, width, shape.input_size)
    root = _reading.locate(name, module, opt, source)
    reading = _reading.read_labelled(module, opt, root)
    contents = _reading.check(name, module, opt, root, reading)
    division = divide(contents, opt, fold)
    draws = _role_draws(contents, division.testing, opt)
    images = _with_classless(division, contents)

    files = _files.Files(reading.images, root) if width is None else _rows.RowFiles(reading.images, root, reading.rows)
    notes = _notes(reading, files, images, opt)
    notes += _split_report.lines(division, contents.classes, opt)
    fingerprint = _fixes.in_fingerprint(files.fingerprint(), reading)
    class_lists = files.class_lists(images)

    # side of small images, which stay in memory; None for others
    image_size = getattr(module, "IMAGE_SIZE", None)
    if width is None:
        transforms = _transforms.build(opt, shape.input_size, image_size, shape.interpolation, shape.multiple)
        read = _cache.reader(opt, name, root, files, grey=image_size is not None)
    else:
        _rows.check_parts(name, images)
        transforms = [_rows.NoTransform(width)] * 2
        read = reading.rows
    training_transform, test_transform = transforms
    labels = _schemes.common_labels(division) if opt.split_scheme in _schemes.BY_IMAGES else None
    splits = {}
    for split, split_images in {**images, "evaluation": images["training"]}.items():
        if split_images is None:
            splits[split] = None
            continue
        pixels = None
        if image_size is not None:
            pixels = splits["training"].pixels if split == "evaluation" else _decoded(split_images, read)
        split_labels = labels
        if split == "training" and opt.label_level_train == 1:
            split_images = of_super_classes(split_images, name)
            split_labels = None
        transform = training_transform if split == "training" else test_transform
        origin = Origin(name, split, root)
        images_of_split = ImageSet(split_images, transform, pixels, labels=split_labels, read=read, origin=origin)
        images_of_split.partial = contents.partial
        images_of_split.notes = notes
        images_of_split.fingerprint = fingerprint
        images_of_split.class_lists = class_lists
        images_of_split.by_domain = reading.by_domain
        images_of_split.fixes = reading.fixes
        images_of_split.width = width
        splits[split] = images_of_split
        if reading.several_labels:
            _set_several(split, images_of_split, split_images, opt)
    if draws is not None:
        splits["testing"].draw_roles(draws)
    _set_relations(splits, images, reading, root, opt)
    return splits


def _set_relations(splits: dict, images: dict, reading, root: Path, opt) -> None:
    """Give training images the graded pairs of `--dataset_csv_pairs`, and test images their lists."""
    training = splits["training"]
    if opt.dataset_csv_pairs is not None and training is not None:
        training.graded_pairs, notes = _pairs.read(opt.dataset_csv_pairs, images["training"], reading.images, root)
        # All splits share this list of notes.
        training.notes += notes
    if reading.lists is not None:
        splits["testing"].lists = _lists.rows(reading.lists, images["testing"], opt.allow_partial_dataset)


def _set_several(split: str, dataset: ImageSet, images: list[Image], opt) -> None:
    """Give training images all of their labels, and queries of other splits what shares one."""
    if split == "training":
        _several.number(dataset, images)
    elif split != "evaluation" or "train" in vars(opt).get("splits_to_eval", ["train"]):
        dataset.lists = _several.lists_of(images)


def _decoded(images: list[Image], read):
    return _images.decode_grey([image.path for image in images], read)


def _role_draws(contents: Contents, testing: list[Image], opt) -> np.ndarray | None:
    """The random galleries of the test images, bool `(D, N)`, with distractors in each; None if roles are not drawn."""
    if not hasattr(contents.module, "role_draws"):
        return None
    draws = contents.module.role_draws(opt, testing)
    if draws is None:
        return None
    if not (opt.evaluate_all or opt.split_scheme in KEEP_ROLES):
        _note_without_roles(contents.reading, opt)
        return None
    return np.pad(draws, ((0, 0), (0, len(contents.classless))), constant_values=True)


def _notes(reading, files: _files.Files, images: dict, opt) -> list[str]:
    """Notes on the data to print at the start, one line each."""
    notes = list(reading.notes)
    if opt.split_scheme in OF_KNOWN_CLASSES and len(set(reading.split_of or ())) > 1:
        notes.append(f"--split_scheme {opt.split_scheme} divides all images anew: the data set's own split is not used")
    if opt.split_scheme == _oodml.SCHEME:
        note = f"ooDML split {opt.oodml_id} of {opt.oodml_file}"
        fid = _oodml.of_file(opt).get("fid")
        if fid is not None:
            note += f", whose FID is {fid:.4g} by the file"
        notes.append(note)
    if opt.split_shuffle is not None:
        notes.append(f"--split_shuffle {opt.split_shuffle}: the order is shuffled before the split")
    if reading.rows is not None:
        notes.append(_files.copies_found(*files.copies(), images, "rows"))
    if not reading.is_rendered:
        transparent = files.transparent()
        if transparent is not None:
            notes.append(f"some images are transparent; their background is made white, e.g. in {transparent}")
        notes.append(_files.dark_16_bit(files.paths))
        notes += [_files.repeated(images), _files.copies_found(*files.copies(), images)]
    return [note for note in notes if note is not None]
