"""Run_Script.py: reading a file of runs, what is finished, locks, failures, Ctrl-C. Most runs here are stand-ins that take no time."""

import json
import multiprocessing
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
import yaml

import Bayesian_Optimization
import launch.locks
import launch.runner
import main
import parameters
import Run_Script
from launch.lines import KINDS
from runs import checkpoint
from runs.folder import run_folder
from utilities.errors import UserError

ROOT = Path(__file__).resolve().parent.parent
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


def tasks(path, *groups, more=()):
    lines = [
        Run_Script.Line(n, ["--group", group, "--save_path", str(path), "--dataset", "glyphs", *more]) for n, group in enumerate(groups, 1)
    ]
    return [Run_Script.Task(line) for line in lines]


def written(path, text):
    path.write_text(text)
    return path


# ------------------------------------------------------------------------------------------------------ the file of runs
def test_reading_a_file_of_runs(tmp_path, monkeypatch):
    monkeypatch.delenv("datapath", raising=False)
    script = written(
        tmp_path / "runs.sh",
        """#!/bin/sh
datapath=${datapath:-/some/data}  # where
export more=$datapath/more other='a b'

python main.py --source $datapath --group "A B" --seed 0   # the first
python3 ../main.py --source ${more} \\
  --group="$other" $other
""",
    )
    assert Run_Script.read_lines(script, {}) == [
        (5, ["--source", "/some/data", "--group", "A B", "--seed", "0"]), (7, ["--source", "/some/data/more", "--group=a b", "a", "b"]),
    ]  # fmt: skip
    assert Run_Script.read_lines(script, {"datapath": "/with space"})[0].argv[:2] == ["--source", "/with space"]
    monkeypatch.setenv("datapath", "/from/outside")
    assert Run_Script.read_lines(script, {})[0].argv[1] == "/from/outside"


@pytest.mark.parametrize(("text", "message"), [
    ("rm -rf x", "line 1: expected a comment"), ("x=1\npython other.py", "line 2"), ("python main.py --seed $nothing", r"\$nothing has no value"),
    ("python main.py \\", "line 1: the file ends in the middle"), ("python main.py \\\n", "ends in the middle"),
    ("\npython main.py --group 'open\nx", "line 2: a ' is not closed"), ('python main.py --group "open', 'line 1: a " is not closed'),
    ("x=${y:-open", r"line 1: \$\{y"), ('x="${y:-open', "line 1: a { is not closed"), ("x=${y%.sh}", r"line 1: \$\{y"), ("x=$1", r"line 1: \$1 is not"),
    *((f"x=1\npython main.py --seed 1 {more}", f"line 2: {said}") for more, said in (
        ("; python main.py", "; means"), ("&& echo done", "& means"), ("| tee log", r"\| means"), ("> log", "> means"), ("2>&1", "> means"),
        ("&", "& means"), ("(x)", r"\( means"), ("`date`", "the output of a command"), ('"$(date)"', "the output of a command"),
    )),
    ("for s in 1 2; do python main.py; done", "line 1: ; means"), ("X=1 python main.py", "line 1: expected"),
])  # fmt: skip
def test_what_is_no_run_is_refused_with_its_line(tmp_path, text, message):
    with pytest.raises(UserError, match=message):
        Run_Script.read_lines(written(tmp_path / "runs.sh", text), {})
    with pytest.raises(UserError, match="no file of runs"):
        Run_Script.read_lines(tmp_path / "absent.sh", {})


