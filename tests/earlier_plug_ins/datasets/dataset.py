"""Photographs that a text file lists, with their class and part."""

from pathlib import Path

from datasets import _layout
from datasets._download import Source
from datasets._images import Image
from datasets._layout import Reading
from utilities.roles import DATA

FOLDERS = ("mine",)  # names under --source; then --source itself is tried
EXPECTED = "images.txt, with `<path> <class> <train|test>` in each line, and the images"
DOWNLOAD = Source(
    folder="mine", archives=(), alternatives="images.txt from its authors"
)  # archives: what --download fetches


def add_arguments(group) -> None:
    """Declare the flags."""
    group.add_argument("--mine_list", default="images.txt", metavar="FILE", help="the list").role = DATA
    group.add_argument("--mine_boxes", action="store_true", help="crop to the boxes").needs = "mine_list"


def recognises(root: Path) -> bool:
    """Whether `root` holds the list."""
    return (root / "images.txt").exists()


def read(opt, root: Path) -> Reading:
    """The images in class order; the list says which classes train."""
    rows = sorted(_layout.read_table(root / opt.mine_list), key=lambda row: row[1])
    reading = _layout.listed(root, [Image(path, name) for path, name, _ in rows])  # paths relative to root
    reading.train_classes = {name for _, name, part in rows if part == "train"}
    return reading
