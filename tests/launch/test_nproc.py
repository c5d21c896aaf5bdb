"""Runs of several processes each: torchrun's command, GPUs, ports, threads, reasons of failures, and jobs of Slurm."""

import contextlib
import os
import sys
import types

import pytest

import launch.runner
from launch import __main__ as launcher
from launch import torchrun
from tests.launch.test_runner import tasks
from utilities import programs
from utilities.errors import UserError

STAND_IN = """
import os, sys, time
from pathlib import Path
flags = dict(zip(sys.argv[1:], sys.argv[2:]))
if flags["--group"] == "Fails" and os.environ["RANK"] == "1":
    print("main.py: error: no such thing: make one", file=sys.stderr); sys.exit(2)
if flags["--group"] == "Fails":
    time.sleep(60)
names = "RANK", "WORLD_SIZE", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"
seen = [flags["--group"], *(os.environ[name] for name in names)]
end = time.monotonic() + 60
file = Path(flags["--save_path"], "-".join(seen[:2]))
file.write_text(" ".join([*seen, "one" if "--gpu" in sys.argv else "several"]))
while len(list(Path(flags["--save_path"]).glob("?-?"))) < 4 and time.monotonic() < end:
    time.sleep(0.05)  # both runs are at work
"""


@pytest.mark.long
def test_runs_of_two_processes_side_by_side(tmp_path, monkeypatch):
    """Each has its own port and GPUs; one process's error is the run's reason."""
    (tmp_path / "main.py").write_text(STAND_IN)
    monkeypatch.setattr(programs, "ROOT", tmp_path)
    monkeypatch.setattr(launch.runner, "POLL", 0.02)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7,6,5,4")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(16))
    runner = launcher.Runner(tasks(tmp_path, "A", "B", "Fails"), jobs=2, gpus=[0, 1, 2, 3], nproc=2)
    runner.run()
    assert len(runner.outcomes["finished"]) == 2, runner.summary()
    texts = sorted(path.read_text() for path in tmp_path.glob("?-?"))
    gpus = {text.split()[3] for text in texts}
    assert gpus == {"7,6", "5,4"} and len({text.split()[3] for text in texts[:2]}) == 1
    assert [text.split()[:3] for text in texts] == [["A", "0", "2"], ["A", "1", "2"], ["B", "0", "2"], ["B", "1", "2"]]
    assert {text.split()[4:][0] for text in texts} == {"4"} and {text.split()[-1] for text in texts} == {"several"}
    (failure,) = runner.outcomes["failed"]
    assert "Fails_s1: main.py: error: no such thing: make one (status 1)" in failure


def test_gpus_and_jobs_go_by_processes(tmp_path, monkeypatch):
    assert torchrun.groups([0, 1, 2, 3], 2) == [[0, 1], [2, 3]] and torchrun.groups([4, 7], 1) == [[4], [7]]
    assert not torchrun.groups([], 2)
    with pytest.raises(UserError, match="--gpus 0 1 2 --nproc 2: each run takes 2 GPUs, so give a multiple of that"):
        torchrun.groups([0, 1, 2], 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    with pytest.raises(UserError, match="--gpus 1: CUDA_VISIBLE_DEVICES=3 shows GPUs 0 to 0"):
        torchrun.environment(2, [0, 1], 1)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7,6,5,4")
    assert torchrun.environment(2, [2, 3], 1)["CUDA_VISIBLE_DEVICES"] == "5,4"
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert torchrun.environment(2, [], 1)["OMP_NUM_THREADS"] == "5"
    created = []

    def runner(*arguments):
        created.append(arguments)
        return types.SimpleNamespace(run=lambda: None, summary=lambda: "", outcomes={"failed": []})

    monkeypatch.setattr(launcher, "Runner", runner)
    script = tmp_path / "runs.sh"
    script.write_text(f"python main.py --dataset glyphs --save_path {tmp_path}\n")
    for words, expected in (
        ("--gpus 0 1 2 3", (2, [0, 1, 2, 3], False, 2)),
        ("--gpus 0 1 --jobs 3", (3, [0, 1], False, 2)),
        ("", (1, [], False, 2)),
    ):
        launcher.main([str(script), "--nproc", "2", *words.split()])
        assert created[-1][1:] == expected


def test_one_process_is_started_without_torchrun():
    assert torchrun.command(1, ["main.py", "--bs", "4"]) == [sys.executable, "main.py", "--bs", "4"]
    assert "--standalone" in torchrun.command(2, ["main.py"]), "any free port: jobs beside each other do not meet"


OUTPUT = """   device  cpu
W1122 10:19:30.208000 29704 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 29709 SIGTERM
{error}

interrupted before the end of epoch 1 in runs/user
E1122 10:19:31.384000 29704 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 2) local_rank: 1
Traceback (most recent call last):
  File "torch/distributed/run.py", line 1142, in <module>
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
  error_file: <N/A>"""


@pytest.mark.parametrize(
    "error", ["main.py: error: no such thing", "Traceback (most recent call last):\nValueError: a bug"]
)
def test_the_reason_is_not_torchruns(error):
    assert torchrun.reasons(OUTPUT.format(error=error).splitlines())[-1] == error.splitlines()[-1]
    assert torchrun.reasons(["device cpu", "and then it was gone"]) == ["device cpu", "and then it was gone"]


class Submitted:
    """Records the commands and settings in the place of submitit: a module, an executor and a job at once."""

    cluster = "slurm"
    job_id = "7_0"
    paths = types.SimpleNamespace(stdout="a log")

    def __init__(self):
        self.settings = {}
        self.commands = []
        self.helpers = types.SimpleNamespace(CommandFunction=list)

    def AutoExecutor(self, folder, cluster):  # noqa: N802  submitit's name
        return self

    def update_parameters(self, **settings):
        self.settings = settings

    def batch(self):
        return contextlib.nullcontext()

    def submit(self, command):
        self.commands.append(command)
        return self

    def done(self):
        return True

    def exception(self):
        return None


def test_a_job_of_slurm_asks_for_its_processes(tmp_path, monkeypatch):
    submission = Submitted()
    monkeypatch.setitem(sys.modules, "submitit", submission)
    monkeypatch.setitem(sys.modules, "submitit.helpers", submission.helpers)
    script = tmp_path / "runs.sh"
    script.write_text(f"python main.py --dataset glyphs --save_path {tmp_path} --seed 4\n")
    words = [str(script), *"--nproc 4 --slurm slurm_partition=gpu --jobs 2".split()]
    assert launcher.main(words) == 0
    settings = dict(name="runs", gpus_per_node=4, tasks_per_node=1, cpus_per_task=4)
    assert submission.settings == settings | dict(slurm_array_parallelism=2, slurm_partition="gpu")
    (command,) = submission.commands
    assert command[command.index("--nproc") + 1] == "4" and command[command.index("--seeds") + 1] == "4"
    assert launcher.main([*words, "cpus_per_task=32", "gpus_per_node=8"][:4] + ["--slurm", "cpus_per_task=32"]) == 0
    assert submission.settings["cpus_per_task"] == 32
    assert launcher.main([str(script), "--slurm"]) == 0
    assert submission.settings["gpus_per_node"] == 1 and "tasks_per_node" not in submission.settings
    assert "--nproc" not in submission.commands[-1]
