"""`--check_data`: all that is wrong with a data set's files, found at once."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tqdm import tqdm

from datasets import _images, _layout
from utilities.errors import UserError

THREADS = 16


def problems(read, root: Path, opt) -> list[str]:
    """What is wrong, a line each: the layout, images that cannot be decoded, stray files and folders, small classes.

    `read()`: gives the data set's `_layout.Reading`.
    """
    found = list(_strays(root)) if opt.dataset == "folder" else []
    try:
        reading = read()
    except UserError as error:  # of the layout: no image is known then
        return [str(error), *found]
    found += [f"{path}: missing" for path in reading.missing]
    with ThreadPoolExecutor(THREADS) as pool:
        told = pool.map(lambda image: _undecodable(image, opt), reading.images)
        found += filter(None, tqdm(told, "decoding", len(reading.images), leave=False, unit="img", disable=None))
    sizes = {}
    for image in (image for image in reading.images if image.class_name is not None):
        sizes[image.class_name] = sizes.get(image.class_name, 0) + 1
    few = {name: size for name, size in sizes.items() if size < opt.samples_per_class}
    return found + [
        f"class {name}: {size} images, fewer than --samples_per_class {opt.samples_per_class}: a batch repeats them" for name, size in few.items()
    ]


def _undecodable(image: _images.Image, opt) -> str | None:
    try:
        decoded = _images.decode(image.path, opt.max_image_pixels)
        if image.box is not None:
            _images.crop(decoded, image.box, image.path)
    except UserError as error:
        return str(error)
    return None


def _strays(root: Path):
    """Of a tree of class folders: files that are no images, images beside folders of images, folders without an image."""
    folders = [(Path(folder), sorted(files)) for folder, _, files in os.walk(root)]
    folders = [one for one in folders if not any(part.startswith(".") for part in one[0].relative_to(root).parts)]
    holding = {folder: [name for name in files if Path(name).suffix.lower() in _layout.SUFFIXES] for folder, files in folders}
    above = {parent for folder, images in holding.items() if images for parent in folder.parents}
    for folder, files in sorted(folders):
        below = folder in above
        if not holding[folder] and not below:
            yield f"{folder}: a folder without images"
        if holding[folder] and below:
            yield f"{folder / holding[folder][0]}: an image beside folders of images ({len(holding[folder])} here)"
        for name in files:
            if not name.startswith(".") and name not in holding[folder]:
                yield f"{folder / name}: no image by its name, ignored"
