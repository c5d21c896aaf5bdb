"""Features of a frozen network on disk: computed once, in shards, by a key of everything that decides them."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from datasets import MOST_HASHED
from utilities.errors import NotFinite
from utilities.files import make_folder, write_json, write_npz
from utilities.reading import Unreadable, parsing, read_arrays

ROWS = 1024  # images of a shard: what a kill costs
KEY = "key.json"  # beside the shards: what the key was made of, for people
TYPES = ("float32", "float16")


class Shard(NamedTuple):
    """Features `(n, D)` of consecutive images, the seconds that they took and the device that computed them."""

    features: np.ndarray
    seconds: float
    device: str


def digest(description: dict) -> str:
    """The key of a description: equal for equal content."""
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()[:32]


def hash_of(state: dict) -> str:
    """SHA-256 of a state dict: names, types, shapes and bytes."""
    checksum = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        checksum.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        checksum.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return checksum.hexdigest()


def images_of(dataset) -> dict:
    """What says which images a split has, in which order and with which boxes, not where the folder lies.

    Names, sizes, times of change, and of data sets of up to 2 GB the checksum of the files' bytes.
    """
    paths = "\n".join(str(path).removeprefix(dataset.root) for path in dataset.paths)
    boxes = b"" if dataset.boxes is None else dataset.boxes.tobytes()
    split = "training" if dataset.split == "evaluation" else dataset.split
    content = dataset.class_lists.get(split, "")
    listed = "\n".join((paths, content)).encode() + b"\n" + boxes
    return {**dataset.fingerprint, "split": hashlib.sha256(listed).hexdigest()}


def stamp_of(file: Path) -> list:
    """What says which content a file has: its SHA-256 sum, of a file of more than 2 GB its size and time of change."""
    stat = file.stat()
    if stat.st_size > MOST_HASHED:
        return [stat.st_size, stat.st_mtime_ns]
    with open(file, "rb") as content:
        return [hashlib.file_digest(content, "sha256").hexdigest()]


class Store:
    """The shards of one network on one split.

    Args:
        folder: of all stores. description: what decides the features, for `digest`.
        size: number of images. dtype: of `TYPES`.
    """

    def __init__(self, folder: Path, description: dict, size: int, dtype: str = TYPES[0]):
        self.about = {**description, "dtype": dtype}
        self.size = size
        self.dtype = dtype
        self.folder = folder / digest(self.about)
        self.parts = [slice(start, min(start + ROWS, size)) for start in range(0, size, ROWS)]

    def path(self, part: slice) -> Path:
        """The file of a part of the images."""
        return self.folder / f"{part.start:09d}.npz"

    def shard(self, part: slice) -> Shard | None:
        """A part of the features; None where the file is missing, or a kill or a full disk has cut it."""
        try:
            with parsing(self.path(part)):
                features, seconds, device = read_arrays(self.path(part), Shard._fields).values()
                shard = Shard(features, float(seconds), str(device))
        except Unreadable:
            return None
        is_whole = features.ndim == 2 and len(features) == part.stop - part.start
        return shard if is_whole else None

    def read(self) -> tuple[np.ndarray, float, set[str]] | None:
        """Features `(N, D)` float32, the seconds that they took, on which devices; None unless all are there."""
        shards = []
        for part in self.parts:
            shards.append(self.shard(part))
            if shards[-1] is None:
                return None
        rows = np.concatenate([shard.features for shard in shards]).astype(np.float32, copy=False)
        return rows, sum(shard.seconds for shard in shards), {shard.device for shard in shards}

    def fill(self, embed: Callable, device: str, done: Callable = lambda count: None) -> None:
        """Compute and write what is missing.

        `embed`: slice of the images -> features `(n, D)` and seconds. `done` is told the number of images of each part.
        Raises UserError.
        """
        make_folder(self.folder, f"the folder of features {self.folder}")
        write_json(self.folder / KEY, self.about)
        for part in self.parts:
            if self.shard(part) is None:
                features, seconds = embed(part)
                if not np.isfinite(features).all():
                    raise NotFinite(
                        f"{self.about.get('name')}: the network gives NaN or infinity on images {part.start} to "
                        f"{part.stop - 1}: take --precision float32"
                    )
                with np.errstate(over="ignore"):
                    stored = features.astype(self.dtype)
                if not np.isfinite(stored).all():
                    raise NotFinite(
                        f"--feature_type {self.dtype}: features of {self.about.get('name')} exceed its range: "
                        "take float32"
                    )
                write_npz(self.path(part), dict(features=stored, seconds=seconds, device=device))
            done(part.stop - part.start)
