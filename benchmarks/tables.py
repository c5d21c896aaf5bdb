"""Time and memory of Result_Evaluations.py for many runs: `python benchmarks/tables.py`.

The targets are 20 s and 1 GB for 340 runs. The runs are synthetic, in the shape of the ICML paper's: 68 groups of five
seeds on three data sets, 150 epochs, 15 metrics on three splits.
"""

import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from utilities.errors import OneLineParser
from utilities.numbers import whole

# the targets
SECONDS = 20
MEGABYTES = 1000
DATASETS = ("cub200", "cars196", "online_products")
SEEDS = 5


def make(root: Path, runs: int, epochs: int, is_bare: bool = False) -> int:
    """Write run folders below `root`, on three data sets, two of them with validation. Returns how many.

    `is_bare`: they have no record of weights and transforms, which are then derived from their flags.
    """
    import parameters
    from tests.kit.run_folders import ENVIRONMENT, make_run, rows

    # all that parameters.yaml has
    flags = parameters.read([]).saved()
    for name in ("n_epochs", "group", "seed", "savename"):
        del flags[name]
    transforms = {"testing": "Resize(size=[256]); CenterCrop(size=(224, 224))"}
    recorded = ENVIRONMENT
    if not is_bare:
        data = {**ENVIRONMENT["data"], "transforms": transforms}
        recorded = {**ENVIRONMENT, "weights": "IMAGENET1K_V1", "data": data}
    groups = -(-runs // SEEDS)
    for group in range(groups):
        dataset = DATASETS[group % len(DATASETS)]
        splits = ("train", "test") if dataset == DATASETS[-1] else ("train", "val", "test")
        for seed in range(SEEDS):
            quality = 0.5 + 0.3 * group / groups
            curves = rows(quality, epochs, seed, splits)
            changed = {"dataset": dataset, "use_tv_split": "val" in splits, "loss_margin_beta": 1 + group}
            make_run(
                root,
                f"Method_{group:02d}",
                seed,
                epochs=epochs,
                records=curves,
                environment=recorded,
                **flags | changed,
            )
    return groups * SEEDS


def measured(command: list[str]) -> tuple[float, float, float]:
    """Seconds, seconds of processor time and peak memory in MB of a command."""
    began = time.perf_counter()
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(command)}: status {process.returncode}")
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e3


def main() -> None:
    """Make the runs, evaluate them in a separate process, print its time and memory."""
    parser = OneLineParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--runs", type=whole(1), default=340, help="how many run folders (default: 340)")
    parser.add_argument("--epochs", type=whole(2), default=150, help="recorded epochs per run (default: 150)")
    parser.add_argument("--repeats", type=whole(1), default=3, help="how often it is measured (default: 3)")
    parser.add_argument("--bare", action="store_true", help="runs without a record of their weights and transforms")
    opt = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        # in a separate process, so that this one stays small: the peak of a process includes that of its parent
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            count = pool.submit(make, Path(folder) / "runs", opt.runs, opt.epochs, opt.bare).result()
        words = ["--runs", f"{folder}/runs", "--out", f"{folder}/out", "--compare_to", "ledger", "--plan", "1"]
        measurements = [measured([sys.executable, "Result_Evaluations.py", *words]) for _ in range(opt.repeats)]
        page = (Path(folder) / "out" / "index.html").stat().st_size
    wall, cpu, megabytes = (min(column) for column in zip(*measurements, strict=True))
    print(
        f"{count} runs of {opt.epochs} epochs: {wall:.1f} s at best of {opt.repeats} (target: {SECONDS} s), "
        f"{cpu:.1f} s of processor time"
    )
    *_, of_torch = measured([sys.executable, "-c", "import torch"])
    print(
        f"memory: {megabytes:.0f} MB (target: {MEGABYTES} MB), import torch alone {of_torch:.0f} MB; the page has "
        f"{page / 1e6:.1f} MB"
    )


if __name__ == "__main__":
    main()
