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
    ways = ["Ways to compute a step", "Compiled steps"]
    assert titles == ["Training steps", *ways, "Loader", "Metrics", "Metrics by part", "Chunks", "Two equal runs"]
    for text in tables:
        lines = [line for line in text.splitlines() if line.startswith("|")]
        assert len(lines) >= 3 and len({line.count("|") for line in lines}) == 1, text
    assert tables[0].count("bfloat16") == 2 and "out of memory" not in tables[0]
    # on a CPU, bit for bit
    assert [line.split("|")[5].strip() for line in tables[-1].splitlines() if "conv4" in line] == ["True"] * 6
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


MINUTES = ROOT / "benchmarks" / "gpu_minutes.sh"


def minutes(folder, *words):
    environment = {**os.environ, "PYTHON": sys.executable}
    return subprocess.run(
        ["bash", MINUTES, folder, "--small", "--device", "cpu", *words], capture_output=True, text=True, env=environment
    )


def statuses(folder):
    rows = [line.split(",") for line in (folder / "parts.csv").read_text().splitlines()[1:]]
    return {part: status for part, status, *_ in rows}


@pytest.mark.long
def test_the_script_for_minutes_on_a_gpu_goes_on_with_what_is_left(tmp_path):
    for words in ([], ["--minutes", "0"], [tmp_path, "--device", "tpu"]):
        assert subprocess.run(["bash", MINUTES, *words], capture_output=True).returncode == 2
    (tmp_path / "parts.csv").write_text(
        "part,status,seconds,note\ndeterminism,done,1,\nrun_resnet50,stopped,9,after 9 s\n"
    )
    # of a call that was stopped
    (tmp_path / "photographs_unfinished" / "class_0").mkdir(parents=True)
    done = minutes(tmp_path)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "photographs_unfinished").exists() and len(list(tmp_path.glob("photographs/*/*.jpg"))) == 600
    results = statuses(tmp_path)
    assert set(results.values()) <= {"done", "skipped"}, (tmp_path / "parts.csv").read_text()
    assert (
        results["steps"]
        == results["run_resnet50"]
        == results["run_decode_once"]
        == results["chunks"]
        == results["run_nccl"]
        == "done"
    )
    assert "faiss for GPUs is not installed" in (tmp_path / "parts.csv").read_text()
    assert not (tmp_path / "logs" / "determinism.log").exists(), "it was done before"
    assert "torch," in (tmp_path / "versions.csv").read_text()
    assert len((tmp_path / "whole_runs.csv").read_text().splitlines()) == 4
    printed = benchmark("--tables", str(tmp_path)).stdout
    for title in ("training steps", "loader", "metrics", "whole runs", "versions"):
        assert f"## {title}\n" in printed
    before = (tmp_path / "parts.csv").read_text()
    assert minutes(tmp_path).returncode == 0 and (tmp_path / "parts.csv").read_text() == before