RUN = "python main.py "
SHELL_PARTS = [
    *"abZ09-=./:,%+@[]!^é", "--lr~BAYESIAN~", "[0,1]", "a#b", " ~ ", "~/", " ", "  ", "\t", "\\\n", f"\n{RUN}", f" # it's a `comment` \\\n{RUN}",
    "''", '""', "'lit $x `ls` \\\n \"'", "'two\nlines'", '"a b"', '"two\nlines"', "\"it's\"", r'"\$x \` \" \\ \n \' \ "', '"\\\n#"', '"$"',
    r"\$x", r"\#", r"\ ", r"\;", r"\\", r"\'", r"\"", r"\~", r"\n", " a=~/b", "$x/", "${x}", '"$x"', '"${x}y"', "${blank}", '"$blank"', "${none}", '"$none"',
    "$x$blank-", "${none:-b c}", '"${none:-b c}"', "${x:-;}", "${none:-~/d}", '"${none:-~/d}"', "${none:-$x}", "${none:-\"q r\"$blank's'}", "${none:-}",
    r'"${none:-$x\}z}"', "$\\\nx/", "${no\\\nne:-\\\ne}",
]  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_words_are_those_of_the_shell(tmp_path, monkeypatch, seed):
    """What `sh` itself hands to a program, for random lines of everything that a file of runs may hold."""
    monkeypatch.setenv("HOME", "/the home")
    draw = random.Random(seed)
    lines = [RUN + "".join(draw.choice(SHELL_PARTS) for _ in range(draw.randrange(12))) for _ in range(300)]
    head = ["x='v w'", "export blank=' p  q ' none=", "home=~/h y=$x' '${none:-~/z}", "export x=1 z=$x"]
    script = "\n".join([*head, *lines, f'{RUN} "$home" "$y" "$z" "$x"', ""])
    in_shell = written(tmp_path / "shell.sh", "python() { printf '%s\\0' \"$@\"; printf '\\n\\0'; }\n" + script)
    told = subprocess.run(["sh", "-f", in_shell], capture_output=True, text=True)
    assert not told.stderr
    expected = [run.split("\0")[1:-1] for run in told.stdout.split("\n\0")[:-1]]
    found = Run_Script.read_lines(written(tmp_path / "runs.sh", script), {})
    assert [line.argv for line in found] == expected and len(expected) > 300


def test_a_line_after_a_comment_that_ends_in_a_backslash_is_a_run(tmp_path):
    script = written(tmp_path / "runs.sh", "# a comment \\\npython main.py --group A # note \\\npython main.py --group 'lit$HOME'\n")
    assert Run_Script.read_lines(script, {}) == [(2, ["--group", "A"]), (3, ["--group", "lit$HOME"])]


def chosen(*argv):
    lines = [
        Run_Script.Line(n, ["--group", group, "--seed", str(seed)]) for n, (group, seed) in enumerate([("A", 0), ("A", 1), ("B", 0)], 1)
    ]
    return [(line.number, line.argv) for line in Run_Script.select_lines(lines, Run_Script.read_options(["runs.sh", *argv]))]


def test_choosing_lines():
    assert [number for number, _ in chosen()] == [1, 2, 3]
    assert [number for number, _ in chosen("--filter", "group A")] == [1, 2]
    assert [number for number, _ in chosen("--filter", "A.*seed 1", "B")] == [2, 3]
    assert [number for number, _ in chosen("--lines", "3", "1")] == [1, 3]
    assert chosen("--seeds", "5", "6", "--filter", "A") == [(1, ["--group", "A", "--seed", "5"]), (1, ["--group", "A", "--seed", "6"])]
    assert chosen("--lines", "3", "--", "--log_online") == [(3, ["--group", "B", "--seed", "0", "--log_online"])]


@pytest.mark.parametrize("argv", [["--jobs", "0"], ["--gpus", "-1"], ["--filter", "("], ["--slurm", "partition"]])
def test_options_that_cannot_be(argv):
    with pytest.raises(UserError, match=argv[0]):
        Run_Script.read_options(["runs.sh", *argv])


def test_the_shipped_scripts_are_read():
    for name, count in (("Revisit_Runs.sh", 335), ("MLRC_Runs.sh", 56)):
        lines = Run_Script.read_lines(ROOT / name, {"datapath": "/data"})
        assert len(lines) == count and all("/data" in line.argv for line in lines)


