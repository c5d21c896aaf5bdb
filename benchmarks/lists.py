"""Queries with lists of positives and junk in a large gallery: seconds, processor seconds, and memory above the input.

    python benchmarks/lists.py [--gallery 1000000] [--queries 1000]

Each query has 20 positives, all near it but for one among the others, and 50 junk images: `ap` needs the rank of the far one too.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np  # noqa: E402

import metrics  # noqa: E402
from benchmarks.metrics import memory  # noqa: E402
from utilities.errors import OneLineParser  # noqa: E402
from utilities.numbers import whole  # noqa: E402

DIMENSIONS, POSITIVES, JUNK, NOISE = 128, 20, 50, 0.7
NAMES = ["e_recall@1", "mp@10", "map@100", "ap", "ap_trapezoid", "inp"]


def main() -> None:
    """Measure and print."""
    parser = OneLineParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gallery", type=whole(10**4), default=10**6)
    parser.add_argument("--queries", type=whole(1, 10**4), default=1000)
    flags = parser.parse_args()
    rng = np.random.default_rng(0)
    gallery = rng.standard_normal((flags.gallery, DIMENSIONS), dtype=np.float32)
    queries = rng.standard_normal((flags.queries, DIMENSIONS), dtype=np.float32)
    drawn = rng.permutation(flags.gallery)[: flags.queries * POSITIVES].reshape(flags.queries, POSITIVES)
    for query, rows in zip(queries, drawn, strict=True):
        gallery[rows[1:]] = query + NOISE * rng.standard_normal((POSITIVES - 1, DIMENSIONS), dtype=np.float32)
    junk = [np.setdiff1d(rng.integers(0, flags.gallery, JUNK), rows) for rows in drawn]
    lists = metrics.Lists.of(drawn.tolist(), [rows.tolist() for rows in junk])
    before, clock, processor = memory("VmRSS"), time.perf_counter(), time.process_time()
    found = metrics.compute(NAMES, queries, reference=gallery, lists=lists, progress=True)
    print(f"{flags.queries:,} queries, {flags.gallery:,} x {DIMENSIONS} gallery, {POSITIVES} positives and {JUNK} junk each")
    print(f"{time.perf_counter() - clock:.0f} s, {time.process_time() - processor:.0f} processor s, {memory('VmHWM') - before:.0f} MB above the input")
    print(", ".join(f"{name} {value:.4f}" for name, value in found.items()))


if __name__ == "__main__":
    main()
