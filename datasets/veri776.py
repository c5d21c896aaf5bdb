"""VeRi-776: 776 vehicles in twenty cameras, re-identification from image to image (Liu et al., ECCV 2016)."""

import re
from pathlib import Path

from datasets import _download, _reid
from datasets._layout import Published, Reading

FOLDERS = ("veri776", "VeRi", "VeRi-776", "veri")
TRAINING = "image_train"
QUERY = "image_query"
GALLERY = "image_test"
# 0002_c002_00030600_0.jpg: vehicle, camera, time, box
NAME = re.compile(r"(\d+)_c(\d\d\d)")
EXPECTED = f"{TRAINING}/, {QUERY}/ and {GALLERY}/ with images like 0002_c002_00030600_0.jpg"
PUBLISHED = Published(classes=(None, None), images=(37778, None), query=(1678, None), gallery=(11579, None))
DOWNLOAD = _download.Source(
    folder="veri776",
    archives=(),
    alternatives="VeRi on request, for research, from https://vehiclereid.github.io/VeRi/",
)
EVALUATION_METRICS = _reid.EVALUATION_METRICS
derived = _reid.unset


def recognises(root: Path) -> bool:
    """Whether `root` holds the folder of the training images."""
    return (root / TRAINING).is_dir()


def read(opt, root: Path) -> Reading:
    """The images by vehicle. A query that is in the gallery too, under the same name, is one image with both roles."""
    example = "0002_c002_00030600_0.jpg"
    training, queries, gallery = (_reid.shots(root, folder, NAME, example) for folder in (TRAINING, QUERY, GALLERY))
    gallery_shots = set(gallery)
    merged = []
    for query in queries:
        in_gallery = query._replace(path=f"{GALLERY}/{Path(query.path).name}")
        if in_gallery in gallery_shots:
            query = in_gallery
        merged.append(query)
    return _reid.reading(root, opt, training, merged, gallery)