def test_two_lines_for_one_folder_are_refused_and_bad_flags_do_not_stop_the_others(tmp_path):
    line = ["--group", "A", "--save_path", str(tmp_path), "--dataset", "glyphs"]
    with pytest.raises(UserError, match="lines 4 and 9 both write to"):
        Run_Script.make_tasks([Run_Script.Line(4, line), Run_Script.Line(9, [*line, "--lr", "1"])])
    good, refused = Run_Script.make_tasks([Run_Script.Line(1, line), Run_Script.Line(2, ["--loss", "tripplet"])])
    assert len(good) == 1 and "Did you mean 'triplet'" in refused[0][1] and refused[0][0].number == 2


# -------------------------------------------------------------------------------------------------- how far a run has come
def test_how_a_run_stands(folder_data, tmp_path):
    argv = [
        "--dataset", "folder", "--dataset_folder_path", str(folder_data), "--save_path", str(tmp_path), "--arch", "conv4_normalize", "--embed_dim", "8",
        "--loss", "triplet", "--batch_mining", "semihard", "--bs", "8", "--kernels", "0", "--evaluation_metrics", "e_recall@1", "--no_records",
        "--group", "Tiny", "--seed", "0",
    ]  # fmt: skip

    def task(*more):
        return Run_Script.Task(Run_Script.Line(1, [*argv, *more]))

    assert task().standing() == Run_Script.NEW
    run = main.main(parameters.read([*argv, "--n_epochs", "1"]))
    assert run.folder == task().folder and task().name == "folder/Tiny_s0"
    assert task("--n_epochs", "1").standing() == Run_Script.FINISHED
    more = task("--n_epochs", "2")
    assert more.standing() == Run_Script.INTERRUPTED and more.epoch == 1
    with pytest.raises(UserError, match=r"--lr 0.5 \(saved"):
        task("--n_epochs", "1", "--lr", "0.5").standing()
    content = checkpoint.read(run.folder / checkpoint.LAST)
    content["run"]["stopped"] = True  # as --patience leaves it
    torch.save(content, run.folder / checkpoint.LAST)
    assert more.standing() == Run_Script.FINISHED
    (run.folder / checkpoint.LAST).write_bytes(b"broken")
    with pytest.raises(UserError, match="damaged"):
        more.standing()
    (run.folder / checkpoint.LAST).unlink()
    assert more.standing() == Run_Script.INTERRUPTED, "killed within its first epoch"
    (run.folder / "parameters.yaml").unlink()
    with pytest.raises(UserError, match="holds no run"):
        more.standing()


FOLDS = ["--split_scheme", "class_disjoint", "--split_partitions", "2", "--split_sets", "2", "--final_test", "--n_epochs", "1"]


def small(folder_data, tmp_path, *more, program="main.py"):
    """A task of a tiny run, or search, with the seed 0."""
    argv = [
        "--dataset", "folder", "--dataset_folder_path", str(folder_data), "--save_path", str(tmp_path), "--arch", "conv4_normalize", "--embed_dim", "8",
        "--loss", "triplet", "--batch_mining", "semihard", "--bs", "4", "--kernels", "0", "--evaluation_metrics", "e_recall@1", "--no_records",
        "--plot_every", "0", "--group", "Tiny", "--seed", "0", *more,
    ]  # fmt: skip
    return Run_Script.TASKS[program](KINDS[program](1, argv))


def standing(task):
    return task.standing(), task.progress


def test_how_a_run_with_a_final_test_stands(folder_data, tmp_path):
    def task(*more):
        return small(folder_data, tmp_path, "--use_tv_split", "--tv_split_perc", "0.5", "--splits_to_eval", "val", "--n_epochs", "1", *more)

    run = main.main(task().opt)
    assert standing(task()) == (Run_Script.FINISHED, "1 epochs")
    assert standing(task("--final_test")) == (Run_Script.INTERRUPTED, "1 epochs"), "trained, but killed before its test"
    main.main(parameters.read(["--resume_from", str(run.folder), "--final_test"]))
    assert standing(task("--final_test")) == (Run_Script.FINISHED, "1 epochs")


