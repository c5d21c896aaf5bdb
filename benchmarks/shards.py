"""Memory and time of the class vectors' part of a step: 200,000 classes of 128 in 1, 2 and 4 processes.

Once with all vectors, and once with a tenth of them drawn. Each process gets the embeddings of the whole batch,
computes the loss and steps Adam. Its memory is what is resident after the steps, and the peak in them, less what was
before the vectors. On the CPU, by gloo; run it by itself, with as many idle cores as processes.

`--traffic` counts instead the bytes that a process hands to torch.distributed in a step of the program (conv4, images
of 16 x 16), times what a ring sends of each, beside the formulas of docs/scale.md for a softmax; what it writes to its
sockets is the system's count.
"""

import argparse
import collections
import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

import criteria
import parameters
from benchmarks._common import built
from benchmarks.metrics import memory
from engine.loading import Batch
from engine.memory import release_freed
from engine.optimisers import build_optimizer
from engine.ranks import several_processes
from engine.runtime import Runtime
from utilities.errors import OneLineParser
from utilities.numbers import number, whole

FLAGS = ("classes", "dimensions", "bs", "steps", "loss")
# callers in engine/ranks.py
PARTS = {
    "mean_": "averaged gradients",
    "gather": "outputs, labels",
    "sum_of": "outputs' gradient",
    "_reduced": "the loss's sums",
}
# bytes that a ring of n sends for each byte handed to it
SENT = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: n - 1,
}


def resident() -> float:
    """MiB of this process, but for what it has freed."""
    release_freed()
    return memory("VmRSS")


