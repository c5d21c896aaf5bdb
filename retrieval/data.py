"""The images that a run was trained and measured on, found again by its flags."""

from argparse import Namespace

import datasets
from runs.folder import data_of
from utilities.errors import UserError
from utilities.splits import evaluated


def split(embedder, name: str):
    """The data set of one split of an `Embedder`'s run, with the test transform.

    Raises UserError where the data are missing, or the run has no such split.
    """
    opt = Namespace(**{**vars(embedder.opt), "label_level_train": 0, **data_of(embedder.folder)})
    splits = datasets.select(opt.dataset, opt, opt.source_path, **datasets.shape_for(embedder.network))
    available = {split: images for split, images in evaluated(splits).items() if images is not None}
    if name not in available:
        raise UserError(f"the run has no split {name}: it has {', '.join(available)}")
    return available[name]
