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
import main
import parameters
from tests.kit.data_sets import make_folder
from tests.kit.images import write_image
from utilities.errors import UserError, one_line_errors

ROOT = Path(__file__).resolve().parent.parent


SHORT = (
    "--arch conv4_normalize --kernels 0 --n_epochs 1 --bs 8 --evaluation_metrics e_recall@1 --no_train_metrics"
).split()


def of_data(data, *words):
    """A command line on a folder of images, whose runs lie beside it."""
    return [
        *SHORT,
        *map(str, ["--dataset", "folder", "--dataset_folder_path", data, "--save_path", data.parent / "runs", *words]),
    ]


def run(*words, **environment):
    """The whole program."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("WANDB")}
    command = [sys.executable, "main.py", *words]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**clean, **environment}, stdin=subprocess.DEVNULL
    )


@pytest.fixture
def data(tmp_path):
    return make_folder(tmp_path / "data", n_classes=4, n_images=8)


def test_a_mistake_is_one_line_of_the_program_and_status_2(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["main.py", *SHORT, "--source", str(tmp_path), "--dataset", "cub200"])
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(str(ROOT / "main.py"), run_name="__main__")
    told = capsys.readouterr().err
    (line,) = [line for line in told.splitlines() if line.startswith("main.py: error: ")]
    assert stop.value.code == 2 and "Traceback" not in told
    assert all(part in line for part in ("cub200", str(tmp_path), "--download"))


SHUFFLED = ["--loss", "triplet", "--data_sampler", "shuffle"]


def truncated(data):
    victims = list(data.glob("*/000.jpg"))
    for victim in victims:
        victim.write_bytes(victim.read_bytes()[:200])
    return "000.jpg"


def empty_class(data):
    (data / "class_9").mkdir()
    return "class_9"


@pytest.mark.parametrize(
    ("damage", "words", "said"),
    [
        (truncated, SHUFFLED, "cannot be decoded"),
        pytest.param(truncated, [*SHUFFLED, "--kernels", "1"], "cannot be decoded", marks=pytest.mark.long),
        (empty_class, [], "class_9"),
        (lambda data: "--bs 112", ["--bs", "112"], "16 training images"),
    ],
)
def test_wrong_data_and_folders_are_one_line_and_leave_no_folder(data, damage, words, said, capsys):
    named = damage(data)
    with pytest.raises(SystemExit) as stop, one_line_errors():
        main.main(parameters.read(of_data(data, *words)))
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("main.py: error: ")]
    assert stop.value.code == 2 and named in line and said in line
    assert not list(data.parent.glob("runs/*/*"))


def test_a_class_with_one_image_trains(data, capsys):
    write_image(data / "class_00" / "only.jpg", 7)
    assert (
        main.main(parameters.read(of_data(data, "--no_records"))).epoch == 1
        and "single image" in capsys.readouterr().out
    )


@pytest.mark.long
def test_logging_online_without_credentials_goes_offline_and_no_key_is_kept(data, tmp_path):
    words = of_data(data, "--log_online")
    key = "0123456789abcdef" * 2 + "01234567"
    told = run(*words, HOME=str(tmp_path))
    assert told.returncode == 0 and told.stdout.count("no W&B credentials") == 1, told.stderr
    told = run(*words, "--wandb_key", key, "--group", "Keyed", HOME=str(tmp_path), WANDB_MODE="offline")
    assert told.returncode == 0, told.stderr
    assert list((tmp_path / "runs" / "folder" / "Keyed_s1").glob("wandb/offline-run-*/*.wandb"))
    assert key not in told.stdout + told.stderr
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and key.encode() in path.read_bytes()]


@pytest.mark.long
def test_two_processes_at_once_get_two_folders(data):
    command = [sys.executable, "main.py", *of_data(data, "--no_records")]
    both = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    assert sorted(path.name for path in (data.parent / "runs" / "folder").iterdir()) == [
        "Sample_Group_s1",
        "Sample_Group_s1_1",
    ]


def test_check_data_lists_all_problems_at_once(tmp_path, capsys):
    root = make_folder(tmp_path / "things", n_classes=4, n_images=2)
    opt = parameters.read(["--dataset", "folder", "--dataset_folder_path", str(root), "--check_data"])
    assert parameters.answer(opt).startswith("every image")
    (root / "class_0" / "000.jpg").write_bytes(b"")
    (root / "class_1" / "001.jpg").write_text("an image")
    (root / "class_2" / "notes.txt").write_text("")
    (root / "class_3" / "001.jpg").unlink()
    with pytest.raises(UserError, match="4 problems"):
        parameters.answer(opt)
    said = capsys.readouterr().out
    assert all(
        word in said
        for word in (
            "class_0/000.jpg",
            "class_1/001.jpg",
            "class_2/notes.txt: no image by its name",
            "class class_3: 1 images",
        )
    )
    (root / "empty").mkdir()
    write_image(root / "class_0" / "deep" / "er" / "0.jpg", 1)
    with pytest.raises(UserError, match="problems"):
        parameters.answer(opt)
    said = capsys.readouterr().out
    assert all(
        word in said
        for word in ("which are the classes?", "empty: a folder without images", "an image beside folders of images")
    )
    assert all(word in said for word in ("class_0/000.jpg", "class_1/001.jpg")), (
        "images are decoded whatever else is wrong"
    )


def test_check_data_tells_copies_as_a_run_does(tmp_path, capsys):
    root = make_folder(tmp_path / "things", n_classes=4, n_images=3)
    shutil.copy(root / "class_0" / "000.jpg", root / "class_3" / "copy.jpg")
    flags = ["--dataset", "folder", "--dataset_folder_path", str(root)]
    (told,) = [
        note
        for note in datasets.select("folder", parameters.read(flags))["training"].notes
        if note.startswith("duplicate files")
    ]
    with pytest.raises(UserError, match="1 problems"):
        parameters.answer(parameters.read([*flags, "--check_data"]))
    assert (
        told in capsys.readouterr().out.splitlines()
        and "1 group (2 images) in more than one class, 1 group (2 images) both in test and in training" in told
    )
    # no layout: the classes are the folders of the images
    write_image(root / "class_0" / "deep" / "er" / "0.jpg", 1)
    with pytest.raises(UserError, match="problems"):
        parameters.answer(parameters.read([*flags, "--check_data"]))
    said = capsys.readouterr().out
    assert "which are the classes?" in said and "duplicate files: " in said and "in more than one class" in said
    shutil.rmtree(root / "class_0" / "deep")
    one = ["--use_tv_split", "--tv_split_perc", "0.01", "--check_data"]
    with pytest.raises(UserError, match="problems"):
        parameters.answer(parameters.read([*flags, *one]))
    said = capsys.readouterr().out
    assert "both need at least one" in said and "duplicate files: 1 group (2 images) in more than one class" in said
