"""Two processes on one search, a third killed with -9: every trial is run once to its end."""

import csv
import os
import re
import signal
import subprocess
import sys
import time

import pytest
import yaml

from tests.conftest import ROOT
from tests.kit.runs import on_folder

pytestmark = pytest.mark.long


def start(data, save_path):
    flags = (
        "--arch conv4_normalize --embed_dim 8 --loss triplet --batch_mining semihard --bs 8 --n_epochs 3 "
        "--iterations_per_epoch 4 --kernels 0 --evaluation_metrics map_r --storage_metrics map_r --use_tv_split "
        "--tv_split_perc 0.5 --no_records --plot_every 0 --group Shared --lr~LOG_BAYESIAN~ [1e-4,1e-2] "
        "--loss_triplet_margin~BAYESIAN~ 0,1 --bayesian_optimization_n_iter 7 --reproductions 1"
    )
    words = [sys.executable, "-m", "search", *on_folder(data, save_path, flags)]
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(words, cwd=ROOT, **output, start_new_session=True)


def test_two_processes_and_a_third_killed(folder_data, tmp_path):
    folder = tmp_path / "folder" / "Shared_search"
    victim = start(folder_data, tmp_path)
    deadline = time.monotonic() + 180
    while victim.poll() is None and time.monotonic() < deadline:
        if list(folder.glob("trial_*/checkpoint_last.pth.tar")):
            break
        time.sleep(0.005)
    assert victim.poll() is None, victim.communicate()[0]
    os.killpg(victim.pid, signal.SIGKILL)
    victim.communicate()
    processes = [start(folder_data, tmp_path) for _ in range(2)]
    outputs = [process.communicate(timeout=400)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert any("its process was killed" in text for text in outputs)
    with open(folder / "trials.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    trials = [f"trial_{i}" for i in range(7)]
    assert [row["trial"] for row in rows] == sorted(path.name for path in folder.glob("trial_?")) == trials
    assert {row["state"] for row in rows} == {"complete"}
    assert [row["attempts"] for row in rows].count("2") == 1, "one was continued"
    assert len({(row["lr"], row["loss_triplet_margin"]) for row in rows}) == 7
    first, second = (set(re.findall(r"(trial_\d) of 7", text)) for text in outputs)
    assert len(first | second) in (6, 7) and not first & second, "no trial is run by both"
    assert first and second, "both worked"
    assert len(yaml.safe_load((folder / "reproductions.yaml").read_text())["runs"]) == 1
    assert (folder / "plots" / "history.png").exists()