def test_how_a_cross_validation_stands(folder_data, tmp_path):
    def task(*more):
        return small(folder_data, tmp_path, *FOLDS, *more)

    assert task().standing() == Run_Script.NEW
    main.main(task("--folds", "0").opt)
    assert standing(task()) == (Run_Script.INTERRUPTED, "after 1 of 2 folds")
    assert standing(task("--folds", "0")) == (Run_Script.FINISHED, "1 folds"), "the other fold is somebody else's"
    assert standing(task("--folds", "1")) == (Run_Script.INTERRUPTED, "after 0 of 1 folds"), "its folder is there: it is joined by --resume"
    cross = main.main(parameters.read([*task("--folds", "1").line.argv, "--resume"]))
    assert cross.folder == task().folder and standing(task()) == (Run_Script.FINISHED, "2 folds")
    assert standing(task("--n_epochs", "2")) == (Run_Script.INTERRUPTED, "after 0 of 2 folds")
    with pytest.raises(UserError, match=r"--lr 0.5 \(saved"):
        task("--lr", "0.5").standing()

    def without(path, change):
        """How the line stands while a file is changed."""
        whole = path.read_bytes()
        change(path)
        found = standing(task())
        path.write_bytes(whole)
        assert standing(task()) == (Run_Script.FINISHED, "2 folds")
        return found

    meta, summary = cross.folder / "meta", cross.folder / "fold_1" / "summary.json"
    for name in ("separated", "concatenated"):
        assert without(meta / f"{name}.json", Path.unlink) == (Run_Script.INTERRUPTED, "after 2 of 2 folds")
    of_other_epochs = lambda path: path.write_text(path.read_text().replace('"epochs": [\n  1,', '"epochs": [\n  7,'))  # noqa: E731
    assert without(meta / "concatenated.json", of_other_epochs)[0] == Run_Script.INTERRUPTED
    of_validation = lambda path: path.write_text(path.read_text().replace('"test": {', '"tests": {'))  # noqa: E731
    assert without(meta / "separated.json", of_validation)[0] == Run_Script.INTERRUPTED
    assert without(summary, of_validation) == (Run_Script.INTERRUPTED, "after 1 of 2 folds"), "a fold that was not measured on test"
    assert without(summary, Path.unlink) == (Run_Script.INTERRUPTED, "after 1 of 2 folds")
    assert without(cross.folder / "fold_0" / checkpoint.LAST, Path.unlink) == (Run_Script.INTERRUPTED, "after 1 of 2 folds")

    (cross.folder / "parameters.yaml").unlink()
    with pytest.raises(UserError, match="holds no run"):
        task().standing()


def test_lines_may_share_a_cross_validation_by_its_folds(folder_data, tmp_path):
    def line(number, *more):
        return Run_Script.Line(number, small(folder_data, tmp_path, *FOLDS, *more).line.argv)

    first, second = Run_Script.make_tasks([line(1, "--folds", "1"), line(2, "--folds", "0")])[0]
    assert first.folder == second.folder and first.lock.path != second.lock.path and first.log != second.log
    assert first.name == "folder/Tiny_s0.folds_1"
    for other in (["--folds", "0", "1"], []):
        with pytest.raises(UserError, match="lines 1 and 3 both write to"):
            Run_Script.make_tasks([line(1, "--folds", "1"), line(3, *other)])


# ------------------------------------------------------------------------------------------------- how far a search has come
SEARCH = ["--use_tv_split", "--tv_split_perc", "0.5", "--n_epochs", "1", "--lr~LOG_BAYESIAN~", "1e-4,1e-2"]


def search_task(folder_data, tmp_path, trials, reproductions, *more):
    counts = ["--bayesian_optimization_n_iter", str(trials), "--reproductions", str(reproductions)]
    return small(folder_data, tmp_path, *SEARCH, *counts, *more, program="Bayesian_Optimization.py")


