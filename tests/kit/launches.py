"""Programs that take no time in the place of main.py and `python -m search`, and small runs of the real ones."""

import pytest

import launch.runner
from launch import __main__ as launcher
from tests.kit.runs import on_folder
from utilities import programs

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
    (tmp_path / "search").mkdir()
    for name in ("main.py", "search/__main__.py"):
        (tmp_path / name).write_text(STAND_IN)
    # where `python -m search` looks
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(programs, "ROOT", tmp_path)
    monkeypatch.setattr(launch.runner, "POLL", 0.02)
    return tmp_path


SEARCH = "--use_tv_split --tv_split_perc 0.5 --n_epochs 1 --lr~LOG_BAYESIAN~ 1e-4,1e-2".split()


def small(folder_data, tmp_path, *words, kind=launcher.Line):
    """A task of a tiny run, or search, with the seed 0."""
    flags = (
        "--arch conv4_normalize --embed_dim 8 --loss triplet --batch_mining semihard --bs 4 --kernels 0 "
        "--evaluation_metrics e_recall@1 --no_records --plot_every 0 --group Tiny --seed 0"
    ).split()
    return launcher.TASKS[kind.program](kind(1, on_folder(folder_data, tmp_path, *flags, *words)))


def search_task(folder_data, tmp_path, trials, reproductions, *words):
    """A task of a tiny search."""
    counts = ["--bayesian_optimization_n_iter", str(trials), "--reproductions", str(reproductions)]
    return small(folder_data, tmp_path, *SEARCH, *counts, *words, kind=launcher.SearchLine)


def standing(task):
    """A task's standing and its progress."""
    return task.standing(), task.progress
