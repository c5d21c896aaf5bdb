"""What Revisited Oxford and Paris share (Radenovic et al., CVPR 2018, arXiv 1803.11285).

A query is cut from its image by a box. Easy, hard and junk images are listed for each query; a protocol says which of
them are positives and which are ignored. The 1,001,001 distractors of --revisitop1m are relevant to no query.
"""

import dataclasses
from pathlib import Path
from typing import NamedTuple

import numpy as np

from datasets import _download, _layout
from datasets._images import Image
from datasets._layout import Published, Reading
from datasets._lists import GroundTruth, Lists
from options.flags import Flag
from utilities import pickles
from utilities.errors import UserError
from utilities.reading import Unreadable

EVALUATION_METRICS = ["ap_trapezoid", "mp@1", "mp@5", "mp@10"]
# kinds of images that are listed for a query
KINDS = ("easy", "hard", "junk")


class Protocol(NamedTuple):
    """The kinds of images that are a query's positives, and those that are ignored, its junk."""

    positives: tuple[str, ...]
    junk: tuple[str, ...]


PROTOCOLS = {
    "medium": Protocol(positives=("easy", "hard"), junk=("junk",)),
    "hard": Protocol(positives=("hard",), junk=("junk", "easy")),
    "easy": Protocol(positives=("easy",), junk=("junk", "hard")),
}
DISTRACTORS = "revisitop1m"
# pixels
LONG_SIDE = 1024


class Query(NamedTuple):
    """A query of the published file: its name, its box, and kind -> positions in the gallery of its images."""

    name: str
    box: tuple[float, ...]
    positions: dict[str, list[int]]


FLAGS = {
    "--revisitop1m": Flag(
        bool,
        False,
        f"roxford5k, rparis6k: the 1,001,001 distractors of {DISTRACTORS}/, beside the data set's folder, are "
        "added to the gallery",
        rules={"only_with": {"dataset": ["roxford5k", "rparis6k", "union"]}},
    ),
}


def unset(opt) -> dict:
    """Values of unset flags, `derived` of both data sets (in a helper it would be that of all): images in their own
    shape, as in the code of the published results.
    """
    return {"eval_long_side": LONG_SIDE, "eval_skip_unmatched": 1}


def expected(name: str) -> str:
    """Describe the layout."""
    return (
        f"gnd_{name}.pkl and jpg/ with its images; for --revisitop1m beside it {DISTRACTORS}/{DISTRACTORS}.txt and jpg/"
    )


def source(name: str) -> _download.Source:
    """Where the data set comes from."""
    return _download.Source(
        folder=name,
        archives=(),
        alternatives=f"images and gnd_{name}.pkl from http://cmp.felk.cvut.cz/revisitop/; since June 2022 with "
        "blurred faces",
    )


def published(counts: Published, opt) -> Published:
    """The counts; those of the gallery are without --revisitop1m."""
    return dataclasses.replace(counts, images=(0, None), gallery=(None, 0)) if opt.revisitop1m else counts


def recognises(name: str, root: Path) -> bool:
    """Whether `root` holds the ground truth."""
    return (root / f"gnd_{name}.pkl").is_file()


def read(name: str, opt, root: Path) -> Reading:
    """The gallery, the queries with their ground truth under the three protocols, and the distractors if requested."""
    gallery, queries = _content(root / f"gnd_{name}.pkl")
    images = [Image(f"jpg/{image}.jpg", None, is_query=False) for image in gallery]
    images += [Image(f"jpg/{query.name}.jpg", None, is_gallery=False, box=query.box) for query in queries]
    reading = _layout.listed(root, images)
    queries = [query._replace(name=f"{root}/jpg/{query.name}.jpg") for query in queries]
    reading.lists = _by_protocol([f"{root}/jpg/{image}.jpg" for image in gallery], queries)
    if opt.revisitop1m:
        folder = root.parent / DISTRACTORS
        files = [row[0] for row in _layout.read_table(folder / f"{DISTRACTORS}.txt")]
        distractors = _layout.listed(folder, [Image(f"jpg/{file}", None, is_query=False) for file in files])
        reading.images = reading.images + distractors.images
        reading.missing = reading.missing + distractors.missing
    reading.split_of = ["test"] * len(reading.images)
    return reading


def lists(file: Path) -> Lists:
    """The protocols of a ground truth, by the names of the images, which have no suffix there."""
    return _by_protocol(*_content(file))


def _by_protocol(gallery: list[str], queries: list[Query]) -> Lists:
    """The ground truth of the queries under each protocol; `gallery`: the names of its images."""
    protocols = {}
    for name, protocol in PROTOCOLS.items():
        protocols[name] = {}
        for query in queries:
            positives = [gallery[i] for kind in protocol.positives for i in query.positions[kind]]
            junk = [gallery[i] for kind in protocol.junk for i in query.positions[kind]]
            protocols[name][query.name] = GroundTruth(positives, junk)
    return protocols


def _content(file: Path) -> tuple[list[str], list[Query]]:
    """The names of the gallery's images, and the queries. Raises UserError for another content."""
    try:
        content = pickles.load(file, arrays=True)
    except Unreadable as error:
        raise UserError(
            f"{file}: refused, no pickle of plain lists, texts, numbers and arrays alone ({error.reason})"
        ) from error
    try:
        gallery = list(content["imlist"])
        names = list(content["qimlist"])
        boxes = [tuple(float(edge) for edge in truth["bbx"]) for truth in content["gnd"]]
        positions = []
        for truth in content["gnd"]:
            positions.append({kind: np.asarray(truth[kind], dtype=np.float64).reshape(-1) for kind in KINDS})
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise UserError(
            f"{file}: expected imlist, qimlist and gnd, of each query bbx, easy, hard and junk "
            f"({type(error).__name__}: {error})"
        ) from error
    are_texts = all(isinstance(name, str) for name in [*gallery, *names])
    if len(boxes) != len(names) or not are_texts or any(len(box) != 4 for box in boxes):
        raise UserError(
            f"{file}: {len(names)} queries, but {len(boxes)} boxes of four numbers and lists: the file is damaged"
        )
    queries = []
    for name, box, by_kind in zip(names, boxes, positions, strict=True):
        for kind, numbers in by_kind.items():
            if ((numbers != numbers.round()) | (numbers < 0) | (numbers >= len(gallery))).any():
                raise UserError(
                    f"{file}: {kind} of {name} lists {numbers.max():g}, which is no index of its {len(gallery)} images"
                )
        queries.append(Query(name, box, {kind: numbers.astype(int).tolist() for kind, numbers in by_kind.items()}))
    return gallery, queries
