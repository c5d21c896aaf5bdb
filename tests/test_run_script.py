"""python -m launch: where a line's run lies, how far it has come, and the whole way from file to finished runs."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml

import main
from launch import __main__ as launcher
from runs import checkpoint
from runs.folder import run_folder
from search import __main__ as searcher
from tests.kit import refusals
from tests.kit.launches import search_task, small, standing
from tests.kit.runs import content_of, program, run_main
from utilities.errors import UserError
from utilities.locks import Lock

ROOT = Path(__file__).resolve().parent.parent


def test_two_lines_for_one_folder_are_refused_and_bad_flags_do_not_stop_the_others(tmp_path):
    line = ["--group", "A", "--save_path", str(tmp_path), "--dataset", "glyphs"]
    with pytest.raises(UserError, match="lines 4 and 9 both write to"):
        launcher.make_tasks([launcher.Line(4, line), launcher.Line(9, [*line, "--lr", "1"])])
    messages = {"--loss tripplet": "Did you mean 'triplet'", "--lr much": "float value: 'much'", "--bs 1": "--bs 1"}
    lines = [line, *map(str.split, messages)]
    good, refused = launcher.make_tasks([launcher.Line(number, argv) for number, argv in enumerate(lines, 1)])
    assert len(good) == 1 and [line.number for line, _ in refused] == [2, 3, 4]
    for message, (_, reason) in zip(messages.values(), refused, strict=True):
        assert message in reason and "\n" not in reason


# ---------- progress of a run
def test_how_a_run_stands(folder_data, tmp_path):
    def task(*words):
        return small(folder_data, tmp_path, "--use_tv_split --tv_split_perc 0.5 --splits_to_eval val", *words)

    assert task().standing() == launcher.NEW
    run = main.main(task("--n_epochs 1").opt)
    assert run.folder == task().folder and task().name == "folder/Tiny_s0"
    assert standing(task("--n_epochs 1")) == (launcher.FINISHED, "1 epoch")
    longer = task("--n_epochs 2")
    tested = task("--n_epochs 1 --final_test")
    assert standing(longer) == (launcher.INTERRUPTED, "after epoch 1")
    assert standing(tested) == (launcher.INTERRUPTED, "1 epoch"), "trained, but killed before its test"
    run_main("--resume_from", run.folder, "--final_test")
    assert standing(tested) == (launcher.FINISHED, "1 epoch")
    with pytest.raises(UserError, match=r"--lr 0.5 \(saved"):
        task("--n_epochs 1 --lr 0.5").standing()
    content = checkpoint.read(run.folder / checkpoint.LAST)
    # as --patience leaves it
    content["run"]["stopped"] = True
    torch.save(content, run.folder / checkpoint.LAST)
    assert longer.standing() == launcher.FINISHED
    (run.folder / "summary.json").write_text("{")
    with pytest.raises(UserError, match="summary.json is damaged"):
        tested.standing()
    (run.folder / checkpoint.LAST).write_bytes(b"broken")
    with pytest.raises(UserError, match="damaged"):
        longer.standing()
    (run.folder / checkpoint.LAST).unlink()
    assert longer.standing() == launcher.INTERRUPTED, "killed within its first epoch"
    (run.folder / "parameters.yaml").unlink()
    with pytest.raises(UserError, match="holds no run"):
        longer.standing()


FOLDS = "--split_scheme class_disjoint --split_partitions 2 --split_sets 2 --final_test --n_epochs 1"


@pytest.mark.long
def test_how_a_cross_validation_stands(folder_data, tmp_path):
    def task(*words):
        return small(folder_data, tmp_path, FOLDS, *words)

    assert task().standing() == launcher.NEW
    main.main(task("--folds 0").opt)
    assert standing(task()) == (launcher.INTERRUPTED, "after 1 of 2 folds")
    assert standing(task("--folds 0")) == (launcher.FINISHED, "1 fold"), "the other fold is somebody else's"
    # its folder is there: it is joined by --resume
    assert standing(task("--folds 1")) == (launcher.INTERRUPTED, "after 0 of 1 folds")
    cross = run_main(*task("--folds 1").line.argv, "--resume")
    assert cross.folder == task().folder and standing(task()) == (launcher.FINISHED, "2 folds")
    assert standing(task("--n_epochs 2")) == (launcher.INTERRUPTED, "after 0 of 2 folds")
    with pytest.raises(UserError, match=r"--lr 0.5 \(saved"):
        task("--lr 0.5").standing()

    def replacing(old, new):
        return lambda path: path.write_text(path.read_text().replace(old, new))

    separated, concatenated = (cross.folder / "meta" / f"{name}.json" for name in ("separated", "concatenated"))
    summary = cross.folder / "fold_1" / "summary.json"
    of_validation = replacing('"test": {', '"tests": {')
    for path, change, folds in (
        (separated, Path.unlink, 2),
        (separated, of_validation, 2),
        (concatenated, Path.unlink, 2),
        (concatenated, replacing('"epochs": [\n  1,', '"epochs": [\n  7,'), 2),
        (summary, Path.unlink, 1),
        # a fold that was not measured on test
        (summary, of_validation, 1),
        (cross.folder / "fold_0" / checkpoint.LAST, Path.unlink, 1),
    ):
        content = path.read_bytes()
        change(path)
        assert standing(task()) == (launcher.INTERRUPTED, f"after {folds} of 2 folds"), path
        path.write_bytes(content)
        assert standing(task()) == (launcher.FINISHED, "2 folds")
    (cross.folder / "parameters.yaml").unlink()
    with pytest.raises(UserError, match="holds no run"):
        task().standing()


def test_lines_may_share_a_cross_validation_by_its_folds(folder_data, tmp_path):
    def line(number, *words):
        return launcher.Line(number, small(folder_data, tmp_path, FOLDS, *words).line.argv)

    first, second = launcher.make_tasks([line(1, "--folds 1"), line(2, "--folds 0")])[0]
    assert first.folder == second.folder and first.lock.path != second.lock.path and first.log != second.log
    assert first.name == "folder/Tiny_s0.folds_1"
    for third in (line(3, "--folds 0 1"), line(3)):
        with pytest.raises(UserError, match="lines 1 and 3 both write to"):
            launcher.make_tasks([line(1, "--folds 1"), third])


@pytest.mark.long
def test_how_a_search_stands(folder_data, tmp_path, monkeypatch):
    # a value at once, in place of training; rates above .005 fail
    def train(opt):
        folder = run_folder(opt)
        folder.mkdir(parents=True)
        value = float("nan") if opt.lr > 0.005 else opt.lr
        (folder / "summary.json").write_text(json.dumps({"selected": {"values": {"val": {"e_recall@1": value}}}}))

    monkeypatch.setattr(main, "main", train)
    monkeypatch.setattr("search.report.draw", lambda *arguments: [])

    def task(*words):
        return search_task(folder_data, tmp_path, *words)

    folder = tmp_path / "folder" / "Tiny_search"
    assert standing(task(6, 2)) == (launcher.NEW, "") and task(6, 2).name == "folder/Tiny_search"
    searcher.search(task(6, 0).line.argv)
    assert ",fail," in (folder / "trials.csv").read_text(), "failed trials count among those asked for"
    assert standing(task(6, 0)) == standing(task(4, 0)) == (launcher.FINISHED, "6 trials")
    assert standing(task(8, 0)) == (launcher.INTERRUPTED, "after 6 of 8 trials")
    assert standing(task(6, 2)) == (launcher.INTERRUPTED, "after 6 of 6 trials and 0 of 2 reproductions")
    assert task(6, 2).outcome()[0] == launcher.RUNNING, "it ended because others work on what is left"
    before = sorted(folder.rglob("*"))
    task(6, 2).standing()
    assert sorted(folder.rglob("*")) == before, "looking changes nothing"
    searcher.search(task(6, 2).line.argv)
    assert standing(task(6, 2)) == (launcher.FINISHED, "6 trials and 2 of 2 reproductions")
    assert task(6, 2).outcome() == ("finished", "in this call")
    reproductions = content_of(folder / "reproductions.yaml")
    (folder / "reproductions.yaml").write_text(yaml.safe_dump({**reproductions, "trial": "trial_77"}))
    assert task(6, 2).standing() == launcher.INTERRUPTED, "reproductions of what is no longer the best"
    (folder / "best_parameters.yaml").unlink()
    assert task(6, 0).standing() == launcher.INTERRUPTED
    with pytest.raises(UserError, match="--bs 8 .before: 4."):
        task(6, 0, "--bs 8").standing()


def test_lines_of_searches_and_options_that_cannot_be(folder_data, tmp_path):
    for argv in (["--jobs", "0"], ["--gpus", "-1"], ["--filter", "("], ["--slurm", "partition"]):
        with pytest.raises(UserError, match=argv[0]):
            launcher.read_options(["runs.sh", *argv])
    with refusals.refused("no file of runs"):
        launcher.main(["/absent.sh"])
    lines = launcher.read_lines(ROOT / "experiments/MLRC_Searches.sh", {"datapath": "/data"})
    assert len(lines) == 56 and {line.program for line in lines} == {("-m", "search")}
    assert lines[0].command.startswith("python -m search")
    task = launcher.make_tasks(lines[:1])[0][0]
    assert task.name == "cub200/MLRC_CUB_Contrastive_search" and task.program == ["-m", "search"]
    argv = search_task(folder_data, tmp_path, 1, 0).line.argv
    tasks, refused = launcher.make_tasks(
        [launcher.SearchLine(4, [*argv, "--final_test"]), launcher.SearchLine(5, ["--lr~BAYESIAN~", "1,0"])]
    )
    assert not tasks and "no trial may see" in refused[0][1] and "swapped" in refused[1][1]
    with pytest.raises(UserError, match="lines 1 and 2 both write to .*Tiny_search: give them different --group$"):
        launcher.make_tasks([launcher.SearchLine(1, argv), launcher.SearchLine(2, [*argv, "--bs", "8"])])
    with pytest.raises(UserError, match="line 1 writes to .*Tiny_search with every seed: give --seeds one at a time$"):
        launcher.make_tasks([launcher.SearchLine(1, [*argv, "--seed", seed]) for seed in ("1", "2")])


# ---------- the real program
def runs_file(folder_data, tmp_path, epochs=1):
    line = (
        f"python main.py --dataset folder --dataset_folder_path $datapath --save_path {tmp_path / 'out'} "
        "--arch conv4_normalize --embed_dim 8 --loss triplet --batch_mining semihard --bs 8 --kernels 0 "
        f"--evaluation_metrics e_recall@1 --seed 0 --no_records --n_epochs {epochs}"
    )
    script = tmp_path / "runs.sh"
    script.write_text(
        f"datapath={folder_data}\n{line} --group Good\n{line} --group Bad --dataset_folder_path /absent\n"
    )
    return script


def run_script(*argv):
    return program("-m", "launch", *argv)


@pytest.mark.long
def test_the_whole_way(folder_data, tmp_path, capsys):
    script = runs_file(folder_data, tmp_path)
    process = run_script(script, "--jobs 2")
    assert process.returncode == 1, process.stderr
    assert all(words in process.stdout for words in ("1 finished", "1 failed", "/absent: no such folder", "Bad_s0.log"))
    assert launcher.main([str(script), "--filter", "Good"]) == 0
    assert "before, 1 epoch" in capsys.readouterr().out
    launcher.main([str(script), "--list"])
    listed = capsys.readouterr().out
    assert "finished          folder/Good_s0" in listed and "new               folder/Bad_s0" in listed
    assert sorted(path.name for path in (tmp_path / "out" / "folder").iterdir()) == ["Good_s0", "run_script"]
    logs = (tmp_path / "out" / "folder" / "run_script").iterdir()
    assert {"Bad_s0.log", "Good_s0.log"} <= {path.name for path in logs}


@pytest.mark.long
def test_an_interrupted_cross_validation_and_a_search_are_finished_and_then_left_alone(folder_data, tmp_path):
    task = small(folder_data, tmp_path, FOLDS)
    search = search_task(folder_data, tmp_path, 2, 1)
    run_main(*task.line.argv, "--folds 0")
    script = tmp_path / "runs.sh"
    script.write_text(f"{task.line.command}\n{search.line.command}\n")
    process = run_script(script)
    assert process.returncode == 0 and "2 finished" in process.stdout, process.stdout + process.stderr
    assert "started   folder/Tiny_s0, after 1 of 2 folds" in process.stdout
    assert "fold 0 of 2 is finished" in task.log.read_text()
    assert (task.folder / "meta" / "separated.json").exists() and (task.folder / "meta" / "concatenated.json").exists()
    trials = {path.name for path in search.folder.glob("trial_*/")}
    assert len(trials) == 3 and {"trial_0", "trial_1"} < trials
    assert trials & {"trial_0_reproduction_1", "trial_1_reproduction_1"}
    output = run_script(script).stdout
    assert "before, 2 trials and 1 of 1 reproductions" in output and "before, 2 folds" in output


@pytest.mark.long
@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_runner_goes_on_where_it_was(folder_data, tmp_path, sign):
    script = runs_file(folder_data, tmp_path, epochs=60)
    command = [sys.executable, "-m", "launch", str(script), "--filter", "Good"]
    last = tmp_path / "out" / "folder" / "Good_s0" / checkpoint.LAST
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as first:
        while not last.exists():
            assert first.poll() is None
            time.sleep(0.1)
        first.send_signal(sign)
        output = first.communicate(timeout=120)[0]
    # the run itself lives on and keeps its lock
    if sign == signal.SIGKILL:
        assert "running elsewhere" in run_script(script, "--filter", "Good").stdout
        while (holder := Lock(last.parent / ".lock").holder()) is not None:
            os.kill(int(holder.split()[1]), signal.SIGKILL)
            time.sleep(0.2)
    else:
        assert first.returncode == 130 and "1 stopped" in output
        assert "interrupted: epochs 1 to" in (last.parent.parent / "run_script" / "Good_s0.log").read_text()
    process = run_script(script, "--filter", "Good")
    assert process.returncode == 0 and "after epoch" in process.stdout, process.stdout + process.stderr
    assert checkpoint.read(last)["epoch"] == 60
    assert sorted(path.name for path in last.parent.parent.iterdir()) == ["Good_s0", "run_script"]
