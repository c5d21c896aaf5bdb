"""A cross-validation: folds are complete runs, meta results are those of the folds, an ensemble is a concatenation, resume changes nothing."""

import csv
import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

import main
import metrics
import parameters
from runs import checkpoint
from runs.meta import over_folds
from tests import builders
from utilities import load_run
from utilities.errors import UserError


def flags(data, tmp_path, *more):
    return parameters.read([
        "--dataset", "folder", "--dataset_folder_path", str(data), "--save_path", str(tmp_path / "runs"), *builders.SHORT_RUN,
        "--loss", "triplet", "--batch_mining", "semihard", "--n_epochs", "2", "--group", "Cross", "--split_scheme", "class_disjoint",
        "--split_partitions", "3", "--split_sets", "3", *more,
    ])  # fmt: skip


def read(path):
    return json.loads(path.read_text())


def rows(folder):
    with open(folder / "CSV_Logs" / "metrics.csv", newline="") as file:
        return [row for row in csv.DictReader(file) if "seconds" not in row["metric"] and "per_second" not in row["metric"]]


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    """A finished cross-validation with its final test."""
    return main.main(flags(data, tmp_path_factory.mktemp("whole"), "--final_test", "--dump_embeddings"))


@pytest.fixture(scope="module")
def short_once(data, tmp_path_factory):
    return main.main(flags(data, tmp_path_factory.mktemp("short"), "--n_epochs", "1")).folder


@pytest.fixture
def short(short_once, tmp_path):
    """The folder of a cross-validation of one epoch."""
    return shutil.copytree(short_once, tmp_path / "runs" / "folder" / short_once.name)


def test_each_fold_is_a_complete_run(whole):
    assert whole.folder.name == "Cross_s1"
    assert sorted(path.name for path in whole.folder.iterdir() if path.is_dir()) == ["fold_0", "fold_1", "fold_2", "meta"]
    for fold in range(3):
        folder = whole.folder / f"fold_{fold}"
        summary = read(folder / "summary.json")
        assert "on val" in summary["selected"]["rule"]
        assert set(summary["last"]) == {"val"} and set(summary["best"]) == {"val"}, "test is not looked at while training"
        assert set(summary["selected"]["values"]) == {"val", "test"}
        network, opt = load_run(folder)
        assert opt.split_scheme == "class_disjoint" and not network.training
        on_test = [row for row in rows(folder) if row["split"] == "test"]
        assert {row["epoch"] for row in on_test} == {str(summary["selected"]["epoch"])}


def test_meta_results_are_those_of_the_folds(whole):
    summaries = [read(whole.folder / f"fold_{fold}" / "summary.json") for fold in range(3)]
    separated = read(whole.folder / "meta" / "separated.json")
    assert separated["folds"] == [0, 1, 2] and separated["epochs"] == [s["selected"]["epoch"] for s in summaries]
    for split in ("val", "test"):
        for metric in ("map_r", "e_recall@1"):
            values = [s["selected"]["values"][split][metric] for s in summaries]
            found = separated["values"][split][metric]
            mean = sum(values) / 3
            error = math.sqrt(sum((v - mean) ** 2 for v in values) / 2) / math.sqrt(3)
            assert found["values"] == values and found["mean"] == pytest.approx(mean) and found["standard_error"] == pytest.approx(error)
            half = 4.302652729911275 * error  # Student's t, 2 degrees of freedom, 97.5 %
            assert found["interval_95"] == pytest.approx([mean - half, mean + half])
    with open(whole.folder / "meta" / "results.csv", newline="") as file:
        table = {(r["embeddings"], r["split"], r["metric"]): r for r in csv.DictReader(file)}
    assert float(table["separated", "val", "map_r"]["mean"]) == separated["values"]["val"]["map_r"]["mean"]
    assert ("concatenated", "test", "map_r") in table and ("concatenated", "val", "map_r") not in table


def test_results_over_folds_are_of_what_every_fold_has():
    assert math.isnan(over_folds([{"val": {"a": None}}, {"val": {"a": 1.0}}])["val"]["a"]["mean"]), "a summary has null for NaN"
    folds = [{"val": {"a": 1.0, "b": 2.0}}, {"val": {"a": 3.0}, "test": {"a": 0.0}}]
    assert {split: set(table) for split, table in over_folds(folds).items()} == {"val": {"a"}}


