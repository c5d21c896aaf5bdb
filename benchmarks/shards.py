"""Memory and time of the class vectors' part of a step: 200,000 classes of 128 in 1, 2 and 4 processes, all vectors and a tenth of them drawn.

Each process gets the embeddings of the whole batch, computes the loss and steps Adam. Its memory is what is resident after the steps, and
the peak in them, less what was before the vectors. On the CPU, by gloo; run it by itself, with as many idle cores as processes.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch  # noqa: E402

import criteria  # noqa: E402
import parameters  # noqa: E402
from benchmarks.metrics import memory  # noqa: E402
from training.memory import release_freed  # noqa: E402
from training.optimisers import build_optimizer  # noqa: E402
from training.ranks import several_processes  # noqa: E402
from training.runtime import Runtime  # noqa: E402
from utilities.errors import OneLineParser  # noqa: E402
from utilities.numbers import number, whole  # noqa: E402

FLAGS = ("classes", "dimensions", "bs", "share", "steps")


def resident() -> float:
    """MiB of this process, but for what it has freed."""
    release_freed()
    return memory("VmRSS")


def measure(classes: int, dimensions: int, bs: int, share: float, steps: int) -> str:
    """A row of the table, of the first process."""
    opt = parameters.read(["--dataset", "glyphs", "--loss", "arcface", "--shard_classes", "--sample_classes", str(share)])
    runtime, network = Runtime(opt), torch.nn.Linear(dimensions, dimensions)

    def stepped(classes: int, steps: int) -> tuple:
        criterion = criteria.shard(criteria.select("arcface", opt.but(n_classes=classes, embed_dim=dimensions)), opt, runtime.ranks)
        optimizer = build_optimizer(network, criterion, opt)
        for step in range(steps + 1):
            if step == 1:  # the first makes the optimiser's state
                release_freed()
                Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
                began = time.perf_counter()
            torch.manual_seed(step)
            runtime.step(criterion(network(torch.randn(bs, dimensions)), torch.randint(classes, (bs,))), optimizer)
        return criterion, optimizer, (time.perf_counter() - began) / steps

    stepped(classes // 100, 1)  # loads what a step needs
    before = resident()
    criterion, _, seconds = stepped(classes, steps)
    peak, after = memory("VmHWM") - before, resident() - before
    return f"| {runtime.ranks.size} | {share:g} | {criterion.proxies.nbytes / 2**20:.0f} | {after:.0f} | {peak:.0f} | {1000 * seconds:.0f} |"


def main(argv=None) -> None:
    """Print the table; under torchrun, which it starts, one row."""
    parser = OneLineParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--classes", type=whole(4), default=200_000)
    parser.add_argument("--dimensions", type=whole(1), default=128)
    parser.add_argument("--bs", type=whole(4), default=128, help="images a batch, of all processes")
    parser.add_argument("--share", type=number(above=0, most=1), nargs="+", default=[1.0, 0.1], help="of --sample_classes")
    parser.add_argument("--processes", type=whole(1), nargs="+", default=[1, 2, 4])
    parser.add_argument("--steps", type=whole(1), default=5)
    parser.add_argument("--row", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if given.row:
        with several_processes():
            print(measure(given.classes, given.dimensions, given.bs, given.share[0], given.steps))
        return
    print("| processes | drawn | vectors, MiB a process | resident, MiB | peak, MiB | ms a step |\n|-|-|-|-|-|-|", flush=True)
    for share in given.share:
        for n in given.processes:
            words = [word for flag in FLAGS for word in (f"--{flag}", str(share if flag == "share" else getattr(given, flag)))]
            command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(n), __file__, "--row", *words]
            subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


if __name__ == "__main__":
    main()
