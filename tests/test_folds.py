"""A cross-validation: folds are complete runs, meta results are those of the folds, an ensemble is a concatenation,
resume changes nothing.
"""

import math
import shutil

import numpy as np
import pytest
import torch

import datasets
import main
import metrics
from runs.folder import data_of
from runs.meta import over_folds
from tests.kit.data_sets import write_split_file
from tests.kit.refusals import refused
from tests.kit.runs import (
    assert_same_run,
    content_of,
    file_names,
    recorded_values,
    resolve,
    rows_of,
    run_main,
    run_words,
)
from utilities import load_run
from utilities.errors import UserError
from utilities.files import write_csv

FOLDS = "--split_scheme class_disjoint --split_partitions 3 --split_sets 2"


def flags(data, tmp_path, *flags, split=FOLDS):
    words = "--loss triplet --batch_mining semihard --n_epochs 2 --group Cross"
    return resolve(*run_words(data, tmp_path / "runs", words, split, *flags))


def trained(*arguments, split=FOLDS):
    return main.main(flags(*arguments, split=split))


def resumed(folder, *words):
    return run_main("--resume_from", folder, *words)


def meta(folder):
    """Name -> content of the files of results over the folds."""
    return {path.stem: content_of(path) for path in (folder / "meta").glob("*.json")}


def summary(folder):
    return content_of(folder / "summary.json")


def table_of(folder, *columns):
    """The table of results over the folds, by these columns."""
    return {tuple(row[name] for name in columns): row for row in rows_of(folder / "meta" / "results.csv")}


@pytest.fixture(scope="module")
def whole_run(data, tmp_path_factory):
    """A finished cross-validation with its final test."""
    return trained(data, tmp_path_factory.mktemp("whole"), "--final_test --dump_embeddings")


@pytest.fixture(scope="module")
def short_once(data, tmp_path_factory):
    return trained(data, tmp_path_factory.mktemp("short"), "--n_epochs 1").folder


@pytest.fixture
def short(short_once, tmp_path):
    """The folder of a cross-validation of one epoch."""
    return shutil.copytree(short_once, tmp_path / "runs" / "folder" / short_once.name)


def test_folds_are_complete_runs_and_meta_results_are_theirs(whole_run):
    assert sorted(path.name for path in whole_run.folder.iterdir() if path.is_dir()) == ["fold_0", "fold_1", "meta"]
    summaries = [summary(whole_run.folder / f"fold_{fold}") for fold in range(2)]
    for fold, fold_summary in enumerate(summaries):
        assert "on val" in fold_summary["selected"]["rule"]
        assert set(fold_summary["last"]) == set(fold_summary["best"]) == {"val"}, "test is not looked at while training"
        assert set(fold_summary["selected"]["values"]) == {"val", "test"}
        on_test = recorded_values(whole_run.folder / f"fold_{fold}").xs("test", level="split")
        assert set(on_test.index.get_level_values("epoch")) == {fold_summary["selected"]["epoch"]}
    separated = meta(whole_run.folder)["separated"]
    assert separated["folds"] == [0, 1] and {*separated["values"]["test"]} == {"map_r", "e_recall@1"}
    assert separated["epochs"] == [summary["selected"]["epoch"] for summary in summaries]
    for split in ("val", "test"):
        for metric, result in separated["values"][split].items():
            of_folds = [summary["selected"]["values"][split][metric] for summary in summaries]
            mean = sum(of_folds) / 2
            error = math.sqrt(sum((v - mean) ** 2 for v in of_folds)) / math.sqrt(2)
            assert result["values"] == of_folds and result["mean"] == pytest.approx(mean)
            assert result["standard_error"] == pytest.approx(error)
            # Student's t, 1 degree of freedom, 97.5 %
            half = 12.706204736432095 * error
            assert result["interval_95"] == pytest.approx([mean - half, mean + half])
    table = table_of(whole_run.folder, "embeddings", "split", "metric")
    assert float(table["separated", "val", "map_r"]["mean"]) == separated["values"]["val"]["map_r"]["mean"]
    assert ("concatenated", "test", "map_r") in table and ("concatenated", "val", "map_r") not in table


