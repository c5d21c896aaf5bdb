"""The vectors of an index: a file `.npy` that grows and is read in blocks, and those that occur twice.

Blocks bound the memory: a file of any length is written, searched and compared 16,384 rows at a time.
"""

from pathlib import Path

import numpy as np

from utilities.codes import Codes
from utilities.copies import CopyFinder
from utilities.reading import map_array

# rows that are read at once
BLOCK = 16384


class VectorsWriter:
    """`vectors.npy` as it grows: rows are appended, and `close` writes their number into the header."""

    def __init__(self, path: Path, dimensions: int):
        self.file = open(path, "wb")  # noqa: SIM115  closed by `close`
        self.dimensions = dimensions
        self.rows = 0
        self.start = self._head()

    def _head(self) -> int:
        self.file.seek(0)
        header = {"descr": "<f4", "fortran_order": False, "shape": (self.rows, self.dimensions)}
        # its length is the same for any number of rows: numpy pads it
        np.lib.format.write_array_header_1_0(self.file, header)
        return self.file.tell()

    def append(self, vectors: np.ndarray) -> None:
        """Write vectors `(N, D)` after those already written."""
        self.file.write(np.ascontiguousarray(vectors, dtype="<f4").data)
        self.rows += len(vectors)

    def close(self) -> None:
        """Write the header with the final number of rows, and close the file."""
        assert self._head() == self.start
        self.file.close()


def mapped(path: Path) -> np.ndarray:
    """The vectors `(N, D)` of a file, in a memory map. Raises Unreadable."""
    return map_array(path, "delete the folder and make the index anew")


def blocks(path: Path):
    """Yield the rows of a file of vectors in blocks. They are read, not mapped:
    a map's pages would count as the process's memory.
    """
    with open(path, "rb") as file:
        np.lib.format.read_magic(file)
        (rows, dimensions), *_ = np.lib.format.read_array_header_1_0(file)
        for start in range(0, rows, BLOCK):
            count = min(BLOCK, rows - start)
            yield np.fromfile(file, "<f4", count * dimensions).reshape(count, dimensions)


def rows_of(vectors: Path, chosen: np.ndarray) -> np.ndarray:
    """The rows `chosen`, ascending, of a file of vectors."""
    parts = []
    start = 0
    for block in blocks(vectors):
        first, last = np.searchsorted(chosen, (start, start + len(block)))
        parts.append(block[chosen[first:last] - start])
        start += len(block)
    return np.concatenate(parts)


def decoded_blocks(index: Codes):
    """Yield the decoded vectors of an index of codes in blocks."""
    for start in range(0, len(index), BLOCK):
        yield index.decoded(np.arange(start, min(start + BLOCK, len(index))))


def copies_of(read_blocks, read, paths: list[str], first: int) -> list[tuple[str, str]]:
    """Paths of an image and of another one with the same vector, for each image from row `first` on that has one.

    Args:
        read_blocks: called, it gives the vectors of all rows `(n, D)` in blocks. read: rows `(n,)` -> their vectors.
        paths: of all rows.
    """
    if first == len(paths):
        return []
    finder = CopyFinder(read_blocks(), read(np.arange(1)).shape[1], read)
    start = 0
    pairs = []
    for block in read_blocks():
        new = np.arange(max(first, start), max(first, start + len(block)))
        copies = finder.find(block[new - start], new)
        for row, copy in zip(new, copies, strict=True):
            if copy >= 0:
                pairs.append((paths[row], paths[copy]))
        start += len(block)
    return pairs
