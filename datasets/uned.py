"""UnED: eight domains with splits of their own and one index (Ypsilantis et al., ICCV 2023, arXiv 2309.01858).

The domains range from cars to landmarks. Test queries of all domains search the eight indexes together; a hit needs the
query's class and domain. Results come for each domain, and as their plain mean. A query of Google Landmarks may show
several landmarks: its first is its class, and the images of all are relevant.
"""

from pathlib import Path

from datasets import _domains, _download, _layout
from datasets._images import Image, uncollected
from datasets._layout import Published, Reading
from utilities.errors import UserError
from utilities.reading import read_json
from utilities.splits import SPLITS

FOLDERS = ("uned", "uned/data", "UnED", "UnED/data", "Universal-Image-Embeddings/data")
DOMAINS = ("food2k", "cars", "sop", "inshop", "inat", "met", "gldv2", "rp2k")
LISTS = "info_files"
IMAGES = "images"
# split files of images of the gallery alone, of the domains whose queries do not search each other
INDEXES = {
    "inshop": {"test": "index"},
    "met": {"val": "small_index", "test": "index"},
    "gldv2": {"test": "index"},
}
EXPECTED = (
    f"{LISTS}/<domain>/<split>.json of the eight domains, and their images below {IMAGES}/, as {IMAGES}/cars/car_ims"
)
PUBLISHED = Published(
    classes=(316_446, None), images=(2_831_222, 1_413_476), query=(241_986, None), gallery=(1_397_126, None)
)
DOWNLOAD = _download.Source(
    folder="uned",
    archives=(),
    alternatives="split files and the addresses of the eight data sets: https://cmp.felk.cvut.cz/univ_emb/",
)
EVALUATION_METRICS = ["mmp@5", "e_recall@1", "map@5"]


def check(opt) -> None:
    """Refuse to measure training and test images together. Raises UserError."""
    if opt.evaluate_all:
        raise UserError(
            "--evaluate_all: the training images of met in --dataset uned are its index too, and would find "
            "themselves: leave it out"
        )


def has_validation(opt) -> bool:
    """Every domain has validation images."""
    return True


def recognises(root: Path) -> bool:
    """Whether `root` holds the split files."""
    return (root / LISTS).is_dir()


@uncollected()
def read(opt, root: Path) -> Reading:
    """The images of one domain after the other.

    Raises UserError if a split file is missing or damaged, or holds no image.
    """
    images = []
    splits = []
    for domain in DOMAINS:
        for split in SPLITS:
            split_images = _images(root, domain, split)
            images += split_images
            splits += [split] * len(split_images)

    folder = root / IMAGES
    existing = _layout.existing(folder, (image.path for image in images))
    existing |= _layout.existing(folder, (_escaped(image.path) for image in images if image.path not in existing))
    reading = Reading([], split_of=[], by_domain=True)
    for image, split in zip(images, splits, strict=True):
        path = image.path
        if path not in existing and _escaped(path) in existing:
            path = _escaped(path)
        if path not in existing:
            reading.missing.append(f"{folder}/{path}")
            continue
        reading.images.append(image._replace(path=f"{folder}/{path}"))
        reading.split_of.append(split)
    reading.notes += _domains.notes(reading)
    return reading


def _images(root: Path, domain: str, split: str) -> list[Image]:
    """The images of a domain's split files, with paths below the folder of the images."""
    index = INDEXES.get(domain, {}).get(split)
    images = []
    for path, classes in _rows(root / LISTS / domain / f"{split}.json"):
        image = Image(path, classes[0], is_gallery=index is None, further_names=classes[1:])
        images.append(_domains.placed(image, domain))
    if index is not None:
        for path, classes in _rows(root / LISTS / domain / f"{index}.json"):
            image = Image(path, classes[0], is_query=False, further_names=classes[1:])
            images.append(_domains.placed(image, domain))
    return images


def _escaped(path: str) -> str:
    """The name that some programs give a file when they unpack RP2K: other characters than ASCII as #U and number."""
    signs = [sign if sign.isascii() else f"#U{ord(sign):04x}" for sign in path]
    return "".join(signs)


def _rows(path: Path) -> list[tuple[str, tuple[str, ...]]]:
    """Path below the images and classes of each image of a split file."""
    content = read_json(path, "the data set needs the split files of all eight domains")
    rows = []
    if not isinstance(content, list):
        content = [None]
    for number, row in enumerate(content, start=1):
        classes = None
        if isinstance(row, dict):
            classes = row.get("class_id")
        if not isinstance(classes, list):
            classes = [classes]
        if None in classes or not classes or not isinstance(row.get("path"), str):
            raise UserError(
                f"{path}, entry {number}: expected an object with path and class_id, a list of such: the file is "
                "damaged"
            )
        rows.append((row["path"], tuple(map(str, classes))))
    if not rows:
        raise UserError(f"{path}: no image in it; a domain without {path.stem} images cannot be measured")
    return rows
