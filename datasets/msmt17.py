"""MSMT17: 4,101 persons in fifteen cameras, re-identification (Wei et al., CVPR 2018).

There are two versions: V1, and V2 with blurred faces.
"""

import dataclasses
from pathlib import Path

from datasets import _download, _layout, _reid
from datasets._layout import Published, Reading
from datasets._reid import Shot
from options.flags import Flag
from utilities.errors import UserError
from utilities.numbers import is_whole

FOLDERS = ("msmt17", "MSMT17_V1", "MSMT17_V2", "msmt17/MSMT17_V1", "msmt17/MSMT17_V2", "MSMT17")
VERSIONS = {"V1": ("train", "test"), "V2": ("mask_train_v2", "mask_test_v2")}
LISTS = ("list_train.txt", "list_val.txt", "list_query.txt", "list_gallery.txt")
EXPECTED = f"{', '.join(LISTS)}, and the images in train/ and test/ (V1) or mask_train_v2/ and mask_test_v2/ (V2)"
PUBLISHED = Published(classes=(None, None), images=(32621, None), query=(11659, None), gallery=(82161, None))
DOWNLOAD = _download.Source(
    folder="msmt17",
    archives=(),
    alternatives="MSMT17 on request, for research, from https://www.pkuvmc.com/dataset.html",
)
EVALUATION_METRICS = _reid.EVALUATION_METRICS
derived = _reid.unset

FLAGS = {
    "--msmt17_combined": Flag(
        bool,
        False,
        "the images of list_val train too (combineall of torchreid and FastReID); without it they validate, and "
        "list_train alone trains",
    ),
}


def has_validation(opt) -> bool:
    """Whether list_val validates."""
    return not opt.msmt17_combined


def published(opt) -> Published:
    """The counts; that of training is published with list_val counted in."""
    return PUBLISHED if opt.msmt17_combined else dataclasses.replace(PUBLISHED, images=(None, None))


def recognises(root: Path) -> bool:
    """Whether `root` holds the list of the training images."""
    return (root / LISTS[0]).exists()


def read(opt, root: Path) -> Reading:
    """The images of the four lists by person; the folders tell the version."""
    version = _version(root)
    train, test = VERSIONS[version]
    training, validation, queries, gallery = (
        _listed(root, file, folder) for file, folder in zip(LISTS, (train, train, test, test), strict=True)
    )
    if opt.msmt17_combined:
        training = training + validation
        validation = []
    reading = _reid.reading(root, opt, training, queries, gallery, validation)
    faces = ", with blurred faces" if version == "V2" else ""
    reading.notes.append(f"MSMT17 {version}{faces}: results of V1 and V2 do not compare")
    return reading


def _version(root: Path) -> str:
    """The version whose folders are in `root`. Raises UserError if there is none."""
    for version, folders in VERSIONS.items():
        if all((root / folder).is_dir() for folder in folders):
            return version
    names = [" and ".join(f"{folder}/" for folder in folders) for folders in VERSIONS.values()]
    raise UserError(f"{root}: neither {' nor '.join(names)}: the data set needs the images of one version")


def _listed(root: Path, name: str, folder: str) -> list[Shot]:
    """The images of a list of paths, with the camera in their third part, and persons.

    A line is `0000/0000_000_01_0303morning_0008_0.jpg 0`.
    """
    shots = []
    for number, row in enumerate(_layout.read_table(root / name), start=1):
        camera = row[0].split("_")[2:3]
        if len(row) != 2 or not is_whole(row[1]) or not camera or not is_whole(camera[0]):
            raise UserError(
                f"{root / name}, row {number}: {' '.join(row)!r}, expected a path with its camera and the person, as "
                "0000/0000_000_01_0303morning_0008_0.jpg 0"
            )
        shots.append(Shot(f"{folder}/{row[0]}", row[1], camera[0]))
    return shots
