"""Features that stay in their files: memory maps (`np.load(path, mmap_mode="r")`),
alone or several after each other.
"""

import numpy as np

BLOCK = 16384  # rows that are read at once
UNIT = 2e-3  # how far the length of a unit vector may be from 1: rounded to half precision it is some 1e-4


class Stacked:
    """The rows of several arrays `(N_i, D)` one after the other; a slice,
    or an array of indices, is read when it is requested.

    Args:
        parts: (array, which of its rows, ascending `(N_i,)`; None: all).
    """

    def __init__(self, *parts: tuple[np.ndarray, np.ndarray | None]):
        self.arrays, self.rows = zip(*parts, strict=True)
        sizes = [len(array) if rows is None else len(rows) for array, rows in parts]
        self.starts = np.cumsum([0, *sizes])
        self.shape = int(self.starts[-1]), self.arrays[0].shape[1]
        self.dtype = np.result_type(*self.arrays)
        self.ndim = 2

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows) -> np.ndarray:
        if isinstance(rows, slice):
            rows = np.arange(*rows.indices(len(self)))
        rows = np.asarray(rows)
        features = np.empty((len(rows), self.shape[1]), self.dtype)
        part = np.searchsorted(self.starts, rows, side="right") - 1
        for number, (array, rows_of_part) in enumerate(zip(self.arrays, self.rows, strict=True)):
            places = rows[part == number] - self.starts[number]
            if rows_of_part is not None:
                places = rows_of_part[places]
            features[part == number] = array[places]
        return features


class Converted:
    """Rows `(N, D)` in float32 as `read(rows)` gives them; users read `block` of them at a time."""

    def __init__(self, read, shape: tuple[int, int], block: int):
        self.read = read
        self.shape = shape
        self.block = block

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows) -> np.ndarray:
        return self.read(rows).astype(np.float32)

    def part(self, rows: slice) -> "Converted":
        """Some of the rows, of which slices can be read."""

        def read(inner: slice):
            return self.read(slice(rows.start + inner.start, min(rows.start + inner.stop, rows.stop)))

        return Converted(read, (rows.stop - rows.start, self.shape[1]), self.block)


def is_mapped(features) -> bool:
    """Whether features stay in a file: no copy of all of them is made."""
    return isinstance(features, np.memmap | Stacked)


def prefix(features, dimensions: int) -> np.ndarray:
    """The first dimensions `(N, d)` of features `(N, D)`, in memory as float32;
    of unit length again where all features are.
    """
    if dimensions == features.shape[1]:
        return features
    cut = np.empty((len(features), dimensions), dtype=np.float32)
    unit = True
    for start in range(0, len(features), BLOCK):
        rows = features[start : start + BLOCK]
        cut[start : start + len(rows)] = rows[:, :dimensions]
        unit = unit and bool((np.abs(np.linalg.norm(rows.astype(np.float64), axis=1) - 1) < UNIT).all())
    if unit:
        lengths = np.linalg.norm(cut, axis=1, keepdims=True)
        # a row of zeros stays one
        cut /= np.where(lengths > 0, lengths, 1)
    return cut
