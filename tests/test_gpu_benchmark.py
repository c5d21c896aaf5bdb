"""benchmarks/gpu.py runs from end to end where there is no GPU, on a tiny network; its bare loop computes what ours
does.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks import gpu

ROOT = Path(__file__).resolve().parent.parent


def benchmark(*words, **environment):
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", **environment}
    return subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "gpu.py", *words], capture_output=True, text=True, env=environment
    )


@pytest.mark.long
def test_every_part_gives_its_table():
    done = benchmark(
        "--small", "--device", "cpu", "--workers", "0", "--warm_up", "1", "--repeats", "2", "--dimensions", "16"
    )
    assert done.returncode == 0, done.stderr
    tables = done.stdout.split("\n## ")[1:]
    titles = [text.split("\n")[0].split(",")[0] for text in tables]
    assert titles == ["Training steps", "Loader", "Metrics", "Chunks", "Two equal runs"]
    for text in tables:
        lines = [line for line in text.splitlines() if line.startswith("|")]
        assert len(lines) >= 3 and len({line.count("|") for line in lines}) == 1, text
    assert tables[0].count("bfloat16") == 2 and "out of memory" not in tables[0]
    # on a CPU, bit for bit
    assert [line.split("|")[4].strip() for line in tables[4].splitlines() if "conv4" in line] == ["True"] * 3
    done = benchmark()
    assert done.returncode == 2 and not done.stdout and len(done.stderr.splitlines()) == 1
    assert "--device cpu" in done.stderr


def test_the_bare_loop_steps_as_ours():
    step, trainer, runtime, opt, batch = gpu.with_batch("conv4_frozen_normalize", 8)
    plain = gpu.bare(trainer, runtime, opt, batch)
    copied = plain.__closure__[[*plain.__code__.co_freevars].index("network")].cell_contents
    for _ in range(2):
        step(batch), plain()
    for ours, theirs in zip(trainer.network.parameters(), copied.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.gpu
def test_small_on_a_gpu():
    done = benchmark(
        "--small", "--workers", "1", "--repeats", "3", CUDA_VISIBLE_DEVICES=os.environ.get("CUDA_VISIBLE_DEVICES", "0")
    )
    assert done.returncode == 0, done.stderr
