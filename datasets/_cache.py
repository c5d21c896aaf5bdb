"""Decoded images on disk, shared by runs and processes: --image_cache, --image_cache_side.

Each combination of data set folder, side and decoders has a folder of its own below --image_cache. There `images-*.bin`
holds the pixels, image after image in their memory layout, and `index.jsonl` one line per image: name, the source's
size and time of change, shape, strides, offset. Both files only grow, pixels reach the disk before their lines, and one
process writes at a time. So each line's pixels are complete, however that process ends.

A cache may come from someone else, so nothing in it is trusted: the file of the pixels has a name of the pattern
`PIXELS`, no file that is read or written is a link, and from the first line on that `_load` cannot use, the images are
decoded again.

The cache is filled before training, not when an image is first loaded: one process writes, with a lock and a progress
bar, and the workers only read.
"""

import contextlib
import functools
import hashlib
import json
import math
import os
import re
import secrets
import shutil
import stat
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from datasets import _images
from utilities.console import say
from utilities.errors import UserError
from utilities.files import expanded, write_file
from utilities.locks import Lock
from utilities.numbers import whole
from utilities.processes import kernels
from utilities.roles import DATA, METHOD, PLACE

VERSION = 1  # of the layout: raise it when a change below alters the files
INDEX = "index.jsonl"
LOCK = "lock"
PIXELS = re.compile(r"images-[0-9a-f]{8}\.bin")  # names of the files of pixels
CHUNK = 64  # images that are in memory at once and written together
THREADS = 16
LEFT_FREE = 1 << 30  # bytes of the disk that the cache leaves free, as the run's own files may lie there


def add_arguments(group) -> None:
    """Declare the flags of the cache."""
    group.add_argument(
        "--image_cache",
        default=None,
        metavar="DIR",
        help="folder where decoded images are kept, written once and shared by runs and processes; a source file that "
        "has changed is decoded anew. It takes width x height x 3 bytes an image. Results do not depend on it (unset: "
        "each image is decoded whenever it is loaded)",
    ).role = PLACE
    group.add_argument(
        "--image_cache_side",
        type=whole(0, 10**4),
        default=0,
        metavar="N",
        help="images whose long side is more than N pixels are scaled down to it when they are decoded, in training "
        "and test, with or without --image_cache: a smaller cache, faster crops, other numbers; 0: no limit",
    ).role = DATA
    group.add_argument(
        "--decode_once",
        action="store_true",
        help="with --image_cache: batches of training images are cut out of it by the main process, and cropped, "
        "resized, flipped, jittered and erased on the device, a whole batch at once. The distribution of the "
        "augmentations stays, their draws are others. For --augmentation base, adv and big; images of several sizes "
        "need --image_cache_side",
    ).role = METHOD
    group.add_argument(
        "--max_image_pixels",
        type=whole(1, 2**40),
        default=_images.MOST_PIXELS,
        metavar="N",
        help=(
            "largest number of pixels of an image: a larger one ends the run, because decoding a small file can take "
            "all memory"
        ),
    ).role = PLACE


class Reader:
    """`reader(path)`: the decoded image, uint8 `(C, H, W)`, its long side limited; from the cache where it is there.

    Args:
        decode: path -> uint8 `(C, H, W)`.
        side: limit of the long side in pixels; 0: none.
        decoder: of the images in the cache, as a step before those of the transform; empty for the package's, which all
            others have.
    """

    def __init__(self, decode, side: int = 0, decoder: str = ""):
        self.decode = decode
        self.side = side
        self.decoder = decoder
        self.cache = None

    def __call__(self, path: str) -> torch.Tensor:
        image = None if self.cache is None else self.cache.get(path)
        return self.fresh(path) if image is None else image

    def fresh(self, path: str) -> torch.Tensor:
        """The image from its source. Raises UserError as `decode`."""
        image = self.decode(path)
        longest = max(image.shape[1:])
        if not self.side or longest <= self.side:
            return image
        from torchvision.transforms.v2 import functional

        smaller = functional.resize(image, list(self._limited(*image.shape[1:])))
        return smaller.permute(1, 2, 0).contiguous().permute(2, 0, 1)  # the memory layout of decoded and cached images

    def size(self, path: str) -> tuple[int, int]:
        """(height, width) of `self(path)`, without decoding."""
        height, width = _images.size(path)
        longest = max(height, width)
        return self._limited(height, width) if self.side and longest > self.side else (height, width)

    def _limited(self, *lengths: int) -> tuple[int, int]:
        """Height and width, scaled so that the longer one is `side`."""
        return tuple(max(round(length * self.side / max(lengths)), 1) for length in lengths)

    @property
    def text(self) -> str:
        """Another decoder and the resizing, written as steps before those of the transform; empty without them."""
        return self.decoder + (f"LongSide({self.side}); " if self.side else "")


