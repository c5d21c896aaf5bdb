"""UnED: eight domains, from cars to landmarks, with splits of their own and one index (Ypsilantis et al., ICCV 2023,
arXiv 2309.01858).

Test queries of all domains search the eight indexes together; a hit needs the query's class and domain. Results come
for each domain, and as their plain mean. A query of Google Landmarks may show several landmarks: its first is its
class, and it is to find the images of all.
"""

from pathlib import Path

from datasets import _domains, _download, _layout
from datasets._images import Image, uncollected
from datasets._layout import Published, Reading
from utilities.errors import UserError
from utilities.reading import read_json

FOLDERS = ("uned", "uned/data", "UnED", "UnED/data", "Universal-Image-Embeddings/data")
DOMAINS = ("food2k", "cars", "sop", "inshop", "inat", "met", "gldv2", "rp2k")
SPLITS = "info_files"
IMAGES = "images"
INDEXES = {  # split files of images that are found alone, of the domains whose queries do not search each other
    "inshop": {"test": "index"},
    "met": {"val": "small_index", "test": "index"},
    "gldv2": {"test": "index"},
}
EXPECTED = (
    f"{SPLITS}/<domain>/<split>.json of the eight domains, and their images below {IMAGES}/, as {IMAGES}/cars/car_ims"
)
PUBLISHED = Published(
    classes=(316_446, None), images=(2_831_222, 1_413_476), query=(241_986, None), gallery=(1_397_126, None)
)
EVALUATION_METRICS = ["mmp@5", "e_recall@1", "map@5"]
DOWNLOAD = _download.Source(
    folder="uned",
    archives=(),
    alternatives="split files and the addresses of the eight data sets: https://cmp.felk.cvut.cz/univ_emb/",
)


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
    return (root / SPLITS).is_dir()


@uncollected()
def read(opt, root: Path) -> Reading:
    """The images of one domain after the other. Raises UserError where a split file is missing or damaged, or holds no
    image.
    """
    reading = Reading([], split_of=[], by_domain=True)
    rows = []
    for domain in DOMAINS:
        for split in ("train", "val", "test"):
            index = INDEXES.get(domain, {}).get(split)
            files = [(split, True, index is None), *([(index, False, True)] if index else [])]
            rows += [
                (split, domain, *row, *role)
                for name, *role in files
                for row in _rows(root / SPLITS / domain / f"{name}.json")
            ]
    there = _layout.existing(root / IMAGES, (path for _, _, path, *_ in rows))
    escaped = [_escaped(path) for _, _, path, *_ in rows]
    there |= _layout.existing(
        root / IMAGES, (path for (_, _, plain, *_), path in zip(rows, escaped, strict=True) if plain not in there)
    )
    for (split, domain, path, classes, *role), other in zip(rows, escaped, strict=True):
        path = path if path in there or other not in there else other
        if path not in there:
            reading.missing.append(f"{root / IMAGES}/{path}")
            continue
        reading.images.append(
            _domains.placed(
                Image(f"{root / IMAGES}/{path}", classes[0], None, *role, further_names=classes[1:]), domain
            )
        )
        reading.split_of.append(split)
    reading.notes += _domains.notes(reading)
    return reading


def _escaped(path: str) -> str:
    """The name that some programs give a file when they unpack RP2K: other characters than ASCII as #U and their
    number.
    """
    return path if path.isascii() else "".join(sign if sign.isascii() else f"#U{ord(sign):04x}" for sign in path)


def _rows(path: Path) -> list[tuple[str, tuple[str, ...]]]:
    """Path below the images and classes of each image of a split file."""
    content = read_json(path, "the data set needs the split files of all eight domains")
    rows = []
    for number, row in enumerate(content if isinstance(content, list) else [None], start=1):
        classes = row.get("class_id") if isinstance(row, dict) else None
        classes = classes if isinstance(classes, list) else [classes]
        if None in classes or not classes or not isinstance(row.get("path"), str):
            raise UserError(
                f"{path}, entry {number}: expected an object with path and class_id, a list of such: the file is "
                "damaged"
            )
        rows.append((row["path"], tuple(map(str, classes))))
    if not rows:
        raise UserError(f"{path}: no image in it; a domain without {path.stem} images cannot be measured")
    return rows
