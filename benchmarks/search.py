"""The exact neighbour search beside a simple one on faiss: median seconds and CPU seconds, interleaved in one run,
equal ranks checked.

    python benchmarks/search.py                            # CUB's and SOP's size
    python benchmarks/search.py --size large --repeats 1   # 200,000 x 128, minutes

`search` is metrics/neighbours/search.py. `simple` lets faiss find a few more neighbours than needed in float32, orders
near ties by their float64 distances with the same `Ties`, and searches again for four times as many where the float32 error bound
does not prove that these suffice. `faiss` is the bare call for as many, without proof or exact order. `one-sided` is
`search` without the symmetry of a set that searches in
itself: the score of each pair is computed from both sides. Tasks: the `k` nearest in their exact order, or the values
of a metric. On a shared machine trust the ratios of CPU seconds most.
"""

import statistics
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import metrics
from benchmarks.metrics import data, memory
from metrics.neighbours.search import SLACK, Limits, Neighbours, Search, Work
from metrics.neighbours.ties import Ties
from utilities.errors import OneLineParser
from utilities.numbers import whole

MARGIN = 16  # neighbours beyond those that are needed
FIRST = 1024  # most needed ones that the first attempt asks for, even if a metric needs more
SIZES = {
    "cub": (5_924, "cub", [1024, "mAP_1000", "map_r", "mAP", "mrr"]),
    "half": (30_000, "sop", [10, "mAP_1000"]),
    "sop": (60_502, "sop", [1000, 10, "mAP_1000", "map_r", "mrr"]),
    "large": (200_000, "sop", [10]),
}
TIED = 1_200  # samples of the check, many of them equal or at equal distances


