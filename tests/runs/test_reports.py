"""Interrupts: Ctrl-C and SIGTERM, with which clusters end a job, close the records and say how to go on."""

import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest
import torch

import parameters
from runs import checkpoint, reports
from tests.conftest import ROOT
from tests.kit.runs import SMALL_IMAGES, equal_states, run_main, run_words
from utilities.errors import UserError, terminable


@pytest.fixture(autouse=True)
def later_workers_are_watched():
    """An interrupted program ends, and lets its workers go unwatched; this one goes on."""
    before = signal.getsignal(signal.SIGCHLD)
    yield
    signal.signal(signal.SIGCHLD, before)


def program(words, output_file):
    """main.py as a program with a session of its own, in a forked process; its output goes to a file."""
    os.setsid()
    with open(output_file, "w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        sys.stdout = sys.stderr = file
        sys.argv = ["main.py", *words]
        # The threads of the tests' process did not come along with the fork
        torch.set_num_threads(1)
        runpy.run_path(str(ROOT / "main.py"), run_name="__main__")


@pytest.mark.parametrize(
    "to_all", [False, pytest.param(True, marks=pytest.mark.long)], ids=["to the program", "to its workers too"]
)
def test_sigterm_is_a_ctrl_c(folder_data, tmp_path, to_all):
    words = run_words(folder_data, tmp_path, *SMALL_IMAGES, "--kernels 1 --n_epochs 1000 --savename Stopped")
    folder = tmp_path / "folder" / "Stopped"
    output_file = tmp_path / "told.txt"
    # which has imported all
    run = torch.multiprocessing.get_context("fork").Process(target=program, args=(words, output_file))
    run.start()
    try:
        deadline = time.monotonic() + 120
        while not (folder / checkpoint.LAST).exists():
            assert run.is_alive() and time.monotonic() < deadline, output_file.read_text()
            time.sleep(0.05)
        send = os.killpg if to_all else os.kill
        send(run.pid, signal.SIGTERM)
        run.join(60)
    finally:
        run.kill()
    output = output_file.read_text()
    assert run.exitcode == 130, output
    assert f"continue with: python main.py --resume_from {folder}" in output and "Traceback" not in output
    epoch = checkpoint.read(folder / checkpoint.LAST)["epoch"]
    assert f"interrupted: epochs 1 to {epoch} are saved" in output


PROGRAM = """
import signal, sys, time
from utilities.errors import one_line_errors
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored, where the tests themselves run in the background
with one_line_errors():
    try:
        print("ready", flush=True)
        time.sleep(60)
    except KeyboardInterrupt:
        print("closing", flush=True)
        time.sleep(60)
"""


def test_a_second_ctrl_c_ends_without_a_word():
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen([sys.executable, "-c", PROGRAM], cwd=ROOT, **output) as run:
        for word in ("ready", "closing"):
            assert run.stdout.readline().strip() == word
            run.send_signal(signal.SIGINT)
        assert run.communicate(timeout=30)[0] == "" and run.returncode == 130


def test_an_interrupt_before_the_last_checkpoint_names_the_epochs_that_are_saved(
    folder_data, tmp_path, monkeypatch, capsys
):
    """Metrics and the best checkpoint of epoch 2 are written: it is trained anew, and nothing is lost or doubled."""
    flags = run_words(folder_data, tmp_path, "--n_epochs 2")
    whole_run = run_main(*flags, "--savename Whole")
    save = checkpoint.save

    def interrupted(path, *args, **named):
        if named["epoch"] == 2 and path.name == checkpoint.LAST:
            raise KeyboardInterrupt
        save(path, *args, **named)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", interrupted)
        with pytest.raises(SystemExit):
            run_main(*flags, "--savename Cut")
    assert "interrupted: epochs 1 to 1 are saved" in capsys.readouterr().out
    cut = run_main("--resume_from", tmp_path / "folder" / "Cut")
    assert "after epoch 1" in capsys.readouterr().out
    assert whole_run.state["selected"] == cut.state["selected"]
    weights = []
    for run in (whole_run, cut):
        paths = run.folder.glob("checkpoint_*")
        weights.append({path.name: checkpoint.read(path)["state_dict"] for path in paths})
    assert equal_states(*weights)


def test_a_worker_that_is_being_forked_ends_without_a_word(capfd):
    """Before it has handlers of its own, it has those of the program."""
    with terminable():
        child = os.fork()
        if not child:
            try:
                signal.raise_signal(signal.SIGTERM)
            finally:
                # nothing of pytest's goes on here
                os._exit(3)
        status = os.waitpid(child, 0)[1]
    assert os.WTERMSIG(status) == signal.SIGTERM and capfd.readouterr() == ("", "")


def test_the_handler_of_sigterm():
    """It lasts as long as the block and catches one signal; a program's own stays; other threads set none."""
    with terminable():
        with terminable(), pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, "a second one kills"
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL

    def handler(number=None, frame=None):
        with terminable():
            seen.append(signal.getsignal(signal.SIGTERM))

    seen = []
    thread = threading.Thread(target=handler)
    thread.start()
    thread.join(10)
    assert seen == [signal.SIG_DFL]
    before = signal.signal(signal.SIGTERM, handler)
    try:
        handler()
        assert seen[1] is handler and signal.getsignal(signal.SIGTERM) is handler
    finally:
        signal.signal(signal.SIGTERM, before)


def test_interrupts_that_python_drops_or_a_worker_tells():
    class Freed:
        def __del__(self):
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt), terminable():
        freed = Freed()
        # the interrupt is lost here
        del freed
        time.sleep(30)
    killed = "DataLoader worker (pid 17) is killed by signal:"
    errors = {f"{killed} Terminated. ": KeyboardInterrupt, f"{killed} Killed. ": UserError, "another": RuntimeError}
    for message, error in errors.items():
        with pytest.raises(error), terminable():
            raise RuntimeError(message)


