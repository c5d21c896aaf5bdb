"""In-Shop Clothes Retrieval of DeepFashion: 52,712 images of 7,982 items (Liu et al., CVPR 2016).

Test images are queries or in the gallery.
"""

import re
from pathlib import Path

from datasets import _download, _layout
from datasets._images import Image
from datasets._layout import Published, Reading
from utilities.errors import UserError
from utilities.reading import read_text

FOLDERS = (
    "inshop",
    "In-shop Clothes Retrieval Benchmark",
    "In-shop_Clothes_Retrieval_Benchmark",
    "deepfashion_inshop",
    "DeepFashion/In-shop Clothes Retrieval Benchmark",
)
LIST = "list_eval_partition.txt"
COLUMNS = ["image_name", "item_id", "evaluation_status"]
STATUS = ("train", "query", "gallery")
ITEM = re.compile(r"id_(\d+)")
# possible places of the list's `img/`
IMAGES = ("img", "Img/img", "Img", "img_highres", "Img/img_highres")
EXPECTED = (
    f"{LIST}, or Eval/{LIST}, and the images under img/, Img/img/ or img_highres/, as "
    "<gender>/<category>/id_00000002/<images>"
)
PUBLISHED = Published(classes=(3997, 3985), images=(25882, 26830), query=(14218, 3985), gallery=(12612, 3985))
DOWNLOAD = _download.Source(
    folder="inshop",
    archives=(),
    alternatives="In-shop Clothes Retrieval Benchmark of DeepFashion, whose terms are to be accepted first: "
    "https://mmlab.ie.cuhk.edu.hk/projects/DeepFashion/InShopRetrieval.html",
)
EVALUATION_METRICS = ["e_recall@1", "e_recall@10", "e_recall@20", "e_recall@30", "e_recall@40"]


def recognises(root: Path) -> bool:
    """Whether `root` holds the list, itself or in `Eval`."""
    return _list(root).exists()


def read(opt, root: Path) -> Reading:
    """The images in the order of their items' ids; the list says which are training, query and gallery images."""
    path = _list(root)
    rows, notes = _rows(path, opt)
    items = {}
    for number, (file, item, status) in enumerate(rows, start=3):
        digits = ITEM.fullmatch(item)
        if digits is None or status not in STATUS or len(file.split("/")) < 5:
            raise UserError(
                f"{path}, row {number}: {file!r} {item!r} {status!r}, expected img/…/id_00000002/… id_00000002 "
                f"{'|'.join(STATUS)}"
            )
        # without the list's `img/`
        below = file.split("/", 1)[1]
        category = "/".join(below.split("/")[:2])
        image = Image(below, digits[1], category, is_query=status != "gallery", is_gallery=status != "query")
        images = items.setdefault(digits[1], [])
        images.append(image)
        if _is_training(image) != _is_training(images[0]):
            raise UserError(
                f"{path}, row {number}: item {item} is in train and in {status}, test items are new ones: the list is "
                "damaged"
            )
    images = []
    for item in sorted(items, key=int):
        images += items[item]
    reading = _layout.listed(_folder(root, rows), images)
    reading.train_classes = {image.class_name for image in images if _is_training(image)}
    reading.notes += notes
    return reading


def _list(root: Path) -> Path:
    return root / LIST if (root / LIST).exists() else root / "Eval" / LIST


def _is_training(image: Image) -> bool:
    """Whether an image is a training image: these have both roles."""
    return image.is_query and image.is_gallery


def _rows(path: Path, opt) -> tuple[list[list[str]], list[str]]:
    """The rows of the list after the first two, and notes. Raises UserError if it is not such a list, or cut short."""
    try:
        first, header, *lines = [line.split() for line in read_text(path, "restore it").splitlines() if line.strip()]
        count = int(first[0])
    except (ValueError, IndexError) as error:
        expected = f"expected the count in the first line, then {' '.join(COLUMNS)}"
        raise UserError(f"{path} cannot be read ({expected}): restore it") from error
    if header != COLUMNS:
        raise UserError(f"{path} has the columns {' '.join(header)!r}, expected {' '.join(COLUMNS)!r}")
    for number, row in enumerate(lines, start=3):
        if len(row) != len(COLUMNS):
            raise UserError(f"{path}, row {number}: {len(row)} fields, expected {len(COLUMNS)}: the file is damaged")
    if len(lines) == count:
        return lines, []
    note = f"{path} lists {len(lines):,} images, but its first line says {count:,}"
    if not opt.allow_partial_dataset:
        raise UserError(f"{note}: it is cut short. Restore it, or go on with --allow_partial_dataset")
    return lines, [note]


def _folder(root: Path, rows: list[list[str]]) -> Path:
    """The folder of the images: the first that holds the first image's gender, such as WOMEN."""
    gender = rows[0][0].split("/")[1] if rows else ""
    for folder in IMAGES:
        if (root / folder / gender).is_dir():
            return root / folder
    return root / IMAGES[0]
