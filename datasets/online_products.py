"""Stanford Online Products: 120,053 images of 22,634 products in 12 categories (Song et al., arXiv 1511.06452)."""

from pathlib import Path

from datasets import _download, _layout
from datasets._images import Image
from datasets._layout import Published, Reading
from utilities.errors import UserError

FOLDERS = ("online_products", "Stanford_Online_Products")
DRIVE = "https://drive.usercontent.google.com/download"
EXPECTED = (
    "Ebay_train.txt, Ebay_test.txt and <category>_final/<images>; or Info_Files/ with the lists and "
    "images/<category>_final/<images>"
)
PUBLISHED = Published(classes=(11318, 11316), images=(59551, 60502))
DOWNLOAD = _download.Source(
    folder="Stanford_Online_Products",
    archives=(
        _download.Archive(
            file="Stanford_Online_Products.zip",
            md5="7f73d41a2f44250d4779881525aea32e",
            urls=(
                f"{DRIVE}?id=1TclrpQOF_ullUP99wk_gjGN8pKvtErG8&export=download&confirm=t",
                "ftp://cs.stanford.edu/cs/cvgl/Stanford_Online_Products.zip",
            ),
        ),
    ),
    alternatives="Stanford_Online_Products.zip from https://cvgl.stanford.edu/projects/lifted_struct/, or from "
    "https://drive.google.com/uc?id=1TclrpQOF_ullUP99wk_gjGN8pKvtErG8, or online_products.tar from "
    "https://www.dropbox.com/s/fu8dgxulf10hns9/online_products.tar",
)
ALSO_CALLED = ("sop",)  # in names of groups
TABLE_ORDER = 3  # among the data sets of a paper's table


def recognises(root: Path) -> bool:
    """Whether `root` holds one of the lists."""
    return any((_lists(root) / f"Ebay_{part}.txt").exists() for part in ("train", "test"))


def validation_groups(names: list[str]) -> list[list[str]]:
    """Validation is cut within each of the 12 categories, as in the ICML code.

    Class names hold the category, as `00001.bicycle`.
    """
    groups = {}
    for name in names:
        groups.setdefault(name.partition(".")[2], []).append(name)
    return list(groups.values())


def read(opt, root: Path) -> Reading:
    """The images of both lists in the order of their class ids; the lists say which classes train."""
    folder = root / "images" if (root / "images").is_dir() else root
    images = []
    train_classes = set()
    for part in ("train", "test"):
        path = _lists(root) / f"Ebay_{part}.txt"
        header, *rows = _layout.read_table(path) or [[]]
        if header != ["image_id", "class_id", "super_class_id", "path"]:
            raise UserError(
                f"{path} begins with {' '.join(header)!r}, expected 'image_id class_id super_class_id path'"
            )
        rows = _layout.typed(path, rows, start=2, image_id=int, class_id=int, super_class_id=int, file=str)
        for _, class_id, _, file in sorted(rows, key=lambda row: (row[1], row[0])):
            category = file.split("/")[0].removesuffix("_final")
            images.append(Image(file, f"{class_id:05d}.{category}", category))
        if part == "train":
            train_classes = {image.class_name for image in images}
    reading = _layout.listed(folder, images)
    reading.train_classes = train_classes
    return reading


def _lists(root: Path) -> Path:
    return root / "Info_Files" if (root / "Info_Files").is_dir() else root
