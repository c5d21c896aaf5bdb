"""Rows of features in place of images, as `--dataset arrays` gives them: an item of a split is its row `(F,)`."""

import hashlib
import zlib

import numpy as np
import torch

from datasets._files import Files, _groups
from datasets._images import Image
from datasets._steps import Steps
from utilities.errors import UserError


class Rows:
    """The rows of an array by their names, in place of a reader of images: `rows(name)`, float32 `(F,)`.

    Args:
        array: `(N, F)`, perhaps a memory map. names: of the rows.
    """

    def __init__(self, array: np.ndarray, names: list[str]):
        self.array = array
        self.number_of = {name: number for number, name in enumerate(names)}

    def __call__(self, name: str) -> torch.Tensor:
        return torch.from_numpy(self.array[self.number_of[name]].astype(np.float32))

    def content(self, name: str) -> bytes:
        """The bytes of a row."""
        return self.array[self.number_of[name]].tobytes()


class NoTransform(Steps):
    """What is done to rows: nothing."""

    def __init__(self, width: int):
        super().__init__([], width)
        self.text = f"{width} features, as they are"


class RowFiles(Files):
    """The rows of a data set in place of its files."""

    def __init__(self, images: list[Image], root, rows: Rows):
        self.root = str(root)
        self.paths = [image.path for image in images]
        self.stats = [(rows.array[0].nbytes, 0)] * len(images)
        self.rows = rows

    def name(self, path: str) -> str:
        """The row's name."""
        return path

    def fingerprint(self) -> dict:
        """As of files, but its sum is also of the rows' numbers: their sizes are equal."""
        return {**super().fingerprint(), "sha256": self.digest(self._checksums())}

    def _checksums(self) -> list[int]:
        return [zlib.crc32(self.rows.content(path)) for path in self.paths]

    def copies(self) -> tuple[list[list[str]], int]:
        """Groups of the names of equal rows; all are compared."""
        return _groups(self.paths, [hashlib.sha256(self.rows.content(path)).digest() for path in self.paths]), 0


class Preparation:
    """`preparation(row)`: float32 `(F,)`, as a network that takes features gets it; compare `_own.Preparation`."""

    def __init__(self, width: int):
        self.size = (width,)
        self.text = NoTransform(width).text

    def blank(self, count: int) -> torch.Tensor:
        """Rows of zeros `(count, F)`."""
        return torch.zeros(count, *self.size)

    def described(self) -> list[dict]:
        """The steps before the network: those of another program."""
        return [{"features": f"{self.text}, computed as those of the training"}]

    def __call__(self, row) -> torch.Tensor:
        """Raises UserError for what is no array or tensor `(F,)`, and for NaN."""
        if not isinstance(row, np.ndarray | torch.Tensor) or tuple(row.shape) != self.size:
            value = getattr(row, "shape", row)
            raise UserError(f"{value}: this run takes rows of {self.size[0]} features (--dataset arrays)")
        row = torch.as_tensor(row).to(torch.float32)
        if not row.isfinite().all():
            raise UserError("a row of features holds NaN or infinity")
        return row


def width_of(module, opt) -> int | None:
    """Number of features of the rows that a data set's file gives; None: it gives images."""
    return module.width(opt) if hasattr(module, "width") else None


def check_input(name: str, width: int | None, input_size) -> None:
    """Raise UserError where a network takes something else than the data set `name` gives.

    Args:
        width: number of features of its rows; None: it gives images.
        input_size: of the network's images; (F,): it takes features; None: there is no network.
    """
    taken_width = None
    if isinstance(input_size, tuple) and len(input_size) == 1:
        (taken_width,) = input_size
    if input_size is not None and width != taken_width:
        contents = ["images" if number is None else f"rows of {number} features" for number in (width, taken_width)]
        raise UserError(f"--dataset {name} gives {contents[0]}, and this network takes {contents[1]}")


def check_parts(name: str, images: dict[str, list[Image] | None]) -> None:
    """Raise UserError for a split with a single class."""
    for split, split_images in images.items():
        classes = {image.class_name for image in split_images or ()} - {None}
        if len(classes) == 1:
            raise UserError(f"--dataset {name}: all rows of {split} are of class {min(classes)!r}, two are needed")