def test_results_over_folds_are_of_what_every_fold_has():
    # a summary has null for NaN
    assert math.isnan(over_folds([{"val": {"a": None}}, {"val": {"a": 1.0}}])["val"]["a"]["mean"])
    folds = [{"val": {"a": 1.0, "b": 2.0}}, {"val": {"a": 3.0}, "test": {"a": 0.0}}]
    assert {split: set(table) for split, table in over_folds(folds).items()} == {"val": {"a"}}


def test_the_ensemble_equals_a_concatenation_by_hand(whole_run, data):
    embeddings = []
    labels = None
    for fold in range(2):
        network, opt = load_run(whole_run.folder / f"fold_{fold}")
        assert not network.training
        test = main.datasets.select("folder", opt, input_size=network.input_size, fold=fold)["testing"]
        images = torch.stack([test[i][1] for i in range(len(test))])
        with torch.no_grad():
            embeddings.append(network(images)[0].double().numpy())
        labels = np.array([test[i][0] for i in range(len(test))])
    rows = []
    for parts in zip(*embeddings, strict=True):
        joined = [value / math.sqrt(sum(v * v for v in part)) for part in parts for value in part]
        length = math.sqrt(sum(value * value for value in joined))
        rows.append([value / length for value in joined])
    by_hand = np.array(rows)
    dumped = np.load(whole_run.folder / "meta" / "embeddings_test.npz")
    assert dumped["features"].shape == (30, 16) and np.abs(dumped["features"] - by_hand).max() < 1e-6
    results = meta(whole_run.folder)["concatenated"]["values"]["test"]
    for name, value in metrics.compute(["map_r", "e_recall@1"], by_hand, labels).items():
        assert results[name]["mean"] == pytest.approx(value, abs=1e-6)


def test_folds_apart_then_aggregated_equal_the_whole(whole_run, data, tmp_path, capsys):
    first = trained(data, tmp_path, "--folds 1")
    assert not meta(first.folder) and "not all of 2 folds are finished" in capsys.readouterr().out
    partial = trained(data, tmp_path, "--aggregate_only")
    assert partial.results["separated"]["folds"] == [1]
    assert trained(data, tmp_path, "--folds 0").folder == first.folder
    resumed(first.folder, "--aggregate_only")
    assert meta(first.folder)["separated"]["values"]["val"] == meta(whole_run.folder)["separated"]["values"]["val"]
    second_process = trained(data, tmp_path, "--folds 1 --n_epochs 1")
    assert second_process.folder.name == "Cross_s1_1", "a fold is never trained over another"


def test_resume_skips_the_finished_and_continues_the_interrupted(whole_run, data, tmp_path, monkeypatch, capsys):
    real = main.train_one_epoch
    calls = []

    def train_one_epoch(*args):
        calls.append(args[0])
        # the second epoch of the second fold
        if len(calls) == 4:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(main, "train_one_epoch", train_one_epoch)
    with pytest.raises(SystemExit):
        trained(data, tmp_path, "--final_test")
    folder = tmp_path / "runs" / "folder" / "Cross_s1"
    assert f"--resume_from {folder}\n" in capsys.readouterr().out
    before = (folder / "fold_0" / "CSV_Logs" / "metrics.csv").read_bytes()
    resumed(folder)
    assert calls[4:] == [2] and "fold 0 of 2 is finished" in capsys.readouterr().out
    assert (folder / "fold_0" / "CSV_Logs" / "metrics.csv").read_bytes() == before
    for fold in range(2):
        assert_same_run(*(path / f"fold_{fold}" for path in (folder, whole_run.folder)))
    for name in ("separated", "concatenated"):
        assert meta(folder)[name]["values"] == meta(whole_run.folder)[name]["values"]
    resumed(folder, "--n_epochs 3")
    assert calls[5:] == [3, 3]


