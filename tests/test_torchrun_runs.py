"""Whole runs, folds and searches of two processes are those of one: values, folders, meta results, trials. One start of the processes for all."""

import csv
import json

import numpy as np
import pytest
import torch

import Bayesian_Optimization
import main
import parameters
from runs import RunFolder, checkpoint
from tests import _processes, builders
from tests._processes import spawned
from tests.test_torchrun import assert_same_run, one_thread, values  # noqa: F401  a fixture

FOLDS = ["--split_scheme", "class_disjoint", "--split_partitions", "3", "--split_sets", "3"]
TESTED = [*FOLDS, "--savename", "Folds", "--final_test", "--dump_embeddings", "--check_untrained_accuracy"]
APART = [*FOLDS, "--savename", "Apart"]
AT_WORK = ["--chunk_size", "3", "--ema_decay", ".5", "--loss", "contrastive", "--memory_size", "40", "--memory_start", "1", "--memory_ema", ".5"]
RESTS = ["--freeze_backbone", "--feature_cache", "--augmentation", "none", "--arch", "conv4_normalize"]
SEARCH = [
    "--use_tv_split", "--tv_split_perc", "0.5", "--group", "Found", "--lr~CHOICE~", "[1e6,1e-3]", "--loss_margin_margin~BAYESIAN~", "[0,1]",
    "--bayesian_optimization_n_iter", "4", "--reproductions", "1",
]  # fmt: skip
RUNS = {
    "Chunks": AT_WORK,
    "Half": [*AT_WORK, "--precision", "bfloat16"],
    "Rests": RESTS,
    "Triplets": ["--loss", "triplet", "--batch_mining", "packaged", "--data_sampler", "fixed_triplets", "--bs", "15"],
}


def commands(data, folder, cache):
    """Program and words of everything that is run, under `folder`."""
    common = [
        "--dataset", "folder", "--dataset_folder_path", str(data), "--save_path", str(folder), *builders.SHORT_RUN, "--loss", "margin",
        "--arch", "conv4_frozen_normalize", "--bs", "14", "--n_epochs", "1", "--optim", "sgd", "--storage_metrics", "e_recall@1", "--seed", "3",
    ]  # fmt: skip
    jobs = [TESTED, [*APART, "--folds", "2", "0"], [*APART, "--n_epochs", "2", "--resume", "--resume_allow_changes"]]
    jobs += [["--evaluate", "--resume_from", str(folder / "folder" / "Folds"), "--splits_to_eval", "val", "--eval_kernels", "0"]]
    jobs += [["--reproduce_results", str(folder / "folder" / "Apart"), "--savename", "Again"]]
    jobs += [[*more, "--savename", name, "--image_cache", str(cache)] for name, more in RUNS.items()]
    plain = [words if words[0] in ("--evaluate", "--reproduce_results") else [*common, *words] for words in jobs]
    return [*(("main.py", words) for words in plain), ("Bayesian_Optimization.py", [*common, *SEARCH])]


@pytest.fixture(scope="module")
def both(data, tmp_path_factory, without_pictures):
    """The folders of all runs, of one process and of two."""
    one, many = (tmp_path_factory.mktemp(name) for name in ("one", "many"))
    for program, words in commands(data, one, one / "cache"):
        Bayesian_Optimization.search(words) if program != "main.py" else main.main(parameters.read(words))
    spawned(2, _processes.programs, commands(data, many, many / "cache"))
    return one / "folder", many / "folder"


def read(path):
    return json.loads(path.read_text())


def assert_near(found, wanted):
    """Two pieces of JSON, numbers to rounding."""
    if isinstance(wanted, dict):
        assert list(found) == list(wanted)
        for name in wanted:
            assert_near(found[name], wanted[name])
    elif isinstance(wanted, list):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            assert_near(one, other)
    elif isinstance(wanted, float):
        assert found == pytest.approx(wanted, rel=1e-4, abs=1e-5)
    elif not (isinstance(wanted, str) and "/" in wanted):  # a path
        assert found == wanted


