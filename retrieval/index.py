"""An index of own images: a folder with `vectors.npy`, `paths.csv`, `index.faiss` and `index.json`.

In another code than float32 (`utilities/codes.py`) there is no `vectors.npy`:
`index.faiss` holds all that is left of the vectors.

It is written into a hidden folder beside it, which takes its name at the end:
however a process ends, an index is whole.
"""

import csv
import itertools
import json
import math
from pathlib import Path

import numpy as np

from retrieval.folders import check_new, found_again, replacing_folder
from retrieval.vectors import VectorsWriter, blocks, copies_of, decoded_blocks, mapped, rows_of
from runs import Embedder
from runs.folder import read_json
from utilities import codes
from utilities.codes import Codes
from utilities.errors import UserError
from utilities.reading import parsing

EXACT = "exact"
HNSW = "hnsw"
IVFPQ = "ivfpq"
KINDS = (EXACT, HNSW, IVFPQ)
VECTORS = "vectors.npy"
PATHS = "paths.csv"
FAISS = "index.faiss"
ABOUT = "index.json"
LEFT_OUT = "left_out.csv"
# of hnsw: links a vector, candidates while building and searching
LINKS = 32
BUILDING = 128
SEARCHING = 128
CODE = 4  # of ivfpq: dimensions a byte
LEAST_IVFPQ = 10_000  # a codebook of 256 codes is learned from 39 vectors a code
TRAINED_ON = 200_000  # the most vectors from which ivfpq learns
PROBED = 32  # cells of ivfpq in which a search looks
AGAIN = 10  # an approximate search measures the exact distances of this many times as many vectors as it returns
# neighbours and queries with which the recall is measured
RECALL_AT = 10
RECALL_QUERIES = 200


class Index:
    """An index on disk.

    Args:
        folder: where it lies.

    Attributes:
        about: the content of index.json: `run`, `fingerprint`, `index`, `code`, `dimensions`, `images`, `recall`.
        paths: of its images.
        vectors: `(N, D)` in a memory map; None in another code than float32.

    Raises UserError if there is none, or its parts do not fit together.
    """

    def __init__(self, folder):
        self.folder = Path(folder)
        found_again(folder)
        if not (self.folder / ABOUT).exists():
            raise UserError(f"no index in {folder}: `python -m retrieval index RUN IMAGES --out {folder}` makes one")
        self.about = read_json(self.folder / ABOUT)
        self._read()
        self._faiss = None

    def _read(self) -> None:
        """Read `paths`, `code` and `vectors`. Raises Unreadable where one is damaged, or they do not fit together."""
        way_out = "its files do not fit together. Delete the folder and make it anew"
        with parsing(f"the index in {self.folder}", way_out):
            with open(self.folder / PATHS, newline="", encoding="utf-8", errors="surrogateescape") as file:
                self.paths = [row[0] for row in itertools.islice(csv.reader(file), 1, None)]
            # an index of an earlier version names none
            self.code = codes.name(self.about.get("code", codes.FLOAT32))
            self.vectors = None  # (N, D)
            shape = (len(self.paths), self.about["dimensions"])
            if self.code == codes.FLOAT32:
                self.vectors = mapped(self.folder / VECTORS)
                shape = self.vectors.shape
            if shape != (self.about["images"], self.about["dimensions"]) or len(self.paths) != shape[0]:
                raise ValueError(f"{len(self.paths):,} paths, vectors {shape}, and {ABOUT} says {self.about['images']}")
            if self.about["index"] not in KINDS:
                raise ValueError(f"{ABOUT} names the kind {self.about['index']!r:.40}")

    def __len__(self):
        return len(self.paths)

    def embedder(self, run=None, **how) -> Embedder:
        """The run's `Embedder`; `run`: where the run lies now.
        Raises UserError where its weights or transform are not the index's.
        """
        run = run or self.about["run"]
        if not Path(run).is_dir():
            raise UserError(f"the run of this index is not in {run}: say with --run where it lies")
        embedder = Embedder(
            run, which=self.about["checkpoint"], evaltype=self.about["evaltype"], prefix=self.about["dimensions"], **how
        )
        if embedder.fingerprint != self.about["fingerprint"]:
            raise UserError(
                f"{run} has other weights, or another transform, than those that {self.folder} was made with: "
                "make the index anew. Of a run of --trainer compatible, `python -m evaluation upgrade OLD.npz NEW.npz` "
                "measures first what its queries find in the old vectors"
            )
        return embedder

    @property
    def faiss(self):
        """The index of faiss, read when it is first requested; in another code than float32 a `Codes`."""
        if self._faiss is None:
            self._faiss = _read(self.folder / FAISS, len(self), self.code, self.about["dimensions"])
        return self._faiss

    def search(self, queries: np.ndarray, k: int, rescored: int = codes.RESCORED) -> tuple[np.ndarray, np.ndarray]:
        """The `k` nearest images of each of `queries` `(Q, D)`, fewer if there are no more:
        distances and rows, `(Q, k)` each.

        Distances are Euclidean, of float64 differences; of equal ones the earlier image comes first. A neighbour that
        an approximate index does not find is row -1, at infinity. In another code than float32 the distances are those
        to decoded vectors; `rescored`: how many times as many binary codes are ordered by the float query.
        """
        if isinstance(self.faiss, Codes):
            return self.faiss.search(queries, k, rescored)
        k = min(k, len(self))
        return codes.ranked(
            queries, _candidates(self.faiss, queries, self.about["index"], k), lambda rows: self.vectors[rows], k
        )


