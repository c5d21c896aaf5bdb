"""Peak memory of `python -m evaluation` on files with a gallery that does not fit.

    python benchmarks/mapped.py            # 4,200,000 x 128 float32, 2.15 GB, in a process that may take 0.9 GB
    python benchmarks/mapped.py --metrics nmi --rows 500000 --limit 500

The command is `python -m evaluation QUERIES.npy --labels … --gallery GALLERY.npy --gallery_labels …`. The process may
take `--limit` MB beyond what it has once it is loaded; more is a MemoryError. The limit is RLIMIT_DATA, as `ulimit -d`:
it counts the process's own memory, not the pages of a map, which the system may drop. Features are class centre +
noise, written block by block.
"""

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.metrics import memory
from utilities.errors import OneLineParser
from utilities.numbers import whole

MB = 2**20
BLOCK = 65536


def write(folder: Path, name: str, rows: int, dimensions: int, classes: int, seed: int) -> list[str]:
    """Write `rows` float32 features and their labels; the classes have the same centres for each seed.

    Returns the two files.
    """
    centres = np.random.default_rng(0).standard_normal((classes, dimensions), dtype=np.float32)
    rng = np.random.default_rng(seed)
    labels = np.arange(rows) % classes
    features = np.lib.format.open_memmap(folder / f"{name}.npy", "w+", np.float32, (rows, dimensions))
    for start in range(0, rows, BLOCK):
        block_labels = labels[start : start + BLOCK]
        features[start : start + BLOCK] = centres[block_labels] + rng.standard_normal(
            (len(block_labels), dimensions), dtype=np.float32
        )
    features.flush()
    np.save(folder / f"{name}_labels.npy", labels)
    return [str(folder / f"{name}.npy"), str(folder / f"{name}_labels.npy")]


def measure(limit: int, argv: list[str]) -> None:
    """`python -m evaluation` in this process, once it is loaded and limited."""
    import faiss
    import torch

    from evaluation import __main__ as command

    warm = np.random.default_rng(1).standard_normal((300, 16)).astype(np.float32)
    faiss.knn(warm, warm, 5)
    torch.mm(torch.from_numpy(warm), torch.from_numpy(warm).T)
    before = memory("VmData")
    resource.setrlimit(resource.RLIMIT_DATA, (int((before + limit) * MB), resource.RLIM_INFINITY))
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    resident = memory("VmRSS")
    wall = time.perf_counter()
    cpu = time.process_time()
    command.main(argv)
    print(
        f"{time.perf_counter() - wall:.0f} s, {time.process_time() - cpu:.0f} CPU s; at most {limit} MB beyond "
        f"the {before:.0f} MB (VmData) of the loaded process"
    )
    print(
        f"resident: {resident:.0f} MB before, {memory('VmHWM'):.0f} MB at the peak, mapped pages included; at the "
        f"end {memory('RssAnon'):.0f} MB are its own"
    )


def main() -> None:
    """Write the arrays, evaluate them in a separate process, and print its time and memory."""
    parser = OneLineParser(description=__doc__.partition("\n\n")[0], allow_abbrev=False)
    parser.add_argument(
        "--rows", type=whole(2), default=4_200_000, help="of the gallery; without --queries they search in themselves"
    )
    parser.add_argument(
        "--queries", type=whole(0), default=256, help="0: the gallery searches in itself, or is clustered"
    )
    parser.add_argument("--dimensions", type=whole(1), default=128)
    parser.add_argument("--classes", type=whole(1), default=50_000)
    parser.add_argument(
        "--limit", type=whole(1), default=900, help="MB that the process may take beyond what it has once it is loaded"
    )
    parser.add_argument("--metrics", nargs="+", default=["e_recall@1", "e_recall@10", "map_r"])
    parser.add_argument("--folder", default=None, help="where the files are written (default: a temporary folder)")
    parser.add_argument(
        "--inside",
        nargs="+",
        default=None,
        help="measure in this process: the command's arguments, without dashes as file names",
    )
    opt = parser.parse_args()
    if opt.inside:
        names = ["--labels", "--gallery", "--gallery_labels"]
        argv = [opt.inside[0], *(text for pair in zip(names, opt.inside[1:], strict=False) for text in pair)]
        return measure(opt.limit, [*argv, "--evaluation_metrics", *opt.metrics])
    with tempfile.TemporaryDirectory(dir=opt.folder) as folder:
        files = write(Path(folder), "gallery", opt.rows, opt.dimensions, opt.classes, 1)
        if opt.queries:
            files = write(Path(folder), "queries", opt.queries, opt.dimensions, opt.classes, 2) + files
        print(f"{opt.rows:,} x {opt.dimensions}: {opt.rows * opt.dimensions * 4 / MB:,.0f} MB of features", flush=True)
        command = [sys.executable, __file__, "--inside", *files, "--limit", str(opt.limit), "--metrics", *opt.metrics]
        raise SystemExit(subprocess.run(command, check=False).returncode)


if __name__ == "__main__":
    main()