def test_there_is_one_set_of_folders_and_files(both):
    one, many = both
    names = [{str(path.relative_to(folder)) for path in folder.rglob("*")} for folder in both]
    assert names[0] == names[1] and {"Folds/fold_2/summary.json", "Apart/configs", "Again/configs"} <= names[1]


@pytest.mark.parametrize("name", ["Folds", "Apart", "Again"])
def test_folds_are_those_of_one_process(both, name):
    one, many = (folder / name for folder in both)
    for fold in range(3):
        assert_same_run(values(one / f"fold_{fold}"), values(many / f"fold_{fold}"))
        assert "processes: 2" in (many / f"fold_{fold}" / "environment.yaml").read_text()
    for file in (path.relative_to(one) for path in (one / "meta").glob("*.json")):
        assert_near(read(many / file), read(one / file))
    rows = [list(csv.reader((folder / "meta" / "results.csv").read_text().splitlines())) for folder in (one, many)]
    assert [row[:3] for row in rows[0]] == [row[:3] for row in rows[1]]


def test_folds_are_measured_together(both):
    one, many = (np.load(folder / "Folds" / "meta" / "embeddings_test.npz") for folder in both)
    assert one["features"].shape == many["features"].shape and np.abs(one["features"] - many["features"]).max() < 1e-5
    joined = read(both[1] / "Folds" / "meta" / "concatenated.json")
    assert joined["folds"] == [0, 1, 2] and (both[1] / "Folds" / "meta" / "evaluation_separated.json").exists()


@pytest.mark.parametrize("name", [name for name in RUNS if name != "Half"])
def test_runs_are_those_of_one_process(both, name):
    one, many = (folder / name for folder in both)
    assert_same_run(values(one), values(many))
    parts = [checkpoint.read(folder / checkpoint.LAST) for folder in (one, many)]
    for part in ("state_dict", "trained"):
        for key, value in parts[0].get(part, {}).items():
            torch.testing.assert_close(parts[1][part][key], value, rtol=1e-4, atol=1e-5)
    assert ("trained" in parts[0]) == (name == "Chunks")


def test_in_half_precision_the_run_is_that_of_one_process_to_its_rounding(both):
    one, many = (values(folder / "Half") for folder in both)
    assert one.index.equals(many.index)
    losses = one.index.get_level_values("metric").str.endswith("loss")
    assert losses.sum() > 1 and np.allclose(one[losses], many[losses], rtol=0.02)


def test_two_processes_build_one_image_cache(both):
    """Each image is in it once."""
    for folder in both:
        (index,) = (folder.parent / "cache").glob("*/index.jsonl")
        names = [json.loads(line)[0] for line in index.read_text().splitlines()[1:]]
        assert len(names) == len(set(names)) == 60


def test_a_search_is_that_of_one_process(both):
    """Trials that give no finite loss have failed in all processes alike, and the search went on."""
    tables = []
    for folder in both:
        with open(folder / "Found_search" / "trials.csv", newline="") as file:
            tables.append(list(csv.DictReader(file)))
    assert [row["trial"] for row in tables[1]] == [f"trial_{i}" for i in range(4)]
    assert {row["state"] for row in tables[1]} == {"complete", "fail"}
    for a, b in zip(*tables, strict=True):
        assert all(a[name] == b[name] for name in ("state", "attempts", "reason", "lr", "loss_margin_margin")) and (
            not a["value"] or float(a["value"]) == pytest.approx(float(b["value"]), abs=1e-5)
        )
    for name in ["trial_0", "trial_1"]:
        if RunFolder(both[1] / "Found_search" / name).has_checkpoint:
            assert_same_run(*(values(folder / "Found_search" / name) for folder in both))
    assert (both[1] / "Found_search" / "reproductions.yaml").exists()
