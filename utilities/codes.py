"""Codes of embeddings, searched by float queries: float32, float16, int8, binary, product quantisation.

A vector's code is decoded before it is compared, so that distances are those of a float query and a de-quantised
vector. Binary codes are searched by Hamming distance, and the candidates ordered by that rule.
"""

import argparse
import re
from pathlib import Path

import numpy as np

from utilities.errors import UserError

NAMES = "float32, float16, int8, binary, pq<M> or opq<M> with M bytes per vector, such as pq64"
FLOAT32 = "float32"
INT8 = "int8"
BINARY = "binary"
# code -> its name in faiss's index_factory
FACTORY = {FLOAT32: "Flat", "float16": "SQfp16", INT8: "SQ8"}
# vectors from which faiss learns 256 centroids without a warning, and the most that it looks at
LEAST = 39 * 256
MOST = 256 * 256
# of k-means in faiss
SEED = 1234
# this many times the requested number of binary codes are ordered by the float query
RESCORED = 4
SPARE = 8  # further candidates: vectors equally far in float32 may differ in float64
BLOCK = 16384  # codes that are decoded at once
FEW = 20  # queries below which faiss compares codes one by one; from there on products of matrices are faster
NUMBERS = 1 << 20  # float64 numbers of differences that exist at once


def name(text: str) -> str:
    """The type of a flag that names a code. Raises `argparse.ArgumentTypeError` for what is none."""
    if text not in (*FACTORY, BINARY) and not re.fullmatch(r"o?pq[1-9][0-9]{0,4}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no code: {NAMES}")
    return text


def is_learned(name: str) -> bool:
    """Whether a code is calibrated on vectors: ranges of int8, codebooks of pq and opq."""
    return name == INT8 or "pq" in name


def refuse_few(name: str, vectors: int) -> None:
    """Raise UserError where a code cannot learn from so few training vectors."""
    if "pq" in name and vectors < LEAST:
        raise UserError(
            f"{name} needs at least {LEAST:,} (39 x 256) training vectors, and there are {vectors:,}: use {INT8}"
        )