def test_the_ensemble_equals_a_concatenation_by_hand(whole, data):
    embeddings, labels = [], None
    for fold in range(3):
        network, opt = load_run(whole.folder / f"fold_{fold}")
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
    dumped = np.load(whole.folder / "meta" / "embeddings_test.npz")
    assert dumped["features"].shape == (30, 24) and np.abs(dumped["features"] - by_hand).max() < 1e-6
    concatenated = read(whole.folder / "meta" / "concatenated.json")["values"]
    expected = metrics.compute(["map_r", "e_recall@1"], by_hand, labels)
    for name, value in expected.items():
        assert concatenated["test"][name]["mean"] == pytest.approx(value, abs=1e-6)


def test_folds_apart_then_aggregated_equal_the_whole(whole, data, tmp_path, capsys):
    first = main.main(flags(data, tmp_path, "--folds", "0", "2"))
    assert not (first.folder / "meta" / "separated.json").exists()
    assert "not all of 3 folds are finished" in capsys.readouterr().out
    partial = main.main(flags(data, tmp_path, "--aggregate_only"))
    assert partial.results["separated"]["folds"] == [0, 2]
    second = main.main(flags(data, tmp_path, "--folds", "1"))
    assert second.folder == first.folder
    main.main(parameters.read(["--aggregate_only", "--resume_from", str(first.folder)]))
    ours, theirs = (read(cross.folder / "meta" / "separated.json")["values"]["val"] for cross in (first, whole))
    assert ours == theirs
    again = main.main(flags(data, tmp_path, "--folds", "1", "--n_epochs", "1"))
    assert again.folder.name == "Cross_s1_1", "a fold is never trained over another"


def test_resume_skips_the_finished_and_continues_the_interrupted(whole, data, tmp_path, monkeypatch, capsys):
    real, calls = main.train_one_epoch, []

    def stop(*args):
        calls.append(args[0])
        if len(calls) == 4:  # the second epoch of the second fold
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(main, "train_one_epoch", stop)
    with pytest.raises(SystemExit):
        main.main(flags(data, tmp_path, "--final_test"))
    folder = tmp_path / "runs" / "folder" / "Cross_s1"
    assert f"--resume_from {folder}\n" in capsys.readouterr().out
    before = (folder / "fold_0" / "CSV_Logs" / "metrics.csv").read_bytes()
    calls.clear()
    monkeypatch.setattr(main, "train_one_epoch", lambda *args: calls.append(args[0]) or real(*args))
    cross = main.main(parameters.read(["--resume_from", str(folder)]))
    assert calls == [2, 1, 2] and "fold 0 of 3 is finished" in capsys.readouterr().out
    assert (folder / "fold_0" / "CSV_Logs" / "metrics.csv").read_bytes() == before
    for fold in range(3):
        one, other = (c.folder / f"fold_{fold}" for c in (cross, whole))
        assert rows(one) == rows(other)
        a, b = (checkpoint.read(f / checkpoint.LAST)["state_dict"] for f in (one, other))
        assert all(torch.equal(a[name], b[name]) for name in a)
    assert {n: read(cross.folder / "meta" / f"{n}.json")["values"] for n in ("separated", "concatenated")} == {
        n: read(whole.folder / "meta" / f"{n}.json")["values"] for n in ("separated", "concatenated")
    }
    main.main(parameters.read(["--resume_from", str(folder), "--n_epochs", "3"]))
    assert calls == [2, 1, 2, 3, 3, 3]


def test_evaluate_and_ensemble_after_a_run(data, tmp_path):
    cross = main.main(flags(data, tmp_path, "--split_scheme", "mlrc"))
    assert set(cross.results) == {"separated"} and set(cross.results["separated"]["values"]) == {"val"}
    folder = str(cross.folder)
    told = main.main(parameters.read(["--evaluate", "--resume_from", folder, "--splits_to_eval", "test", "--evaluation_metrics", "map_r"]))
    assert set(told.results["evaluation_separated"]["values"]) == {"test"}
    assert read(cross.folder / "meta" / "evaluation_separated.json")["flags"]["splits_to_eval"] == ["test"]
    assert set(read(cross.folder / "meta" / "separated.json")["values"]) == {"val"}, "what training chose by stays as it is"
    main.main(parameters.read(["--evaluate_ensemble", "--resume_from", folder]))
    assert set(read(cross.folder / "meta" / "concatenated.json")["values"]) == {"test"}
    one = main.main(parameters.read(["--evaluate", "--resume_from", f"{folder}/fold_1"]))
    assert one.results["evaluation_separated"]["folds"] == [1]