def test_the_table_begins_with_what_selects_and_is_a_screen_long():
    values = {split: {f"e_recall@{k}": 0.1 for k in range(1, 31)} for split in ("train", "test")}
    lines = reports.table({"last": values}, ("test", "e_recall@3")).splitlines()
    assert lines[2].split() == ["test", "e_recall@3", "0.1000"] and lines[3].startswith("test")
    assert len(lines) == 2 + reports.MOST_LINES + 1
    assert lines[-1] == "28 more rows in the records of the run folder"


@pytest.mark.parametrize("first", [("val", "nmi"), ("test", "nmi"), None])
def test_the_table_has_val_test_train_in_this_order_and_all_of_test(first):
    values = {split: {**{f"e_recall@{k}": 0.1 for k in range(1, 31)}, "nmi": 0.2} for split in ("train", "test", "val")}
    lines = reports.table({"untrained": {"train": values["train"]}, "last": values}, first).splitlines()
    assert [line.split()[0] for line in lines[2:-1]] == ["val"] * 31 + ["test"] * 31
    assert lines[-1] == "31 more rows in the records of the run folder"
    if first is not None:
        number = 2 if first[0] == "val" else 33
        assert lines[number].split()[:2] == list(first)
    values = {split: {"nmi": 0.1} for split in ("train", "val", "test")}
    short = reports.table({"last": values}, first).splitlines()
    assert [line.split()[0] for line in short[2:]] == ["val", "test", "train"]


def untrained_run(metric, trained, before, queries, higher=True):
    """A run whose selected epoch and untrained states have these values of a metric on test."""
    selection = SimpleNamespace(split="test", metric=metric, higher_is_better=lambda metric: higher)
    return SimpleNamespace(
        selection=selection,
        state={"selected": {"values": {"test": {metric: trained}}}},
        untrained=lambda epoch: {"test": {metric: before[epoch]}},
        queries={"test": queries},
    )


def test_a_run_below_an_untrained_network_says_so():
    beginning = "training did not help: map_r on test is 0.5000, of"
    for higher, before, expected in (
        (True, {-1: 0.0, 0: 0.99991}, "the untrained network 0.9999; difference -0.4999, 95 % interval -0."),
        (False, {-1: 0.0, 0: 0.5}, "the bare backbone 0.0000; difference +0.5000, 95 % interval +0."),
    ):
        (line,) = reports.below_untrained(untrained_run("map_r", 0.5, before, 4000, higher))
        assert line.startswith(f"{beginning} {expected}") and line.endswith("over 4,000 queries")
    assert reports.below_untrained(untrained_run("map_r", 0.5, {-1: 0.5, 0: None}, 4000)) == []


def test_a_difference_over_few_queries_is_called_too_small_to_tell():
    before = {-1: None, 0: 0.55}
    for queries, is_few in ((40, True), (4000, False), (100_000, False)):
        (line,) = reports.below_untrained(untrained_run("e_recall@1", 0.5, before, queries))
        assert f"over {queries:,} queries" in line and line.endswith("contains 0: too few queries to tell") == is_few
    for metric in ("nmi", "map_r_macro", "e_recall@1_worst10", "dists@intra"):
        (line,) = reports.below_untrained(untrained_run(metric, 0.5, before, 40))
        assert "40 queries, and no interval" in line
    # 0 queries: those of this split are not counted
    (line,) = reports.below_untrained(untrained_run("e_recall@1", 0.5, before, 0))
    assert "without an interval, as the queries of this split are not counted" in line


def test_the_epoch_line_and_notes_break_between_words(monkeypatch, capsys):
    scores = {split: {f"evaltype_{i}/e_recall@1": 0.5 for i in range(3)} for split in ("train", "val", "test")}
    opt = SimpleNamespace(n_epochs=10, storage_metrics=["e_recall@1"])
    run = SimpleNamespace(opt=opt, state={"selected": {"epoch": 3}})
    texts = {}
    for columns in ("100", "60", ""):
        monkeypatch.setenv("COLUMNS", columns)
        reports.epoch_line(run, 3, {"loss": 0.25, "epoch_seconds": 3.21}, scores)
        texts[columns] = capsys.readouterr().out
    assert texts[""].count("\n") == 1, "whole in a file"
    for columns in ("100", "60"):
        lines = texts[columns].splitlines()
        assert max(map(len, lines)) <= int(columns) and len(lines) > 2
        assert all(line.startswith("    ") for line in lines[1:])
        assert "  ".join(line.strip() for line in lines) == texts[""].strip(), "a metric and its value stay together"


@pytest.mark.parametrize("trying", ["--dry_run", "--profile_steps 3", "--profile_steps=3", "--evaluate_only"])
def test_what_only_tries_a_training_ends_with_the_command_that_trains(trying, monkeypatch, capsys):
    words = ["--dataset", "glyphs", *trying.split(), "--savename", "my run", "--wandb_key", "SECRET"]
    monkeypatch.setattr(sys, "argv", ["main.py", *words])
    reports.propose_next(parameters.read(words), None)
    output = capsys.readouterr().out
    assert output == "next: python main.py --dataset glyphs --savename 'my run' --wandb_key '***'\n"


def test_a_data_set_without_training_images_is_not_trained_next(monkeypatch, capsys):
    words = ["--dataset", "roxford5k", "--evaluate_only"]
    monkeypatch.setattr(sys, "argv", ["main.py", *words])
    reports.propose_next(parameters.read(words), None)
    assert not capsys.readouterr().out
