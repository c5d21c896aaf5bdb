"""Runs that were saved before a flag existed, or was refused, go on and are repeated as they were."""

import shutil

import pytest
import yaml

from tests.kit.refusals import refused
from tests.kit.runs import resolve

CASCADED = {"trainer": "cascaded", "loss": "multisimilarity", "mine_pairs": True, "classifier_dropout": 0.0}
CASCADED |= {"cascade_sizes": [8, 8], "cascade_percents": [1.0, 0.5]}


@pytest.fixture
def older(trained_once, tmp_path):
    """A function that gives the trained run other flags, without those that are None, and returns its folder."""

    def changed(flags: dict):
        folder = tmp_path / "folder" / "Older"
        shutil.copytree(trained_once, folder, dirs_exist_ok=True)
        saved = yaml.safe_load((folder / "parameters.yaml").read_text()) | flags
        kept_flags = {name: value for name, value in saved.items() if name not in flags or value is not None}
        (folder / "parameters.yaml").write_text(yaml.safe_dump(kept_flags))
        return folder

    return changed


def ways(folder):
    """Command lines that take the flags of a run."""
    return ["--resume_from", folder], ["--evaluate", "--resume_from", folder], ["--reproduce_results", folder]


@pytest.mark.parametrize(
    ("saved", "flag", "value"),
    [
        (CASCADED | {"cascade_mining": None}, "cascade_mining", "hardest"),
        ({"random_erasing": 0.5, "random_erasing_aspect": None}, "random_erasing_aspect", "log"),
        ({"random_erasing": 0.0, "random_erasing_aspect": None}, "random_erasing_aspect", None),
    ],
)
def test_a_run_that_is_older_than_a_flag_keeps_what_it_did(older, saved, flag, value):
    folder = older(saved)
    for words in ways(str(folder)):
        assert getattr(resolve(*words), flag) == value, words
    if "trainer" not in saved:
        assert getattr(resolve("--config", folder / "parameters.yaml"), flag) == value


def test_a_saved_flag_without_effect_is_refused_in_a_new_run_alone(older, tmp_path):
    folder = older({"classifier_dropout": 0.5})
    for words in ways(str(folder)):
        assert resolve(*words).classifier_dropout == 0.5
    new = ["--dataset", "glyphs", "--save_path", str(tmp_path), "--classifier_dropout", "0.5"]
    for words in (new, [*new, "--resume_or_start"]):
        with refused("--classifier_dropout 0.5 has no effect"):
            resolve(*words)