def test_how_a_search_stands(folder_data, tmp_path, monkeypatch):
    def train(opt):  # a value at once, in place of training; rates above .005 fail
        folder = run_folder(opt)
        folder.mkdir(parents=True)
        value = float("nan") if opt.lr > 0.005 else opt.lr
        (folder / "summary.json").write_text(json.dumps({"selected": {"values": {"val": {"e_recall@1": value}}}}))

    monkeypatch.setattr(main, "main", train)

    def task(*more):
        return search_task(folder_data, tmp_path, *more)

    folder = tmp_path / "folder" / "Tiny_search"
    assert standing(task(6, 2)) == (Run_Script.NEW, "") and task(6, 2).name == "folder/Tiny_search"
    Bayesian_Optimization.search(task(6, 0).line.argv)
    assert ",fail," in (folder / "trials.csv").read_text(), "failed trials count among those asked for"
    assert standing(task(6, 0)) == standing(task(4, 0)) == (Run_Script.FINISHED, "6 trials")
    assert standing(task(8, 0)) == (Run_Script.INTERRUPTED, "after 6 of 8 trials")
    assert standing(task(6, 2)) == (Run_Script.INTERRUPTED, "after 6 of 6 trials and 0 of 2 reproductions")
    assert task(6, 2).outcome()[0] == Run_Script.RUNNING, "it ended because others work on what is left"
    before = sorted(folder.rglob("*"))
    task(6, 2).standing()
    assert sorted(folder.rglob("*")) == before, "looking changes nothing"
    Bayesian_Optimization.search(task(6, 2).line.argv)
    assert standing(task(6, 2)) == (Run_Script.FINISHED, "6 trials and 2 of 2 reproductions") and task(6, 2).outcome() == (
        "finished",
        "now",
    )
    again = yaml.safe_load((folder / "reproductions.yaml").read_text())
    (folder / "reproductions.yaml").write_text(yaml.safe_dump({**again, "trial": "trial_77"}))
    assert task(6, 2).standing() == Run_Script.INTERRUPTED, "reproductions of what is no longer the best"
    (folder / "best_parameters.yaml").unlink()
    assert task(6, 0).standing() == Run_Script.INTERRUPTED
    with pytest.raises(UserError, match="--bs 8 .before: 4."):
        task(6, 0, "--bs", "8").standing()


def test_lines_of_searches(folder_data, tmp_path):
    lines = Run_Script.read_lines(ROOT / "MLRC_Searches.sh", {"datapath": "/data"})
    assert (
        len(lines) == 56 and {line.program for line in lines} == {"Bayesian_Optimization.py"} and lines[0].command.startswith("python Bay")
    )
    task = Run_Script.make_tasks(lines[:1])[0][0]
    assert task.name == "cub200/MLRC_CUB_Contrastive_search" and task.program.name == "Bayesian_Optimization.py"
    argv = search_task(folder_data, tmp_path, 1, 0).line.argv
    kept, refused = Run_Script.make_tasks(
        [Run_Script.SearchLine(4, [*argv, "--final_test"]), Run_Script.SearchLine(5, ["--lr~BAYESIAN~", "1,0"])]
    )
    assert not kept and "no trial may see" in refused[0][1] and "swapped" in refused[1][1]
    with pytest.raises(UserError, match="lines 1 and 2 both write to .*Tiny_search: give them different --group$"):
        Run_Script.make_tasks([Run_Script.SearchLine(1, argv), Run_Script.SearchLine(2, [*argv, "--bs", "8"])])
    with pytest.raises(UserError, match="line 1 writes to .*Tiny_search with every seed: give --seeds one at a time$"):
        Run_Script.make_tasks([Run_Script.SearchLine(1, [*argv, "--seed", seed]) for seed in ("1", "2")])


def test_searches_are_run_by_their_program(stand_in, folder_data, monkeypatch):
    task = search_task(folder_data, stand_in, 1, 0)
    (stand_in / "main.py").unlink()
    monkeypatch.setattr(Run_Script.SearchTask, "outcome", lambda task: (Run_Script.FINISHED, "now"))
    runner = Run_Script.Runner([task], jobs=1, gpus=[])
    runner.run()
    assert runner.outcomes["finished"] == ["folder/Tiny_search: now"] and "--lr~LOG_BAYESIAN~" in (stand_in / "seen.txt").read_text()


