"""The images that a run was trained and measured on, found again by its flags."""

from argparse import Namespace

import datasets
from runs.folder import data_of
from utilities.errors import UserError
from utilities.splits import evaluated


def splits(embedder) -> dict:
    """Split -> data set of an `Embedder`'s run, with the test transform. Raises UserError if the data are missing."""
    opt = Namespace(**{**vars(embedder.opt), "label_level_train": 0, **data_of(embedder.folder)})
    selected = datasets.select(opt.dataset, opt, opt.source_path, **datasets.shape_for(embedder.network))
    return {name: images for name, images in evaluated(selected).items() if images is not None}


def split(embedder, name: str):
    """The data set of one split, as of `splits`. Raises UserError also where the run has no such split."""
    return named(splits(embedder), name)


def named(available: dict, name: str):
    """The data set of the split `name` among those of `splits`. Raises UserError where there is none."""
    if name not in available:
        raise UserError(f"the run has no split {name}: it has {', '.join(available)}")
    return available[name]