def reader(opt, name: str, root, files, grey: bool = False) -> Reader:
    """The reader of a data set's images under the flags; fills the cache.

    Args:
        files: the data set's `_files.Files`.
        grey: read them as `(1, H, W)`, not as `(3, H, W)`.

    Raises UserError where `--image_cache` is not a folder.
    """
    decode = functools.partial(_images.grey if grey else _images.decode, most_pixels=opt.max_image_pixels)
    fill_on_gpu = (
        opt.decode_once
        and not grey
        and torch.version.cuda is not None
        and torch.cuda.is_available()
        and _images.jpeg_package() == "torchvision"
    )
    read = Reader(decode, opt.image_cache_side, f"nvJPEG(CUDA {torch.version.cuda}); " if fill_on_gpu else "")
    if opt.image_cache is None:
        return read
    parent = expanded(opt.image_cache)
    if parent.exists() and not parent.is_dir():
        raise UserError(f"--image_cache {parent}: a file, expected a folder")
    about = {
        "version": VERSION,
        "dataset": name,
        "root": str(Path(root).resolve()),
        "grey": grey,
        "decoders": read.decoder + _images.decoders(),
        "side": read.side,
        **({"torch": torch.__version__.partition("+")[0]} if read.side else {}),
    }
    key = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]
    read.cache = Cache(parent / f"{name}-{key}", about)
    if fill_on_gpu:
        number = torch.cuda.current_device() if torch.distributed.is_initialized() else getattr(opt, "gpu", [0])[0]
        decode = functools.partial(decode, decode_jpeg=_images.on_gpu(torch.device("cuda", number)))
    read.cache.fill(files, Reader(decode, read.side).fresh)
    return read


class Entry(NamedTuple):
    """A line of the index, without the name."""

    size: int
    changed: int
    shape: list[int]
    strides: list[int]  # resizing chooses its kernel by them; images rotated by their EXIF data have other ones
    offset: int

    @property
    def end(self) -> int:
        """Offset of the end of the pixels."""
        return self.offset + math.prod(self.shape)

    def lies_in(self, size: int, channels: int) -> bool:
        """Whether the pixels are `channels` planes without gaps within a file of `size` bytes."""
        lists = (self.shape, self.strides)
        if not all(isinstance(numbers, list) and len(numbers) == 3 for numbers in lists):
            return False
        numbers = (self.size, self.changed, self.offset, *self.shape, *self.strides)
        if not all(type(number) is int for number in numbers):
            return False
        reach = sum((length - 1) * stride for length, stride in zip(self.shape, self.strides, strict=True))
        positive = min(*self.shape, *self.strides) > 0 and self.offset >= 0
        return positive and self.shape[0] == channels and 1 + reach == math.prod(self.shape) and self.end <= size


def _parsed(line: bytes) -> tuple[str, Entry] | None:
    """Name and entry of a line of the index; None where the line is damaged in any way."""
    try:
        name, *numbers = json.loads(line)
        entry = Entry(*numbers)
    except (ValueError, TypeError, RecursionError):
        return None
    return (name, entry) if isinstance(name, str) and line.endswith(b"\n") else None


def _is_plain(status: os.stat_result) -> bool:
    """Whether a file is regular and has one name: a second one may lie outside the cache."""
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1


