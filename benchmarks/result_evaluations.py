"""Result_Evaluations on synthetic run folders: wall time, CPU time and peak memory of the whole program.

    python benchmarks/result_evaluations.py                  # 340 runs of 150 epochs (about 100 MB of metrics.csv, in a temporary folder)
    python benchmarks/result_evaluations.py --runs 40 --epochs 20 -- --compare_to published

The floor: importing torch, pandas and matplotlib is 4 to 5 s of CPU time and 850 MB of the memory (700 MB of them torch with its
CUDA libraries); parsing 340 files of 6,000 rows is 2 s; twelve figures, each as PDF and PNG, 5 s.
"""

import argparse
import csv
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from utilities.errors import OneLineParser  # noqa: E402
from utilities.numbers import whole  # noqa: E402


def make(folder: Path, runs: int, epochs: int) -> None:
    """Groups of five seeds with the names and flags of the ICML paper's runs, on its three data sets."""
    from tests.results.made import make_run

    with open(ROOT / "docs" / "published" / "revisit_runs.csv", newline="") as file:
        configurations = list(csv.DictReader(file))
    configurations.append({**configurations[0], "group": "CUB_Another", "loss": "circle"})
    for number in range(runs):
        row = configurations[number // 5 % len(configurations)]
        words = row["flags"].split()
        own = {name.lstrip("-"): float(value) for name, value in zip(words[::2], words[1::2], strict=True)}
        flags = {name: row[name] for name in ("dataset", "loss", "arch")} | {"batch_mining": row["batch_mining"] or "distance"}
        seed = number % 5 + 5 * (number // (5 * len(configurations)))
        make_run(folder, row["group"], seed, float(row["published_R@1"]) / 100, epochs, **flags, **own)


def main():
    parser = OneLineParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=whole(1, 10**6), default=340)
    parser.add_argument("--epochs", type=whole(1, 10**6), default=150)
    parser.add_argument("flags", nargs="*", help="flags of Result_Evaluations.py, after --")
    opt = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        make(Path(place) / "runs", opt.runs, opt.epochs)
        size = sum(path.stat().st_size for path in Path(place).rglob("metrics.csv")) / 1e6
        command = [sys.executable, str(ROOT / "Result_Evaluations.py"), "--runs", f"{place}/runs", "--out", f"{place}/out", *opt.flags]
        for attempt in ("first", "second"):
            before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(ROOT)})
            after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - began
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            print(
                f"{attempt} of 2: {opt.runs} runs of {opt.epochs} epochs ({size:.0f} MB): {wall:.1f} s, CPU {cpu:.1f} s, "
                f"peak {after.ru_maxrss * 1024 / 1e6:.0f} MB; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs"
            )


if __name__ == "__main__":
    main()
