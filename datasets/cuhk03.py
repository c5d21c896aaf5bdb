"""CUHK03: 1,467 persons in pairs of cameras, re-identification by the new protocol (Li et al., CVPR 2014; Zhong et al.,
CVPR 2017).

767 persons train and 700 test. The lists of the protocol are the authors' files of MATLAB; a file is called
`1_001_1_01.png`: pair of cameras, person in it, camera of the pair, image. The old protocol of 20 splits is not here.
"""

import re
from pathlib import Path

import numpy as np

from datasets import _download, _reid
from datasets._layout import Published, Reading
from datasets._reid import Shot
from options.flags import Flag
from utilities.errors import UserError
from utilities.reading import parsing, read_matlab

FOLDERS = ("cuhk03", "cuhk03/cuhk03_release", "cuhk03_release", "CUHK03")
LISTS = "cuhk03_new_protocol_config_{}.mat"
BOXES = ("detected", "labeled")
INDICES = {"training": "train_idx", "queries": "query_idx", "gallery": "gallery_idx"}
NAME = re.compile(r"\d+_\d+_(\d+)_\d+\.\w+")
EXPECTED = (
    f"{LISTS.format('detected')} and images_detected/, or those of labeled boxes, with images like 1_001_1_01.png"
)
PUBLISHED = {
    "detected": Published(classes=(767, 700), images=(7365, None), query=(1400, 700), gallery=(5332, 700)),
    "labeled": Published(classes=(767, 700), images=(7368, None), query=(1400, 700), gallery=(5328, 700)),
}
DOWNLOAD = _download.Source(
    folder="cuhk03",
    archives=(),
    alternatives="cuhk03_release on request, https://www.ee.cuhk.edu.hk/~xgwang/CUHK_identification.html, the images "
    "written as by torchreid, the lists from https://github.com/zhunzhong07/person-re-ranking",
)
EVALUATION_METRICS = _reid.EVALUATION_METRICS
derived = _reid.unset

FLAGS = {
    "--cuhk03_boxes": Flag(str, "detected", "boxes of a detector, or drawn by hand", choices=BOXES),
}


def published(opt) -> Published:
    """The counts of the boxes."""
    return PUBLISHED[opt.cuhk03_boxes]


def recognises(root: Path) -> bool:
    """Whether `root` holds the lists of one kind of boxes."""
    return any((root / LISTS.format(boxes)).exists() for boxes in BOXES)


def read(opt, root: Path) -> Reading:
    """The images of the protocol by person."""
    boxes = opt.cuhk03_boxes
    path = root / LISTS.format(boxes)
    needs = f"--dataset cuhk03 --cuhk03_boxes {boxes} needs it"
    with parsing(path, needs):
        content = read_matlab(path, needs)
        files = [str(file) for file in np.atleast_1d(content["filelist"])]
        labels = [int(label) for label in np.atleast_1d(content["labels"])]
        rows = {part: [int(row) for row in np.atleast_1d(content[name])] for part, name in INDICES.items()}
        if len(files) != len(labels):
            raise ValueError(f"{len(files)} files and {len(labels)} labels")
        wrong = [row for part_rows in rows.values() for row in part_rows if not 1 <= row <= len(files)]
        if wrong:
            raise ValueError(f"index {wrong[0]} is not from 1 to {len(files)}")
    shots = [_shot(path, file, label, f"images_{boxes}") for file, label in zip(files, labels, strict=True)]
    chosen = {part: [shots[row - 1] for row in part_rows] for part, part_rows in rows.items()}
    return _reid.reading(root, opt, **chosen)


def _shot(path: Path, file: str, label: int, folder: str) -> Shot:
    """An image of the list. Raises UserError for a name without a camera."""
    match = NAME.fullmatch(file)
    if match is None:
        raise UserError(f"{path}: file {file!r}, expected a name like 1_001_1_01.png")
    return Shot(f"{folder}/{file}", str(label), match[1])
