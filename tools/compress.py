"""Compression: what codes of embeddings cost and keep, `python -m evaluation compress FEATURES --calibration TRAINING`.

FEATURES is a file as `python -m evaluation` reads it; the gallery is coded, queries stay float. TRAINING is a file with
`features` of training images, from which int8, pq and opq learn; codes that cannot be learned from it are skipped with
a note. Each row of the table is a code of a prefix: bytes a vector and an image of the whole index, e_recall@1, map_r,
recall@10 against exact float search, seconds to learn and build, queries a second of a search for 10, one query and
1,000 at a time.
"""

import argparse
import contextlib
import functools
import platform
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

import metrics
from evaluation import file_arrays, from_files
from evaluation.task import Task
from pictures import space as charts
from tools._command import new_parser, refuse_torchrun, words_of
from utilities import codes
from utilities.codes import Codes
from utilities.console import propose, propose_view, say
from utilities.errors import UserError
from utilities.files import make_folder, write_json
from utilities.numbers import WIDEST, whole
from utilities.processes import kernels

PROGRAM = "python -m evaluation compress"
CODES = ["float32", "float16", "int8", "binary", "pq64", "opq64"]
# neighbours of the recall and of the timed searches
AT = 10
# queries at a time, and timed searches, of which the median counts
BATCH = 1000
REPEATS = 5
# entries of the lists (queries, depth) that exist at once
ENTRIES = 1 << 22
HEAD = {
    "code": "{}",
    "dimensions": "{}",
    "bytes_a_vector": "{:,}",
    "bytes_an_image": "{:,.1f}",
    "e_recall@1": "{:.4f}",
    "map_r": "{:.4f}",
    "recall@10": "{:.4f}",
    "build_seconds": "{:.2f}",
    "queries_a_second_1": "{:,.0f}",
    "queries_a_second_1000": "{:,.0f}",
}


