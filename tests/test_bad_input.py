"""What users get wrong and what machines do to them: one clear line, or a clean continuation; never a lost run, never a leaked key."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import main
import parameters
from tests import builders
from utilities.errors import UserError

ROOT = Path(__file__).resolve().parent.parent


def run(*words, records=False, **environment):
    # Small images, no workers, no pictures: these are whole program starts.
    base = [
        "--arch",
        "conv4_normalize",
        "--kernels",
        "0",
        "--n_epochs",
        "1",
        "--bs",
        "8",
        "--evaluation_metrics",
        "e_recall@1",
        "--no_train_metrics",
        *([] if records else ["--no_records"]),
    ]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("WANDB")}
    return subprocess.run(
        [sys.executable, "main.py", *base, *map(str, words)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**clean, **environment},
        stdin=subprocess.DEVNULL,
    )


def refused(told, *expected):
    assert told.returncode == 2, (told.stdout, told.stderr)
    lines = [line for line in told.stderr.splitlines() if line.startswith("main.py: error: ")]
    assert len(lines) == 1 and "Traceback" not in told.stderr, told.stderr
    for part in expected:
        assert str(part) in lines[0], lines[0]


def test_a_missing_folder(tmp_path):
    refused(run("--source", tmp_path, "--dataset", "cub200"), "cub200", tmp_path, "--download")


def test_a_truncated_image_is_named_even_from_a_worker(tmp_path):
    data = builders.make_folder(tmp_path / "data", n_classes=4, n_images=8)
    victim = data / "class_0" / "000.jpg"
    victim.write_bytes(victim.read_bytes()[:200])
    for kernels in ("0", "1"):
        refused(run("--dataset", "folder", "--dataset_folder_path", data, "--save_path", tmp_path / "runs", "--kernels", kernels, "--loss", "triplet",
                    "--data_sampler", "shuffle"), victim)  # fmt: skip


def test_an_empty_class(tmp_path):
    data = builders.make_folder(tmp_path / "data", n_classes=4, n_images=8)
    (data / "class_9").mkdir()
    refused(run("--dataset", "folder", "--dataset_folder_path", data, "--save_path", tmp_path / "runs"), "class_9")


def test_a_class_with_one_image_trains(tmp_path):
    data = builders.make_folder(tmp_path / "data", n_classes=4, n_images=8)
    builders.write_image(data / "class_00" / "only.jpg", 7)
    told = run("--dataset", "folder", "--dataset_folder_path", data, "--save_path", tmp_path / "runs")
    assert told.returncode == 0, told.stderr
    assert "single image" in told.stdout


def test_a_batch_larger_than_the_data(tmp_path):
    data = builders.make_folder(tmp_path / "data", n_classes=4, n_images=4)
    refused(run("--dataset", "folder", "--dataset_folder_path", data, "--bs", "112"), "--bs 112", "8 training images")


def test_an_unwritable_save_path(tmp_path):
    data = builders.make_folder(tmp_path / "data", n_classes=4, n_images=8)
    blocked = tmp_path / "file"
    blocked.write_text("a file where a folder is wanted")
    refused(run("--dataset", "folder", "--dataset_folder_path", data, "--save_path", blocked / "runs"), blocked, "--save_path")


@pytest.mark.long
def test_logging_online_without_credentials_goes_offline_and_no_key_is_kept(tmp_path):
    data = builders.make_folder(tmp_path / "data", n_classes=4, n_images=8)
    words = ["--dataset", "folder", "--dataset_folder_path", data, "--save_path", tmp_path / "runs", "--log_online"]
    told = run(*words, records=True, HOME=str(tmp_path))
    assert told.returncode == 0, told.stderr
    assert told.stdout.count("no W&B credentials") == 1
    key = "0123456789abcdef" * 2 + "01234567"
    told = run(*words, "--wandb_key", key, "--group", "Keyed", records=True, HOME=str(tmp_path), WANDB_MODE="offline")
    assert told.returncode == 0, told.stderr
    folder = tmp_path / "runs" / "folder" / "Keyed_s1"
    assert list(folder.glob("wandb/offline-run-*/*.wandb"))
    assert key not in told.stdout + told.stderr
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert key.encode() not in path.read_bytes(), path


@pytest.mark.skipif(os.cpu_count() < 2, reason="needs two processes at once")
def test_two_processes_at_once_get_two_folders(tmp_path):
    data = builders.make_folder(tmp_path / "data", n_classes=4, n_images=8)
    words = [sys.executable, "main.py", "--dataset", "folder", "--dataset_folder_path", str(data), "--save_path", str(tmp_path / "runs"), "--arch",
             "conv4_normalize", "--kernels", "0", "--n_epochs", "1", "--bs", "8", "--evaluation_metrics", "e_recall@1", "--no_train_metrics", "--no_records"]  # fmt: skip
    both = [subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    assert sorted(p.name for p in (tmp_path / "runs" / "folder").iterdir()) == ["Sample_Group_s1", "Sample_Group_s1_1"]


def test_check_data_lists_all_problems_at_once(tmp_path, capsys):
    root = builders.make_folder(tmp_path / "things", n_classes=4, n_images=2)
    assert parameters.answer(parameters.read(["--dataset", "folder", "--dataset_folder_path", str(root), "--check_data"])).startswith("every image")
    (root / "class_0" / "000.jpg").write_bytes(b"")
    (root / "class_1" / "001.jpg").write_text("an image")
    (root / "class_2" / "notes.txt").write_text("")
    (root / "class_3" / "001.jpg").unlink()
    words = ["--dataset", "folder", "--dataset_folder_path", str(root), "--check_data"]
    with pytest.raises(UserError, match="4 problems"):
        parameters.answer(parameters.read(words))
    said = capsys.readouterr().out
    assert all(word in said for word in ("class_0/000.jpg", "class_1/001.jpg", "class_2/notes.txt: no image by its name", "class class_3: 1 images"))
    (root / "empty").mkdir()
    builders.write_image(root / "class_0" / "deep" / "er" / "0.jpg", 1)
    with pytest.raises(UserError, match="problems"):
        parameters.answer(parameters.read(words))
    said = capsys.readouterr().out
    assert "too deep" in said and "empty: a folder without images" in said and "an image beside folders of images" in said


def test_a_run_that_a_broken_image_stops_at_once_leaves_no_folder(tmp_path):
    root = builders.make_folder(tmp_path / "things", n_classes=4, n_images=4)
    for path in root.glob("*/000.jpg"):
        path.write_bytes(path.read_bytes()[:200])
    flags = ["--dataset", "folder", "--dataset_folder_path", str(root), "--save_path", str(tmp_path / "runs"), *builders.SHORT_RUN, "--bs", "8"]
    with pytest.raises(UserError, match="cannot be decoded"):
        main.main(parameters.read([*flags, "--savename", "A"]))
    assert not list((tmp_path / "runs").glob("*/A"))
