"""What users get wrong and what machines do to them: one clear line, or a clean continuation; never a lost run, never a
leaked key.
"""

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import datasets
import parameters
from tests.kit.data_sets import make_folder
from tests.kit.images import write_image
from tests.kit.runs import on_folder, program, read, run_main, words_of
from utilities.errors import UserError, one_line_errors

ROOT = Path(__file__).resolve().parent.parent


SHORT = "--arch conv4_normalize --kernels 0 --n_epochs 1 --bs 8 --evaluation_metrics e_recall@1 --no_train_metrics"


def of_data(data, *words):
    """A command line on a folder of images, whose runs lie beside it."""
    return on_folder(data, data.parent / "runs", SHORT, *words)


def error_line(capsys):
    """The one line of an error, and nothing of a traceback."""
    output = capsys.readouterr().err
    (line,) = [line for line in output.splitlines() if line.startswith("main.py: error: ")]
    assert "Traceback" not in output
    return line


@pytest.fixture
def data(tmp_path):
    return make_folder(tmp_path / "data", n_classes=4, n_images=8)


def test_a_mistake_is_one_line_of_the_program_and_status_2(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["main.py", *words_of(SHORT, "--dataset cub200 --source", tmp_path)])
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(str(ROOT / "main.py"), run_name="__main__")
    line = error_line(capsys)
    assert stop.value.code == 2 and all(part in line for part in ("cub200", str(tmp_path), "--download"))


SHUFFLED = "--loss triplet --data_sampler shuffle"


def truncated(data):
    for victim in data.glob("*/000.jpg"):
        victim.write_bytes(victim.read_bytes()[:200])
    return "000.jpg"


def empty_class(data):
    (data / "class_9").mkdir()
    return "class_9"


@pytest.mark.parametrize(
    ("damage", "words", "message"),
    [
        (truncated, SHUFFLED, "cannot be decoded"),
        pytest.param(truncated, f"{SHUFFLED} --kernels 1", "cannot be decoded", marks=pytest.mark.long),
        (empty_class, "--bs 8", "class_9"),
        (lambda data: "--bs 112", "--bs 112", "16 training images"),
    ],
)
def test_wrong_data_and_folders_are_one_line_and_leave_no_folder(data, damage, words, message, capsys):
    culprit = damage(data)
    with pytest.raises(SystemExit) as stop, one_line_errors():
        run_main(*of_data(data, words))
    line = error_line(capsys)
    assert stop.value.code == 2 and culprit in line and message in line
    assert not list(data.parent.glob("runs/*/*"))


def test_a_class_with_one_image_trains(data, capsys):
    write_image(data / "class_00" / "only.jpg", 7)
    assert run_main(*of_data(data, "--no_records")).epoch == 1
    assert "single image" in capsys.readouterr().out


@pytest.mark.long
def test_logging_online_without_credentials_goes_offline_and_no_key_is_kept(data, tmp_path):
    words = ["main.py", *of_data(data, "--log_online")]
    key = "0123456789abcdef" * 2 + "01234567"
    variables = dict.fromkeys(name for name in os.environ if name.startswith("WANDB")) | {"HOME": str(tmp_path)}
    done = program(*words, **variables)
    assert done.returncode == 0 and done.stdout.count("no W&B credentials") == 1, done.stderr
    done = program(*words, "--wandb_key", key, "--group Keyed", **variables | {"WANDB_MODE": "offline"})
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "runs" / "folder" / "Keyed_s1").glob("wandb/offline-run-*/*.wandb"))
    assert key not in done.stdout + done.stderr
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and key.encode() in path.read_bytes()]


@pytest.mark.long
def test_two_processes_at_once_get_two_folders(data):
    command = [sys.executable, "main.py", *of_data(data, "--no_records")]
    processes = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [process.wait() for process in processes] == [0, 0]
    names = sorted(path.name for path in (data.parent / "runs" / "folder").iterdir())
    assert names == ["Sample_Group_s1", "Sample_Group_s1_1"]


def problems(capsys, flags, message="problems"):
    """What --check_data prints of data with problems."""
    with pytest.raises(UserError, match=message):
        parameters.answer(read(*flags, "--check_data"))
    return capsys.readouterr().out


def test_check_data_lists_all_problems_at_once(tmp_path, capsys):
    root = make_folder(tmp_path / "things", n_classes=4, n_images=2)
    flags = ["--dataset folder --dataset_folder_path", root]
    assert parameters.answer(read(*flags, "--check_data")).startswith("every image")
    (root / "class_0" / "000.jpg").write_bytes(b"")
    (root / "class_1" / "001.jpg").write_text("an image")
    (root / "class_2" / "notes.txt").write_text("")
    (root / "class_3" / "001.jpg").unlink()
    output = problems(capsys, flags, "4 problems")
    assert "class_0/000.jpg" in output and "class_1/001.jpg" in output
    assert "class_2/notes.txt: no image by its name" in output and "class class_3: 1 images" in output
    (root / "empty").mkdir()
    write_image(root / "class_0" / "deep" / "er" / "0.jpg", 1)
    output = problems(capsys, flags)
    for message in ("which are the classes?", "empty: a folder without images", "an image beside folders of images"):
        assert message in output
    # images are decoded whatever else is wrong
    assert "class_0/000.jpg" in output and "class_1/001.jpg" in output


def test_check_data_tells_copies_as_a_run_does(tmp_path, capsys):
    root = make_folder(tmp_path / "things", n_classes=4, n_images=3)
    shutil.copy(root / "class_0" / "000.jpg", root / "class_3" / "copy.jpg")
    flags = ["--dataset folder --dataset_folder_path", root]
    notes = datasets.select("folder", read(*flags))["training"].notes
    (note,) = [note for note in notes if note.startswith("duplicate files")]
    assert "1 group (2 images) in more than one class, 1 group (2 images) both in test and in training" in note
    assert note in problems(capsys, flags, "1 problems").splitlines()
    # no layout: the classes are the folders of the images
    write_image(root / "class_0" / "deep" / "er" / "0.jpg", 1)
    output = problems(capsys, flags)
    assert "which are the classes?" in output and "duplicate files: " in output and "in more than one class" in output
    shutil.rmtree(root / "class_0" / "deep")
    output = problems(capsys, [*flags, "--use_tv_split --tv_split_perc 0.01"])
    assert "both need at least one" in output and "duplicate files: 1 group (2 images) in more than one class" in output
