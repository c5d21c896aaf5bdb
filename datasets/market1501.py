"""Market-1501: 1,501 persons in six cameras, re-identification with distractors (Zheng et al., ICCV 2015)."""

import dataclasses
import re
from pathlib import Path

from datasets import _download, _reid
from datasets._layout import Published, Reading
from options.flags import Flag

FOLDERS = ("market1501", "Market-1501-v15.09.15", "market1501/Market-1501-v15.09.15", "Market1501")
TRAINING = "bounding_box_train"
QUERY = "query"
GALLERY = "bounding_box_test"
DISTRACTORS = "images"
# 0002_c1s1_000451_03.jpg: person, camera, sequence, frame, box
NAME = re.compile(r"(-?\d+)_c(\d)")
ANY_NAME = re.compile("()()")
# number of the boxes of the background; badly cut boxes have -1
BACKGROUND = 0
EXPECTED = f"{TRAINING}/, {QUERY}/ and {GALLERY}/ with images like 0002_c1s1_000451_03.jpg"
PUBLISHED = Published(
    classes=(None, None), images=(12936, None), query=(3368, None), gallery=(None, None), searched=(15913,)
)
DOWNLOAD = _download.Source(
    folder="market1501",
    archives=(),
    alternatives="Market-1501-v15.09.15 from its authors, https://zheng-lab.cecs.anu.edu.au/Project/project_reid.html",
)
EVALUATION_METRICS = _reid.EVALUATION_METRICS
derived = _reid.unset

FLAGS = {
    "--market1501_distractors": Flag(
        bool,
        False,
        f"the images of {DISTRACTORS}/, the 500,000 distractors of the data set's authors, are added to the gallery",
    ),
}


def published(opt) -> Published:
    """The counts; that of the gallery is without the further distractors."""
    return dataclasses.replace(PUBLISHED, searched=(None,)) if opt.market1501_distractors else PUBLISHED


def recognises(root: Path) -> bool:
    """Whether `root` holds the folder of the training images."""
    return (root / TRAINING).is_dir()


def read(opt, root: Path) -> Reading:
    """The images by person: badly cut boxes (-1) are left out, the background (0000) consists of distractors."""
    example = "0002_c1s1_000451_03.jpg"
    training, queries, gallery = (_reid.shots(root, folder, NAME, example) for folder in (TRAINING, QUERY, GALLERY))
    distractors = [shot for shot in gallery if int(shot.identity) == BACKGROUND]
    if opt.market1501_distractors:
        distractors += _reid.shots(root, DISTRACTORS, ANY_NAME, "")
    gallery = [*_persons(gallery), *(shot._replace(identity=None) for shot in distractors)]
    return _reid.reading(root, opt, _persons(training), _persons(queries), gallery)


def _persons(shots: list[_reid.Shot]) -> list[_reid.Shot]:
    """The images that show a person."""
    return [shot for shot in shots if int(shot.identity) > BACKGROUND]