class CodeSearch:
    """The search of a space whose reference lies in codes; called as a `metrics.neighbours.search.Search` is."""

    unit = 1

    def __init__(self, space: metrics.EmbeddingSpace, index: Codes, rescored: int):
        self.space = space
        self.index = index
        self.rescored = rescored

    def run(self, needs: list[metrics.Need], progress: bool = False, rows: slice | None = None):
        """Yield `metrics.Neighbours` in blocks: what the index finds, without ignored items."""
        space = self.space
        needed = int(np.maximum.reduce([need.depth for need in needs]).max())
        most_hidden = int((space.reference_size - space.visible).max())
        depth = min(needed + most_hidden, space.reference_size)
        step = max(ENTRIES // depth, 1)
        for start in range(rows.start, rows.stop, step):
            part = np.arange(start, min(start + step, rows.stop))
            _, columns = self.index.search(space.queries(part), depth, self.rescored)
            takes_rank = self._takes_rank(part, columns)
            hidden_last = np.argsort(~takes_rank, axis=1, kind="stable")
            columns = np.take_along_axis(columns, hidden_last, 1)
            counts = takes_rank.sum(1)
            relevant = space.truth.are_relevant(part, columns) & (np.arange(depth) < counts[:, None])
            yield metrics.Neighbours(part, columns, relevant, counts)

    def _takes_rank(self, part: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Whether each of the references `columns` `(n, depth)` takes a rank for its query, `part` `(n,)`."""
        truth = self.space.truth
        size = self.space.reference_size
        hidden_queries, hidden_columns = truth.hidden_pairs(part)
        keys = np.arange(len(part))[:, None] * size + columns
        takes_rank = ~np.isin(keys, hidden_queries * size + hidden_columns)
        if truth.sequences is not None:
            of_queries, of_references = truth.sequences
            takes_rank &= of_references[columns] != of_queries[part][:, None]
        return takes_rank


class CodeRanking(NamedTuple):
    """An index in the place of a re-ranker of `metrics.compute`."""

    index: Codes
    rescored: int = codes.RESCORED

    def search(self, space: metrics.EmbeddingSpace, progress: bool = False) -> CodeSearch:
        """The search of the space in the index."""
        return CodeSearch(space, self.index, self.rescored)

    def neighbours(self, space: metrics.EmbeddingSpace) -> np.ndarray:
        """The first `AT` that take a rank `(N, AT)`, -1 where there are fewer."""
        space = space.view(type(space))
        space.search = self.search(space)
        return space.neighbours(AT)


def recall(space: metrics.EmbeddingSpace, neighbours: np.ndarray, exact: np.ndarray) -> float:
    """The mean share of the `exact` neighbours that are among `neighbours`, `(N, k)` each, -1 for none.

    A neighbour as near as the last exact one counts as found.
    """
    is_neighbour = exact >= 0
    distances = _squared_distances(space, neighbours)
    exact_distances = np.where(is_neighbour, _squared_distances(space, exact), -np.inf)
    is_near = distances <= exact_distances.max(1, keepdims=True)
    has_neighbours = is_neighbour.any(1)
    shares = is_near[has_neighbours].sum(1) / is_neighbour[has_neighbours].sum(1)
    return float(shares.mean()) if len(shares) else float("nan")


def _squared_distances(space: metrics.EmbeddingSpace, columns: np.ndarray) -> np.ndarray:
    """Of each query and its references `columns` `(N, k)`; infinite for -1."""
    distances = np.full(columns.shape, np.inf)
    rows, slots = np.nonzero(columns >= 0)
    distances[rows, slots] = space.squared_distances(rows, columns[rows, slots])
    return distances


def built(name: str, reference, calibration) -> tuple[Codes, float]:
    """The index of features `(M, D)` in a code that learned from `calibration` `(T, D)`,
    and the seconds that this took.
    """
    index = Codes(name, reference.shape[1])
    began = time.perf_counter()
    if codes.is_learned(name):
        index.calibrate(calibration)
    index.reserve(len(reference))
    for start in range(0, len(reference), codes.BLOCK):
        index.add(reference[start : start + codes.BLOCK])
    return index, time.perf_counter() - began


def queries_a_second(index: Codes, queries, batch: int, rescored: int) -> float:
    """Of searches for `AT` neighbours, `batch` queries at a time: the median of `REPEATS` after one that warms up."""
    seconds = []
    for repeat in range(REPEATS + 1):
        rows = np.arange(repeat * batch, (repeat + 1) * batch) % len(queries)
        batch_queries = queries[rows]
        began = time.perf_counter()
        index.search(batch_queries, AT, rescored)
        seconds.append(time.perf_counter() - began)
    return batch / statistics.median(seconds[1:])


def measure(
    task: Task, calibration, cases: list[tuple[str, int]], rescored: int = codes.RESCORED, skips: bool = False
) -> list[dict]:
    """One row per case, a code and a number of dimensions, with the keys of `HEAD`.

    `calibration`: `(T, D)` or None.
    """
    rows = []
    whole_space = metrics.space_of(None, **task.arguments())
    exact = CodeRanking(built(codes.FLOAT32, task.searched.features, None)[0]).neighbours(whole_space)
    bar = tqdm(cases, leave=False, disable=None)
    for name, width in bar:
        bar.set_description(f"{name} of {width} dimensions")
        prefix = functools.partial(metrics.prefix, dimensions=width)
        part = replace(task, pool=None).with_features(prefix)
        learned_from = None if calibration is None else sample(prefix(calibration))
        index, seconds = built(name, part.searched.features, learned_from)
        ranking = CodeRanking(index, rescored)
        row = {
            "code": name,
            "dimensions": width,
            "bytes_a_vector": index.bytes_a_vector,
            "bytes_an_image": index.size() / len(index),
        }
        row |= metrics.compute(["e_recall@1", "map_r"], **part.arguments(), rerank=ranking, skip_unmatched=skips)
        neighbours = ranking.neighbours(metrics.space_of(None, **part.arguments()))
        row["recall@10"] = recall(whole_space, neighbours, exact)
        row["build_seconds"] = seconds
        for batch in (1, BATCH):
            row[f"queries_a_second_{batch}"] = queries_a_second(index, part.queries.features, batch, rescored)
        rows.append(row)
    return rows


def sample(features) -> np.ndarray:
    """At most `codes.MOST` random rows of features, in their order."""
    if len(features) <= codes.MOST:
        return features[:]
    return features[np.sort(np.random.default_rng(0).choice(len(features), size=codes.MOST, replace=False))]


def table(rows: list[dict]) -> str:
    """The columns of `HEAD`, right-aligned, one line per row."""
    cells = [[name.replace("_", " ") for name in HEAD]]
    for row in rows:
        cells.append([form.format(row[name]) for name, form in HEAD.items()])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for words in cells:
        lines.append("  ".join(word.rjust(width) for word, width in zip(words, widths, strict=True)))
    return "\n".join(lines)


def processor() -> str:
    """The processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(": ")[2] for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def parser() -> argparse.ArgumentParser:
    """The command's flags."""
    parser = new_parser(PROGRAM, "Quality, size and speed of codes of embeddings.")
    parser.add_argument(
        "features",
        help=(
            "an .npz file with features (N, D) and labels (N,), and what else `python -m evaluation` reads; or an "
            ".npy file"
        ),
    )
    parser.add_argument("--labels", default=None, metavar="FILE", help="the .npy file with the labels of an .npy file")
    help_calibration = (
        "an .npz file with features (T, D) of training images, or an .npy file: int8, pq and opq learn from them"
    )
    parser.add_argument("--calibration", default=None, metavar="FILE", help=help_calibration)
    parser.add_argument(
        "--codes",
        type=codes.name,
        nargs="+",
        default=None,
        metavar="CODE",
        help=f"{codes.NAMES} (default: {' '.join(CODES)})",
    )
    help_prefixes = (
        "also code the first N dimensions, for each N, at unit length again where the features are (default: all "
        "dimensions)"
    )
    parser.add_argument("--prefixes", type=whole(1, WIDEST), nargs="+", default=None, metavar="D", help=help_prefixes)
    help_rescore = (
        f"of binary: how many times as many candidates by Hamming distance as neighbours (default: {codes.RESCORED})"
    )
    parser.add_argument(
        "--rescore_multiplier", type=whole(1, 10**4), default=codes.RESCORED, metavar="N", help=help_rescore
    )
    parser.add_argument(
        "--threads",
        type=whole(1, 1024),
        default=kernels(1024),
        metavar="N",
        help="of faiss (default: all processors, here %(default)s)",
    )
    parser.add_argument(
        "--out", default=None, metavar="FOLDER", help="also write compression.json and compression.png there"
    )
    return parser


def check(flags, dimensions: int, calibration) -> None:
    """Raise UserError, before anything is measured, for prefixes and a calibration that do not fit the features."""
    wide = next((width for width in flags.prefixes if width > dimensions), None)
    if wide is not None:
        raise UserError(f"--prefixes {wide}: the features of {flags.features} have {dimensions} dimensions")
    if flags.out is not None and Path(flags.out).is_file():
        raise UserError(f"--out {flags.out}: a file, expected a folder")
    if calibration is None:
        return
    if Path(flags.calibration).resolve() == Path(flags.features).resolve():
        raise UserError(f"--calibration {flags.calibration}: it is measured itself, take embeddings of training images")
    learned_from = _checked(flags.calibration, lambda: metrics.EmbeddingSpace(calibration, np.zeros(len(calibration))))
    if learned_from.dimensions != dimensions:
        raise UserError(
            f"--calibration {flags.calibration}: features are {calibration.shape}, those of {flags.features} have "
            f"{dimensions} dimensions"
        )


def learnable(flags, calibration) -> tuple[list[tuple[str, int]], list[str]]:
    """The cases to measure, (code, dimensions), and a line for each case whose code cannot be learned.

    Raises UserError where no case is left.
    """
    cases = []
    skipped = []
    for width in flags.prefixes:
        for name in flags.codes:
            try:
                _check_code(name, width, calibration)
            except UserError as error:
                skipped.append(f"{width} dimensions: {error}")
            else:
                cases.append((name, width))
    if not cases:
        raise UserError(skipped[0])
    return cases, skipped


def _check_code(name: str, width: int, calibration) -> None:
    """Raise UserError where a code of `width` dimensions cannot be learned from `calibration` `(T, D)` or None."""
    Codes(name, width)
    if codes.is_learned(name) and calibration is None:
        raise UserError(
            f"--codes {name} learns from training embeddings: name their file by --calibration, never that of the "
            "queries"
        )
    if codes.is_learned(name):
        codes.refuse_few(name, len(calibration))


def _checked(path: str, make):
    """What `make` gives; a UserError names the file."""
    try:
        return make()
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def main(argv: list[str] | None = None) -> list[dict]:
    """Print the table, and write it and its plot. Returns its rows."""
    argv = words_of(argv)
    flags = parser().parse_args(argv)
    refuse_torchrun(PROGRAM)
    flags.codes = list(dict.fromkeys(flags.codes or CODES))
    arrays = file_arrays.read_queries(flags.features, False, labels=flags.labels)
    skips = bool(file_arrays.written_flags(arrays).get("eval_skip_unmatched"))
    task = from_files.task_of(flags.features, arrays)
    search = from_files.described(task, arrays, False, skips)
    dimensions = _checked(flags.features, lambda: metrics.space_of(None, **task.arguments())).dimensions
    flags.prefixes = list(dict.fromkeys([*(flags.prefixes or []), dimensions]))
    calibration = None
    if flags.calibration is not None:
        calibration = file_arrays.read(flags.calibration, (), needs_labels=False)["features"]
    check(flags, dimensions, calibration)
    cases, skipped = learnable(flags, calibration)
    for line in skipped:
        say(f"note  skipped, {line}")
    with faiss_threads(flags.threads):
        rows = measure(task, calibration, cases, flags.rescore_multiplier, skips)
    conditions = conditions_of(flags, task, calibration)
    sizes = f"{flags.features}: {len(task.queries):,} queries, {len(task.searched):,} images in the index"
    if search:
        sizes = f"{sizes}; {search}"
    say(sizes)
    say("{processor}, {threads} threads, faiss {faiss}, {calibration_vectors:,} training vectors".format(**conditions))
    print(f"\n{table(rows)}")
    if flags.out is None:
        folder = Path(flags.features).with_name(f"{Path(flags.features).stem}_codes")
        propose(*PROGRAM.split(), *argv, "--out", folder)
        return rows
    folder = make_folder(flags.out, f"--out {flags.out}")
    write_json(folder / "compression.json", {**conditions, "skipped": skipped, "rows": rows})
    charts.compression(folder / "compression.png", rows, Path(flags.features).stem)
    print(f"\nwritten  {folder / 'compression.json'}\nwritten  {folder / 'compression.png'}")
    propose_view(folder / "compression.png")
    return rows


@contextlib.contextmanager
def faiss_threads(count: int):
    """Inside, faiss computes with `count` threads."""
    import faiss

    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(count)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def conditions_of(flags, task: Task, calibration) -> dict:
    """What was measured and with what, for compression.json."""
    import faiss

    n_learned_from = 0 if calibration is None else min(len(calibration), codes.MOST)
    return {
        "features": flags.features,
        "images": len(task.searched),
        "queries": len(task.queries),
        "calibration": flags.calibration,
        "calibration_vectors": n_learned_from,
        "rescore_multiplier": flags.rescore_multiplier,
        "faiss": faiss.__version__,
        "faiss_seed": codes.SEED,
        "threads": flags.threads,
        "processor": processor(),
    }
