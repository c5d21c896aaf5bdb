"""Splits that a file names: --split_scheme predefined --split_file splits.json."""

import os
from collections import defaultdict
from pathlib import Path

import numpy as np

from datasets._images import Image
from utilities.errors import UserError
from utilities.reading import Unreadable, read_json
from utilities.registry import did_you_mean
from utilities.splits import SPLITS


def read(path: str) -> dict[str, list[str]]:
    """Split -> names, from `--split_file`. Raises UserError if it is missing, not JSON, or has another form."""
    try:
        content = read_json(os.path.expanduser(path))
    except Unreadable as error:
        raise UserError(f"--split_file {path}: {error.reason}") from error
    if not isinstance(content, dict) or not {"train", "test"} <= set(content) <= set(SPLITS):
        keys = ", ".join(map(str, content)) if isinstance(content, dict) else type(content).__name__
        raise UserError(
            f"--split_file {path}: expected an object with train, test and optionally val, found {keys or 'nothing'}"
        )
    for split, names in content.items():
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            raise UserError(
                f"--split_file {path}: {split} must be a list of class names or image paths, with one at least"
            )
    return content


def rows_of_splits(
    classes: dict[str, list[Image]], images: list[Image], path: str, root: Path | str
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
    """The rows of training, validation (None if it names none) and test; images that it does not name are left out.

    An entry is a class, or an image's path, absolute or below `root`. Raises UserError as `read`, and for an entry that
    names nothing, or is in two splits.
    """
    class_rows = defaultdict(list)
    # a file with several boxes is several images
    path_rows = defaultdict(list)
    for row, image in enumerate(images):
        class_rows[image.class_name].append(row)
        path_rows[os.path.normpath(image.path)].append(row)

    def rows_of(name: str) -> list[int]:
        if name in classes:
            return class_rows[name]
        return path_rows.get(os.path.normpath(os.path.join(root, name)), [])

    split_of = np.full(len(images), -1)
    content = read(path)
    for number, split in enumerate(SPLITS):
        for name in content.get(split, ()):
            rows = rows_of(name)
            if not rows:
                raise UserError(
                    f"--split_file {path}: {split} names {name!r}, no class and no image of the data set."
                    f"{did_you_mean(name, classes)}"
                )
            earlier = set(split_of[rows].tolist()) - {-1}
            if earlier:
                earlier_split = SPLITS[min(earlier)]
                splits = f"twice in {split}" if earlier_split == split else f"in {earlier_split} and in {split}"
                raise UserError(f"--split_file {path}: {name!r} is {splits}: splits must be disjoint, name it once")
            split_of[rows] = number
    training, validation, testing = (np.flatnonzero(split_of == number) for number in range(len(SPLITS)))
    if "val" not in content:
        validation = None
    return training, validation, testing
