"""CUB200-2011, birds: 11,788 images of 200 classes (Wah et al., Caltech 2011)."""

from pathlib import Path

from datasets import _download, _layout
from datasets._images import Image
from datasets._layout import Published, Reading
from options.flags import Flag
from utilities.errors import UserError

FOLDERS = ("cub200", "CUB_200_2011", "cub2011/CUB_200_2011")
EXPECTED = (
    "images/<001.class>/<images>, in the official release with images.txt, image_class_labels.txt and classes.txt "
    "beside it"
)
PUBLISHED = Published(classes=(100, 100), images=(5864, 5924))
DOWNLOAD = _download.Source(
    folder="CUB_200_2011",
    archives=(
        _download.Archive(
            file="CUB_200_2011.tgz",
            md5="97eceeb196236b17998738112f37df78",
            urls=("https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz?download=1",),
        ),
    ),
    alternatives="CUB_200_2011.tgz from https://data.caltech.edu/records/65de6-vp158, or cub200.tar from "
    "https://www.dropbox.com/s/tjhf7fbxw5f9u0q/cub200.tar",
)
ALSO_CALLED = ("cub", "cub256")  # in names of groups
TABLE_ORDER = 1  # among the data sets of a paper's table

FLAGS = {
    "--cub_boxes": Flag(
        bool,
        False,
        "cub200: crop every image, in training and test, to the bird's bounding box (bounding_boxes.txt of the "
        "release); results are not comparable with those on whole images",
    ),
}


def recognises(root: Path) -> bool:
    """Whether `root` holds the data set: its `images`, or the class folders themselves."""
    return (root / "images").is_dir() or any(path.is_dir() for path in root.glob("001.*"))


def read(opt, root: Path) -> Reading:
    """The images in the order of the official class ids, from the lists of the release or from the numbered folders."""
    images_list = root / "images.txt"
    labels_list = root / "image_class_labels.txt"
    if not (images_list.exists() and labels_list.exists()):
        if opt.cub_boxes:
            raise UserError(
                f"--cub_boxes needs the lists of the official release, and {root} has no {images_list.name}: "
                f"{DOWNLOAD.alternatives}"
            )
        folder = root / "images" if (root / "images").is_dir() else root
        return _layout.class_folders([folder], opt, by_id=True)
    files = dict(_table(images_list, image=int, file=str))
    labels = dict(_table(labels_list, image=int, label=int))
    names = {}
    if (root / "classes.txt").exists():
        names = dict(_table(root / "classes.txt", label=int, name=str))
    boxes = {}
    if opt.cub_boxes:
        boxes = _boxes(root / "bounding_boxes.txt")
    images = []
    rows = [(labels[image], image, file) for image, file in files.items() if image in labels]
    for label, image, file in sorted(rows):
        if opt.cub_boxes and image not in boxes:
            raise UserError(
                f"--cub_boxes: {root / 'bounding_boxes.txt'} has no box of image {image}, {file}: restore the file"
            )
        images.append(Image(file, names.get(label, file.split("/")[0]), box=boxes.get(image)))
    return _layout.listed(root / "images", images)


def _table(path: Path, **kinds) -> list[tuple]:
    """The rows of one of the lists. Raises UserError if it is missing or damaged."""
    return _layout.typed(path, _layout.read_table(path), **kinds)


def _boxes(path: Path) -> dict[int, tuple[float, float, float, float]]:
    """The box of each image by its id. Raises UserError if the file is missing or damaged."""
    rows = _table(path, image=int, x=float, y=float, width=float, height=float)
    return {image: (x, y, x + width, y + height) for image, x, y, width, height in rows}
