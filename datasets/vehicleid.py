"""PKU VehicleID: 26,267 vehicles from traffic cameras, three test lists (Liu et al., CVPR 2016).

A test list is measured as retrieval or as re-identification.
"""

from pathlib import Path

import numpy as np

from datasets import _download, _layout
from datasets._images import Image
from datasets._layout import Published, Reading
from options.flags import Flag
from utilities.errors import UserError
from utilities.numbers import is_whole, whole

FOLDERS = ("vehicleid", "VehicleID_V1.0", "VehicleID", "PKU-VehicleID")
LISTS = "train_test_split"
TRAINING = (13164, 113346)  # vehicles, images
TEST_IMAGES = {800: 6493, 1600: 13377, 2400: 19777}  # number of vehicles of a list -> its images
DRAWS = 10  # random galleries over which a re-identification result is averaged
EXPECTED = (
    f"image/0000001.jpg, …, and {LISTS}/train_list.txt, test_list_800.txt (1600, 2400): image and vehicle in each line"
)
PUBLISHED = {n: Published(classes=(TRAINING[0], n), images=(TRAINING[1], images)) for n, images in TEST_IMAGES.items()}
DOWNLOAD = _download.Source(
    folder="vehicleid",
    archives=(),
    alternatives="VehicleID on request, for research, from https://www.pkuml.org/resources/pku-vehicleid.html",
)
EVALUATION_METRICS = ["e_recall@1", "e_recall@5"]

FLAGS = {
    "--vehicleid_protocol": Flag(
        str,
        "reid",
        "reid: one random image of each test vehicle is the gallery, all others are queries, and results are "
        "means over ten such draws, the same in every run; set: the test list is one set that is searched against "
        "itself, as retrieval papers do",
        choices=["reid", "set"],
    ),
    "--vehicleid_list": Flag(whole(), 800, "the test list, by its number of vehicles", choices=sorted(TEST_IMAGES)),
}


def published(opt) -> Published:
    """The counts with the test list that the flags name."""
    return PUBLISHED[opt.vehicleid_list]


def recognises(root: Path) -> bool:
    """Whether `root` holds the training list."""
    return (root / LISTS / "train_list.txt").exists()


def role_draws(opt, images: list[Image]) -> np.ndarray | None:
    """The galleries of `--vehicleid_protocol reid`, bool `(10, N)`; None under `set`.

    They do not depend on --seed: all runs are measured with the same ten.
    """
    if opt.vehicleid_protocol == "set":
        return None
    return draw_galleries([image.class_name for image in images])


def read(opt, root: Path) -> Reading:
    """The images of the training list and of one test list, in the order of the vehicles' ids."""
    vehicles = {}
    train_classes = set()
    for file in ("train_list.txt", f"test_list_{opt.vehicleid_list}.txt"):
        path = root / LISTS / file
        for number, row in enumerate(_layout.read_table(path), start=1):
            if len(row) != 2 or not all(map(is_whole, row)):
                raise UserError(
                    f"{path}, row {number}: {' '.join(row)!r}, expected the numbers of an image and of its vehicle"
                )
            image, vehicle = map(int, row)
            vehicles.setdefault(vehicle, []).append(Image(f"{image:07d}.jpg", str(vehicle)))
            if file == "train_list.txt":
                train_classes.add(str(vehicle))
            elif str(vehicle) in train_classes:
                raise UserError(
                    f"{path}, row {number}: vehicle {vehicle} is in train_list.txt too, test vehicles are new ones: a "
                    "list is damaged"
                )
    images = []
    for vehicle in sorted(vehicles):
        images += vehicles[vehicle]
    reading = _layout.listed(root / "image", images)
    reading.train_classes = train_classes
    return reading


def draw_galleries(labels: list, n_draws: int = DRAWS, seed: int = 0) -> np.ndarray:
    """One random image of each class in each draw, bool `(n_draws, N)`, from the `labels` of N images in any order."""
    generator = np.random.default_rng(seed)
    members = {}
    for index, label in enumerate(labels):
        members.setdefault(label, []).append(index)
    draws = np.zeros((n_draws, len(labels)), dtype=bool)
    for draw in draws:
        for indices in members.values():
            draw[indices[generator.integers(len(indices))]] = True
    return draws
