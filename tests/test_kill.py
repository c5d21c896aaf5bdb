"""`kill -9` at any moment, then `--resume`: the same bits as the run that nobody stopped."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from runs import checkpoint
from tests.kit.data_sets import make_folder
from tests.kit.runs import assert_same_run, content_of, on_folder

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.long


def command(data, save_path, *flags):
    words = "--arch conv4_normalize --loss margin --lr 0.001 --bs 16 --n_epochs 4 --kernels 1 --group Kill"
    metrics = "--evaluation_metrics e_recall@1 map_r nmi"
    return [sys.executable, "main.py", *on_folder(data, save_path, words, metrics, *flags)]


def assert_same(first: Path, second: Path) -> None:
    """The values, the summary and the last checkpoint of two runs."""
    assert_same_run(first, second)
    summaries = [content_of(folder / "summary.json") for folder in (first, second)]
    for summary in summaries:
        del summary["seconds"], summary["parameters"]["save_path"]
    assert summaries[0] == summaries[1]


def run_and_kill(arguments, folder: Path, moment) -> None:
    """Start a run and kill it with -9 as soon as `moment(folder)` holds."""
    process = subprocess.Popen(
        arguments, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    while process.poll() is None and not moment(folder):
        time.sleep(0.0005)
    assert process.poll() is None, "the run ended before it could be killed"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def epochs_logged(folder: Path) -> int:
    path = folder / "CSV_Logs" / "metrics.csv"
    return path.read_text().count("train,loss,") if path.exists() else 0


MOMENTS = {
    "inside an epoch": lambda folder: (
        (folder / checkpoint.LAST).exists() and epochs_logged(folder) == 1 and time.sleep(0.05) is None
    ),
    "while a checkpoint is written": lambda folder: epochs_logged(folder) >= 2 and any(folder.glob(".checkpoint*.tmp")),
    "between epochs": lambda folder: epochs_logged(folder) == 2,
    "before the first checkpoint": lambda folder: (folder / "parameters.yaml").exists(),
}


FOLD_MOMENTS = {
    "inside fold 2": lambda folder: (
        (folder / "fold_2" / checkpoint.LAST).exists() and epochs_logged(folder / "fold_2") == 1
    ),
    "before fold 2 has anything": lambda folder: (folder / "fold_2").exists(),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("kill") / "things", n_classes=16, n_images=12)


def killed_and_resumed(data, tmp_path, moments, *flags):
    """For each moment: the folders of an uninterrupted run and of one killed there, what the latter says, and when."""
    subprocess.run(command(data, tmp_path / "whole", *flags), cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    for number, moment in enumerate(moments.values()):
        arguments = command(data, tmp_path / str(number), *flags)
        folder = tmp_path / str(number) / "folder" / "Kill_s1"
        run_and_kill(arguments, folder, moment)
        killed = time.time()
        command_again = [*arguments, "--resume_or_start"]
        resumed = subprocess.run(command_again, cwd=ROOT, check=True, capture_output=True, text=True)
        assert [path.name for path in folder.parent.iterdir()] == ["Kill_s1"]
        yield tmp_path / "whole" / "folder" / "Kill_s1", folder, resumed.stdout, killed


@pytest.mark.parametrize(
    "flags", ["--batch_mining distance", "--batch_mining all --embed_dim 512"], ids=["distance", "all-512"]
)
def test_a_killed_run_ends_as_if_it_had_not_been(data, tmp_path, flags):
    for whole_folder, folder, _, _ in killed_and_resumed(data, tmp_path, MOMENTS, flags):
        assert_same(whole_folder, folder)


def test_a_cross_validation_killed_in_fold_2_of_4_ends_as_if_it_had_not_been(data, tmp_path):
    flags = "--batch_mining distance --split_scheme class_disjoint --split_partitions 4 --final_test --n_epochs 3"
    for whole_folder, folder, output, killed in killed_and_resumed(data, tmp_path, FOLD_MOMENTS, flags):
        assert "fold 0 of 4 is finished" in output and "fold 1 of 4 is finished" in output
        second, last = ((folder / f"fold_{fold}" / checkpoint.LAST).stat().st_mtime for fold in (1, 3))
        assert second < killed < last
        assert sorted(path.name for path in whole_folder.glob("fold_*")) == ["fold_0", "fold_1", "fold_2", "fold_3"]
        for fold in range(4):
            assert_same(whole_folder / f"fold_{fold}", folder / f"fold_{fold}")
        for name in ("separated", "concatenated"):
            file = f"meta/{name}.json"
            assert content_of(folder / file) == content_of(whole_folder / file), name
