"""MSMT17: 4,101 persons in fifteen cameras, re-identification, as V1 or with blurred faces as V2 (Wei et al., CVPR
2018).
"""

import dataclasses
from pathlib import Path

from datasets import _download, _layout, _reid
from datasets._layout import Published, Reading
from datasets._reid import Shot
from utilities.errors import UserError
from utilities.numbers import is_whole

FOLDERS = ("msmt17", "MSMT17_V1", "MSMT17_V2", "msmt17/MSMT17_V1", "msmt17/MSMT17_V2", "MSMT17")
VERSIONS = {"V1": ("train", "test"), "V2": ("mask_train_v2", "mask_test_v2")}
LISTS = ("list_train.txt", "list_val.txt", "list_query.txt", "list_gallery.txt")
EXPECTED = f"{', '.join(LISTS)}, and the images in train/ and test/ (V1) or mask_train_v2/ and mask_test_v2/ (V2)"
PUBLISHED = Published(classes=(None, None), images=(32621, None), query=(11659, None), gallery=(82161, None))
EVALUATION_METRICS = _reid.EVALUATION_METRICS
derived = _reid.unset
DOWNLOAD = _download.Source(
    folder="msmt17",
    archives=(),
    alternatives="MSMT17 on request, for research, from https://www.pkuvmc.com/dataset.html",
)


def add_arguments(group) -> None:
    """Declare the flag of this data set."""
    group.add_argument(
        "--msmt17_combined",
        action="store_true",
        help=(
            "the images of list_val train too (combineall of torchreid and FastReID); without it they validate, and "
            "list_train alone trains"
        ),
    )


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
    version = next(
        (name for name, folders in VERSIONS.items() if all((root / folder).is_dir() for folder in folders)), None
    )
    if version is None:
        folders = " nor ".join(" and ".join(f"{folder}/" for folder in both) for both in VERSIONS.values())
        raise UserError(f"{root}: neither {folders}: the data set needs the images of one version")
    train, test = VERSIONS[version]
    training, validation, queries, gallery = map(_listed, [root] * 4, LISTS, (train, train, test, test))
    if opt.msmt17_combined:
        training = training + validation
        validation = []
    found = _reid.reading(root, opt, training, queries, gallery, validation)
    found.notes.append(
        f"MSMT17 {version}{', with blurred faces' * (version == 'V2')}: results of V1 and V2 do not compare"
    )
    return found


def _listed(root: Path, name: str, folder: str) -> list[Shot]:
    """The images of a list, `0000/0000_000_01_0303morning_0008_0.jpg 0`: path, with the camera in its third part, and
    person.
    """
    found = []
    for number, row in enumerate(_layout.read_table(root / name), start=1):
        camera = row[0].split("_")[2:3]
        if len(row) != 2 or not is_whole(row[1]) or not camera or not is_whole(camera[0]):
            raise UserError(
                f"{root / name}, row {number}: {' '.join(row)!r}, expected a path with its camera and the person, as "
                "0000/0000_000_01_0303morning_0008_0.jpg 0"
            )
        found.append(Shot(f"{folder}/{row[0]}", row[1], camera[0]))
    return found