def test_an_ensemble_measured_otherwise_leaves_the_protocols_result_alone(whole):
    meta, ask = whole.folder / "meta", ["--evaluate_ensemble", "--resume_from", str(whole.folder)]
    before = {name: (meta / name).read_bytes() for name in ("concatenated.json", "results.csv")}
    main.main(parameters.read([*ask, "--eval_pca", "1"]))
    main.main(parameters.read([*ask, "--evaluation_metrics", "nmi"]))
    main.main(parameters.read([*ask, "--eval_pca", "1"]))
    assert {name: (meta / name).read_bytes() for name in before} == before
    measured = {path.name: read(path) for path in meta.glob("evaluation_concatenated*.json")}
    assert {name: content["flags"]["eval_pca"] for name, content in measured.items()} == {
        "evaluation_concatenated.json": 1,
        "evaluation_concatenated_1.json": None,
    }
    main.main(parameters.read([*ask, "--eval_bs", "4"]))
    assert len(list(meta.glob("evaluation_concatenated*.json"))) == 2, "how many at a time is no other measurement"
    for wrong in (["--splits_to_eval", "val"], ["--folds", "0"]):
        with pytest.raises(SystemExit):
            parameters.read([*ask, *wrong])


def test_each_evaluation_of_the_folds_is_kept(short):
    ask = ["--evaluate", "--resume_from", str(short), "--splits_to_eval"]
    for splits in (["test"], ["val"], ["test"], ["test", "--folds", "1"]):
        main.main(parameters.read([*ask, *splits]))
    measured = {path.name: read(path) for path in (short / "meta").glob("evaluation_separated*.json")}
    assert {name: (list(content["values"]), content["folds"]) for name, content in measured.items()} == {
        "evaluation_separated.json": (["test"], [0, 1, 2]),
        "evaluation_separated_1.json": (["val"], [0, 1, 2]),
        "evaluation_separated_2.json": (["test"], [1]),
    }


def test_an_ensemble_is_of_finished_and_trained_networks(short, data, tmp_path):
    main.main(parameters.read(["--resume_from", str(short), "--n_epochs", "2", "--folds", "0", "2"]))
    with pytest.raises(UserError, match="not finished: fold_1"):
        main.main(parameters.read(["--evaluate_ensemble", "--resume_from", str(short)]))
    shutil.rmtree(short / "fold_1")
    with pytest.raises(UserError, match="not finished: fold_1"):
        main.main(parameters.read(["--evaluate_ensemble", "--resume_from", str(short)]))
    untrained = main.main(flags(data, tmp_path, "--n_epochs", "0", "--check_untrained_accuracy", "--final_test", "--group", "Untrained"))
    assert not (untrained.folder / "meta" / "concatenated.json").exists()
    with open(untrained.folder / "meta" / "results.csv", newline="") as file:
        found = list(csv.DictReader(file))
    assert {row["embeddings"] for row in found} == {"separated, epoch -1", "separated, epoch 0"}
    values = read(untrained.folder / "meta" / "separated.json")["untrained"]["0"]["val"]["map_r"]
    (row,) = [row for row in found if (row["embeddings"], row["metric"]) == ("separated, epoch 0", "map_r")]
    assert float(row["mean"]) == values["mean"] and "separated, epoch 0" in untrained.meta.columns()
    with pytest.raises(UserError, match="no epoch was selected"):
        main.main(parameters.read(["--evaluate_ensemble", "--resume_from", str(untrained.folder)]))


def test_the_split_stays_what_it_was(short, capsys):
    for change in (["--split_test_start", "0"], ["--split_partitions", "4"], ["--split_sets", "2"], ["--split_scheme", "mlrc"]):
        with pytest.raises(SystemExit):
            parameters.read(["--resume_from", str(short), "--resume_allow_changes", *change])
        assert change[0] in (message := capsys.readouterr().err) and message.count("\n") == 1


def test_flags_that_no_first_fold_takes_leave_no_folder(data, tmp_path):
    for more in (["--split_partitions", "30"], ["--bs", "400"]):
        with pytest.raises(UserError):
            main.main(flags(data, tmp_path, *more))
    assert main.main(flags(data, tmp_path, "--n_epochs", "1")).folder.name == "Cross_s1"


def test_a_folder_of_somebody_elses_is_never_removed(data, tmp_path):
    for name, more in (("mine", ["--resume"]), ("shared", ["--folds", "0"])):
        notes = tmp_path / "runs" / "folder" / name / ".notes.txt"
        notes.parent.mkdir(parents=True)
        notes.write_text("keep")
        with pytest.raises(UserError):
            main.main(flags(data, tmp_path, "--savename", name, "--bs", "400", *more))
        assert notes.read_text() == "keep"


