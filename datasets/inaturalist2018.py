"""iNaturalist 2018 for retrieval: 461,939 images of 8,142 species.

The split is that of Brown et al. (Smooth-AP, arXiv 2007.12163).
"""

from pathlib import Path

from datasets import _download, _layout
from datasets._images import Image
from datasets._layout import Published, Reading
from options.flags import Flag
from utilities.errors import UserError
from utilities.numbers import is_whole
from utilities.reading import Unreadable, parsing, read_json

FOLDERS = ("inaturalist2018", "inaturalist", "Inaturalist", "iNaturalist2018", "inat2018")
IMAGES = "train_val2018"
LISTS = "Inat_dataset_splits"
TAXA = "train2018.json"
RANKS = ("kingdom", "phylum", "class", "order", "family", "genus")
DRIVE = "https://drive.usercontent.google.com/download"
EXPECTED = f"{IMAGES}/<super>/<id>/<images> and {LISTS}/Inaturalist_train_set1.txt, Inaturalist_test_set1.txt"
PUBLISHED = Published(classes=(5690, 2452), images=(325846, 136093))
DOWNLOAD = _download.Source(
    folder="inaturalist2018",
    archives=(
        _download.Archive(
            file="train_val2018.tar.gz",
            md5="b1c6952ce38f31868cc50ea72d066cc3",
            urls=("https://ml-inat-competition-datasets.s3.amazonaws.com/2018/train_val2018.tar.gz",),
        ),
        _download.Archive(
            file="Inat_dataset_splits.zip",
            # No checksum is published.
            md5=None,
            urls=(f"{DRIVE}?id=1sXfkBTFDrRU3__-NUs1qBP3sf_0uMB98&export=download&confirm=t",),
        ),
    ),
    alternatives="train_val2018.tar.gz (120 GB) from https://github.com/visipedia/inat_comp/tree/master/2018, and the "
    "split files Inat_dataset_splits from https://drive.google.com/uc?id=1sXfkBTFDrRU3__-NUs1qBP3sf_0uMB98",
)
EVALUATION_METRICS = ["e_recall@1", "e_recall@4", "e_recall@16", "e_recall@32"]
# further names of the data set in names of groups
ALSO_CALLED = ("inaturalist",)

FLAGS = {
    "--inaturalist2018_levels": Flag(
        str,
        "base",
        "levels above the species. base: the 13 super-categories of the folders; full: genus, family, order, "
        "class, phylum and kingdom, from train2018.json",
        choices=["base", "full"],
    ),
}


def recognises(root: Path) -> bool:
    """Whether `root` holds one of the two lists, itself or in their folder."""
    return any(_list(root, part).exists() for part in ("train", "test"))


def read(opt, root: Path) -> Reading:
    """The images in the order of their species' ids; the lists say which classes train."""
    classes = {}
    train_classes = set()
    taxa = _taxa(root / TAXA) if opt.inaturalist2018_levels == "full" else None
    for part in ("train", "test"):
        path = _list(root, part)
        for number, row in enumerate(_layout.read_table(path), start=1):
            entry = " ".join(row)
            # paths may begin with the folder of the images, or below it
            fields = entry.split("/")[-3:]
            if len(fields) < 3:
                raise UserError(f"{path}, row {number}: {entry!r}, expected {IMAGES}/<super>/<id>/<image>")
            name = "/".join(fields[:2])
            classes.setdefault(name, []).append(Image("/".join(fields), name, fields[0]))
            if part == "train":
                train_classes.add(name)
            elif name in train_classes:
                raise UserError(
                    f"{path}, row {number}: species {name} is in train and in test, test species are new ones: a list "
                    "is damaged"
                )
    if taxa is not None:
        classes = {name: _with_taxa(images, taxa, root) for name, images in classes.items()}
    images = []
    for name in sorted(classes, key=_order):
        images += classes[name]
    reading = _layout.listed(root / IMAGES, images)
    reading.train_classes = train_classes
    return reading


def _list(root: Path, part: str) -> Path:
    file = f"Inaturalist_{part}_set1.txt"
    return root / LISTS / file if (root / LISTS / file).exists() else root / file


def _with_taxa(images: list[Image], taxa: dict[str, list[str]], root: Path) -> list[Image]:
    """The images of a species, with its genus as super-class and the levels above. Raises UserError if it has none."""
    species = images[0].class_name.partition("/")[2]
    if species not in taxa:
        raise UserError(
            f"{root / TAXA}: its categories have no id {species}, which the lists name: the file is another one"
        )
    genus, *higher = taxa[species]
    return [image._replace(super_name=genus, higher_names=tuple(higher)) for image in images]


def _taxa(path: Path) -> dict[str, list[str]]:
    """Id of a species -> its genus, family, … kingdom, each as its path from the kingdom.

    A path, as some genera of plants and of animals share a name.
    """
    try:
        with parsing(path):
            taxa = {}
            for category in read_json(path)["categories"]:
                ranks = [category[rank] for rank in RANKS]
                taxa[str(category["id"])] = ["/".join(ranks[:n]) for n in range(len(RANKS), 0, -1)]
            return taxa
    except Unreadable as error:
        if error.is_missing:
            raise UserError(
                f"{path} cannot be read ({error.reason}): --inaturalist2018_levels full needs it, it is in "
                "train2018.json.tar.gz of https://github.com/visipedia/inat_comp/tree/master/2018"
            ) from error
        raise UserError(
            f"{path}: expected JSON with categories of id, {', '.join(RANKS)} ({error.reason}): restore it"
        ) from error


def _order(name: str) -> tuple:
    """Sort key: species by their ids, which are unique across super-classes."""
    number = name.partition("/")[2]
    return (0, int(number), name) if is_whole(number) else (1, 0, name)
