"""Many runs at a time: failures, locks, GPUs, Ctrl-C. The runs are stand-ins that take no time."""

import os
import signal
import subprocess
import sys
import threading
import time
import types
from pathlib import Path

import pytest
import yaml

from launch import __main__ as launcher
from launch.runner import Job
from tests.kit.launches import search_task
from tests.kit.runs import words_of
from utilities.errors import UserError
from utilities.locks import Lock

ROOT = Path(__file__).resolve().parent.parent.parent


def task_of(path, group, *words, number=1):
    argv = words_of("--group", group, "--dataset glyphs --save_path", path, *words)
    return launcher.Task(launcher.Line(number, argv))


def tasks(path, *groups):
    return [task_of(path, group, number=number) for number, group in enumerate(groups, 1)]


def ran(run_tasks, jobs=1, gpus=()):
    """The runner of these tasks, when it has ended."""
    runner = launcher.Runner(run_tasks, jobs=jobs, gpus=[*gpus])
    runner.run()
    return runner


def seen(folder):
    """The command lines of the runs that came to their end."""
    return (folder / "seen.txt").read_text()


def held(path):
    """Another process that has a lock."""
    hold = (
        "import sys, time; from utilities.locks import Lock; lock = Lock(sys.argv[1]); lock.acquire(); "
        "print('in', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", hold, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "in\n"
    return process


def test_one_failure_does_not_stop_the_others(stand_in):
    logs = stand_in / "glyphs" / "run_script"
    logs.mkdir(parents=True)
    (logs / "Dies_s1.log").write_text("RuntimeError: of last week\n")
    runner = ran(tasks(stand_in, "A", "Fails", "Dies", "B"), jobs=2)
    assert "last week" not in runner.summary(), "the reason is that of the latest attempt"
    assert "--group A " in seen(stand_in) and "--group B " in seen(stand_in)
    assert len(runner.outcomes["finished"]) == 2
    failures = runner.outcomes["failed"]
    assert len(failures) == 2
    failure = next(text for text in failures if "Fails" in text)
    assert "glyphs/Fails_s1: ValueError: no such thing (status 3)" in failure
    log = failure.partition("log: ")[2]
    assert "a line before" in Path(log).read_text() and Path(log) == logs / "Fails_s1.log"
    assert any("killed by SIGKILL" in text for text in failures)
    assert runner.summary().splitlines()[0] in ("2 finished, 2 failed", "2 failed, 2 finished")
    assert all(task.lock.acquire(wait=False) for task in tasks(stand_in, "A", "Fails", "Dies", "B"))


def test_a_key_reaches_the_run_and_no_log(stand_in):
    task = task_of(stand_in, "A", "--wandb_key SECRET")
    ran([task])
    assert "--wandb_key SECRET" in seen(stand_in)
    log = task.log.read_text()
    assert "--wandb_key" in log and "SECRET" not in log


def test_lines_that_measure(stand_in):
    trained = task_of(stand_in, "A")
    measured = task_of(stand_in, "B", "--evaluate_only")
    for task in (trained, measured):
        task.folder.mkdir(parents=True)
        (task.folder / "parameters.yaml").write_text(yaml.safe_dump(task.opt.saved()))
    with pytest.raises(UserError, match="--evaluate measures a run that another line makes"):
        task_of(stand_in, "A", "--evaluate")
    (measured.folder / "evaluation.json").write_text("{}")
    assert (measured.standing(), measured.progress) == (launcher.FINISHED, "measured")
    (measured.folder / "evaluation.json").unlink()
    assert measured.standing() == launcher.INTERRUPTED
    numbered = measured.folder.with_name(measured.folder.name + "_1")
    numbered.mkdir()
    (numbered / "evaluation.json").write_text("{}")
    assert measured.standing() == launcher.FINISHED


def test_a_run_that_is_older_than_the_rules_goes_on(stand_in):
    words = "--savename old --scheduler cosine --gamma .5".split()
    with pytest.raises(UserError, match="--gamma 0.5 has no effect with --scheduler cosine"):
        task_of(stand_in, "A", *words)
    begun = task_of(stand_in, "A", *words[:4])
    begun.folder.mkdir(parents=True)
    # --gamma was accepted here before there were rules
    flags = {**begun.opt.saved(), "gamma": 0.5}
    (begun.folder / "parameters.yaml").write_text(yaml.safe_dump(flags))
    task = task_of(stand_in, "A", *words)
    assert task.folder == begun.folder and task.standing() == launcher.INTERRUPTED


def test_jobs_share_the_gpus_in_turn(stand_in):
    ran(tasks(stand_in, *"ABCDEF"), jobs=2, gpus=[4, 7])
    flags = [line.split()[-2:] for line in seen(stand_in).splitlines()]
    assert sorted(set(map(tuple, flags))) == [("--gpu", "4"), ("--gpu", "7")]


def test_what_is_finished_or_worked_on_is_left_alone_and_the_interrupted_resumed(stand_in, monkeypatch):
    standings = {"A_s1": launcher.FINISHED, "B_s1": launcher.INTERRUPTED, "C_s1": launcher.NEW, "D_s1": launcher.NEW}
    monkeypatch.setattr(launcher.Task, "standing", lambda task: standings[task.folder.name])
    four_tasks = tasks(stand_in, *"ABCD")
    # of a run that was killed before its first file
    four_tasks[2].folder.mkdir(parents=True)
    (four_tasks[2].folder / ".lock").touch()
    with held(four_tasks[3].lock.path) as process:
        runner = ran(four_tasks)
        process.kill()
    second, third = seen(stand_in).splitlines()
    assert (second.split()[1], third.split()[1]) == ("B", "C")
    assert "--resume" in second and "--resume" not in third and not four_tasks[2].folder.exists()
    assert len(runner.outcomes["running elsewhere"]) == 1
    assert str(process.pid) in runner.outcomes["running elsewhere"][0]


@pytest.mark.parametrize("name", [".notes", ".parameters.yaml.swp", ".git/config", "notes"])
def test_hidden_files_of_the_user_are_not_deleted(stand_in, name):
    (task,) = tasks(stand_in, "A")
    for file in (".lock", ".parameters.yaml.a1b2c3_4.tmp", name):
        (task.folder / file).parent.mkdir(parents=True, exist_ok=True)
        (task.folder / file).touch()
    runner = ran([task])
    (failure,) = runner.outcomes["failed"]
    first = name.partition("/")[0]
    assert f"{task.folder} holds no run (parameters.yaml is missing), but {first}: move it away" in failure
    assert (task.folder / name).exists()
    (task.folder / name).unlink()
    if "/" in name:
        (task.folder / name).parent.rmdir()
    assert task.standing() == launcher.NEW


@pytest.mark.parametrize("fold", ["", "fold_1/"])
def test_what_runs_without_a_runner_is_left_alone(stand_in, fold):
    """A run that was started by hand, or that has outlived its runner, holds its own folder."""
    (task,) = tasks(stand_in, "A")
    with held(task.folder / f"{fold}.lock") as process:
        runner = ran([task])
        assert f"process {process.pid} on" in launcher.listing([task])
        process.kill()
    assert len(runner.outcomes["running elsewhere"]) == 1
    assert str(process.pid) in runner.outcomes["running elsewhere"][0]
    assert not (stand_in / "seen.txt").exists()


def test_a_dry_run_takes_no_lock_and_skips_nothing(stand_in, monkeypatch):
    monkeypatch.setattr(launcher.Task, "standing", lambda task: launcher.FINISHED)
    monkeypatch.setattr(Lock, "acquire", lambda lock, wait: pytest.fail("a lock"))
    launcher.Runner(tasks(stand_in, "A"), jobs=1, gpus=[], dry=True).run()
    assert seen(stand_in).split()[-1] == "--dry_run"


def test_ctrl_c_lets_the_runs_close_and_starts_no_more(stand_in):
    runner = launcher.Runner(tasks(stand_in, "Slow1", "Slow2", "A"), jobs=2, gpus=[])

    def interrupt():
        logs = [stand_in / "glyphs" / "run_script" / f"Slow{n}_s1.log" for n in (1, 2)]
        while len(runner.active) < 2 or not all(log.exists() and "asleep" in log.read_text() for log in logs):
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            runner.run()
    finally:
        signal.signal(signal.SIGINT, before)
    assert not runner.active and len(runner.outcomes["stopped"]) == 2 and len(runner.waiting) == 1
    assert "2 stopped, 1 not started" in runner.summary()
    for n in (1, 2):
        assert "closed the records" in (stand_in / "glyphs" / "run_script" / f"Slow{n}_s1.log").read_text()
    assert not (stand_in / "seen.txt").exists()


def test_searches_are_run_by_their_program(stand_in, folder_data, monkeypatch):
    task = search_task(folder_data, stand_in, 1, 0)
    (stand_in / "main.py").unlink()
    monkeypatch.setattr(launcher.SearchTask, "outcome", lambda task: (launcher.FINISHED, "in this call"))
    runner = ran([task])
    assert runner.outcomes["finished"] == ["folder/Tiny_search: in this call"]
    assert "--lr~LOG_BAYESIAN~" in seen(stand_in)


def test_a_running_job_shows_its_epoch(stand_in):
    (task,) = tasks(stand_in, "A")
    job = Job(task, [], slot=0)
    job.process.wait()
    assert job.standing() == "glyphs/A_s1", "no epoch yet"
    with open(task.log, "a") as log:
        log.write(f"epoch 1/30  loss 0.5  1.0 s\n{'x' * 50_000}\n")
        log.write("epoch 12/30  loss 0.25  1.0 s  best so far\na line\n")
    assert job.standing() == "glyphs/A_s1 epoch 12/30"
    # a second attempt: what the first one said is no longer so
    later = Job(task, [], slot=0)
    later.process.wait()
    assert later.standing() == "glyphs/A_s1"


def test_the_next_command_follows_what_became_of_the_runs(stand_in, monkeypatch, capsys):
    script = stand_in / "runs.sh"
    line = f"python main.py --dataset glyphs --save_path {stand_in} --group"
    for groups, words, expected in (
        (["A", "B"], [], f"python Result_Evaluations.py --runs {stand_in / 'glyphs'}"),
        (["C", "Fails"], ["--jobs", "2"], f"python -m launch {script} --jobs 2"),
        (["D"], ["--dry_run"], f"python -m launch {script}"),
    ):
        script.write_text("".join(f"{line} {group}\n" for group in groups))
        launcher.main([str(script), *words])
        assert capsys.readouterr().out.splitlines()[-1] == f"next: {expected}"


def test_the_list_says_how_far_a_run_of_another_process_is(stand_in, monkeypatch):
    (task,) = tasks(stand_in, "A")
    monkeypatch.setattr(launcher.Task, "at_work", lambda self: "process 5 on host")
    assert launcher.listing([task]).splitlines()[0].endswith("process 5 on host"), "its folder says nothing yet"
    monkeypatch.setattr(launcher.parameters, "resolve", lambda words: types.SimpleNamespace(later=[]))
    monkeypatch.setattr(launcher, "how_far", lambda folder, opt: (False, "after epoch 3"))
    assert launcher.listing([task]).splitlines()[0].endswith("process 5 on host, after epoch 3")
