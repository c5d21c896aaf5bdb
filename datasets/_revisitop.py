"""What Revisited Oxford and Paris share (Radenovic et al., CVPR 2018, arXiv 1803.11285): layout, ground truth,
protocols, distractors.

A query is cut from its image by a box. Easy, hard and junk images are listed for each; a protocol says which of them
are positives and which take no rank.
"""

import dataclasses
from pathlib import Path

import numpy as np

from datasets import _download, _layout, _lists
from datasets._layout import Published, Reading
from utilities import pickles
from utilities.errors import UserError
from utilities.reading import Unreadable

EVALUATION_METRICS = ["ap_trapezoid", "mp@1", "mp@5", "mp@10"]
PROTOCOLS = {
    "medium": (("easy", "hard"), ("junk",)),
    "hard": (("hard",), ("junk", "easy")),
    "easy": (("easy",), ("junk", "hard")),
}  # positives, junk
DISTRACTORS = "revisitop1m"
LONG_SIDE = 1024  # pixels


def add_arguments(group) -> None:
    """Declare the flag of these data sets."""
    group.add_argument(
        "--revisitop1m",
        action="store_true",
        help=(
            f"roxford5k, rparis6k: the 1,001,001 distractors of {DISTRACTORS}/, beside the data set's folder, are "
            "added to the gallery"
        ),
    )


def unset(opt) -> dict:
    """Flags that are unset: images in their own shape, as in the code of the published results."""
    return {"eval_long_side": LONG_SIDE, "eval_skip_unmatched": 1}


def expected(name: str) -> str:
    """The layout in words."""
    return (
        f"gnd_{name}.pkl and jpg/ with its images; for --revisitop1m beside it {DISTRACTORS}/{DISTRACTORS}.txt and jpg/"
    )


def source(name: str) -> _download.Source:
    """Where the data set comes from."""
    return _download.Source(
        folder=name,
        archives=(),
        alternatives=f"images and gnd_{name}.pkl from http://cmp.felk.cvut.cz/revisitop/; since June 2022 with blurred faces",
    )


def published(counts: Published, opt) -> Published:
    """The counts; those of the gallery are without --revisitop1m."""
    return dataclasses.replace(counts, images=(0, None), gallery=(None, 0)) if opt.revisitop1m else counts


def recognises(name: str, root: Path) -> bool:
    """Whether `root` holds the ground truth."""
    return (root / f"gnd_{name}.pkl").is_file()


def read(name: str, opt, root: Path) -> Reading:
    """The gallery, the queries, what each is to find under the three protocols, and with --revisitop1m the distractors."""
    file = root / f"gnd_{name}.pkl"
    gallery, truth = _content(file)
    rows = [(f"jpg/{one}.jpg", None, None, False, True) for one in gallery]
    rows += [(f"jpg/{query}.jpg", None, None, True, False, None, box) for query, box, _ in truth]
    reading = _layout.listed(root, rows)
    path = [f"{root}/jpg/{one}.jpg" for one in gallery]
    reading.lists = {
        protocol: {
            f"{root}/jpg/{query}.jpg": tuple([path[i] for kind in kinds for i in of[kind]] for kinds in both)
            for query, _, of in truth
        }
        for protocol, both in PROTOCOLS.items()
    }
    if opt.revisitop1m:
        folder = root.parent / DISTRACTORS
        names = [row[0] for row in _layout.read_table(folder / f"{DISTRACTORS}.txt")]
        more = _layout.listed(folder, [(f"jpg/{name}", None, None, False, True) for name in names])
        reading.images = reading.images + more.images
        reading.missing = reading.missing + more.missing
    reading.split_of = ["test"] * len(reading.images)
    return reading


def lists(file: Path) -> _lists.Lists:
    """The protocols of a ground truth, by the names of the images, which have no suffix there."""
    gallery, truth = _content(file)
    return {
        protocol: {
            query: tuple([gallery[i] for kind in kinds for i in of[kind]] for kinds in both) for query, _, of in truth
        }
        for protocol, both in PROTOCOLS.items()
    }


def _content(file: Path) -> tuple[list[str], list[tuple[str, tuple, dict]]]:
    """Names of the gallery; of each query its name, its box, and kind -> indices in the gallery. Raises UserError for
    another content.
    """
    try:
        content = pickles.load(file, arrays=True)
    except Unreadable as error:
        raise UserError(
            f"{file}: refused, no pickle of plain lists, texts, numbers and arrays alone ({error.reason})"
        ) from error
    try:
        gallery = list(content["imlist"])
        queries = list(content["qimlist"])
        boxes = [tuple(float(edge) for edge in one["bbx"]) for one in content["gnd"]]
        kinds = [
            {kind: np.asarray(one[kind], dtype=np.float64).reshape(-1) for kind in ("easy", "hard", "junk")}
            for one in content["gnd"]
        ]
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise UserError(
            f"{file}: expected imlist, qimlist and gnd, of each query bbx, easy, hard and junk "
            f"({type(error).__name__}: {error})"
        ) from error
    if (
        len(boxes) != len(queries)
        or not all(isinstance(name, str) for name in [*gallery, *queries])
        or any(len(box) != 4 for box in boxes)
    ):
        raise UserError(
            f"{file}: {len(queries)} queries beside {len(boxes)} boxes of four numbers and lists: it is damaged"
        )
    for query, of in zip(queries, kinds, strict=True):
        for kind, indices in of.items():
            if ((indices != indices.round()) | (indices < 0) | (indices >= len(gallery))).any():
                raise UserError(
                    f"{file}: {kind} of {query} lists {indices.max():g}, which is no index of its {len(gallery)} images"
                )
    return gallery, [
        (query, box, {kind: found.astype(int).tolist() for kind, found in of.items()})
        for query, box, of in zip(queries, boxes, kinds, strict=True)
    ]