def _read(path: Path, images: int, code: str, dimensions: int):
    import faiss

    with parsing(path, "delete the folder and make the index anew"):
        if code == codes.FLOAT32:
            index = faiss.read_index(str(path))
            held = index.ntotal
        else:
            index = Codes.read(path, code, dimensions)
            held = len(index)
    if held != images:
        raise UserError(
            f"{path} holds {held:,} vectors, and there are {images:,} images: delete the folder and make the index anew"
        )
    return index


def _candidates(index, queries: np.ndarray, kind: str, k: int) -> np.ndarray:
    """The candidates for the nearest: rows `(Q, K)`, K >= k; -1 for none."""
    import faiss

    width = max(AGAIN * k, 100)
    if kind == EXACT:
        # distances equal in float32 may differ in float64
        width = k + 8
    width = min(width, index.ntotal)
    if kind == HNSW:
        index.hnsw.efSearch = max(SEARCHING, width)
    if kind == IVFPQ:
        faiss.extract_index_ivf(index).nprobe = PROBED
    return index.search(np.ascontiguousarray(queries, dtype=np.float32), width)[1]


def check_place(out, add: bool) -> Index | None:
    """The index to add to; None for a new one. Raises UserError if there is no index to add to,
    or no room for a new one.
    """
    out = Path(out)
    if add:
        return Index(out)
    if (out / ABOUT).exists():
        raise UserError(f"{out} holds an index: --add adds to it, or choose another --out")
    check_new(out)
    return None


def check_addition(old: Index, flags) -> None:
    """Raise UserError where flags contradict the index that is added to."""
    indexed = {**old.about, "code": old.code, "prefix": old.about["dimensions"]}
    for flag, value in (
        ("index", flags.index),
        ("code", flags.code),
        ("prefix", flags.prefix),
        ("evaltype", flags.evaltype),
        ("checkpoint", flags.checkpoint),
    ):
        if value not in (None, indexed[flag]):
            raise UserError(
                f"--{flag} {value}: the index in {old.folder} is of {indexed[flag]}: leave it out, or make another one"
            )
    if flags.calibration is not None:
        raise UserError(
            f"--calibration: the code of the index in {old.folder} stays as it is: leave it out, or make another one"
        )


def build(
    embedder: Embedder,
    paths: list[str],
    out,
    kind: str = EXACT,
    checkpoint: str = "best",
    add: bool = False,
    coded: Codes | None = None,
) -> dict:
    """Embed the images at `paths` in a stream and write the index `out`;
    `add`: add to it, and skip images that it holds.

    Memory: vectors in faiss, N x D x 4 bytes or those of their codes, two batches of images, the paths. Returns the
    content of index.json, and under `left_out` path -> reason of the images that cannot be decoded, under `copies` the
    paths of each added image whose vector (or code) another image of the index has too, and of that one.

    Args:
        coded: an empty index in a code, of kind `exact`; None: float32, with `add` the code of the index.
    """
    with replacing_folder(out) as hidden:
        return _fill(hidden, embedder, paths, check_place(out, add), kind, checkpoint, coded)