# ----------------------------------------------------------------------------------------------------------------- locks
def test_a_lock_has_one_holder(tmp_path):
    path = tmp_path / "run.lock"
    mine = Run_Script.Lock(path)
    assert mine.take() and not Run_Script.Lock(path).take()
    assert mine.holder() == f"process {os.getpid()}"
    mine.release()
    assert not path.exists() and mine.holder() is None and Run_Script.Lock(path).take()


def entry(pid, started, host=None):
    return json.dumps({"host": host or socket.gethostname(), "processes": [[pid, started]]})


def test_locks_left_behind_are_recognised(tmp_path):
    gone = subprocess.Popen(["true"])
    gone.wait()
    number_given_again = entry(os.getpid(), "1")
    for content in ("", "{bro", entry(gone.pid, "77"), number_given_again):
        assert Run_Script.Lock(written(tmp_path / "a.lock", content)).take(), content
    path = written(tmp_path / "b.lock", entry(5, "1", host="elsewhere"))
    assert not Run_Script.Lock(path).take() and Run_Script.Lock(path).holder() == "process 5 on elsewhere"
    os.utime(path, (time.time() - 2 * launch.locks.SILENT_FOR,) * 2)
    assert Run_Script.Lock(path).take(), "the other machine has not touched it for long"


def test_a_run_that_outlives_its_runner_keeps_the_lock(tmp_path):
    with subprocess.Popen(["sleep", "60"]) as orphan:
        content = {"host": socket.gethostname(), "processes": [[1234567, "1"], [orphan.pid, launch.locks._started(orphan.pid)]]}
        path = written(tmp_path / "run.lock", json.dumps(content))
        assert not Run_Script.Lock(path).take()
        orphan.kill()
        orphan.wait()
    assert Run_Script.Lock(path).take()


def take_all(folder, ready, over, answers):
    """Try every lock once; in a process of its own, which lives until all have tried."""
    ready.wait()
    answers.put([Run_Script.Lock(folder / f"{n}.lock").take() for n in range(100)])
    over.wait()


def test_of_many_takers_at_once_one_wins(tmp_path):
    """Also where all of them find a lock that was left behind."""
    for number in range(0, 100, 2):
        written(tmp_path / f"{number}.lock", entry(9_999_999, "1"))
    fork = multiprocessing.get_context("fork")
    ready, over, answers = fork.Barrier(4), fork.Event(), fork.Queue()
    takers = [fork.Process(target=take_all, args=(tmp_path, ready, over, answers)) for _ in range(4)]
    for taker in takers:
        taker.start()
    won = [answers.get(timeout=60) for _ in takers]
    over.set()
    for taker in takers:
        taker.join()
    assert [sum(row[n] for row in won) for n in range(100)] == [1] * 100
    assert sum(any(row) for row in won) > 1, "they did run at once"


# ---------------------------------------------------------------------------------------------------------- many of them
def test_one_failure_does_not_stop_the_others(stand_in):
    runner = Run_Script.Runner(tasks(stand_in, "A", "Fails", "Dies", "B"), jobs=2, gpus=[])
    runner.run()
    seen = (stand_in / "seen.txt").read_text()
    assert "--group A " in seen and "--group B " in seen and len(runner.outcomes["finished"]) == 2
    failures = runner.outcomes["failed"]
    assert len(failures) == 2
    said = next(text for text in failures if "Fails" in text)
    assert "glyphs/Fails_s1: ValueError: no such thing (status 3)" in said
    log = said.partition("log: ")[2]
    assert "a line before" in Path(log).read_text() and Path(log) == stand_in / "glyphs" / "Fails_s1.log"
    assert any("killed by SIGKILL" in text for text in failures)
    assert runner.summary().splitlines()[0] in ("2 finished, 2 failed", "2 failed, 2 finished")
    assert not list(stand_in.rglob("*.lock"))


def test_the_reason_is_that_of_the_latest_attempt(stand_in):
    (stand_in / "glyphs").mkdir()
    written(stand_in / "glyphs" / "Dies_s1.log", "RuntimeError: of last week\n")
    runner = Run_Script.Runner(tasks(stand_in, "Dies"), jobs=1, gpus=[])
    runner.run()
    assert "last week" not in runner.summary() and "device cpu" not in runner.summary().splitlines()[0]