@pytest.mark.long
def test_evaluations_and_ensembles_after_a_run_are_kept_beside_its_own_results(short):
    result = meta(short)
    assert set(result) == {"separated"} and set(result["separated"]["values"]) == {"val"}
    for words in ("test", "val --folds 0", "test --folds 1", "test --folds 1"):
        resumed(short, f"--evaluate --splits_to_eval {words}")
    measured = {name: content for name, content in meta(short).items() if name.startswith("evaluation")}
    assert {name: (list(content["values"]), content["folds"]) for name, content in measured.items()} == {
        "evaluation_separated": (["test"], [0, 1]),
        "evaluation_separated_1": (["val"], [0]),
        "evaluation_separated_2": (["test"], [1]),
    }
    assert measured["evaluation_separated"]["flags"]["splits_to_eval"] == ["test"]
    resumed(short, "--evaluate_ensemble")
    files = [short / "meta" / name for name in ("separated.json", "concatenated.json", "results.csv")]
    before = [path.read_bytes() for path in files]
    for words in ("--eval_pca 1", "--evaluation_metrics map_r"):
        resumed(short, "--evaluate_ensemble", words)
        assert [path.read_bytes() for path in files] == before, "the protocol's results stay"
    resumed(short, "--evaluate_ensemble --eval_bs 4")
    measured = meta(short)
    assert measured["separated"] == result["separated"] and set(measured["concatenated"]["values"]) == {"test"}
    names = [name for name in measured if name.startswith("evaluation_concatenated")]
    # how many images at a time is no other measurement
    assert {name: measured[name]["flags"]["eval_pca"] for name in names} == {
        "evaluation_concatenated": 1,
        "evaluation_concatenated_1": None,
    }
    for wrong in ("--splits_to_eval val", "--folds 0"):
        with refused(wrong.split()[0]):
            resolve("--resume_from", short, "--evaluate_ensemble", wrong)
    assert resumed(f"{short}/fold_1", "--evaluate").results["evaluation_separated"]["folds"] == [1]


def test_an_ensemble_is_of_finished_and_trained_networks(short, data, tmp_path):
    resumed(short, "--n_epochs 2 --folds 0")
    with pytest.raises(UserError, match="not finished: fold_1"):
        resumed(short, "--evaluate_ensemble")
    untrained = main.main(
        flags(data, tmp_path, "--n_epochs 0 --check_untrained_accuracy --final_test --group Untrained")
    )
    assert "concatenated" not in meta(untrained.folder)
    table = table_of(untrained.folder, "embeddings", "metric")
    assert {name for name, _ in table} == {"separated, epoch -1", "separated, epoch 0"}
    expected = meta(untrained.folder)["separated"]["untrained"]["0"]["val"]["map_r"]["mean"]
    assert float(table["separated, epoch 0", "map_r"]["mean"]) == expected
    assert "separated, epoch 0" in untrained.meta.columns()
    with pytest.raises(UserError, match="no epoch was selected"):
        resumed(untrained.folder, "--evaluate_ensemble")


