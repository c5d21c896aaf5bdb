"""Data that changed since a run began: named, refused, allowed under a flag, marked in tables."""

import importlib.metadata
import shutil

import pytest
import yaml

import main
import parameters
from datasets import differences
from results import recorded
from results.folders import read_folder
from runs.changes import record_changes_of_environment
from tests.kit.images import write_image
from tests.kit.run_folders import flag_roles
from tests.kit.runs import SHORT_RUN
from utilities.errors import UserError


def test_changed_data_are_named_refused_and_marked(folder_data, tmp_path):
    data = shutil.copytree(folder_data, tmp_path / "things")
    flags = [
        "--dataset",
        "folder",
        "--dataset_folder_path",
        str(data),
        "--save_path",
        str(tmp_path),
        *SHORT_RUN,
    ]
    folder = main.main(parameters.read([*flags, "--n_epochs", "1"])).folder
    resume_words = ["--resume_from", str(folder)]

    def refused(*words):
        with pytest.raises(UserError, match=r"the data of .* are not those") as caught:
            main.main(parameters.read([*resume_words, *words]))
        return str(caught.value)

    shutil.rmtree(data)
    shutil.copytree(folder_data, data, copy_function=shutil.copyfile)  # other times of change, the same data
    main.main(parameters.read(["--evaluate", *resume_words]))
    write_image(data / "class_2" / "000.jpg", 99)
    assert "; files: of class class_2. Restore" in refused("--evaluate")
    write_image(data / "class_00" / "000.jpg", 5)
    assert "new: class class_00; moved: class class_3 from training to testing; files: of class class_2" in refused(
        "--n_epochs", "2"
    )
    shutil.rmtree(data / "class_00")
    main.main(parameters.read([*resume_words, "--n_epochs", "2", "--resume_allow_changes"]))
    assert read_folder(folder, flag_roles()).notes == ["its data changed after epoch 1 (files: of class class_2)"]
    main.main(parameters.read([*resume_words, "--n_epochs", "3"]))  # allowed once: now these are its data


def test_other_code_and_packages_are_recorded(folder_data, tmp_path, capsys):
    flags = [
        "--dataset",
        "folder",
        "--dataset_folder_path",
        str(folder_data),
        "--save_path",
        str(tmp_path),
        *SHORT_RUN,
    ]
    folder = main.main(parameters.read([*flags, "--n_epochs", "1"])).folder
    file = folder / "environment.yaml"
    main.main(parameters.read(["--resume_from", str(folder), "--n_epochs", "2"]))
    assert "environment_changes" not in (content := yaml.safe_load(file.read_text()))
    commit = content["git_commit"]
    content["git_commit"] = "c0ffee"
    content["packages"] |= {"torch": "1.0", "gone": "3"}
    file.write_text(yaml.safe_dump(content))
    main.main(parameters.read(["--resume_from", str(folder), "--n_epochs", "3"]))
    text = f"git_commit {commit[:12]}; torch {importlib.metadata.version('torch')}"
    content = yaml.safe_load(file.read_text())
    assert (
        content["environment_changes"] == {"after epoch 2": text}
        and f"not what the run began with: {text}" in capsys.readouterr().out
    )
    # it is finished: nothing is trained with what is there now
    main.main(parameters.read(["--resume_from", str(folder)]))
    assert yaml.safe_load(file.read_text())["environment_changes"] == content["environment_changes"]
    assert recorded.environment(content)["software and machine"] == f"changed after epoch 2 ({text})"
    file.write_text(
        yaml.safe_dump(
            {**content, "environment_changes": {"after epoch 2": text, "after epoch 7": "what --resume best undoes"}}
        )
    )
    for epoch in (3, 4):
        record_changes_of_environment(folder, content, epoch)
        assert yaml.safe_load(file.read_text())["environment_changes"] == {
            "after epoch 2": text,
            "after epoch 3": "as the run began",
        }


def test_what_differs():
    def record(by_content=True, digest="a", **classes):
        return {"fingerprint": {"sha256": digest, "by_content": by_content}, "classes": classes}

    before = record(training="2 aa x\n3 bb y", testing="1 cc z")
    assert differences(before, before) == []
    assert differences(before, record(training="2 aa x", testing="2 dd z")) == [
        "gone: class y",
        "images: class z has 2, had 1",
    ]
    assert differences(before, record(training="2 aa x\n3 b0 y", testing="1 cc z")) == ["files: of class y"]
    assert differences(before, record(False, "b", training="2 aa x\n3 b0 y", testing="1 cc z")) == [
        "files: names or sizes"
    ]
    older = {"fingerprint": {"sha256": "a"}}
    assert differences(older, before) == [] and differences(older, record(digest="b")) == ["names or sizes of files"]
