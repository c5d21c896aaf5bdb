"""What the data sets of re-identification share: identities and cameras, roles, metrics.

A gallery image of the query's identity and camera is ignored (Zheng et al., ICCV 2015): identity and camera are an
image's sequence. An identity of test is a class of its own, `test_0001`, whatever the training identities are called.
"""

import re
from pathlib import Path
from typing import NamedTuple

from datasets import _layout
from datasets._images import Image
from datasets._layout import Reading
from utilities.errors import UserError

EVALUATION_METRICS = ["e_recall@1", "e_recall@5", "e_recall@10", "ap", "inp"]


class Shot(NamedTuple):
    """An image: its path below the data set's folder, and identity and camera as the files name them."""

    path: str
    # None: a distractor
    identity: str | None
    camera: str


def unset(opt) -> dict:
    """Values of unset flags: queries without a match are left out, as in the code of all published results."""
    return {"eval_skip_unmatched": 1}


def shots(root: Path, folder: str, name: re.Pattern, example: str) -> list[Shot]:
    """The images of a folder, whose names begin with identity and camera.

    Raises UserError if the folder, or a camera, is missing.
    """
    place = root / folder
    if not place.is_dir():
        raise UserError(f"{place}: no such folder: the data set needs it")
    files = _layout.image_files(place)
    if not files:
        raise UserError(f"{place}: no images in it: the data set needs it")
    result = []
    for file in files:
        match = name.match(file)
        if match is None:
            raise UserError(f"{place / file}: no identity and camera in its name, expected one like {example}")
        result.append(Shot(f"{folder}/{file}", *match.groups()))
    return result


def reading(
    root: Path, opt, training: list[Shot], queries: list[Shot], gallery: list[Shot], validation: list[Shot] = ()
) -> Reading:
    """The images in the order of the identities, training and validation ones first, and distractors last.

    An image that is in `queries` and in `gallery` has both roles. Raises UserError, or with `--allow_partial_dataset`
    notes it, if an identity of a query is not in the gallery.
    """
    notes = []
    absent = sorted({shot.identity for shot in queries} - {shot.identity for shot in gallery})
    if absent:
        note = f"{root}: {len(absent):,} identities of queries have no image in the gallery, the first is {absent[0]}"
        if not opt.allow_partial_dataset:
            raise UserError(f"{note}: it is incomplete. Restore it, or go on with --allow_partial_dataset")
        notes.append(note)

    parts = {"train": training, "val": validation, "test": list(dict.fromkeys([*queries, *gallery]))}
    rows = [(shot, split) for split, split_shots in parts.items() for shot in split_shots]
    rows.sort(key=_order)
    query_shots = set(queries)
    gallery_shots = set(gallery)
    existing_paths = _layout.existing(root, (shot.path for shot, _ in rows))
    result = Reading([], split_of=[], notes=notes)
    for shot, split in rows:
        path = f"{root}/{shot.path}"
        if shot.path not in existing_paths:
            result.missing.append(path)
            continue
        image = Image(path, None)
        if shot.identity is not None:
            class_name = f"test_{shot.identity}" if split == "test" else shot.identity
            image = Image(path, class_name, sequence=f"{class_name} camera {shot.camera}")
        if split == "test":
            image = image._replace(is_query=shot in query_shots, is_gallery=shot in gallery_shots)
        result.images.append(image)
        result.split_of.append(split)
    return result


def _order(row: tuple[Shot, str]) -> tuple:
    """Sort key: distractors last, then training and validation before test, by identity and path."""
    shot, split = row
    return (shot.identity is None, split == "test", int(shot.identity or 0), shot.path)