def measure(loss: str, classes: int, dimensions: int, bs: int, share: float, steps: int) -> str:
    """A row of the table, of the first process."""
    opt = parameters.read(["--dataset", "glyphs", "--loss", loss, "--shard_classes", "--sample_classes", str(share)])
    runtime = Runtime(opt)
    network = torch.nn.Linear(dimensions, dimensions)

    def stepped(classes: int, steps: int) -> tuple:
        criterion = criteria.shard(
            criteria.select(loss, opt.but(n_classes=classes, embed_dim=dimensions)), opt, runtime.ranks
        )
        optimizer = build_optimizer(network, criterion, opt)
        for step in range(steps + 1):
            # The first step makes the optimiser's state, so the clock starts at the second.
            if step == 1:
                release_freed()
                # the peak counts from here
                Path("/proc/self/clear_refs").write_text("5")
                began = time.perf_counter()
            torch.manual_seed(step)
            runtime.step(criterion(network(torch.randn(bs, dimensions)), torch.randint(classes, (bs,))), optimizer)
        return criterion, optimizer, (time.perf_counter() - began) / steps

    # loads what a step needs
    stepped(classes // 100, 1)
    before = resident()
    criterion, _, seconds = stepped(classes, steps)
    peak = memory("VmHWM") - before
    after = resident() - before
    return (
        f"| {runtime.ranks.size} | {share:g} | {criterion.proxies.nbytes / 2**20:.0f} | {after:.0f} | {peak:.0f} | "
        f"{1000 * seconds:.0f} |"
    )


@contextlib.contextmanager
def counted():
    """Inside, what `engine.ranks` hands to torch.distributed: (caller, collective) -> bytes."""
    handed = collections.Counter()

    def counting(name, call):
        def counts(*arguments):
            tensors = [argument for argument in arguments if torch.is_tensor(argument)]
            handed[sys._getframe(1).f_code.co_name, name] += tensors[-1].nbytes
            return call(*arguments)

        return counts

    calls = {name: counting(name, getattr(torch.distributed, name)) for name in SENT}
    # a step that used one would end in an error
    refused = dict.fromkeys(("broadcast", "broadcast_object_list", "send", "recv"))
    with mock.patch.multiple(torch.distributed, **calls, **refused):
        yield handed


def written() -> int:
    """Bytes that this process has written, to sockets too."""
    return int(Path("/proc/self/io").read_text().partition("wchar:")[2].split()[0])


def traffic(loss: str, classes: int, dimensions: int, bs: int, share: float, *sharded: str) -> str:
    """A row of the table of traffic, bytes / formula = ratio: the second step, of the first process."""
    flags = [
        "--loss",
        loss,
        "--bs",
        str(bs),
        "--embed_dim",
        str(dimensions),
        "--crop_size",
        "16",
        "--sample_classes",
        str(share),
        *sharded,
    ]
    step, _ = built("conv4_frozen_normalize", *flags, n_classes=classes)
    ranks = step.runtime.ranks
    network = step.trainer.network
    part = ranks.part(bs)
    for _ in range(2):
        images = torch.randint(256, (bs, 3, 16, 16), dtype=torch.uint8)
        # a process's part of the batch, as a loader gives it
        batch = Batch(torch.randint(classes, (bs,))[part], images[part], torch.arange(bs))
        with counted() as handed:
            before = written()
            step(batch)
            sockets = written() - before
    averaged = sum(p.numel() for p in network.parameters() if p.requires_grad)
    if not sharded:
        averaged += classes * dimensions
    formulas = {
        "mean_": 8 * averaged,
        "gather": (4 * dimensions + 8) * bs,
        "sum_of": 8 * bs * dimensions,
        "_reduced": 40 * bs + 8 if sharded else 0,
    }
    formulas = [formulas[caller] * (ranks.size - 1) / ranks.size for caller in PARTS]
    sent_by = dict.fromkeys(PARTS, 0)
    for (caller, name), size in handed.items():
        if caller in sent_by:
            sent_by[caller] += size * SENT[name](ranks.size)
    sent = list(sent_by.values())
    pairs = zip([*sent, sockets], [*formulas, sum(formulas)], strict=True)
    cells = [
        f"{count:,.0f} / {expected:,.0f} = {count / expected:.3f}" if expected else f"{count:,.0f} / 0"
        for count, expected in pairs
    ]
    vectors = "in shards" if sharded else "whole"
    return f"| {ranks.size} | {vectors} | {share:g} | {' | '.join(cells)} |"


def main(argv=None) -> None:
    """Print the table; under torchrun, which it starts, the rows of some processes."""
    parser = OneLineParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--classes", type=whole(4), default=200_000)
    parser.add_argument("--dimensions", type=whole(1), default=128)
    parser.add_argument("--bs", type=whole(4), default=128, help="images per batch, of all processes")
    parser.add_argument(
        "--share", type=number(above=0, most=1), nargs="+", default=[1.0, 0.1], help="of --sample_classes"
    )
    parser.add_argument("--processes", type=whole(1), nargs="+", default=[1, 2, 4])
    parser.add_argument("--steps", type=whole(1), default=5)
    parser.add_argument("--loss", choices=criteria.divisible(), default="arcface")
    parser.add_argument("--traffic", action="store_true", help="count the bytes of a step, in 2 or more processes")
    parser.add_argument("--row", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    sizes = arguments.loss, arguments.classes, arguments.dimensions, arguments.bs
    if arguments.row:
        with several_processes():
            if arguments.traffic:
                print(
                    *(
                        traffic(*sizes, share, *flags)
                        for flags in ((), ("--shard_classes",))
                        for share in arguments.share
                    ),
                    sep="\n",
                )
            else:
                print(measure(*sizes, arguments.share[0], arguments.steps))
        return
    if arguments.traffic:
        columns = ["vectors", "drawn", *PARTS.values(), "all, at the sockets"]
    else:
        columns = ["drawn", "vectors, MiB a process", "resident, MiB", "peak, MiB", "ms a step"]
    print(f"| processes | {' | '.join(columns)} |\n|-|{'-|' * len(columns)}", flush=True)
    share_lists = [arguments.share] if arguments.traffic else [[share] for share in arguments.share]
    for shares in share_lists:
        for n in arguments.processes:
            words = [word for flag in FLAGS for word in (f"--{flag}", str(getattr(arguments, flag)))]
            words += ["--share", *map(str, shares)]
            if arguments.traffic:
                words.append("--traffic")
            torchrun = f"-m torch.distributed.run --standalone --nproc_per_node {n}".split()
            command = [sys.executable, *torchrun, __file__, "--row", *words]
            subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


if __name__ == "__main__":
    main()
