"""Memory and time of a step in chunks: B = 4,000 in chunks of 200 beside plain steps of 200 and of 4,000.

On a GPU if there is one. Each step runs in a process of its own; its memory is the peak after the step, less that
before it. The goals: at most 1.3 times the memory of a plain step of 200 plus the outputs and what the loss makes of
them, and at most 2.1 times the time of the plain step of 4,000 (or of twenty plain steps of 200, if that does not fit).
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from benchmarks._common import CLASSES, built
from benchmarks.metrics import memory
from engine.loading import Batch
from utilities.errors import OneLineParser
from utilities.numbers import whole


def measure(arch: str, loss: str, side: int, bs: int, chunk: int, steps: int, forward: bool = True) -> dict:
    """Peak MiB above the start, and seconds per step. Without `forward`: of the loss alone, on random outputs."""
    flags = "--loss", loss, "--embed_dim", "128", "--bs", str(bs), "--chunk_size", str(chunk), "--crop_size", str(side)
    step, _ = built(arch, *flags)
    runtime = step.runtime
    trainer = step.trainer
    network = trainer.network
    batch = Batch(
        torch.arange(bs) // 4 % CLASSES, torch.randint(0, 256, (bs, 3, side, side), dtype=torch.uint8), torch.arange(bs)
    )
    cuda = runtime.device.type == "cuda"
    # A first step makes the optimiser's state and loads libraries.
    step(Batch(*(part[:16] for part in batch)))
    if cuda:
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.max_memory_allocated() / 2**20
    else:
        # the peak counts from here
        Path("/proc/self/clear_refs").write_text("5")
        before = memory("VmHWM")
    began = time.perf_counter()
    if forward:
        for _ in range(steps):
            norm = step(batch).gradient_norm
    else:
        labels = runtime.to_device(batch.labels)
        outputs_of = {
            name: torch.randn(bs, width, device=runtime.device, requires_grad=True)
            for name, width in (("embeddings", 128), ("pooled", network.feature_dim))
        }
        norm = trainer.losses(outputs_of, batch._replace(labels=labels))["metric_loss"]
        norm.backward()
    norm.item()
    seconds = (time.perf_counter() - began) / steps
    outputs = bs * (128 + network.feature_dim) * 4 / 2**20
    return {
        "outputs": outputs,
        "mib": (torch.cuda.max_memory_allocated() / 2**20 if cuda else memory("VmHWM")) - before,
        "seconds": seconds,
    }


def in_a_process(*arguments) -> dict:
    """`measure` in a process of its own."""
    command = [sys.executable, __file__, "--one", json.dumps(arguments)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


if __name__ == "__main__":
    parser = OneLineParser(description=__doc__)
    parser.add_argument("--arch", default="conv4_frozen_normalize")
    parser.add_argument("--loss", default="multisimilarity")
    parser.add_argument("--side", type=whole(1, 10**6), default=32)
    parser.add_argument("--bs", type=whole(1, 10**6), default=4000)
    parser.add_argument("--chunk", type=whole(1, 10**6), default=200)
    parser.add_argument("--steps", type=whole(1, 10**6), default=1)
    parser.add_argument("--one", default=None, help=argparse.SUPPRESS)
    opt = parser.parse_args()
    if opt.one is not None:
        print(json.dumps(measure(*json.loads(opt.one))))
        sys.exit()
    setting = opt.arch, opt.loss, opt.side
    small = in_a_process(*setting, opt.chunk, 0, 1)
    loss = in_a_process(*setting, opt.bs, 0, 1, False)
    cut = in_a_process(*setting, opt.bs, opt.chunk, opt.steps)
    try:
        plain = in_a_process(*setting, opt.bs, 0, opt.steps)
    except subprocess.CalledProcessError:
        plain = {"mib": float("nan"), "seconds": small["seconds"] * opt.bs / opt.chunk}
    device = "cuda" if torch.cuda.is_available() else f"{torch.get_num_threads()} CPU threads"
    print(f"{opt.arch}, {opt.side} x {opt.side}, {opt.loss}, {device}")
    for title, row in (
        (f"plain, B = {opt.chunk}", small),
        (f"loss alone, B = {opt.bs}", loss),
        (f"plain, B = {opt.bs}", plain),
        (f"B = {opt.bs} in chunks of {opt.chunk}", cut),
    ):
        print(f"{title:32} {row['mib']:9.0f} MiB  {row['seconds']:8.2f} s per step")
    print(
        f"memory: {cut['mib'] / (small['mib'] + cut['outputs']):.2f} times the small step and the outputs "
        f"({cut['outputs']:.0f} MiB)"
    )
    print(
        f"memory: {cut['mib'] / (small['mib'] + loss['mib']):.2f} times the small step and the loss (goal: at most 1.3)"
    )
    print(f"time:   {cut['seconds'] / plain['seconds']:.2f} times the plain step (goal: at most 2.1)")