def _fill(
    folder: Path,
    embedder: Embedder,
    paths: list[str],
    old: Index | None,
    kind: str,
    checkpoint: str,
    coded: Codes | None,
) -> dict:
    """Write the files of an index into an empty folder. The vectors of codes are there until these are written."""
    if old and old.code != codes.FLOAT32:
        coded = old.faiss
    held = 0 if coded is None else len(coded)
    indexed_paths = list(old.paths) if old else []
    paths = _unindexed(paths, indexed_paths)
    vectors = VectorsWriter(folder / VECTORS, embedder.dimensions)
    try:
        if old and coded is None:
            for block in blocks(old.folder / VECTORS):
                vectors.append(block)
        written, left_out = _embed(folder, embedder, paths, indexed_paths, vectors)
    finally:
        vectors.close()
    if not (vectors.rows or held):
        raise UserError(f"none of the {len(paths):,} images can be decoded, the first: {next(iter(left_out.values()))}")
    images = held + vectors.rows
    if coded is None:
        recall = _write_faiss(folder, kind, images, embedder.dimensions)
        held_vectors = mapped(folder / VECTORS)
        copies = copies_of(
            lambda: blocks(folder / VECTORS), lambda rows: held_vectors[rows], written, len(indexed_paths)
        )
    else:
        recall = _write_codes(folder, coded, vectors.rows, old)
        copies = copies_of(lambda: decoded_blocks(coded), coded.decoded, written, len(indexed_paths))
    content = {
        "run": str(embedder.folder.resolve()),
        "checkpoint": checkpoint,
        "evaltype": embedder.evaltype,
        "fingerprint": embedder.fingerprint,
        "index": kind,
        "code": codes.FLOAT32 if coded is None else coded.name,
        "distance": "euclidean",
        "dimensions": embedder.dimensions,
        "images": images,
        "recall": recall,
    }
    (folder / ABOUT).write_text(json.dumps(content, indent=1), encoding="utf-8")
    return {**content, "added": images - len(indexed_paths), "left_out": left_out, "copies": copies}


def _unindexed(paths: list[str], indexed_paths: list[str]) -> list[str]:
    """The paths that an index does not hold."""
    known_paths = set(indexed_paths)
    return [path for path in paths if path not in known_paths]


def _embed(
    folder: Path, embedder: Embedder, paths: list[str], indexed_paths: list[str], vectors: VectorsWriter
) -> tuple[list[str], dict[str, str]]:
    """Append the vectors of the images at `paths`, and list them behind the indexed ones in a file of the folder.

    Returns all paths of the index, and path -> reason of the images that cannot be decoded, which are listed as well.
    """
    written = list(indexed_paths)
    left_out = {}
    with open(folder / PATHS, "w", newline="", encoding="utf-8", errors="surrogateescape") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["path"])
        writer.writerows([path] for path in indexed_paths)
        for batch in embedder.stream(paths, total=len(paths)):
            vectors.append(batch.vectors)
            for place in batch.places:
                writer.writerow([paths[place]])
                written.append(paths[place])
            for place, reason in batch.refused:
                left_out[paths[place]] = reason
    if left_out:
        with open(folder / LEFT_OUT, "w", newline="", encoding="utf-8", errors="surrogateescape") as file:
            csv.writer(file, lineterminator="\n").writerows([["path", "reason"], *left_out.items()])
    return written, left_out


def _write_codes(folder: Path, index: Codes, rows: int, old: Index | None) -> dict | None:
    """Move a folder's vectors into codes. Returns the recall;
    of an index that is added to, that of its first images.
    """
    vectors = folder / VECTORS
    index.reserve(len(index) + rows)
    for block in blocks(vectors):
        index.add(block)
    index.write(folder / FAISS)
    recall = old.about["recall"] if old else None
    if old is None and rows > 1:
        recall = {
            **_recall(lambda queries, k: index.search(queries, k)[1], vectors, rows, in_order=True),
            "images": rows,
        }
    vectors.unlink()
    return recall


