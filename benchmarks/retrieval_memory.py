"""Peak memory and time of `python -m retrieval index`: `python benchmarks/retrieval_memory.py RUN --images 100000`.

The command runs unchanged, in a process of its own, on a folder of so many PNG files of random pixels. 1,000 are
distinct, the others links to them; each is decoded and embedded anew. On Linux.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np
from PIL import Image

from utilities.errors import OneLineParser, UserError, one_line_errors
from utilities.numbers import whole

DISTINCT = 1000


def make_images(folder: Path, count: int, side: int) -> None:
    """PNG files `0000000.png` … of `side` x `side` random pixels, smoothed; after the first 1,000 they are links."""
    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    for number in range(count):
        path = folder / f"{number:07d}.png"
        if number < DISTINCT:
            coarse = Image.fromarray(generator.integers(0, 256, (8, 8, 3), dtype=np.uint8))
            coarse.resize((side, side), Image.Resampling.BILINEAR).save(path)
        else:
            os.symlink(folder / f"{number % DISTINCT:07d}.png", path)


# ru_maxrss of a child, as its parent reads it, includes the parent's own memory
MEASURED = """
import sys
from retrieval.__main__ import main
main(sys.argv[2:])
with open("/proc/self/status") as status, open(sys.argv[1], "w") as file:
    file.write(next(line for line in status if line.startswith("VmHWM")))
"""


def measure(words: list[str], note: Path) -> tuple[float, float, str]:
    """Run `python -m retrieval` with these words.

    Returns its peak resident memory in MB (10^6 bytes), seconds, and its output.
    """
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(note), *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise UserError(
            (done.stderr.strip() or "no reason").splitlines()[-1].partition("UserError: ")[2] or done.stderr
        )
    return int(note.read_text().split()[1]) * 1024 / 1e6, time.monotonic() - began, done.stdout


def main(argv: list[str] | None = None) -> tuple[float, float]:
    """Peak MB for a hundred images, and for all."""
    parser = OneLineParser(description=__doc__.partition("\n\n")[0], allow_abbrev=False)
    parser.add_argument("run", help="a run folder")
    parser.add_argument("--images", type=whole(101), default=100_000, help="how many (default: 100,000)")
    parser.add_argument("--side", type=whole(1, 4096), default=64, help="pixels of a side (default: 64)")
    parser.add_argument("--index", choices=["exact", "hnsw", "ivfpq"], default="exact", help="default: exact")
    opt = parser.parse_args(argv)
    run = os.path.abspath(opt.run)
    with tempfile.TemporaryDirectory() as place:
        hundred = Path(place) / "few"
        all_of_them = Path(place) / "all"
        out = Path(place) / "index"
        make_images(hundred, 100, opt.side)
        make_images(all_of_them, opt.images, opt.side)
        note = Path(place) / "peak"
        how = ["--device", "cpu", "--index"]
        first, _, _ = measure(["index", run, str(hundred), "--out", f"{out}_few", *how, "exact"], note)
        peak, seconds, output = measure(["index", run, str(all_of_them), "--out", str(out), *how, opt.index], note)
        print(output.strip().replace(place, ""))
        vectors = (out / "vectors.npy").stat().st_size / 1e6
    print(
        f"peak memory: {first:.0f} MB of 100 images, {peak:.0f} MB of {opt.images:,}; the vectors alone are "
        f"{vectors:.0f} MB; {seconds:.0f} s"
    )
    return first, peak


if __name__ == "__main__":
    with one_line_errors(Path(__file__).name):
        main()
