"""The bytes of an image: in a file of their own, within a tar file, or in memory.

An image in a tar file has an address in place of a path, `<tar>#<offset>+<size>/<name>`,
from which it is read with one seek. One in memory is an `Encoded` in place of a path.
"""

import io
import os
import re
from typing import NamedTuple

import numpy as np

# distinguishes an address from a path
MARK = ".tar#"
ADDRESS = re.compile(r"(.*\.tar)#(\d+)\+(\d+)/", re.DOTALL)


class Encoded(NamedTuple):
    """The bytes of an image file that are in memory, and the name by which messages call it."""

    data: bytes
    name: str

    def __str__(self):
        return self.name


def address(tar: str, offset: int, size: int, name: str) -> str:
    """The address of the tar file's member `name`, `size` bytes from `offset` on. `tar` ends with `.tar`."""
    return f"{tar}#{offset}+{size}/{name}"


def place(path: str | Encoded) -> tuple[str, int, int] | None:
    """The tar file, offset and size of an address; None for the path of a file, and for an image in memory."""
    match = ADDRESS.match(path) if isinstance(path, str) and MARK in path else None
    if match is None:
        return None
    tar, offset, size = match.groups()
    return tar, int(offset), int(size)


def read(path: str | Encoded) -> np.ndarray:
    """The bytes, uint8 `(N,)`. Raises OSError, also where the tar file ends before them."""
    if isinstance(path, Encoded):
        # torch takes only what it may write to
        return np.frombuffer(bytearray(path.data), dtype=np.uint8)
    within = place(path)
    if within is None:
        return np.fromfile(_regular(path), dtype=np.uint8)
    tar, offset, size = within
    data = np.fromfile(tar, dtype=np.uint8, count=size, offset=offset)
    if len(data) < size:
        raise OSError(None, f"the tar file ends at byte {os.path.getsize(tar):,}, before the image's end")
    return data


def _regular(path: str) -> str:
    """The path. Raises OSError for a folder, pipe or device, as a pipe would be waited for."""
    if not os.path.isfile(path) and os.path.exists(path):
        raise OSError(None, "no file, but a folder, pipe or device")
    return path


def opened(path: str | Encoded):
    """An argument for Pillow's `open`: the path, or a file object on the bytes. Raises OSError as `read`."""
    if isinstance(path, Encoded):
        return io.BytesIO(path.data)
    return _regular(path) if place(path) is None else io.BytesIO(read(path).tobytes())


def stat(path: str | Encoded) -> tuple[int, int]:
    """Size in bytes, and the file's time of change in nanoseconds, 0 in memory. Raises OSError."""
    if isinstance(path, Encoded):
        return len(path.data), 0
    within = place(path)
    if within is None:
        status = os.stat(path)
        return status.st_size, status.st_mtime_ns
    tar, _, size = within
    return size, os.stat(tar).st_mtime_ns