class Simple:
    """Neighbours of the queries of `space` by faiss; `run` is called as that of `metrics.neighbours.search.Search`."""

    unit = Search.unit

    def __init__(self, space, limits: Limits | None = None):
        self.space = space
        self.limits = limits or Limits()
        self.work = Work()
        self.ties = Ties(space, self.limits, self.work)
        m = space.reference_size
        d = space.dimensions
        self.mean = sum(block.sum(0) for _, block in space.reference_blocks()) / m
        self.scale = 1 / (
            max(np.sqrt(((block - self.mean) ** 2).sum(1).max()) for _, block in space.reference_blocks()) or 1.0
        )
        self.reference = np.ones((m, d + 2), dtype=np.float32)  # the features, 1, -|r|^2/2
        for start, block in space.reference_blocks():
            moved = (block - self.mean) * self.scale
            self.reference[start : start + len(block), :d] = moved
            self.reference[start : start + len(block), d + 1] = -0.5 * (moved**2).sum(1)

    def run(self, needs, progress=False, rows=None):
        """Yield `Neighbours` in blocks, in which each query comes once."""
        deepest = int(max(np.max(need.depth) for need in needs))
        todo = [(np.arange(self.space.size)[rows or slice(None)], min(deepest, FIRST) + 1 + MARGIN)]
        while todo:
            rows, width = todo.pop()
            width = min(width, self.space.reference_size)
            step = max(1, self.limits.kept // 4 // width)
            if len(rows) > step:
                todo += [(rows[start : start + step], width) for start in range(0, len(rows), step)]
                continue
            found, noise, done = self._nearest(rows, width, needs)
            if not done.all():
                todo.append((rows[~done], 4 * width))
            scores = found[0][done]
            found = Neighbours(rows[done], *(part[done] for part in found[1:]))
            self.ties.settle(*found[:3], scores, 2 * noise[done], any(need.what == "every" for need in needs))
            yield found

    def _nearest(self, rows, width, needs):
        """(scores, columns, relevant `(B, W)`, counts `(B,)`) of queries, rounding errors of the scores, and which
        provably suffice.
        """
        import faiss

        space = self.space
        features = (space.queries(rows) - self.mean) * self.scale
        squares = (features**2).sum(1)
        noise = (
            SLACK
            * np.finfo(np.float32).eps
            / 2
            * np.sqrt(space.dimensions + 4)
            * (np.sqrt(squares) + 0.5 * squares + 0.5)
        )
        queries = np.ones((len(rows), features.shape[1] + 2), dtype=np.float32)
        queries[:, :-2], queries[:, -2] = features, -0.5 * squares
        scores, columns = faiss.knn(queries, self.reference, width, metric=faiss.METRIC_INNER_PRODUCT)
        self.work.scores += len(rows) * space.reference_size
        last = np.full(len(rows), -np.inf) if width == space.reference_size else scores[:, -1] + 2 * noise
        seen = columns != space.exclude[rows, None]
        if (sequences := space.truth.sequences) is not None:
            seen &= sequences[1][columns] != sequences[0][rows, None]
        counts = seen.sum(1)
        filled = np.arange(width) < counts[:, None]
        kept = np.full(seen.shape, np.nan, dtype=np.float32), np.zeros(seen.shape, dtype=np.int64)
        kept[0][filled], kept[1][filled] = scores[seen], columns[seen]
        relevant = (space.reference_labels[kept[1]] == space.labels[rows, None]) & filled
        sure = kept[0] > last[:, None]
        surely = sure.sum(1)
        hits = (relevant & sure).sum(1)
        done = np.ones(len(rows), dtype=bool)
        for need in needs:
            enough = {"first": hits > 0, "all": hits >= space.relevant[rows], "every": False}[need.what]
            done &= (surely >= need.depth[rows]) | enough | (width == space.reference_size)
        return (*kept, relevant, counts), noise, done


def one_sided(space):
    """The search with the score of each pair computed from both sides."""
    space.is_self_search = False
    return Search(space)


SEARCHES = {"search": Search, "simple": Simple, "one-sided": one_sided}


def result(make, features, labels, task):
    """The result of a search, and its `Work`."""
    space = metrics.EmbeddingSpace(features, labels)
    space.search = make(space)
    found = space.neighbours(task) if isinstance(task, int) else metrics.per_query([task], space)[task]
    return found, space.search.work


def bare(features, task) -> None:
    import faiss

    faiss.knn(features, features, min((task if isinstance(task, int) else 1000) + 1, len(features)))


def timed(call):
    """A call's result, and its (seconds, CPU seconds, MB of its peak above the memory before)."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before = memory("VmRSS")
    wall = time.perf_counter()
    cpu = time.process_time()
    found = call()
    return found, (time.perf_counter() - wall, time.process_time() - cpu, memory("VmHWM") - before)


def check_ties() -> None:
    """Stop where the two searches differ on samples with many copies and equal distances, or a collapsed space."""
    features, labels = data("cub", TIED, 16)
    features = np.round(3 * features)
    features[400:600], features[800:1100] = features[:200], features[7]
    for name, tied in (("rounded, with copies", features), ("collapsed", np.tile(features[:1], (TIED, 1)))):
        for task in (5, 300, TIED - 1, "mAP_1000", "mAP", "mrr", "map_r"):
            one, other = (result(make, tied, labels, task)[0] for make in (Search, Simple))
            if not np.array_equal(one, other, equal_nan=True):
                raise SystemExit(f"{name}, {task}: the searches differ in {np.not_equal(one, other).sum()} places")
    print(f"{TIED} samples, rounded with copies, and collapsed: equal ranks")


def compare(size: str, tasks, options) -> None:
    """Time the contestants of a size in turn and print the medians."""
    rows, kind, every = SIZES[size]
    features, labels = data(kind, rows, 128)
    for task in [task for task in every if not tasks or str(task) in tasks]:
        figures = {}
        values = {}
        works = {}
        for _ in range(options.repeats):
            for name, make in SEARCHES.items():
                (values[name], works[name]), found = timed(
                    lambda make=make, task=task: result(make, features, labels, task)
                )
                figures.setdefault(name, []).append(found)
            figures.setdefault("faiss", []).append(timed(lambda task=task: bare(features, task))[1])
        what = f"{task} nearest" if isinstance(task, int) else task
        print(f"\n{size}, {rows:,} x 128, {what}: {options.threads} threads, median of {options.repeats}")
        print(f"{'':12}{'seconds':>9}{'CPU s':>9}{'peak MB':>9}{'of search, wall':>17}{'CPU':>7}  ranks")
        medians = {
            name: [statistics.median(part) for part in zip(*found, strict=True)] for name, found in figures.items()
        }
        for name, (wall, cpu, peak) in medians.items():
            ratios = wall / medians["search"][0], cpu / medians["search"][1]
            same = (
                ""
                if name not in values
                else "equal"
                if np.array_equal(values[name], values["search"], equal_nan=True)
                else "DIFFER"
            )
            print(
                (
                    f"{name:12}{wall:9.2f}{cpu:9.2f}{peak:9.0f}{ratios[0]:17.2f}{ratios[1]:7.2f}  {same}  "
                    f"{works.get(name, '')}"
                ),
                flush=True,
            )


def main() -> None:
    import faiss
    import torch

    parser = OneLineParser(description=__doc__.partition("\n\n")[0], allow_abbrev=False)
    parser.add_argument("--size", nargs="+", default=["cub", "sop"], choices=list(SIZES), help="how many samples")
    parser.add_argument(
        "--tasks", nargs="+", default=[], help="some of a size's tasks: its ks and metrics (default: all)"
    )
    parser.add_argument("--threads", type=whole(1, 1000), default=2)
    parser.add_argument("--repeats", type=whole(1), default=3, help="runs of each, in turn; the median counts")
    options = parser.parse_args()
    faiss.omp_set_num_threads(options.threads)
    torch.set_num_threads(options.threads)
    check_ties()
    for size in options.size:
        compare(size, options.tasks, options)


if __name__ == "__main__":
    main()
