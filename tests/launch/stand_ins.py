"""Programs that take no time in the place of main.py and Bayesian_Optimization.py, and small runs of the real ones."""

import pytest

import launch.runner
import Run_Script
from launch.lines import KINDS

STAND_IN = """
import sys, time
from pathlib import Path
flags = dict(zip(sys.argv[1:], sys.argv[2:]))
group = flags["--group"]
print("device cpu")
if group == "Fails":
    print("a line before"); print("ValueError: no such thing", file=sys.stderr); print("closing"); sys.exit(3)
if group == "Dies":
    import os, signal; os.kill(os.getpid(), signal.SIGKILL)
try:
    if group.startswith("Slow"):
        print("asleep", flush=True); time.sleep(60)
except KeyboardInterrupt:
    print("closed the records"); sys.exit(130)
Path(flags["--save_path"], "seen.txt").open("a").write(" ".join(sys.argv[1:]) + "\\n")
"""


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """The programs replaced by a script that succeeds, fails, dies or sleeps by its --group."""
    for name in ("main.py", "Bayesian_Optimization.py"):
        (tmp_path / name).write_text(STAND_IN)
    monkeypatch.setattr(Run_Script, "ROOT", tmp_path)
    monkeypatch.setattr(launch.runner, "POLL", 0.02)
    return tmp_path


SEARCH = ["--use_tv_split", "--tv_split_perc", "0.5", "--n_epochs", "1", "--lr~LOG_BAYESIAN~", "1e-4,1e-2"]


def small(folder_data, tmp_path, *more, program="main.py"):
    """A task of a tiny run, or search, with the seed 0."""
    argv = [
        "--dataset", "folder", "--dataset_folder_path", str(folder_data), "--save_path", str(tmp_path), "--arch", "conv4_normalize", "--embed_dim", "8",
        "--loss", "triplet", "--batch_mining", "semihard", "--bs", "4", "--kernels", "0", "--evaluation_metrics", "e_recall@1", "--no_records",
        "--plot_every", "0", "--group", "Tiny", "--seed", "0", *more,
    ]  # fmt: skip
    return Run_Script.TASKS[program](KINDS[program](1, argv))


def search_task(folder_data, tmp_path, trials, reproductions, *more):
    """A task of a tiny search."""
    counts = ["--bayesian_optimization_n_iter", str(trials), "--reproductions", str(reproductions)]
    return small(folder_data, tmp_path, *SEARCH, *counts, *more, program="Bayesian_Optimization.py")


def standing(task):
    """How it stands, in a word and in words."""
    return task.standing(), task.progress
