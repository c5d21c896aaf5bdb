"""CUB200-2011, birds: 11,788 images of 200 classes (Wah et al., Caltech 2011)."""

from pathlib import Path

from datasets import _download, _layout
from datasets._layout import Published, Reading

FOLDERS = ("cub200", "CUB_200_2011", "cub2011/CUB_200_2011")
EXPECTED = "images/<001.class>/<images>, in the official release with images.txt, image_class_labels.txt and classes.txt beside it"
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


def recognises(root: Path) -> bool:
    """Whether `root` holds the data set: its `images`, or the class folders themselves."""
    return (root / "images").is_dir() or any(path.is_dir() for path in root.glob("001.*"))


def read(opt, root: Path) -> Reading:
    """The images in the order of the official class ids, from the lists of the release or from the numbered folders."""
    lists = [root / file for file in ("images.txt", "image_class_labels.txt")]
    if not all(path.exists() for path in lists):
        return _layout.class_folders([root / "images" if (root / "images").is_dir() else root], opt, by_id=True)
    files, labels = (dict(_layout.read_table(path)) for path in lists)
    names = dict(_layout.read_table(root / "classes.txt")) if (root / "classes.txt").exists() else {}
    rows = sorted((int(labels[image]), int(image), file) for image, file in files.items() if image in labels)
    named = [(file, names.get(str(label), file.split("/")[0]), None) for label, _, file in rows]
    return _layout.listed(root / "images", named)