def test_a_damaged_summary_is_one_line_and_made_anew(short):
    path = short / "fold_1" / "summary.json"
    whole = read(path)
    for content in (b"{", b"{}", b"[]", b"\xff", b'{"selected": 3}'):
        path.write_bytes(content)
        with pytest.raises(UserError, match="delete it, and --resume"):
            main.main(parameters.read(["--aggregate_only", "--resume_from", str(short)]))
    path.unlink()
    main.main(parameters.read(["--resume_from", str(short)]))
    assert read(path)["selected"] == whole["selected"]


def test_a_reference_that_folds_do_not_share_leaves_the_ensemble_out(data, tmp_path):
    reference = ("--eval_reference_set", "compared_to_training_set")
    with pytest.raises(UserError, match="--split_scheme closed_set"):  # classes that do not train have nothing to find there
        main.main(flags(data, tmp_path, *reference))
    cross = main.main(flags(data, tmp_path, "--split_scheme", "closed_set", "--final_test", *reference, "--n_epochs", "1"))
    assert set(cross.results) == {"separated"} and set(cross.results["separated"]["values"]) == {"val", "test"} and cross.settled
    with pytest.raises(UserError, match="an ensemble has no such set"):
        main.main(parameters.read(["--evaluate_ensemble", "--resume_from", str(cross.folder)]))


HALF = ["--split_scheme", "half", "--use_tv_split", "--tv_split_perc", "0.5", "--splits_to_eval", "val", "--final_test"]


def test_half_has_no_folds_and_a_final_test(data, tmp_path, capsys):
    run = main.main(flags(data, tmp_path, *HALF, "--n_epochs", "1"))
    assert set(read(run.folder / "summary.json")["selected"]["values"]) == {"val", "test"}
    assert set(read(run.folder / "summary.json")["last"]) == {"val"}
    for wrong in (["--savename", ""], ["--savename", "../elsewhere"]):
        with pytest.raises(SystemExit):
            flags(data, tmp_path, "--split_scheme", "half", *wrong)
        assert "--savename" in capsys.readouterr().err
    for wrong in (["--folds", "0"], ["--aggregate_only"], ["--evaluate_ensemble"]):
        with pytest.raises(SystemExit):
            flags(data, tmp_path, "--split_scheme", "half", *wrong)
        assert wrong[0] in capsys.readouterr().err
    for wrong in (["3"], ["-1"], ["0", "0"]):
        with pytest.raises(SystemExit):
            flags(data, tmp_path, "--folds", *wrong)
        assert capsys.readouterr().err.count("\n") == 1


def test_resume_measures_the_final_test_once(data, tmp_path):
    recorded = flags(data, tmp_path, *HALF).but(no_records=False, evaluation_metrics=["map_r", "e_recall@1", "rho_spectrum@0"], savename="Once")

    def tests_of(folder):
        assert (folder / "Arrays/test_0001.npz").exists() or (folder / "Arrays/test_0002.npz").exists()
        tables = sorted(path.name for path in (folder / "CSV_Logs").glob("Test_*.csv"))
        return [
            line
            for name in ["metrics.csv", *tables]
            for line in (folder / "CSV_Logs" / name).read_text().splitlines()
            if "train" not in line and "val" not in line
        ]

    def resumed(*words):
        return tests_of(main.main(parameters.read(["--resume_from", str(run.folder), *words])).folder)

    run = main.main(recorded.but(n_epochs=1))
    tested = tests_of(run.folder)
    assert sum(",test,e_recall@1," in line for line in tested) == 1
    assert resumed() == tested
    content = torch.load(run.folder / "checkpoint_last.pth.tar", weights_only=False)
    del content["run"]["selected"]["values"]["test"]
    torch.save(content, run.folder / "checkpoint_last.pth.tar")  # as after a kill between the rows and the checkpoint
    assert resumed() == tested
    whole = main.main(recorded.but(group="Whole", savename="Whole_s1"))
    assert resumed("--n_epochs", "2") == tests_of(whole.folder)
    assert rows(run.folder) == rows(whole.folder)
    again = main.main(parameters.read(["--config", str(whole.folder / "parameters.yaml")]))
    assert again.folder.name == "Whole_s1_1" and read(again.folder / "summary.json")["parameters"]["savename"] == "Whole_s1_1"
    config = ["--config", str(again.folder / "parameters.yaml")]
    assert parameters.read([*config, "--resume"]).savename == "Whole_s1_1"
    assert parameters.read(config).savename == "Whole_s1" and parameters.read([*config, "--seed", "2", "--resume"]).savename == "Whole_s2"


