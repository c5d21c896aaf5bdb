"""The exact neighbour search beside a simple one on faiss: median seconds and CPU seconds, equal ranks checked.

    python benchmarks/search.py                            # CUB's and SOP's size
    python benchmarks/search.py --size large --repeats 1   # 200,000 x 128, minutes

`search` is metrics/neighbours/search.py. `simple` lets faiss find a few more neighbours than needed in float32, orders
near ties by their float64 distances with the same `Ties`, and searches again for four times as many where the float32
error bound does not prove that these suffice. `faiss` is the bare call for as many, without proof or exact order.
`one-sided` is `search` without the symmetry of a set that searches in itself: the score of each pair is computed from
both sides. Tasks: the `k` nearest in their exact order, or the values of a metric. The searches take turns. On a shared
machine trust the ratios of CPU seconds most.
"""

import functools
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
# samples of the check, many of them equal or at equal distances
TIED = 1_200


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
        radius = max(np.sqrt(((block - self.mean) ** 2).sum(1).max()) for _, block in space.reference_blocks())
        self.scale = 1 / (radius or 1.0)
        # the features, 1, -|r|^2/2
        self.reference = np.ones((m, d + 2), dtype=np.float32)
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
            step = max(1, self.limits.candidates // 4 // width)
            if len(rows) > step:
                todo += [(rows[start : start + step], width) for start in range(0, len(rows), step)]
                continue
            nearest, noise, done = self._nearest(rows, width, needs)
            if not done.all():
                todo.append((rows[~done], 4 * width))
            scores, *parts = (part[done] for part in nearest)
            neighbours = Neighbours(rows[done], *parts)
            ordered = max((int(np.max(need.depth)) for need in needs if need.goal == "every"), default=0)
            self.ties.settle(*neighbours[:3], scores, 2 * noise[done], ordered)
            yield neighbours

    def _nearest(self, rows, width, needs):
        """(scores, columns, relevant `(B, W)`, counts `(B,)`) of queries, and which provably suffice.

        Between them: the rounding errors of the scores.
        """
        import faiss

        space = self.space
        features = (space.queries(rows) - self.mean) * self.scale
        squares = (features**2).sum(1)
        unit = SLACK * np.finfo(np.float32).eps / 2 * np.sqrt(space.dimensions + 4)
        noise = unit * (np.sqrt(squares) + 0.5 * squares + 0.5)
        queries = np.ones((len(rows), features.shape[1] + 2), dtype=np.float32)
        queries[:, :-2] = features
        queries[:, -2] = -0.5 * squares
        scores, columns = faiss.knn(queries, self.reference, width, metric=faiss.METRIC_INNER_PRODUCT)
        self.work.scores += len(rows) * space.reference_size
        last = np.full(len(rows), -np.inf) if width == space.reference_size else scores[:, -1] + 2 * noise
        seen = columns != space.exclude[rows, None]
        if (sequences := space.truth.sequences) is not None:
            seen &= sequences[1][columns] != sequences[0][rows, None]
        counts = seen.sum(1)
        filled = np.arange(width) < counts[:, None]
        seen_scores = np.full(seen.shape, np.nan, dtype=np.float32)
        seen_scores[filled] = scores[seen]
        seen_columns = np.zeros(seen.shape, dtype=np.int64)
        seen_columns[filled] = columns[seen]
        relevant = (space.reference_labels[seen_columns] == space.labels[rows, None]) & filled
        sure = seen_scores > last[:, None]
        surely = sure.sum(1)
        hits = (relevant & sure).sum(1)
        done = np.ones(len(rows), dtype=bool)
        for need in needs:
            enough = {"first": hits > 0, "all": hits >= space.relevant[rows], "every": False}[need.goal]
            done &= (surely >= need.depth[rows]) | enough | (width == space.reference_size)
        return (seen_scores, seen_columns, relevant, counts), noise, done


def one_sided(space):
    """The search with the score of each pair computed from both sides."""
    space.is_self_search = False
    return Search(space)


SEARCHES = {"search": Search, "simple": Simple, "one-sided": one_sided}


def result(make, features, labels, task):
    """The result of a search, and its `Work`."""
    space = metrics.EmbeddingSpace(features, labels)
    space.search = make(space)
    values = space.neighbours(task) if isinstance(task, int) else metrics.per_query([task], space)[task]
    return values, space.search.work


def bare(features, task) -> None:
    """A bare search by faiss, as deep as the task."""
    import faiss

    depth = task if isinstance(task, int) else 1000
    faiss.knn(features, features, min(depth + 1, len(features)))


def timed(call):
    """A call's result, and its (seconds, CPU seconds, MB of its peak above the memory before)."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before = memory("VmRSS")
    wall = time.perf_counter()
    cpu = time.process_time()
    value = call()
    return value, (time.perf_counter() - wall, time.process_time() - cpu, memory("VmHWM") - before)


def check_ties() -> None:
    """Stop where the two searches differ on samples with many copies and equal distances, or a collapsed space."""
    features, labels = data("cub", TIED, 16)
    features = np.round(3 * features)
    features[400:600] = features[:200]
    features[800:1100] = features[7]
    for name, tied in (("rounded, with copies", features), ("collapsed", np.tile(features[:1], (TIED, 1)))):
        for task in (5, 300, TIED - 1, "mAP_1000", "mAP", "mrr", "map_r"):
            ours, simple = (result(make, tied, labels, task)[0] for make in (Search, Simple))
            if not np.array_equal(ours, simple, equal_nan=True):
                raise SystemExit(f"{name}, {task}: the searches differ in {np.not_equal(ours, simple).sum()} places")
    print(f"{TIED} samples, rounded with copies, and collapsed: equal ranks")


def compare(size: str, tasks, options) -> None:
    """Time the contestants of a size in turn and print the medians."""
    rows, kind, all_tasks = SIZES[size]
    features, labels = data(kind, rows, 128)
    for task in [task for task in all_tasks if not tasks or str(task) in tasks]:
        figures = {}
        values = {}
        works = {}
        for _ in range(options.repeats):
            for name, make in SEARCHES.items():
                search = functools.partial(result, make, features, labels, task)
                (values[name], works[name]), measured = timed(search)
                figures.setdefault(name, []).append(measured)
            _, measured = timed(functools.partial(bare, features, task))
            figures.setdefault("faiss", []).append(measured)
        title = f"{task} nearest" if isinstance(task, int) else task
        print(f"\n{size}, {rows:,} x 128, {title}: {options.threads} threads, median of {options.repeats}")
        print(f"{'':12}{'seconds':>9}{'CPU s':>9}{'peak MB':>9}{'of search, wall':>17}{'CPU':>7}  ranks")
        medians = {name: np.median(measured, axis=0) for name, measured in figures.items()}
        for name, (wall, cpu, peak) in medians.items():
            ratios = wall / medians["search"][0], cpu / medians["search"][1]
            verdict = ""
            if name in values:
                is_equal = np.array_equal(values[name], values["search"], equal_nan=True)
                verdict = "equal" if is_equal else "DIFFER"
            line = f"{name:12}{wall:9.2f}{cpu:9.2f}{peak:9.0f}{ratios[0]:17.2f}{ratios[1]:7.2f}  {verdict}  "
            print(f"{line}{works.get(name, '')}", flush=True)


def main() -> None:
    """Print a table of the tasks per size."""
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
