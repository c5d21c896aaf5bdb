"""The images that a run was trained and measured on, found again by its flags."""

from argparse import Namespace

import datasets
from runs.folder import data_of
from utilities.errors import UserError

SPLITS = {"train": "evaluation", "val": "validation", "test": "testing"}


def split(embedder, name: str):
    """The data set of one split of an `Embedder`'s run, with the test transform.

    Raises UserError where the data are missing, or the run has no such split.
    """
    opt = Namespace(**{**vars(embedder.opt), "label_level_train": 0, **data_of(embedder.folder)})
    splits = datasets.select(opt.dataset, opt, opt.source_path, **datasets.shape_for(embedder.network))
    if splits[SPLITS[name]] is None:
        there = ", ".join(split for split, key in SPLITS.items() if splits[key] is not None)
        raise UserError(f"the run has no split {name}: it has {there}")
    return splits[SPLITS[name]]
