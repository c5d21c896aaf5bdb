"""What a run folder says of itself, and that folders of the version before are read."""

import json
import shutil
from pathlib import Path

import pytest
import torch

import parameters
import Result_Evaluations
from runs import RunFolder, checkpoint, load_run
from tests.kit.data_sets import make_folder
from tests.kit.runs import recorded_values, run_main, run_words
from utilities.errors import UserError

# 2 epochs by version 0.2.1: no --trainer, no --loss_weights
OLD = Path(__file__).parent / "made_by_0.2.1" / "Old_s1"


@pytest.fixture
def old(tmp_path, monkeypatch):
    """The old run where it was made, beside its data."""
    make_folder(tmp_path / "things", n_classes=4, n_images=4)
    shutil.copytree(OLD, tmp_path / "runs" / "folder" / "Old_s1")
    monkeypatch.chdir(tmp_path)
    return Path("runs/folder/Old_s1")


def test_an_old_run_says_how_far_it_is(old):
    run = RunFolder(old)
    assert run.progress == (2, False) and run.finished and not run.needs_test and not run.is_cross_validation
    assert run.selected["epoch"] in (1, 2)
    assert run.flags["loss"] == "margin" and run.summary["parameters"] == run.flags
    assert {"epoch", "split", "metric", "value"} == set(run.metrics.columns) and set(run.metrics["epoch"]) == {1, 2}
    network, opt = load_run(old)
    assert network(torch.zeros(1, 3, 16, 16, dtype=torch.uint8))[0].shape == (1, 2) and opt.bs == 4


def test_an_old_run_is_resumed_measured_reproduced_and_tabulated(old):
    before = recorded_values(old).to_dict()
    values = run_main("--evaluate --resume_from", old, "--splits_to_eval test")
    assert values["test"]["map_r"] == pytest.approx(RunFolder(old).selected["values"]["test"]["map_r"], abs=0.01)
    reproduced = run_main("--reproduce_results", old, "--group Again")
    recorded_again = recorded_values(reproduced.folder).to_dict()
    # not yet recorded then
    names = ("gradient_rms", "gradient_max", "criterion/spread", "criterion/separation")
    newer = {(epoch, "train", name) for epoch in (1, 2) for name in names}
    assert before.keys() | newer == recorded_again.keys()
    assert recorded_again[1, "train", "loss"] == pytest.approx(before[1, "train", "loss"], rel=1e-3)
    Result_Evaluations.main(Result_Evaluations.read("--runs runs --out tables --metrics map_r".split()))
    tables = "".join(path.read_text() for path in Path("tables").rglob("*.csv"))
    assert "Old" in tables and "Again" in tables
    run = run_main("--resume_from", old, "--n_epochs 3")
    after = recorded_values(old).to_dict()
    assert run.epoch == 3 and {key: after[key] for key in before} == before and {key[0] for key in after} == {1, 2, 3}
    assert RunFolder(old).flags["trainer"] == "metric_only"


def test_a_folder_without_a_run(tmp_path):
    run = RunFolder(tmp_path)
    assert run.progress == (0, False) and not run.finished and not run.is_cross_validation and run.metrics.empty
    for ask in (lambda: run.flags, lambda: run.summary, lambda: run.selected, lambda: run.network()):
        with pytest.raises(UserError):
            ask()


def test_finished_is_judged_by_the_flags_to_go_on_with(old):
    options = parameters.read(["--resume_from", str(old), "--n_epochs", "5", "--final_test"])
    assert not RunFolder(old, options).finished and RunFolder(old).finished
    summary = json.loads((old / "summary.json").read_text())
    del summary["selected"]["values"]["test"]
    (old / "summary.json").write_text(json.dumps(summary))
    assert RunFolder(old, options).needs_test and not RunFolder(old).needs_test
    (old / "summary.json").unlink()
    assert not RunFolder(old).finished


def test_the_folds_of_a_cross_validation(cross_validated):
    shutil.rmtree(cross_validated / "fold_1")
    run = RunFolder(cross_validated)
    assert run.is_cross_validation and run.fold(0).finished
    assert not run.fold(1).finished and run.fold(1).progress.epochs == 0


def test_an_epoch_that_is_best_by_several_metrics_is_one_file_beside_the_selected_one(data, tmp_path):
    metrics = "--storage_metrics map_r e_recall@1 --evaluation_metrics map_r e_recall@1 --splits_to_eval train test"
    folder = run_main(*run_words(data, tmp_path, metrics, "--loss softmax --n_epochs 1")).folder
    checkpoints = {path.name: (path.stat().st_ino, checkpoint.read(path)) for path in folder.glob("checkpoint_*")}
    whole_names = {checkpoint.LAST, "checkpoint_Test_discriminative_map_r.pth.tar"}
    assert len(checkpoints) == 5 and len({inode for inode, _ in checkpoints.values()}) == 3
    assert {name for name, (_, content) in checkpoints.items() if "optimizer" in content} == whole_names
    for _, content in checkpoints.values():
        assert content["epoch"] == 1 and content["criterion"]
        assert content["state_dict"].keys() == checkpoints[checkpoint.LAST][1]["state_dict"].keys()