def test_what_the_folds_cannot_be(short, data, tmp_path):
    # the split stays what it was
    for change in ("--split_test_start 0", "--split_partitions 4", "--split_sets 3", "--split_scheme mlrc"):
        with refused(change.split()[0]):
            resolve("--resume_from", short, "--resume_allow_changes", change)
    for wrong in ("--folds 2", "--folds -1", "--folds 0 0"):
        with refused(wrong.split()[0]):
            flags(data, tmp_path, wrong)
    for wrong in ("--folds 0", "--aggregate_only", "--evaluate_ensemble", "--savename=", "--savename ../elsewhere"):
        with refused(wrong.split()[0].rstrip("=")):
            flags(data, tmp_path, wrong, split="--split_scheme half")
    for too_many in ("--split_partitions 30", "--bs 400"):
        with pytest.raises(UserError):
            trained(data, tmp_path, "--group Refused", too_many)
    of_six_classes = "--group Refused --split_partitions 4 --split_sets 4"
    for words in (of_six_classes, f"{of_six_classes} --dry_run"):
        with refused(r"^fold 2, counted from 0: map_r on val .* validation has 1 class, "):
            trained(data, tmp_path, words)
    assert [path.name for path in (tmp_path / "runs" / "folder").iterdir()] == ["Cross_s1"], "no folder is left"
    for name, words in (("mine", "--resume"), ("shared", "--folds 0")):
        notes = tmp_path / "runs" / "folder" / name / ".notes.txt"
        notes.parent.mkdir(parents=True)
        notes.write_text("keep")
        with pytest.raises(UserError):
            trained(data, tmp_path, "--savename", name, "--bs 400", words)
        assert notes.read_text() == "keep", "somebody else's"
    with pytest.raises(UserError, match="cannot make the run folder"):
        trained(data, tmp_path, "--dry_run --save_path", notes)


def test_a_reference_that_folds_do_not_share_leaves_the_ensemble_out(data, tmp_path):
    reference = "--eval_reference_set compared_to_training_set"
    # classes that do not train have nothing to find there
    with pytest.raises(UserError, match="--split_scheme closed_set"):
        trained(data, tmp_path, reference)
    cross = trained(data, tmp_path, "--split_scheme closed_set --final_test --n_epochs 1", reference)
    assert set(cross.results) == {"separated"} and set(cross.results["separated"]["values"]) == {"val", "test"}
    assert cross.settled
    with pytest.raises(UserError, match="an ensemble has no such set"):
        resumed(cross.folder, "--evaluate_ensemble")


@pytest.mark.long
def test_half_has_one_run_whose_final_test_is_measured_once(data, tmp_path):
    half = "--split_scheme half --use_tv_split --tv_split_perc 0.5 --splits_to_eval val --final_test"
    words = "--savename Once --evaluation_metrics map_r e_recall@1 rho_spectrum@0"
    recorded = flags(data, tmp_path, words, split=half).but(no_records=False)

    def tests_of(folder):
        assert (folder / "Arrays/test_0001.npz").exists() or (folder / "Arrays/test_0002.npz").exists()
        tables = [folder / "CSV_Logs" / "metrics.csv", *sorted((folder / "CSV_Logs").glob("Test_*.csv"))]
        lines = [line for table in tables for line in table.read_text().splitlines()]
        return [line for line in lines if "train" not in line and "val" not in line]

    run = main.main(recorded.but(n_epochs=1))
    assert set(summary(run.folder)["selected"]["values"]) == {"val", "test"}
    assert set(summary(run.folder)["last"]) == {"val"}
    tested = tests_of(run.folder)
    assert sum(",test,e_recall@1," in line for line in tested) == 1
    assert tests_of(resumed(run.folder).folder) == tested
    content = torch.load(run.folder / "checkpoint_last.pth.tar", weights_only=False)
    del content["run"]["selected"]["values"]["test"]
    # as after a kill between the rows and the checkpoint
    torch.save(content, run.folder / "checkpoint_last.pth.tar")
    assert tests_of(resumed(run.folder).folder) == tested
    whole_cross = main.main(recorded.but(group="Whole", savename="Whole_s1"))
    assert tests_of(resumed(run.folder, "--n_epochs 2").folder) == tests_of(whole_cross.folder)
    assert_same_run(run.folder, whole_cross.folder)


def test_a_dry_run_and_the_configuration_that_repeats_the_folds(short, data, tmp_path):
    trained(data, tmp_path / "dry", "--dry_run")
    assert file_names(tmp_path / "dry" / "runs") == ["Cross_s1_batch.png"]
    saved = content_of(short / "parameters.yaml")
    assert saved["splits_to_eval"] == ["val"]
    assert not {"folds", "fold", "aggregate_only", "evaluate_ensemble"} & set(saved)
    cross = run_main("--config", short / "parameters.yaml", "--save_path", tmp_path / "runs")
    config = cross.folder / "parameters.yaml"
    assert cross.folder.name == "Cross_s1_1" == content_of(config)["savename"]
    assert meta(cross.folder)["separated"]["values"] == meta(short)["separated"]["values"]
    assert resolve("--config", config, "--resume").savename == "Cross_s1_1"
    assert resolve("--config", config).savename == "Cross_s1"
    assert resolve("--config", config, "--seed 2 --resume_or_start").savename == "Cross_s2"


