"""Data that changed since a run began: named, refused, allowed under a flag, marked in tables."""

import importlib.metadata
import shutil
from argparse import Namespace

import pytest
import yaml

from datasets import differences
from results import recorded
from results.folders import read_folder
from runs.changes import changes_of_data, record_changes_of_environment
from tests.kit.images import write_image
from tests.kit.refusals import refused
from tests.kit.run_folders import flag_roles
from tests.kit.runs import run_main, run_words

REFUSED = "the data of .* are not those"


def test_changed_data_are_named_refused_and_marked(folder_data, tmp_path):
    data = shutil.copytree(folder_data, tmp_path / "things")
    folder = run_main(*run_words(data, tmp_path, "--n_epochs 1")).folder
    resume_words = ["--resume_from", folder]

    shutil.rmtree(data)
    # other times of change, the same data
    shutil.copytree(folder_data, data, copy_function=shutil.copyfile)
    run_main("--evaluate", *resume_words)
    write_image(data / "class_2" / "000.jpg", 99)
    with refused(REFUSED, "; files: of class class_2. Restore"):
        run_main(*resume_words, "--evaluate")
    write_image(data / "class_00" / "000.jpg", 5)
    with refused(
        REFUSED, "new: class class_00; moved: class class_3 from training to testing; files: of class class_2"
    ):
        run_main(*resume_words, "--n_epochs 2")
    shutil.rmtree(data / "class_00")
    run_main(*resume_words, "--n_epochs 2 --resume_allow_changes")
    assert read_folder(folder, flag_roles()).notes == ["its data changed after epoch 1 (files: of class class_2)"]
    # allowed once: now these are its data
    run_main(*resume_words, "--n_epochs 3")


@pytest.mark.parametrize("by_content", [True, False])
def test_other_times_of_change_are_noted_of_data_not_compared_by_content(tmp_path, monkeypatch, capsys, by_content):
    monkeypatch.setattr("datasets.differences", lambda before, after: [])
    before = {"fingerprint": {"times": "a", "by_content": by_content}}
    (tmp_path / "environment.yaml").write_text(yaml.safe_dump({"data": before}))
    for times, is_noted in (("a", False), ("b", not by_content)):
        record = {"fingerprint": {"times": times, "by_content": by_content}}
        assert changes_of_data(tmp_path, record, Namespace(resume_allow_changes=False)) == []
        assert ("other times of change" in capsys.readouterr().out) == is_noted


def test_other_code_and_packages_are_recorded(folder_data, tmp_path, capsys):
    folder = run_main(*run_words(folder_data, tmp_path, "--n_epochs 1")).folder
    file = folder / "environment.yaml"
    run_main("--resume_from", folder, "--n_epochs 2")
    assert "environment_changes" not in (content := yaml.safe_load(file.read_text()))
    commit = content["git_commit"]
    content["git_commit"] = "c0ffee"
    content["packages"] |= {"torch": "1.0", "gone": "3"}
    file.write_text(yaml.safe_dump(content))
    run_main("--resume_from", folder, "--n_epochs 3")
    text = f"git_commit {commit[:12]}; torch {importlib.metadata.version('torch')}"
    content = yaml.safe_load(file.read_text())
    assert content["environment_changes"] == {"after epoch 2": text}
    assert f"not what the run began with: {text}" in capsys.readouterr().out
    # it is finished: nothing is trained with what is there now
    run_main("--resume_from", folder)
    assert yaml.safe_load(file.read_text())["environment_changes"] == content["environment_changes"]
    assert recorded.environment(content)["software and machine"] == f"changed after epoch 2 ({text})"
    changes = {"after epoch 2": text, "after epoch 7": "what --resume best undoes"}
    file.write_text(yaml.safe_dump({**content, "environment_changes": changes}))
    for epoch in (3, 4):
        record_changes_of_environment(folder, content, epoch)
        changes = yaml.safe_load(file.read_text())["environment_changes"]
        assert changes == {"after epoch 2": text, "after epoch 3": "as the run began"}


def test_what_differs():
    def record(by_content=True, digest="a", **classes):
        return {"fingerprint": {"sha256": digest, "by_content": by_content}, "classes": classes}

    before = record(training="2 aa x\n3 bb y", testing="1 cc z")
    assert differences(before, before) == []
    fewer = record(training="2 aa x", testing="2 dd z")
    assert differences(before, fewer) == ["gone: class y", "images: class z has 2, had 1"]
    changed = {"training": "2 aa x\n3 b0 y", "testing": "1 cc z"}
    assert differences(before, record(**changed)) == ["files: of class y"]
    assert differences(before, record(False, "b", **changed)) == ["files: names or sizes"]
    older = {"fingerprint": {"sha256": "a"}}
    assert differences(older, before) == [] and differences(older, record(digest="b")) == ["names or sizes of files"]
