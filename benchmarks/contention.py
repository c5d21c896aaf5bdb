"""Steps beside another busy process, by how long OpenMP's idle threads spin: median milliseconds.

    python benchmarks/contention.py [--cases memory batch network] [--busy 1] [--threads 2] [--seconds 3] [--rounds 3]

Cases: `memory`, contrastive with a memory of 8,192 rows, and `batch`, multisimilarity, both on a batch of 112 x 128,
forward and backward: many small operations; `network`, a whole step of conv4 on 112 images of 48 x 48. Policies:
`torch` leaves the default (spins for milliseconds), `passive` is OMP_WAIT_POLICY=passive, the numbers are values of
GOMP_SPINCOUNT. `ours` is what every program of this project sets (utilities/openmp.py). A process that only counts
stands for a loader worker or a second run. Each measurement has a process of its own. Policies alternate; medians over
the rounds count.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from utilities import openmp
from utilities.errors import OneLineParser
from utilities.numbers import number, whole

ROWS = 8192
SIZE = 112
SIDE = 48
DIMENSIONS = 128
POLICIES = {
    "torch": {},
    "passive": {openmp.WAIT_POLICY: "passive"},
    "1000": {openmp.SPIN_COUNT: "1000"},
    "ours": {openmp.SPIN_COUNT: str(openmp.SPINS)},
    "10000": {openmp.SPIN_COUNT: "10000"},
}
GOAL_ALONE = 1.1
GOAL_BUSY = 4


def memory_step():
    """A function that takes a step of contrastive with a memory."""
    from benchmarks.criteria import steps_with_a_memory

    return steps_with_a_memory("contrastive", ROWS)["ours"]


def batch_step():
    """A function that takes a step of multisimilarity on a batch of embeddings."""
    import torch

    import criteria
    from benchmarks.criteria import step_of

    torch.manual_seed(0)
    batch = torch.nn.functional.normalize(torch.randn(SIZE, DIMENSIONS), dim=1).requires_grad_()
    return step_of(criteria.select("multisimilarity"), None, batch, torch.arange(SIZE) // 2)


def network_step():
    """A function that takes a whole training step of conv4."""
    import torch

    from benchmarks._common import built
    from engine.loading import Batch

    step, _ = built("conv4_normalize", "--loss", "multisimilarity")
    images = torch.randint(256, (SIZE, 3, SIDE, SIDE), dtype=torch.uint8)
    batch = Batch(torch.arange(SIZE) // 4, images, torch.arange(SIZE))
    return lambda: step(batch)


CASES = {"memory": memory_step, "batch": batch_step, "network": network_step}


def measure(case: str, seconds: float, threads: int) -> float:
    """Median milliseconds of the steps of a case in this process, over at least three steps."""
    import torch

    from engine.memory import keep_freed

    torch.set_num_threads(threads)
    keep_freed()
    step = CASES[case]()
    step()
    step()
    times = []
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline or len(times) < 3:
        began = time.perf_counter()
        step()
        times.append(1000 * (time.perf_counter() - began))
    return statistics.median(times)


def in_a_process(case: str, policy: str, options) -> float:
    """`measure` in a process with the environment of a policy."""
    environment = {
        name: value for name, value in os.environ.items() if name not in (openmp.SPIN_COUNT, openmp.WAIT_POLICY)
    }
    command = [
        sys.executable,
        __file__,
        "--measure",
        case,
        "--seconds",
        str(options.seconds),
        "--threads",
        str(options.threads),
    ]
    finished = subprocess.run(command, env=environment | POLICIES[policy], capture_output=True, text=True, check=True)
    return float(finished.stdout)


def compare(case: str, n_busy: int, options) -> dict[str, float]:
    """Policy -> median milliseconds of a step beside `n_busy` busy processes."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n_busy)]
    times = {policy: [] for policy in POLICIES}
    try:
        for _ in range(options.rounds):
            for policy in POLICIES:
                times[policy].append(in_a_process(case, policy, options))
    finally:
        for process in busy:
            process.kill()
    return {policy: statistics.median(values) for policy, values in times.items()}


def main(options) -> None:
    """Print a row per case, without and with another busy process; with --measure only one time."""
    if options.measure:
        print(measure(options.measure, options.seconds, options.threads))
        return
    heads = ["case", "other processes", *POLICIES, "ours of torch alone", "goal"]
    print(f"| {' | '.join(heads)} |\n|{'-|' * len(heads)}")
    for case in options.cases:
        unloaded = compare(case, 0, options)
        for n_busy, medians, goal in (
            (0, unloaded, GOAL_ALONE),
            (options.busy, compare(case, options.busy, options), GOAL_BUSY),
        ):
            values = [f"{medians[policy]:.1f}" for policy in POLICIES]
            ratio = medians["ours"] / unloaded["torch"]
            print(f"| {case} | {n_busy} | {' | '.join(values)} | {ratio:.2f} | at most {goal} |", flush=True)


if __name__ == "__main__":
    parser = OneLineParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--busy", type=whole(1, 1000), default=1, help="busy processes beside the steps")
    parser.add_argument("--threads", type=whole(1, 1000), default=2)
    parser.add_argument(
        "--seconds", type=number(above=0), default=3, help="of measuring one case with one policy, once"
    )
    parser.add_argument("--rounds", type=whole(1, 1000), default=3)
    # the flag of the processes that this program starts
    parser.add_argument("--measure", choices=list(CASES), help=argparse.SUPPRESS)
    main(parser.parse_args())
