"""Random pictures, and files of them."""

from pathlib import Path

import numpy as np
from PIL import Image


def random_picture(seed, size=(40, 30)):
    """A smooth random RGB picture of `size` (width, height), so that JPEG keeps it nearly as it is."""
    coarse = np.random.default_rng(seed).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC)


def write_image(path, seed, size=(40, 30), mode="RGB"):
    """Write one picture to `path` (the suffix decides the format), making its folders. Returns the path."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    options = {"quality": 90} if path.suffix.lower() in (".jpg", ".jpeg") else {}
    random_picture(seed, size).convert(mode).save(path, **options)
    return path