def test_jobs_share_the_gpus_in_turn(stand_in):
    runner = Run_Script.Runner(tasks(stand_in, *"ABCDEF"), jobs=2, gpus=[4, 7])
    runner.run()
    used = [line.split()[-2:] for line in (stand_in / "seen.txt").read_text().splitlines()]
    assert sorted(set(map(tuple, used))) == [("--gpu", "4"), ("--gpu", "7")]


def test_what_is_finished_or_worked_on_is_left_alone_and_the_interrupted_resumed(stand_in, monkeypatch):
    standings = {"A_s1": Run_Script.FINISHED, "B_s1": Run_Script.INTERRUPTED, "C_s1": Run_Script.NEW, "D_s1": Run_Script.NEW}
    monkeypatch.setattr(Run_Script.Task, "standing", lambda task: standings[task.folder.name])
    some = tasks(stand_in, *"ABCD")
    assert Run_Script.Lock(some[3].lock.path).take()
    some[2].folder.mkdir(parents=True)  # of a run that was killed before its first file
    runner = Run_Script.Runner(some, jobs=1, gpus=[])
    runner.run()
    seen = (stand_in / "seen.txt").read_text().splitlines()
    assert [line.split()[1] for line in seen] == ["B", "C"]
    assert "--resume" in seen[0] and "--resume" not in seen[1] and not some[2].folder.exists()
    assert len(runner.outcomes["running elsewhere"]) == 1 and str(os.getpid()) in runner.outcomes["running elsewhere"][0]
    assert some[3].lock.path.exists(), "the other's lock stays"


def test_a_dry_run_takes_no_lock_and_skips_nothing(stand_in, monkeypatch):
    monkeypatch.setattr(Run_Script.Task, "standing", lambda task: Run_Script.FINISHED)
    monkeypatch.setattr(Run_Script.Lock, "take", lambda lock: pytest.fail("a lock"))
    Run_Script.Runner(tasks(stand_in, "A"), jobs=1, gpus=[], dry=True).run()
    assert (stand_in / "seen.txt").read_text().split()[-1] == "--dry_run"


def test_ctrl_c_lets_the_runs_close_and_starts_no_more(stand_in):
    runner = Run_Script.Runner(tasks(stand_in, "Slow1", "Slow2", "A"), jobs=2, gpus=[])

    def interrupt():
        logs = [stand_in / "glyphs" / f"Slow{n}_s1.log" for n in (1, 2)]
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
        assert "closed the records" in (stand_in / "glyphs" / f"Slow{n}_s1.log").read_text()
    assert not list(stand_in.rglob("*.lock")) and not (stand_in / "seen.txt").exists()


def test_slurm_without_its_package_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "submitit", None)
    script = written(tmp_path / "runs.sh", "python main.py --dataset glyphs\n")
    with pytest.raises(UserError, match="pip install submitit"):
        Run_Script.main([str(script), "--slurm"])


def test_slurm_by_the_local_executor(folder_data, tmp_path):
    pytest.importorskip("submitit")
    script = runs_file(folder_data, tmp_path)
    assert Run_Script.main([str(script), "--slurm", "cluster=local", f"folder={tmp_path / 'jobs'}", "timeout_min=5"]) == 1
    assert (tmp_path / "out" / "folder" / "Good_s0" / "summary.json").exists()


# ------------------------------------------------------------------------------------------------------- the real program
def runs_file(folder_data, tmp_path, epochs=1):
    line = (
        f"python main.py --dataset folder --dataset_folder_path $datapath --save_path {tmp_path / 'out'} --arch conv4_normalize --embed_dim 8 "
        f"--loss triplet --batch_mining semihard --bs 8 --kernels 0 --evaluation_metrics e_recall@1 --seed 0 --no_records --n_epochs {epochs}"
    )
    return written(tmp_path / "runs.sh", f"datapath={folder_data}\n{line} --group Good\n{line} --group Bad --dataset_folder_path /absent\n")


