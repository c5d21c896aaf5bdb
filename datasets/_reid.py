"""What the data sets of re-identification share: identities and cameras, the roles of the test images, what is
published for them.

A gallery image of the query's identity and camera takes no rank (Zheng et al., ICCV 2015): identity and camera are an
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
    """An image: its path below the data set's folder, whom it shows (None: a distractor), and the camera, as the files
    name them.
    """

    path: str
    identity: str | None
    camera: str


def unset(opt) -> dict:
    """Flags that are unset: queries without a match are left out, as in the code of all published results."""
    return {"eval_skip_unmatched": 1}


def shots(root: Path, folder: str, name: re.Pattern, example: str) -> list[Shot]:
    """The images of a folder, whose names begin with identity and camera. Raises UserError where the folder, or a
    camera, is missing.
    """
    files = _layout.image_files(root / folder) if (root / folder).is_dir() else []
    if not files:
        raise UserError(
            f"{root / folder}: {'no images in it' if (root / folder).is_dir() else 'no such folder'}: the data set "
            "needs it"
        )
    found = [(file, name.match(file)) for file in files]
    for file, match in found:
        if match is None:
            raise UserError(f"{root / folder / file}: no identity and camera in its name, expected one like {example}")
    return [Shot(f"{folder}/{file}", *match.groups()) for file, match in found]


def reading(
    root: Path, opt, training: list[Shot], queries: list[Shot], gallery: list[Shot], validation: list[Shot] = ()
) -> Reading:
    """The images in the order of the identities, training and validation ones first, and distractors last.

    An image that is in `queries` and in `gallery` has both roles. Raises UserError, or with `--allow_partial_dataset`
    notes it, where an identity of a query is not in the gallery.
    """
    notes = []
    if absent := sorted({shot.identity for shot in queries} - {shot.identity for shot in gallery}):
        notes = [
            f"{root}: {len(absent):,} identities of queries have no image in the gallery, the first is {absent[0]}"
        ]
        if not opt.allow_partial_dataset:
            raise UserError(f"{notes[0]}: it is incomplete. Restore it, or go on with --allow_partial_dataset")
    asking = set(queries)
    found = set(gallery)
    rows = [(shot, part, True, True) for part, those in (("train", training), ("val", validation)) for shot in those]
    rows += [(shot, "test", shot in asking, shot in found) for shot in dict.fromkeys([*queries, *gallery])]
    rows.sort(key=lambda row: (row[0].identity is None, row[1] == "test", int(row[0].identity or 0), row[0].path))
    there = _layout.existing(root, (shot.path for shot, *_ in rows))
    images = []
    parts = []
    for shot, part, is_query, is_gallery in rows:
        if shot.path in there:
            name = None if shot.identity is None else "test_" * (part == "test") + shot.identity
            sequence = None if name is None else f"{name} camera {shot.camera}"
            images.append(Image(f"{root}/{shot.path}", name, None, is_query, is_gallery, sequence))
            parts.append(part)
    missing = [f"{root}/{shot.path}" for shot, *_ in rows if shot.path not in there]
    return Reading(images, split_of=parts, missing=missing, notes=notes)
