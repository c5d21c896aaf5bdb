"""Time and memory of Result_Evaluations.py for many runs: `python benchmarks/tables.py`.

The targets are 20 s and 1 GB for 340 runs. The runs are synthetic, in the shape of the ICML paper's: 68 groups of five
seeds on three data sets, 150 epochs, 15 metrics on three splits.
"""

import resource
import subprocess
import sys
import tempfile
import time
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

    `is_bare`: they did not record their weights and transforms, which are then read off their flags.
    """
    import parameters
    from tests.kit.run_folders import ENVIRONMENT, make_run, rows

    flags = parameters.read([]).saved()  # all that parameters.yaml has
    for name in ("n_epochs", "group", "seed", "savename"):
        del flags[name]
    transforms = {"testing": "Resize(size=[256]); CenterCrop(size=(224, 224))"}
    recorded = {**ENVIRONMENT, "weights": "IMAGENET1K_V1", "data": {**ENVIRONMENT["data"], "transforms": transforms}}
    recorded = ENVIRONMENT if is_bare else recorded
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


def main() -> None:
    """Make the runs, evaluate them in a separate process, print its time and memory."""
    parser = OneLineParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--runs", type=whole(1), default=340, help="how many run folders (default: 340)")
    parser.add_argument("--epochs", type=whole(2), default=150, help="recorded epochs a run (default: 150)")
    parser.add_argument("--repeats", type=whole(1), default=3, help="how often it is measured (default: 3)")
    parser.add_argument(
        "--bare", action="store_true", help="runs that recorded neither their weights nor their transforms"
    )
    opt = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        count = make(Path(folder) / "runs", opt.runs, opt.epochs, opt.bare)
        words = ["--runs", f"{folder}/runs", "--out", f"{folder}/out", "--compare_to", "ledger", "--plan", "1"]
        times = []
        for _ in range(opt.repeats):
            began = time.perf_counter()
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(
                [sys.executable, "Result_Evaluations.py", *words], cwd=ROOT, check=True, stdout=subprocess.DEVNULL
            )
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            times.append(
                (time.perf_counter() - began, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
            )
        page = (Path(folder) / "out" / "index.html").stat().st_size
    wall, cpu = (min(column) for column in zip(*times, strict=True))
    print(
        f"{count} runs of {opt.epochs} epochs: {wall:.1f} s at best of {opt.repeats} (target: {SECONDS} s), "
        f"{cpu:.1f} s of processor time"
    )
    print(f"memory: {after.ru_maxrss / 1e3:.0f} MB (target: {MEGABYTES} MB); the page has {page / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