def run_script(*argv):
    return subprocess.run([sys.executable, "Run_Script.py", *map(str, argv)], cwd=ROOT, capture_output=True, text=True)


def test_the_whole_way(folder_data, tmp_path):
    script = runs_file(folder_data, tmp_path)
    told = run_script(script, "--jobs", "2")
    assert told.returncode == 1, told.stderr
    assert (
        "1 finished" in told.stdout
        and "1 failed" in told.stdout
        and "/absent: no such folder" in told.stdout
        and "Bad_s0.log" in told.stdout
    )
    again = run_script(script, "--filter", "Good")
    assert again.returncode == 0 and "before, 1 epochs" in again.stdout
    listed = run_script(script, "--list")
    assert "finished          folder/Good_s0" in listed.stdout and "new               folder/Bad_s0" in listed.stdout
    assert sorted(path.name for path in (tmp_path / "out" / "folder").iterdir()) == ["Bad_s0.log", "Good_s0", "Good_s0.log"]


def test_mistakes_are_one_line():
    told = run_script("/absent.sh")
    assert told.returncode == 2 and told.stderr.count("\n") == 1 and "no file of runs" in told.stderr


def test_an_interrupted_cross_validation_is_finished(folder_data, tmp_path):
    task = small(folder_data, tmp_path, *FOLDS)
    main.main(parameters.read([*task.line.argv, "--folds", "0"]))
    script = written(tmp_path / "runs.sh", f"{task.line.command}\n")
    told = run_script(script)
    assert told.returncode == 0 and "started   folder/Tiny_s0, after 1 of 2 folds" in told.stdout, told.stdout + told.stderr
    assert "fold 0 of 2 is finished" in task.log.read_text()
    assert (task.folder / "meta" / "separated.json").exists() and (task.folder / "meta" / "concatenated.json").exists()
    assert "finished          folder/Tiny_s0" in run_script(script, "--list").stdout


@pytest.mark.long
def test_a_search_is_run_and_then_left_alone(folder_data, tmp_path):
    task = search_task(folder_data, tmp_path, 2, 1)
    script = written(tmp_path / "runs.sh", f"{task.line.command}\n")
    told = run_script(script)
    assert told.returncode == 0 and "1 finished" in told.stdout, told.stdout + told.stderr
    assert sorted(path.name for path in task.folder.glob("trial_*/")) in (
        ["trial_0", "trial_0_reproduction_1", "trial_1"],
        ["trial_0", "trial_1", "trial_1_reproduction_1"],
    )
    assert "before, 2 trials and 1 of 1 reproductions" in run_script(script).stdout


@pytest.mark.long
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_runner_goes_on_where_it_was(folder_data, tmp_path, sign):
    script = runs_file(folder_data, tmp_path, epochs=60)
    command = [sys.executable, "Run_Script.py", str(script), "--filter", "Good"]
    last = tmp_path / "out" / "folder" / "Good_s0" / checkpoint.LAST
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as first:
        while not last.exists():
            assert first.poll() is None
            time.sleep(0.1)
        first.send_signal(sign)
        said = first.communicate(timeout=120)[0]
    if sign == signal.SIGKILL:  # the run itself lives on and keeps its lock
        assert "running elsewhere" in run_script(script, "--filter", "Good").stdout
        while (holder := Run_Script.Lock(last.parent.with_name("Good_s0.lock")).holder()) is not None:
            os.kill(int(holder.split()[1]), signal.SIGKILL)
            time.sleep(0.2)
    else:
        assert first.returncode == 130 and "1 stopped" in said
        assert "interrupted: epochs 1 to" in last.parent.with_name("Good_s0.log").read_text()
    told = run_script(script, "--filter", "Good")
    assert told.returncode == 0 and "after epoch" in told.stdout, told.stdout + told.stderr
    assert checkpoint.read(last)["epoch"] == 60
    assert [path.name for path in last.parent.parent.iterdir() if path.is_dir()] == ["Good_s0"]