def test_a_dry_run_says_that_the_folder_cannot_be_made(data, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot make the run folder"):
        main.main(flags(data, tmp_path, "--dry_run", "--save_path", str(tmp_path / "file")))


def test_dry_run_and_configuration(data, tmp_path):
    main.main(flags(data, tmp_path, "--dry_run"))
    assert [path.name for path in (tmp_path / "runs").rglob("*") if path.is_file()] == ["Cross_s1_batch.png"]
    cross = main.main(flags(data, tmp_path, "--n_epochs", "1"))
    saved = yaml.safe_load((cross.folder / "parameters.yaml").read_text())
    assert saved["splits_to_eval"] == ["val"] and not {"folds", "fold", "aggregate_only", "evaluate_ensemble"} & set(saved)
    again = main.main(parameters.read(["--config", str(cross.folder / "parameters.yaml")]))
    assert again.folder.name == "Cross_s1_1"
    assert again.results["separated"]["values"] == cross.results["separated"]["values"]


NAMES = [f"class_{c}" for c in range(12)]


@pytest.fixture
def predefined(tmp_path):
    """Flags of a split file of three parts."""
    file = tmp_path / "splits.json"
    file.write_text(json.dumps({"train": NAMES[:5], "val": NAMES[5:8], "test": NAMES[8:]}))
    return ["--split_scheme", "predefined", "--split_file", str(file)]


def test_a_split_file_is_one_fold_and_untrained_networks_are_told_apart(predefined, data, tmp_path):
    more = [*predefined, "--final_test", "--check_untrained_accuracy", "--n_epochs", "1"]
    cross = main.main(flags(data, tmp_path, *more))
    assert [path.name for path in sorted(cross.folder.glob("fold_*"))] == ["fold_0"]
    separated = read(cross.folder / "meta" / "separated.json")
    assert set(separated["values"]) == {"val", "test"} and separated["values"]["val"]["map_r"]["standard_error"] is None
    of_epoch = {
        int(row["epoch"]): float(row["value"]) for row in rows(cross.folder / "fold_0") if (row["split"], row["metric"]) == ("val", "map_r")
    }
    assert {e: separated["untrained"][e]["val"]["map_r"]["mean"] for e in ("-1", "0")} == {"-1": of_epoch[-1], "0": of_epoch[0]}
    Path(predefined[-1]).write_text(json.dumps({"train": NAMES[:5], "test": NAMES[8:]}))
    assert flags(data, tmp_path, *more).splits_to_eval == ["test"]


def test_one_fold_says_at_its_start_what_it_lacks(predefined, data, tmp_path, capsys):
    for more, untested in (([], True), (["--final_test"], False), (["--splits_to_eval", "val", "test"], False)):
        main.main(flags(data, tmp_path, *predefined, "--n_epochs", "1", *more))
        said = capsys.readouterr().out
        line = next(line for line in said.splitlines() if "makes one fold" in line)
        assert said.index(line) < said.index("epoch 1/1") and ("nothing is measured on test: --final_test" in line) == untested


def test_a_run_keeps_its_split_file(predefined, data, tmp_path, capsys):
    file = Path(predefined[-1])
    cross = main.main(flags(data, tmp_path, *predefined, "--n_epochs", "1"))
    copy = cross.folder / "split_file.json"
    assert copy.read_bytes() == file.read_bytes()
    for swap in (lambda: file.write_text(json.dumps({"train": NAMES[:5], "test": NAMES[5:8], "val": NAMES[8:]})), file.unlink):
        swap()
        for words in (["--n_epochs", "2"], ["--evaluate"], ["--aggregate_only"]):
            with pytest.raises(SystemExit):
                parameters.read(["--resume_from", str(cross.folder), *words])
            message = capsys.readouterr().err
            assert message.count("\n") == 1 and f"--split_file {copy}" in message
    main.main(parameters.read(["--resume_from", str(cross.folder), "--n_epochs", "2", "--split_file", str(copy)]))
    assert cross.fold(0).progress.epochs == 2


@pytest.mark.parametrize("more", [[], ["--dry_run"]])
def test_data_of_a_later_fold_that_cannot_choose_an_epoch_are_refused_before_the_first_trains(data, tmp_path, more):
    opt = flags(data, tmp_path, "--split_partitions", "4", "--split_sets", "4", *more)  # of six classes: the third fold validates on one
    with pytest.raises(UserError, match=r"^fold 2, counted from 0: map_r on val .* validation has 1 class, "):
        main.main(opt)
    assert not (tmp_path / "runs").exists()