def test_a_split_file_is_one_fold_that_says_at_its_start_what_it_lacks_and_is_kept(data, tmp_path, capsys):
    file = write_split_file(tmp_path / "splits.json", train=range(5), val=range(5, 8), test=range(8, 12))
    predefined = f"--split_scheme predefined --split_file {file} --n_epochs 1"
    for split, untested in ((predefined, True), (f"{predefined} --final_test --check_untrained_accuracy", False)):
        cross = trained(data, tmp_path, split=split)
        output = capsys.readouterr().out
        line = next(line for line in output.splitlines() if "makes one fold" in line)
        assert output.index(line) < output.index("epoch 1/1")
        assert ("nothing is measured on test: --final_test" in line) == untested
    assert [path.name for path in sorted(cross.folder.glob("fold_*"))] == ["fold_0"]
    separated = meta(cross.folder)["separated"]
    of_val = recorded_values(cross.folder / "fold_0").xs(("val", "map_r"), level=("split", "metric"))
    assert set(separated["values"]) == {"val", "test"} and separated["values"]["val"]["map_r"]["standard_error"] is None
    for epoch in (-1, 0):
        assert separated["untrained"][str(epoch)]["val"]["map_r"]["mean"] == of_val[epoch]
    copy = cross.folder / "split_file.json"
    assert copy.read_bytes() == file.read_bytes()
    for swap in (lambda: write_split_file(file, train=range(5), test=range(5, 12)), file.unlink):
        swap()
        assert not file.exists() or flags(data, tmp_path, split=predefined).splits_to_eval == ["test"]
        for words in ("--n_epochs 2", "--evaluate", "--aggregate_only"):
            with refused(f"--split_file {copy}"):
                resolve("--resume_from", cross.folder, words)
    resumed(cross.folder, "--n_epochs 2 --split_file", copy)
    assert cross.fold(0).progress.epochs == 2


def test_files_of_groups_are_kept_and_a_changed_one_is_refused(data, tmp_path):
    file = tmp_path / "groups.csv"
    write_csv(file, ["path", "group"], [["class_0/000.jpg", "x"], ["class_7/001.jpg", "x"]])
    folds = "--split_scheme class_disjoint --split_partitions 2"
    cross = trained(data, tmp_path, split=f"{folds} --split_groups sequence {file} --n_epochs 1")
    copy = cross.folder / "split_groups_0.csv"
    assert copy.read_bytes() == file.read_bytes()
    for swap in (lambda: write_csv(file, ["path", "group"], [["class_0/000.jpg", "x"]]), file.unlink):
        swap()
        for words in ("--n_epochs 2", "--evaluate", "--aggregate_only"):
            with refused(f"--split_groups {file} is gone.*--split_groups sequence {copy}"):
                resolve("--resume_from", cross.folder, words)
    resumed(cross.folder, "--n_epochs 2 --split_groups sequence", copy)
    assert cross.fold(0).progress.epochs == 2
    opt = resolve("--reproduce_results", cross.folder, "--group Again")
    assert opt.split_groups == ["sequence", str(copy)]
    assert data_of(cross.folder / "fold_1") == {"fold": 1, "split_groups": ["sequence", str(copy)]}


def test_the_options_of_a_fold_select_its_classes(data, tmp_path):
    options = flags(data, tmp_path)
    splits = [datasets.select(opt.dataset, opt, opt.source_path) for opt in map(options.of_fold, range(2))]
    assert len({tuple(split["training"].class_names.values()) for split in splits}) == 2
