"""What made a run is recorded as it lay there: changed and new files, imported packages, the file of weights."""

import hashlib
import subprocess
import sys

import pytest
import torch
import yaml

from runs import load_run
from tests.conftest import train
from utilities import plug_in_folders, provenance


@pytest.fixture
def project(tmp_path):
    """A repository with a commit of two files and an ignored one."""
    root = tmp_path / "project"
    (root / "criteria").mkdir(parents=True)
    for name, text in (("main.py", "1"), ("criteria/triplet.py", "2"), (".gitignore", "*.log\n"), ("x.log", "3")):
        (root / name).write_text(text)
    git = ["git", "-C", root, "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["add", "."], "commit -q --no-verify -m first".split()):
        subprocess.run([*git, *words], check=True, capture_output=True)
    return root


def test_changed_and_new_files_are_recorded_with_their_hashes(project):
    clean = provenance.describe(project=project)
    assert clean["changed_files"] == clean["untracked_files"] == {} and len(clean["git_commit"]) == 40
    (project / "criteria/mine é.py").write_text("a plug-in")
    (project / "main.py").write_text("changed")
    (project / "criteria/triplet.py").unlink()
    record = provenance.describe(project=project)
    assert record["untracked_files"] == {"criteria/mine é.py": hashlib.sha256(b"a plug-in").hexdigest()}
    assert record["changed_files"] == {"main.py": hashlib.sha256(b"changed").hexdigest(), "criteria/triplet.py": None}
    assert record["git_commit"] == clean["git_commit"] + "-dirty"
    assert yaml.safe_load(yaml.safe_dump(record)) == record


def test_a_project_within_a_larger_repository(project):
    inner = project / "inner"
    (inner / "criteria").mkdir(parents=True)
    for path in (project / "criteria/outside.py", inner / "criteria/mine.py", inner / "new.py"):
        path.write_text("a plug-in")
    assert list(provenance.describe(project=inner)["untracked_files"]) == ["criteria/mine.py", "new.py"]


def test_runs_and_data_within_the_project_are_not_read(project, monkeypatch):
    read = []
    sha256 = provenance.sha256
    monkeypatch.setattr(provenance, "sha256", lambda path: read.append(path.name) or sha256(path))
    run = "Training_Results/cub200/a_s0/wandb/code"
    images = "datasets/cub200/images"
    for name in (f"{run}/main.py", f"{images}/script.py", f"{images}/1.jpg", "notes.txt", "criteria/mine.py", "go.py"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("x")
    assert list(provenance.describe(project=project)["untracked_files"]) == ["criteria/mine.py", "go.py"]
    assert sorted(read) == ["go.py", "mine.py"]
    folders = {
        path.parent.name
        for path in provenance.PROJECT.glob("*/__init__.py")
        if "REGISTRY" in path.read_text(encoding="utf-8")
    }
    assert folders == set(plug_in_folders.PACKAGES), "every folder of plug-ins is looked at"


def test_without_git(tmp_path):
    record = provenance.describe(project=tmp_path / "gone")
    assert [record[name] for name in ("git_commit", "changed_files", "untracked_files")] == [None] * 3


def test_imported_packages_are_recorded():
    script = "import sys; from utilities import provenance; before = set(provenance.packages()); import networkx; "
    script += "print(sorted(set(provenance.packages()) - before), 'torch' in before)"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=provenance.PROJECT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "['networkx'] True"


def test_a_run_records_its_weights_and_data(folder_data, trained_once, tmp_path):
    weights = tmp_path / "weights.pth"
    torch.save(dict(load_run(trained_once)[0].state_dict()), weights)
    folders = trained_once, train(folder_data, tmp_path, "--n_epochs", "1", "--weights", str(weights))
    before, record = (yaml.safe_load((folder / "environment.yaml").read_text()) for folder in folders)
    assert before["weights_sha256"] is None and before["data"]["fingerprint"]["files"] == 48
    assert record["weights_sha256"] == hashlib.sha256(weights.read_bytes()).hexdigest() and record["weights"] == str(
        weights
    )
    assert record["data"]["fingerprint"] == before["data"]["fingerprint"]
