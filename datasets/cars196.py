"""Cars196: 16,185 images of 196 car models (Krause et al., 3dRR 2013)."""

from pathlib import Path

import numpy as np

from datasets import _cars196_classes, _download, _layout
from datasets._images import Image
from datasets._layout import Published, Reading
from utilities.reading import parsing, read_matlab

FOLDERS = ("cars196", "stanford_cars", "car_data/car_data", "car_data")
# each class has images in both halves; all of them are used
HALVES = (("train", "test"), ("cars_train", "cars_test"))
DEVKIT = "devkit/cars_train_annos.mat"
TEST_LABELS = "cars_test_annos_withlabels.mat"
EXPECTED = (
    "images/<class>/<images>; or car_ims/<images> with cars_annos.mat; or train/<class>/<images> and "
    "test/<class>/<images>; or torchvision's cars_train/<images> and cars_test/<images> with devkit/ and "
    "cars_test_annos_withlabels.mat"
)
PUBLISHED = Published(classes=(98, 98), images=(8054, 8131))
DOWNLOAD = _download.Source(
    folder="cars196",
    archives=(
        _download.Archive(
            "car_ims.tgz", "d5c8f0aa497503f355e17dc7886c3f14", ("http://ai.stanford.edu/~jkrause/car196/car_ims.tgz",)
        ),
        _download.Archive(
            "cars_annos.mat",
            "b407c6086d669747186bd1d764ff9dbc",
            ("http://ai.stanford.edu/~jkrause/car196/cars_annos.mat",),
        ),
    ),
    alternatives="the first host is often gone: cars196.tar from "
    "https://www.dropbox.com/s/zi2o92hzqekbmef/cars196.tar, or the re-pack "
    "https://www.kaggle.com/datasets/jutrera/stanford-car-dataset-by-classes-folder",
)
ALSO_CALLED = ("cars", "car")  # in names of groups
TABLE_ORDER = 2  # among the data sets of a paper's table


def recognises(root: Path) -> bool:
    """Whether `root` holds one of the four layouts."""
    return any((root / file).exists() for file in ("cars_annos.mat", DEVKIT)) or bool(_class_parents(root))


def validation_groups(names: list[str]) -> list[list[str]]:
    """Validation is cut from the classes in the order of their names, as in the ICML code.

    By the official ids two of the 78 training classes would differ: Chrysler's models are not sorted there, and the cut
    falls among them.
    """
    return [sorted(names)]


def read(opt, root: Path) -> Reading:
    """The images in the order of the official class ids, from the annotations or from the folders' names."""
    has_other_layout = any((root / folder).is_dir() for folder in ("car_ims", "images", "train"))
    if (root / DEVKIT).exists() and not has_other_layout:
        training = (DEVKIT, "fname", _half(root, "cars_train"))
        test = (_test_labels(root), "fname", _half(root, "cars_test"))
        return _annotated(root, "devkit/cars_meta.mat", training, test)
    if (root / "cars_annos.mat").exists():
        return _annotated(root, "cars_annos.mat", ("cars_annos.mat", "relative_im_path", ""))
    return _layout.class_folders(_class_parents(root), opt, order=_cars196_classes.order)


def _roots(root: Path) -> list[Path]:
    # the re-pack is nested twice
    return [root, root / "car_data", root / "car_data" / "car_data"]


def _class_parents(root: Path) -> list[Path]:
    """The folders whose subfolders are classes: `images`, or both halves of the re-pack."""
    if (root / "images").is_dir():
        return [root / "images"]
    for base in _roots(root):
        for halves in HALVES:
            if all((base / half).is_dir() for half in halves):
                return [base / half for half in halves]
    return []


def _half(root: Path, half: str) -> str:
    # some archives nest it
    return f"{half}/{half}/" if (root / half / half).is_dir() else f"{half}/"


def _test_labels(root: Path) -> str:
    """The file of the test labels, which came after the development kit."""
    return f"devkit/{TEST_LABELS}" if (root / "devkit" / TEST_LABELS).exists() else TEST_LABELS


def _annotated(root: Path, names_file: str, *lists: tuple[str, str, str]) -> Reading:
    """The flat release and torchvision's layout.

    Args:
        names_file: the file of the class names. lists: of each list of images its file, the field of their names, and
            their folder.
    """
    needs = "--dataset cars196 needs it"
    with parsing(root / names_file, needs):
        names = [str(name) for name in np.atleast_1d(read_matlab(root / names_file, needs)["class_names"])]
    rows = []
    for file, field, folder in lists:
        with parsing(root / file, needs):
            annotations = np.atleast_1d(read_matlab(root / file, needs)["annotations"])
            labels = zip(annotations[field], annotations["class"], strict=True)
            rows += sorted((f"{folder}{image}", int(label)) for image, label in labels)
            if not all(1 <= label <= len(names) for _, label in rows):
                raise ValueError(f"a class is not from 1 to {len(names)}")
    rows.sort(key=lambda row: row[1])
    return _layout.listed(root, [Image(image, names[label - 1]) for image, label in rows])
