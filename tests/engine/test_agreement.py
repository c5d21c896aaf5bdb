"""Processes of one run that are not alike: a line names the flag, file, package, code or data.

In every process, before a batch is drawn.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

import datasets
import parameters
from engine import agreement
from options.flags.roles import SECRET, Roles
from tests.kit.data_sets import make_folder
from tests.kit.processes import ROOT, spawned
from tests.kit.runs import on_folder
from utilities import provenance
from utilities.errors import UserError

BASE = "--arch conv4_normalize --dataset glyphs --loss margin".split()


def error_message(call) -> str:
    """The message of a UserError; empty without one."""
    try:
        call()
    except UserError as error:
        return str(error)
    return ""


def flags_of(tmp: Path, rank: int) -> list[tuple[str, str]]:
    """Command lines of a process, and what both processes say of them."""
    (tmp / f"{rank}").mkdir(exist_ok=True)
    weights = tmp / f"{rank}" / "weights.pth"
    weights.write_bytes(bytes([rank]))
    relevance, other_file = (tmp / f"{rank}" / name for name in ("relevance.py", "other.py"))
    relevance.write_text("# equal, in two folders\n")
    other_file.write_text(f"# {rank}\n")
    os.chdir(tmp / f"{rank}")
    return [
        (f"--seed {rank}", "--seed is 0 in process 0 and 1 in process 1"),
        (("--loss margin", "--loss triplet")[rank], "--loss is margin in process 0 and triplet in process 1"),
        (
            ("--evaluation_metrics e_recall@1", "--evaluation_metrics e_recall@1 nmi")[rank],
            "--evaluation_metrics is ['e_recall@1'] in process 0 and ['e_recall@1', 'nmi'] in process 1",
        ),
        (("--warmup_epochs 1", "")[rank], "--warmup_epochs is"),
        (("--dry_run", "")[rank], "--dry_run is True in process 0 and False in process 1"),
        ("--weights weights.pth", "the file of --weights is 6e340b9cffb3 in process 0 and 4bf5122f3445 in process 1"),
        (f"--source_path /somewhere/{rank} --kernels {rank} --wandb_key secret{rank}", ""),
        (f"--eval_relevance {relevance}", ""),
        (f"--eval_relevance {other_file}", "the file of --eval_relevance is "),
        (f"--project {300 * 'p'}", ""),
        ("", ""),
    ]


def assert_says(message, expected, ending, case):
    """The message holds both texts, or is empty where nothing is expected."""
    assert expected in message and bool(message) == bool(expected) == (ending in message), (case, message)


def compare_flags(rank, tmp):
    for words, expected in flags_of(tmp, rank):
        message = error_message(lambda words=words: agreement.same_on_all(parameters.resolve([*BASE, *words.split()])))
        assert_says(message, expected, "start them with the same command", words)
        assert "secret" not in message and len(message.splitlines()) < 2
    opt = parameters.resolve(BASE)
    assert agreement.same_on_all(opt) is opt
    service = parameters.resolve(BASE)
    service.service_token = f"secret{rank}"
    service.roles = Roles({**service.roles, "service_token": SECRET})
    assert agreement.same_on_all(service) is service, "a key of a user's plug-in"
    packages = ({"torch": "2.0"}, {"torch": "2.1", "optuna": "4"})[rank]
    with mock.patch.object(provenance, "packages", lambda: packages):
        message = error_message(lambda: agreement.same_on_all(opt))
    assert "differ: torch is 2.0 in process 0 and 2.1 in process 1. All" in message, message
    plain = Path.read_bytes

    def read_bytes(path):
        return plain(path) + bytes([rank]) if path.parts[-2:] == ("criteria", "margin.py") else plain(path)

    with mock.patch.object(Path, "read_bytes", read_bytes):
        message = error_message(lambda: agreement.same_on_all(opt))
    assert "differ: criteria/margin.py is " in message, message


@pytest.mark.long
def test_other_flags_files_packages_and_code_are_named(tmp_path):
    spawned(2, compare_flags, tmp_path)


def compare_data(rank, roots):
    for number, (root, expected) in enumerate(roots):
        splits = datasets.select("folder", dataset_folder_path=str(root[rank]), input_size=16)
        message = error_message(lambda splits=splits: agreement.same_data(splits))
        assert_says(message, expected, "the data of process 1 are not those of process 0", number)


def test_other_data_are_named(tmp_path):
    folder = make_folder(tmp_path / "one", n_classes=4, n_images=3)
    same_images, more_images, other_images = (
        shutil.copytree(folder, tmp_path / name) for name in ("same", "more", "other")
    )
    new = min(more_images.glob("*/*"))
    shutil.copy(new, new.with_name("more.jpg"))
    changed = max(other_images.glob("*/*"))
    changed.write_bytes(min(other_images.glob("*/*")).read_bytes())
    roots = [((folder, same_images), ""), ((folder, more_images), "class"), ((folder, other_images), "class")]
    spawned(2, compare_data, roots)


def test_one_process_compares_nothing(monkeypatch):
    monkeypatch.setattr(provenance, "packages", None)
    opt = parameters.resolve(BASE)
    assert agreement.same_on_all(opt) is opt and agreement.same_data({}) == {}


@pytest.mark.long
def test_torchrun_with_two_seeds_ends_with_one_line_and_leaves_no_folder(tmp_path):
    script = tmp_path / "start.py"
    script.write_text(
        "import os, runpy, sys\nsys.argv[1:] += ['--seed', os.environ['RANK']]\nrunpy.run_path('main.py', "
        "run_name='__main__')\n"
    )
    data = make_folder(tmp_path / "data", n_classes=4, n_images=4)
    words = on_folder(data, tmp_path / "runs", "--arch conv4_normalize --bs 4 --n_epochs 1 --kernels 0")
    command = [sys.executable, *"-m torch.distributed.run --standalone --nproc_per_node 2".split(), str(script), *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("main.py: error: ")]
    assert done.returncode and "--seed is 0 in process 0 and 1 in process 1" in line, done.stderr
    assert not (tmp_path / "runs").exists()


def test_the_folders_whose_code_is_compared_exist():
    assert all(list((ROOT / folder).glob("*.py")) for folder in agreement.FOLDERS)