def ranked(queries: np.ndarray, rows: np.ndarray, vectors_of, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The `k` nearest of candidates: distances and rows, `(Q, k)` each; -1, at infinity, for none.

    Distances are Euclidean, of float64 differences; of equal ones the earlier row comes first.

    Args:
        queries: `(Q, D)`. rows: `(Q, W)`, -1 for none. vectors_of: rows `(P,)` -> vectors `(P, D)`.
    """
    # rows ascend, so that equal distances come in the order of rows
    rows = np.sort(rows, axis=1)
    distances = np.full(rows.shape, np.inf)
    step = max(NUMBERS // max(rows.shape[1] * queries.shape[1], 1), 1)
    for start in range(0, len(rows), step):
        query_rows, slots = np.nonzero(rows[start : start + step] >= 0)
        query_rows += start
        candidates = vectors_of(rows[query_rows, slots]).astype(np.float64)
        differences = candidates - queries[query_rows]
        distances[query_rows, slots] = np.sqrt(np.square(differences).sum(1))
    order = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(distances, order, 1), np.take_along_axis(rows, order, 1)


class Codes:
    """Vectors in a code, as an index of faiss.

    int8: per dimension floor((x - min) / ((max - min) / 255)) within 0 and 255, decoded to min + (code + .5) (max -
    min) / 255; min and max are those of the calibration, and a constant dimension is decoded to its value. binary: the
    bits x > 0, the first dimension the highest bit of the first byte, decoded to +-1 / sqrt(D). pq: M parts of a
    vector, a centroid of 256 each (Jegou et al., Product Quantization for Nearest Neighbor Search, TPAMI 2011); opq:
    the same after a learned rotation (Ge et al., CVPR 2013).

    Args:
        name: one of `NAMES`. dimensions: D. index: one that was written; None: an empty one.

    Raises UserError where M does not divide D.
    """

    def __init__(self, name: str, dimensions: int, index=None):
        import faiss

        self.name = name
        self.dimensions = dimensions
        if "pq" in name and dimensions % (parts := int(name.lstrip("opq"))):
            raise UserError(
                f"{name}: {parts} does not divide the {dimensions} dimensions: take M from "
                f"{', '.join(map(str, _divisors(dimensions)))}"
            )
        if index is not None:
            self.index = index
        elif name == BINARY:
            self.index = faiss.IndexBinaryFlat(-(-dimensions // 8) * 8)
        else:
            self.index = faiss.index_factory(dimensions, FACTORY.get(name) or _product(name))
        if name == BINARY:
            # Hamming distances are counted: faster, and of equal ones the earlier rows are kept
            self.index.use_heap = False

    def __len__(self):
        return self.index.ntotal

    @property
    def bytes_a_vector(self) -> int:
        """Bytes of a vector's code."""
        return self.index.code_size if self.name == BINARY else self.index.sa_code_size()

    def calibrate(self, vectors: np.ndarray) -> None:
        """Learn the code from training vectors `(T, D)`; codes that learn nothing are left as they are. Raises
        UserError for too few.
        """
        refuse_few(self.name, len(vectors))
        if is_learned(self.name):
            self.index.train(np.ascontiguousarray(vectors, dtype=np.float32))

    def reserve(self, rows: int) -> None:
        """Take the memory for `rows` codes at once: a growing index would copy itself."""
        import faiss

        if self.name == BINARY:
            memory = self.index.xb
        else:
            # an index behind a rotation holds the codes
            memory = faiss.downcast_index(getattr(self.index, "index", self.index)).codes
        held = memory.size()
        memory.resize(rows * self.bytes_a_vector)
        memory.resize(held)

    def add(self, vectors: np.ndarray) -> None:
        """Append vectors `(n, D)`."""
        if self.name == BINARY:
            self.index.add(bits(vectors))
        else:
            self.index.add(np.ascontiguousarray(vectors, dtype=np.float32))

    def decoded(self, rows: np.ndarray) -> np.ndarray:
        """De-quantised vectors `(n, D)` float32 of some rows."""
        if self.name != BINARY:
            # a tensor where pytorch-metric-learning has changed faiss
            return np.asarray(self.index.reconstruct_batch(rows))
        import faiss

        codes = faiss.rev_swig_ptr(self.index.xb.data(), len(self) * self.bytes_a_vector).reshape(len(self), -1)[rows]
        bit_rows = np.unpackbits(codes, axis=1, count=self.dimensions)
        return (2 * bit_rows.astype(np.float32) - 1) / np.float32(np.sqrt(self.dimensions))

    def search(self, queries: np.ndarray, k: int, rescored: int = RESCORED) -> tuple[np.ndarray, np.ndarray]:
        """The `k` nearest codes of each of `queries` `(Q, D)`, fewer if there are no more; see `ranked`.

        rescored: of binary, how many times as many are found by Hamming distance.
        """
        queries = np.ascontiguousarray(queries, dtype=np.float32)
        wanted_width = k * rescored if self.name == BINARY else k + SPARE
        candidates = self._candidates(queries, min(wanted_width, len(self)))
        return ranked(queries, candidates, self.decoded, min(k, len(self)))

    def _candidates(self, queries: np.ndarray, width: int) -> np.ndarray:
        """The rows `(Q, width)` of the nearest codes, in any order."""
        if self.name == BINARY:
            return self.index.search(bits(queries), width)[1].astype(np.int64)
        if len(queries) < FEW or self.name == FLOAT32:
            return self.index.search(queries, width)[1]
        import faiss

        heap = faiss.ResultHeap(len(queries), width)
        for start in range(0, len(self), BLOCK):
            block = np.asarray(self.index.reconstruct_n(start, min(BLOCK, len(self) - start)))
            distances, rows = faiss.knn(queries, block, min(width, len(block)))
            heap.add_result(distances, rows + start)
        return heap.I

    def empty(self) -> "Codes":
        """The same code without vectors."""
        import faiss

        copy = faiss.clone_binary_index(self.index) if self.name == BINARY else faiss.clone_index(self.index)
        copy.reset()
        return Codes(self.name, self.dimensions, copy)

    def size(self) -> int:
        """Bytes of the whole index: codes, ranges, centroids, rotation."""
        import faiss

        serialize = faiss.serialize_index_binary if self.name == BINARY else faiss.serialize_index
        return len(serialize(self.index))

    def write(self, path: Path) -> None:
        """Write the index, for `faiss.read_index`; a binary one for `faiss.read_index_binary`."""
        import faiss

        write_index = faiss.write_index_binary if self.name == BINARY else faiss.write_index
        write_index(self.index, str(path))

    @classmethod
    def read(cls, path: Path, name: str, dimensions: int) -> "Codes":
        """What `write` wrote. Raises RuntimeError where it cannot be read."""
        import faiss

        read_index = faiss.read_index_binary if name == BINARY else faiss.read_index
        return cls(name, dimensions, read_index(str(path)))


def bits(vectors: np.ndarray) -> np.ndarray:
    """Bytes `(N, ceil(D / 8))` of the bits x > 0 of vectors `(N, D)`, the last one padded with zeros."""
    return np.packbits(np.asarray(vectors) > 0, axis=1)


def _product(name: str) -> str:
    """faiss's name of a product quantiser."""
    parts = name.lstrip("opq")
    return f"OPQ{parts},PQ{parts}x8" if name.startswith("o") else f"PQ{parts}x8"


def _divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]
