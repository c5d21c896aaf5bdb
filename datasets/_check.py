"""`--check_data`: all that is wrong with a data set's files, found at once."""

import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tqdm import tqdm

from datasets import _files, _images, _layout
from datasets._images import suffixes
from utilities.errors import UserError
from utilities.files import walk

THREADS = 16


def problems(read, split, root: Path, opt) -> list[str]:
    """What is wrong, a line each: layout, undecodable images, stray files and folders, copies, small classes.

    Images are decoded and copies searched for whatever else is wrong: if the layout cannot be read, all images below
    `root`, whose classes are then the folders that hold them.

    Args:
        read: gives the data set's `_layout.Reading`. split: a reading -> its images by split.
    """
    lines = list(strays(root)) if opt.dataset == "folder" else []
    try:
        reading = read()
    except UserError as error:
        lines.insert(0, str(error))
        paths = _layout.below(root)
        reading = _layout.Reading([_images.Image(path, os.path.relpath(os.path.dirname(path), root)) for path in paths])
        splits = _in_one_split(reading.images)
    else:
        lines += [f"{path}: missing" for path in reading.missing]
        try:
            splits = split(reading)
        except UserError as error:
            lines.insert(0, str(error))
            splits = _in_one_split(reading.images)
    lines += filter(None, undecodable(reading.images, opt))
    return [*lines, *_copies(reading, splits, root), *_small_classes(reading.images, opt)]


def _in_one_split(images: list[_images.Image]) -> dict:
    return {"training": images, "validation": None, "testing": None}


def undecodable(images: list[_images.Image], opt) -> list[str | None]:
    """Why each image cannot be decoded; None if it can."""
    with ThreadPoolExecutor(THREADS) as pool:
        faults = pool.map(lambda image: _undecodable(image, opt), images)
        return list(tqdm(faults, "decoding", len(images), leave=False, unit="img", disable=None))


def _copies(reading: _layout.Reading, splits: dict, root: Path) -> list[str]:
    """The lines on equal files and on images in several splits; none of a set that this program makes."""
    if reading.is_rendered:
        return []
    files = _files.Files(reading.images, root)
    dark = _files.dark_16_bit(files.paths)
    return list(filter(None, [dark, _files.repeated(splits), _files.copies_found(*files.copies(), splits)]))


def _small_classes(images: list[_images.Image], opt) -> list[str]:
    sizes = Counter(image.class_name for image in images if image.class_name is not None)
    rule = f"fewer than --samples_per_class {opt.samples_per_class}: a batch repeats them"
    small = {name: size for name, size in sizes.items() if size < opt.samples_per_class}
    return [f"class {name}: {size} images, {rule}" for name, size in small.items()]


def _undecodable(image: _images.Image, opt) -> str | None:
    try:
        decoded = _images.decode(image.path, opt.max_image_pixels)
        if image.box is not None:
            _images.crop(decoded, image.box, image.path)
    except UserError as error:
        return str(error)
    return None


def strays(root: Path):
    """Lines on a tree of class folders: files that are no images, images beside folders, folders without images."""
    contents = {}
    for folder, folders, files in walk(root):
        folders[:] = [name for name in folders if not _layout.is_hidden(name)]
        contents[Path(folder)] = sorted(files)
    holding = {}
    for folder, files in contents.items():
        holding[folder] = [name for name in files if _layout.ending(name) in suffixes()]
    above = {parent for folder, images in holding.items() if images for parent in folder.parents}
    for folder, files in sorted(contents.items()):
        below = folder in above
        if not holding[folder] and not below:
            yield f"{folder}: a folder without images"
        if holding[folder] and below:
            yield f"{folder / holding[folder][0]}: an image beside folders of images ({len(holding[folder])} here)"
        for name in files:
            if not name.startswith(".") and name not in holding[folder]:
                yield f"{folder / name}: no image by its name, ignored"
