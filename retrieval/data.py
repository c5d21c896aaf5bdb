"""The images that a run was trained and measured on, found again by its flags."""

import os
from argparse import Namespace

import datasets
from runs.folder import data_of
from utilities.errors import UserError
from utilities.splits import evaluated


def splits(embedder, **flags) -> dict:
    """Split -> its data set with the test transform, of an `Embedder`'s run. Raises UserError for missing data.

    `flags`: in place of the run's.
    """
    opt = Namespace(**{**vars(embedder.opt), "label_level_train": 0, **data_of(embedder.folder), **flags})
    data_sets = datasets.select(opt.dataset, opt, opt.source_path, **datasets.shape_for(embedder.network))
    return {split: images for split, images in evaluated(data_sets).items() if images is not None}


def class_names(embedder) -> dict[str, str]:
    """Absolute path -> name of the class, of all images of a run's data that have one. Raises UserError as `splits`."""
    names = {}
    for images in splits(embedder, download=False).values():
        for path, label in images.image_list:
            if label in images.class_names:
                names[os.path.abspath(path)] = str(images.class_names[label])
    return names


def split(embedder, name: str):
    """The data set of one split, as of `splits`. Raises UserError also where the run has no such split."""
    return named(splits(embedder), name)


def inputs(images) -> list:
    """What an `Embedder` takes of a data set: the paths of its images, or its rows of features."""
    return images.paths if images.width is None else list(map(images.read, images.paths))


def named(available: dict, name: str):
    """The data set of the split `name` among those of `splits`. Raises UserError where there is none."""
    if name not in available:
        raise UserError(f"the run has no split {name}: it has {', '.join(available)}")
    return available[name]
