"""The files of the image cache: pixels of decoded images, and an index of them.

`images-*.bin` holds the pixels, image after image in their memory layout, and `index.jsonl` one line per image: name,
the source's size and time of change, shape, strides, offset. Both files only grow, pixels reach the disk before their
lines, and one process writes at a time. So each line's pixels are complete, however that process ends.

A cache may come from someone else, so nothing in it is trusted: the file of the pixels has a name of the pattern
`PIXELS`, no file that is read or written is a link, and from the first line on that `_load` cannot use, the images
are decoded again.
"""

import contextlib
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

from utilities.console import say
from utilities.errors import UserError
from utilities.files import write_file
from utilities.locks import Lock
from utilities.processes import kernels

INDEX = "index.jsonl"
LOCK = "lock"
PIXELS = re.compile(r"images-[0-9a-f]{8}\.bin")  # names of the files of pixels
CHUNK = 64  # images that are in memory at once and written together
THREADS = 16
# bytes of the disk that the cache leaves free, as the run's own files may lie there
LEFT_FREE = 1 << 30


class Entry(NamedTuple):
    """A line of the index, without the name."""

    size: int
    changed: int
    shape: list[int]
    # Resizing chooses its kernel by the strides, which differ in images rotated by their EXIF data.
    strides: list[int]
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
    """Name and entry of a line of the index; None if the line is damaged in any way."""
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
        folder: the cache's folder. origin: what the pixels depend on beside their sources, recorded for a human reader.
    """

    def __init__(self, folder: Path, origin: dict):
        self.folder = folder
        self.origin = origin
        self._clear()

    def _clear(self) -> None:
        # name of the file of the pixels
        self.data = None
        # name -> Entry
        self.entries = {}
        # bytes of the index up to the end of its last valid line
        self.valid_bytes = 0
        # path -> (shape, strides, offset)
        self._places = {}
        # the pixels of all images, as one tensor on the memory map
        self._pixels = None

    def get(self, path: str) -> torch.Tensor | None:
        """A copy of the image with the strides of a decoded one; None if it is not in the cache."""
        place = self._places.get(path)
        if place is None:
            return None
        if self._pixels is None and not self._map():
            # the cache was removed: images are read from their sources
            self._places = {}
            return None
        # a copy, as the map is read-only
        return self._pixels.as_strided(*place).clone()

    def holds(self, path: str) -> bool:
        """Whether the image is in the cache and mapped."""
        return self._pixels is not None and path in self._places

    def view(self, path: str) -> np.ndarray:
        """The image on the memory map, uint8 `(H, W, C)`, to be read only. KeyError if it is not there."""
        shape, strides, offset = self._places[path]
        return np.ndarray((*shape[1:], shape[0]), np.uint8, self._pixels.numpy(), offset, (*strides[1:], strides[0]))

    def __getstate__(self):
        # a spawned process maps the file itself
        return {**vars(self), "_pixels": None}

    def _map(self) -> bool:
        """Map the pixels into memory. False if the file cannot be mapped."""
        try:
            pixels = np.memmap(self.folder / self.data, dtype=np.uint8, mode="r")
        except (OSError, ValueError):
            return False
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            self._pixels = torch.from_numpy(pixels)
        return True

    def fill(self, files, read) -> None:
        """Decode images that are missing or have changed, and map all pixels.

        Waits for another process that writes the cache. If the cache cannot be written, it prints a warning, and
        missing images are decoded whenever they are loaded.

        Args:
            files: the data set's `_files.Files`. read: path -> uint8 `(C, H, W)`, UserError for a file that cannot be
                decoded.
        """
        # name -> path, and the file's size and time of change
        sources = {}
        for path, stat_of_file in zip(files.paths, files.stats, strict=True):
            if stat_of_file[0]:
                sources[files.name(path)] = (path, stat_of_file)
        lock = Lock(self.folder / LOCK)
        try:
            if self.folder.is_symlink():
                raise OSError(None, "it is a link")
            self._load()
            if self._lacking(sources):
                self._wait(lock)
                self._load()
                self._write(sources, read)
        except (OSError, UserError) as error:
            reason = getattr(error, "strerror", None) or error
            print(
                f"WARNING: --image_cache {self.folder} cannot be written ({reason}): {len(self._lacking(sources)):,} "
                f"of {len(sources):,} images are not in it and are decoded whenever they are loaded. The next run "
                "goes on with it",
                file=sys.stderr,
            )
        finally:
            lock.release()
        self._set_places(sources)
        self.entries = {}
        if self._places and not self._map():
            self._places = {}

    def _set_places(self, sources: dict) -> None:
        """Note where each image lies. Equal shapes share one tuple: less to copy to every worker."""
        lacking = self._lacking(sources)
        shared = {}
        for name, (path, _) in sources.items():
            if name not in lacking:
                entry = self.entries[name]
                shape = tuple(entry.shape)
                strides = tuple(entry.strides)
                self._places[path] = (
                    shared.setdefault(shape, shape),
                    shared.setdefault(strides, strides),
                    entry.offset,
                )

    def _lacking(self, sources: dict) -> set[str]:
        """The names of sources that are missing in the cache, or have changed since."""
        lacking = set()
        for name, (_, stat_of_file) in sources.items():
            if name not in self.entries or self.entries[name][:2] != stat_of_file:
                lacking.add(name)
        return lacking

    def _wait(self, lock: Lock) -> None:
        """Take the lock; print a line where another process has it."""
        if not lock.acquire(wait=False):
            say(f"image cache {self.folder}: {lock.holder() or 'another process'} writes it, this one waits")
            lock.acquire()

    def _load(self) -> None:
        """Read the index up to its last valid line.

        Such a line is complete, and its pixels follow those of the line before.
        """
        self._clear()
        channels = 1 if self.origin.get("grey") else 3
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

    def _write(self, sources: dict, read) -> None:
        """Decode and append missing images, into a new file if most of the old one is outdated.

        Raises OSError, UserError.
        """
        lacking = self._lacking(sources)
        if not lacking:
            return
        changed = len(lacking & set(self.entries))
        if changed:
            say(f"image cache {self.folder}: source files that have changed since, decoded anew: {changed:,}")
        valid = [self.entries[name] for name in sources.keys() - lacking]
        if self.data is None or 2 * sum(entry.end - entry.offset for entry in valid) < self._end:
            self._begin_anew()
            lacking = set(sources)
        todo = [(name, *sources[name]) for name in sources if name in lacking]
        with _opened(self.folder / self.data) as data, _opened(self.folder / INDEX) as index:
            try:
                # A killed process may have written beyond the last valid image.
                data.seek(self._end)
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
        """Create an index and an empty file of pixels, with a new name, as other processes may map the old one."""
        self._clear()
        data = f"images-{secrets.token_hex(4)}.bin"
        with open(self.folder / data, "xb"):
            pass
        header = json.dumps({"data": data, **self.origin}) + "\n"
        write_file(self.folder / INDEX, header)
        for old in self.folder.glob("images-*.bin"):
            if old.name != data and PIXELS.fullmatch(old.name) and not old.is_dir():
                old.unlink()
        self.data = data
        self.valid_bytes = len(header.encode())

    def _append(self, data, index, todo: list, read) -> None:
        """Decode by chunks: first the pixels are written to the disk, then their lines.

        `todo`: of each image its name, its path, and the size and time of change of its file.
        """
        from tqdm import tqdm

        def pixels(source):
            _, path, _ = source
            try:
                # A clone is dense, as the file's format requires.
                return read(path).clone()
            except UserError:
                # raised again if the image is ever loaded
                return None

        with (
            ThreadPoolExecutor(max(kernels(THREADS), 1)) as pool,
            tqdm(desc="image cache", total=len(todo), unit="image", leave=False, disable=None) as bar,
        ):
            for start in range(0, len(todo), CHUNK):
                chunk = todo[start : start + CHUNK]
                if shutil.disk_usage(self.folder).free < LEFT_FREE:
                    raise OSError(None, f"less than {LEFT_FREE >> 30} GiB of its disk is free")
                entries = {}
                end = self._end
                for (name, _, stat_of_file), image in zip(chunk, pool.map(pixels, chunk), strict=True):
                    if image is not None:
                        entries[name] = Entry(*stat_of_file, list(image.shape), list(image.stride()), end)
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
    unwritten = memoryview(content).cast("B")
    while unwritten:
        unwritten = unwritten[file.write(unwritten) :]
