"""Memory and speed of indexes in a code.

    python benchmarks/codes.py --vectors 1000000 --dimensions 64 --codes float32 int8 binary pq16

Random unit vectors around 1,000 centres are drawn a block at a time, so that no more than the index is in memory; each
code in a process of its own. Speeds are of searches for 10, as `python -m evaluation compress` measures them. On Linux.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np

from utilities import codes
from utilities.errors import OneLineParser, one_line_errors
from utilities.numbers import whole

CENTRES = 1000
SPREAD = 0.5
QUERIES = 6000


def block(dimensions: int, rows: int, number: int) -> np.ndarray:
    """Unit vectors `(rows, D)`, the `number`-th block of them."""
    centres = np.random.default_rng(0).standard_normal((CENTRES, dimensions), dtype=np.float32)
    generator = np.random.default_rng(2 + number)
    points = centres[generator.integers(CENTRES, size=rows)]
    points = points + SPREAD * generator.standard_normal((rows, dimensions), dtype=np.float32)
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def peak() -> float:
    """Largest resident memory of this process so far, in MB of 10^6 bytes."""
    status = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in status if line.startswith("VmHWM")).split()[1]) * 1024 / 1e6


def measure(name: str, vectors: int, dimensions: int, threads: int) -> None:
    """Build and search one index, and print a line."""
    import time

    import faiss

    from tools.compress import queries_a_second

    faiss.omp_set_num_threads(threads)
    index = codes.Codes(name, dimensions)
    before = peak()
    began = time.perf_counter()
    index.calibrate(block(dimensions, codes.MOST, 0))
    learned = time.perf_counter() - began
    index.reserve(vectors)
    added = 0.0
    for number, start in enumerate(range(0, vectors, codes.BLOCK)):
        rows = block(dimensions, min(codes.BLOCK, vectors - start), number + 1)
        began = time.perf_counter()
        index.add(rows)
        added += time.perf_counter() - began
    built = peak() - before
    queries = block(dimensions, QUERIES, -1)
    rates = [queries_a_second(index, queries, batch, codes.RESCORED) for batch in (1, 1000)]
    size = vectors * index.bytes_a_vector / 1e6
    print(
        f"{name:>8}  {size:8.1f} MB of codes  peak {built:8.1f} MB above the program to build, {peak() - before:8.1f} "
        f"MB to search  learns {learned:7.1f} s, adds {added:6.1f} s  {rates[0]:8.1f} and {rates[1]:8.1f} queries/s "
        "one and 1,000 at a time",
        flush=True,
    )


def main(argv: list[str] | None = None) -> None:
    """A line a code."""
    parser = OneLineParser(description=__doc__.partition("\n\n")[0], allow_abbrev=False)
    parser.add_argument("--vectors", type=whole(1000), default=1_000_000, help="default: 1,000,000")
    parser.add_argument("--dimensions", type=whole(1, 4096), default=64, help="default: 64")
    parser.add_argument("--codes", type=codes.name, nargs="+", default=["float32", "float16", "int8", "binary", "pq16"])
    parser.add_argument("--threads", type=whole(1, 1024), default=2, help="of faiss (default: 2)")
    opt = parser.parse_args(argv)
    if len(opt.codes) == 1:
        return measure(opt.codes[0], opt.vectors, opt.dimensions, opt.threads)
    size = ["--vectors", str(opt.vectors), "--dimensions", str(opt.dimensions), "--threads", str(opt.threads)]
    for name in opt.codes:
        subprocess.run([sys.executable, __file__, "--codes", name, *size], check=True)


if __name__ == "__main__":
    with one_line_errors(Path(__file__).name):
        main()