def _write_faiss(folder: Path, kind: str, rows: int, dimensions: int) -> dict | None:
    """Write the faiss index of a folder's vectors. Returns its recall; None for an exact one."""
    import faiss

    vectors = folder / VECTORS
    if kind == EXACT:
        index = faiss.IndexFlatL2(dimensions)
        # reserve all memory: to grow, it would copy itself
        index.codes.resize(rows * dimensions * 4)
        index.codes.resize(0)
    elif kind == HNSW:
        index = faiss.IndexHNSWFlat(dimensions, LINKS)
        index.hnsw.efConstruction = BUILDING
    else:
        if rows < LEAST_IVFPQ:
            raise UserError(
                f"--index {IVFPQ} learns its codes from at least {LEAST_IVFPQ:,} images, and there are {rows:,}: "
                f"take {EXACT}"
            )
        index = _ivfpq(vectors, rows, dimensions)
    for block in blocks(vectors):
        index.add(block)
    recall = None
    if kind != EXACT and rows > 1:
        recall = _recall(lambda queries, k: _candidates(index, queries, kind, k), vectors, rows)
    faiss.write_index(index, str(folder / FAISS))
    return recall


def _ivfpq(vectors: Path, rows: int, dimensions: int):
    """A trained IVF-PQ index of principal components, randomly rotated: a byte for four of them.

    It has four times the square root of `rows` cells, but at least 39 rows a cell.
    """
    import faiss

    codes = max(dimensions // CODE, 1)
    width = codes * (dimensions // codes)
    cells = min(int(4 * math.sqrt(rows)), rows // 39)
    index = faiss.index_factory(dimensions, f"PCAR{width},IVF{cells},PQ{codes}x8")
    chosen = np.sort(np.random.default_rng(0).choice(rows, size=min(rows, TRAINED_ON), replace=False))
    index.train(rows_of(vectors, chosen))
    return index


def _recall(search, vectors: Path, rows: int, in_order: bool = False) -> dict:
    """Recall@10: the share of a query's ten nearest images, itself left out, that the search finds. Queries are random
    images of the index.

    An image as near as the tenth counts as found.

    Args:
        search: queries, k -> rows `(Q, K)`: candidates whose exact distances are computed, or `in_order`, then the
        first ten others count.
    """
    chosen = np.sort(np.random.default_rng(1).choice(rows, size=min(rows, RECALL_QUERIES), replace=False))
    queries = rows_of(vectors, chosen)
    at = min(RECALL_AT, rows - 1)
    candidates = search(queries, at + 1)
    is_query = candidates == chosen[:, None]
    # the query itself last
    order = np.argsort(is_query, axis=1, kind="stable")
    candidates = np.take_along_axis(np.where(is_query, -1, candidates), order, axis=1)
    if in_order:
        candidates = candidates[:, :at]
    nearest = np.empty((len(queries), 0))
    measured = np.full(candidates.shape, np.inf)
    start = 0
    for block in blocks(vectors):
        distances = (
            (queries.astype(np.float64) ** 2).sum(1)[:, None]
            - 2 * queries.astype(np.float64) @ block.T.astype(np.float64)
            + (block.astype(np.float64) ** 2).sum(1)[None]
        )
        in_block = (chosen >= start) & (chosen < start + len(block))
        distances[in_block, chosen[in_block] - start] = np.inf
        inside = (candidates >= start) & (candidates < start + len(block))
        measured[inside] = distances[np.nonzero(inside)[0], candidates[inside] - start]
        nearest = np.concatenate([nearest, distances], axis=1)
        nearest = np.partition(nearest, min(at, nearest.shape[1]) - 1, axis=1)[:, :at]
        start += len(block)
    farthest = nearest.max(1, keepdims=True)
    hits = (np.sort(measured, axis=1)[:, :at] <= farthest + 1e-9 * np.maximum(farthest, 1)).mean()
    return {"at": at, "queries": len(queries), "recall": float(hits)}