@contextlib.contextmanager
def _opened(path: Path):
    """Open a file of the cache to be changed, unbuffered.

    Raises OSError for a link, and for what is no regular file.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "r+b", buffering=0) as file:
        if not _is_plain(os.fstat(descriptor)):
            raise OSError(None, f"{path.name} is a link")
        yield file


class Cache:
    """The decoded images of one data set.

    Args:
        folder: the cache's folder. about: what the pixels depend on beside their sources, recorded for a human reader.
    """

    def __init__(self, folder: Path, about: dict):
        self.folder = folder
        self.about = about
        self._clear()

    def _clear(self) -> None:
        # file of the pixels; name -> Entry; valid bytes of the index
        self.data = None
        self.entries = {}
        self.valid_bytes = 0
        # path -> (shape, strides, offset); all pixels as one tensor on the memory map
        self._places = {}
        self._pixels = None

    def get(self, path: str) -> torch.Tensor | None:
        """A copy of the image with the strides of a decoded one; None where it is not in the cache."""
        place = self._places.get(path)
        if place is None:
            return None
        if self._pixels is None and not self._map():
            self._places = {}  # the cache was removed: images are read from their sources
            return None
        return self._pixels.as_strided(*place).clone()  # as the map is read-only

    def holds(self, path: str) -> bool:
        """Whether the image is in the cache and mapped."""
        return self._pixels is not None and path in self._places

    def view(self, path: str) -> np.ndarray:
        """The image on the memory map, uint8 `(H, W, C)`, to be read only. KeyError where it is not there."""
        shape, strides, offset = self._places[path]
        return np.ndarray((*shape[1:], shape[0]), np.uint8, self._pixels.numpy(), offset, (*strides[1:], strides[0]))

    def __getstate__(self):
        return {**vars(self), "_pixels": None}  # a spawned process maps the file itself

    def _map(self) -> bool:
        """Map the pixels into memory. False where the file cannot be mapped."""
        try:
            pixels = np.memmap(self.folder / self.data, dtype=np.uint8, mode="r")
        except (OSError, ValueError):
            return False
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            self._pixels = torch.from_numpy(pixels)
        return True

    def fill(self, files, read) -> None:
        """Decode images that are missing or have changed, and map all pixels. Waits for another process that writes the
        cache.

        If the cache cannot be written, it prints a warning, and missing images are decoded whenever they are loaded.

        Args:
            files: the data set's `_files.Files`. read: path -> uint8 `(C, H, W)`, UserError for a file that cannot be
                decoded.
        """
        wanted = {
            files.name(path): (path, stat) for path, stat in zip(files.paths, files.stats, strict=True) if stat[0]
        }
        lock = Lock(self.folder / LOCK)
        try:
            if self.folder.is_symlink():
                raise OSError(None, "it is a link")
            self._load()
            if self._lacking(wanted):
                self._wait(lock)
                self._load()
                self._write(wanted, read)
        except (OSError, UserError) as error:
            reason = getattr(error, "strerror", None) or error
            lacking = len(self._lacking(wanted))
            print(
                f"WARNING: --image_cache {self.folder} cannot be written ({reason}): {lacking:,} of {len(wanted):,} "
                "images are not in it and are decoded whenever they are loaded. The next run goes on with it",
                file=sys.stderr,
            )
        finally:
            lock.release()
        lacking = self._lacking(wanted)
        known = {}  # one tuple per shape, as most images share theirs: less to copy to every worker
        for name, (path, _) in wanted.items():
            if name not in lacking:
                shape, strides = (known.setdefault(numbers, numbers) for numbers in map(tuple, self.entries[name][2:4]))
                self._places[path] = (shape, strides, self.entries[name].offset)
        self.entries = {}
        if self._places and not self._map():
            self._places = {}

    def _lacking(self, wanted: dict) -> set[str]:
        """The names of `wanted` that are missing, or whose source has changed."""
        return {
            name for name, (_, stat) in wanted.items() if name not in self.entries or self.entries[name][:2] != stat
        }

    def _wait(self, lock: Lock) -> None:
        """Take the lock; print a line where another process has it."""
        if not lock.acquire(wait=False):
            say(f"image cache {self.folder}: {lock.holder() or 'another process'} writes it, this one waits")
            lock.acquire()

    def _load(self) -> None:
        """Read the index up to its last valid line: one that is complete and whose pixels follow those of the line
        before.
        """
        self._clear()
        channels = 1 if self.about.get("grey") else 3
        try:
            if not _is_plain(os.lstat(self.folder / INDEX)):
                return
            first, *lines = (self.folder / INDEX).read_bytes().splitlines(keepends=True)
            data = json.loads(first)["data"]
            status = os.lstat(self.folder / data) if PIXELS.fullmatch(data) else None
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return
        if status is None or not _is_plain(status) or not first.endswith(b"\n"):
            return
        self.data = data
        self.valid_bytes = len(first)
        end = 0
        for line in lines:
            parsed = _parsed(line)
            if parsed is None:
                return
            name, entry = parsed
            if not entry.lies_in(status.st_size, channels) or entry.offset != end:
                return
            self.entries[name] = entry
            self.valid_bytes += len(line)
            end = entry.end

    def _write(self, wanted: dict, read) -> None:
        """Decode and append missing images; into a new file where most of the old one is outdated. Raises OSError,
        UserError.
        """
        lacking = self._lacking(wanted)
        if not lacking:
            return
        changed = len(lacking & set(self.entries))
        if changed:
            say(f"image cache {self.folder}: source files that have changed since, decoded anew: {changed:,}")
        if (
            self.data is None
            or 2 * sum(self.entries[name].end - self.entries[name].offset for name in wanted.keys() - lacking)
            < self._end
        ):
            self._begin_anew()
            lacking = set(wanted)
        todo = [(name, *wanted[name]) for name in wanted if name in lacking]
        with _opened(self.folder / self.data) as data, _opened(self.folder / INDEX) as index:
            try:
                data.seek(self._end)  # a killed process may have written beyond it
                index.seek(self.valid_bytes)
                index.truncate()
                self._append(data, index, todo, read)
            finally:
                data.truncate(self._end)
                index.truncate(self.valid_bytes)
        added = sum(name in self.entries for name in lacking)
        if added:
            say(f"image cache {self.folder}: {added:,} images decoded, {self._end / 1e9:.2f} GB in all")

    @property
    def _end(self) -> int:
        return max((entry.end for entry in self.entries.values()), default=0)

    def _begin_anew(self) -> None:
        """Create an empty file of pixels and its index. The file's name is new, as other processes may still map the
        old one.
        """
        self._clear()
        data = f"images-{secrets.token_hex(4)}.bin"
        with open(self.folder / data, "xb"):
            pass
        header = json.dumps({"data": data, **self.about}) + "\n"
        write_file(self.folder / INDEX, header)
        for old in self.folder.glob("images-*.bin"):
            if old.name != data and PIXELS.fullmatch(old.name) and not old.is_dir():
                old.unlink()
        self.data = data
        self.valid_bytes = len(header.encode())

    def _append(self, data, index, todo: list, read) -> None:
        """Decode by chunks: first the pixels are written to the disk, then their lines."""
        from tqdm import tqdm

        def pixels(item):
            try:
                return read(item[1]).clone()  # dense
            except UserError:  # raised again if the image is ever loaded
                return None

        with (
            ThreadPoolExecutor(max(kernels(THREADS), 1)) as pool,
            tqdm(desc="image cache", total=len(todo), unit="image", leave=False, disable=None) as bar,
        ):
            for chunk in (todo[start : start + CHUNK] for start in range(0, len(todo), CHUNK)):
                if shutil.disk_usage(self.folder).free < LEFT_FREE:
                    raise OSError(None, f"less than {LEFT_FREE >> 30} GiB of its disk is free")
                entries = {}
                end = self._end
                for (name, _, stat), image in zip(chunk, pool.map(pixels, chunk), strict=True):
                    if image is not None:
                        entries[name] = Entry(*stat, list(image.shape), list(image.stride()), end)
                        end = entries[name].end
                        _write_all(data, image.as_strided((image.numel(),), (1,)).numpy())
                    bar.update()
                os.fsync(data.fileno())
                lines = "".join(json.dumps([name, *entry]) + "\n" for name, entry in entries.items()).encode()
                _write_all(index, lines)
                os.fsync(index.fileno())
                self.entries.update(entries)
                self.valid_bytes += len(lines)


def _write_all(file, content) -> None:
    """Write the bytes of `content` to an unbuffered file, which may take them in parts."""
    rest = memoryview(content).cast("B")
    while rest:
        rest = rest[file.write(rest) :]
