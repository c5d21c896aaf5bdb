"""Whole runs on a test set of queries and a gallery: records, console, pictures, measured again, read by the command,
in tables, over folds.
"""

import importlib
from pathlib import Path

import numpy as np
import pytest

import datasets
import evaluation
import main
import metrics
from evaluation import from_splits, queries
from tests.kit import processes
from tests.kit.runs import content_of, on_folder, read, run_main
from utilities.errors import UserError

command = importlib.import_module("evaluation.__main__")
METRICS = ["e_recall@1", "map_r", "mAP_c", "nmi", "dists@intra", "rho_spectrum@1"]
plain = datasets.select


def select(*arguments, **options):
    """`datasets.select`; a test image's place in its class decides its role, and neighbours are a sequence."""
    splits = plain(*arguments, **options)
    test = splits["testing"]
    places = np.array([int(Path(path).stem) for path in test.paths])
    test.is_query = places < 4
    test.is_gallery = (places > 1) & (np.array([label for _, label in test.image_list]) > 0)
    test.sequences = np.where(places > 0, (np.arange(len(places)) - 1) // 2, -1)
    return splits


@pytest.fixture
def with_roles(monkeypatch):
    monkeypatch.setattr(datasets, "select", select)
    monkeypatch.setattr(datasets.REGISTRY.module("folder"), "EVALUATION_METRICS", METRICS, raising=False)


SMALL = "--embed_dim 8 --bs 8 --kernels 0 --plot_every 0 --crop_size 32 --resize_size 36"


def flags(data, parent, *words):
    run = "--arch conv4_normalize --loss triplet --batch_mining semihard --n_epochs 2 --lr 0.001 --group Roles"
    return read(*on_folder(data, parent, SMALL, run, *words))


def trained(*arguments):
    return main.main(flags(*arguments))


def summary_of(folder):
    return content_of(folder / "summary.json")


def measured(file):
    """The metrics of a dumped test set, of queries and gallery cut by hand; neighbours by a loop."""
    x = file["features"]
    y = file["labels"]
    sequences = file["sequence"]
    gallery = np.flatnonzero(file["is_gallery"])
    firsts = []
    for row in np.flatnonzero(file["is_query"]):
        is_other = (gallery != row) & ((sequences[gallery] < 0) | (sequences[gallery] != sequences[row]))
        distances = np.square(x[gallery[is_other]].astype(float) - x[row].astype(float)).sum(1)
        firsts.append(y[gallery[is_other][distances.argmin()]] == y[row])
    either = np.flatnonzero(file["is_query"] | file["is_gallery"])
    clustering = metrics.compute(["nmi", "dists@intra", "rho_spectrum@1"], x[either], y[either], seed=1)
    return {"e_recall@1": float(np.mean(firsts)), **clustering}


@pytest.mark.long
def test_a_run_with_queries_and_a_gallery(with_roles, folder_data, tmp_path, capsys, monkeypatch, with_pictures):
    pictures = []
    nearest = queries.nearest

    def noted_nearest(task, *arguments):
        pictures.append((task, nearest(task, *arguments)))
        return pictures[-1][1]

    monkeypatch.setattr(queries, "nearest", noted_nearest)
    run = trained(folder_data, tmp_path, "--dump_embeddings")
    output = capsys.readouterr().out
    text = "16 queries search in 12 images, its gallery"
    assert output.count(text) == 1
    assert output.count("metrics  --evaluation_metrics: those published for folder: e_recall@1 map_r") == 1
    assert run.opt.evaluation_metrics == METRICS and "4 of 16 queries have no image of their class to find" in output
    summary = summary_of(run.folder)
    assert list(summary["roles"]) == ["test"] and text in summary["roles"]["test"]
    assert "of queries and gallery together, 22 images" in summary["roles"]["test"]
    assert content_of(run.folder / "environment.yaml")["data"]["roles"] == summary["roles"]
    values = summary["selected"]["values"]["test"]
    with np.load(run.folder / "embeddings_test.npz") as file:
        expected = measured(file)
        assert {name: values[name] for name in expected} == pytest.approx(expected, abs=1e-9)
        roles = {name: file[name].tolist() for name in ("is_query", "is_gallery", "sequence")}
    with np.load(run.folder / "embeddings_train.npz") as file:
        assert "is_query" not in file.files and "sequence" not in file.files
    remeasured = command.main([str(run.folder / "embeddings_test.npz"), "--evaluation_metrics", *METRICS])
    assert remeasured == pytest.approx(values, abs=1e-12)
    assert pictures
    # what the pictures of the best epochs show
    for task, neighbours in pictures:
        assert all(roles["is_gallery"][task.gallery.ids[index]] for columns in neighbours for index in columns)
        assert all(roles["is_query"][row] for row in task.queries.ids)
        assert len(task.gallery) == sum(roles["is_gallery"])
    evaluated = run_main("--evaluate --resume_from", run.folder)
    assert evaluated["test"] == values
    written = content_of(run.folder / "evaluation_Test_discriminative_e_recall@1.json")
    assert written["data"]["roles"] == summary["roles"] and written["values"]["test"] == values
    resumed = run_main("--resume_from", run.folder, "--n_epochs 3")
    assert summary_of(resumed.folder)["roles"] == summary["roles"]
    tables = importlib.import_module("Result_Evaluations")
    tables.main(tables.read(["--runs", str(tmp_path), "--out", str(tmp_path / "tables")]))
    assert any(text in path.read_text(encoding="utf-8") for path in (tmp_path / "tables").glob("*.md"))


def test_flags_of_evaluation(with_roles, folder_data, tmp_path):
    words = "--eval_reference_set compared_to_sets_combined --eval_pca 4 --use_tv_split --tv_split_perc 0.5"
    summary = summary_of(trained(folder_data, tmp_path, "--n_epochs 1 --no_records", words).folder)
    assert 0 <= summary["selected"]["values"]["test"]["map_r"] <= 1
    assert "16 queries search in 36 images, the gallery of train, val, test" in summary["roles"]["test"]


def test_what_cannot_be_chosen_by_is_refused_before_training(with_roles, folder_data, tmp_path, monkeypatch):
    def without_partners(*arguments, **named):
        splits = select(*arguments, **named)
        test = splits["testing"]
        labels = np.array([label for _, label in test.image_list])
        test.is_query = labels < 2
        test.is_gallery = labels > 1
        return splits

    monkeypatch.setattr(datasets, "select", without_partners)
    with pytest.raises(UserError, match="no query has another image of its class to find: in the gallery"):
        trained(folder_data, tmp_path)
    assert not list(tmp_path.iterdir())


def test_defaults_of_a_data_sets_metrics(with_roles, folder_data, tmp_path):
    assert flags(folder_data, tmp_path).evaluation_metrics == METRICS
    assert flags(folder_data, tmp_path, "--evaluation_metrics e_recall@1").evaluation_metrics == ["e_recall@1"]


@pytest.mark.long
def test_folds_and_their_ensemble(with_roles, data, tmp_path):
    scheme = "--split_scheme class_disjoint --split_partitions 2 --split_sets 2"
    cross = trained(data, tmp_path, scheme, "--final_test --dump_embeddings")
    assert "queries search in" in summary_of(cross.folder / "fold_0")["roles"]["test"]
    with np.load(cross.folder / "meta" / "embeddings_test.npz") as file:
        expected = measured(file)
    joined = content_of(cross.folder / "meta" / "concatenated.json")["values"]["test"]
    assert {name: joined[name]["mean"] for name in expected} == pytest.approx(expected, abs=1e-9)


def run_with_roles(rank, words):
    """`processes.whole_run` on data with roles."""
    datasets.select = select
    processes.whole_run(rank, words)


@pytest.mark.long
def test_several_processes_measure_what_one_does(with_roles, folder_data, tmp_path):
    words = [SMALL, "--arch conv4_frozen_normalize --loss contrastive --n_epochs 1 --no_records --dump_embeddings"]
    words += ["--evaluation_metrics", *METRICS]
    single = run_main(*on_folder(folder_data, tmp_path / "one", *words))
    processes.spawned(2, run_with_roles, on_folder(folder_data, tmp_path / "two", *words))
    two = next((tmp_path / "two").rglob("summary.json")).parent
    expected = summary_of(single.folder)
    actual = summary_of(two)
    assert expected["roles"] == actual["roles"]
    assert actual["selected"]["values"]["test"] == pytest.approx(expected["selected"]["values"]["test"], abs=1e-4)
    with np.load(two / "embeddings_test.npz") as file:
        assert measured(file)["e_recall@1"] == pytest.approx(actual["selected"]["values"]["test"]["e_recall@1"])


def test_the_ensemble_joins_roles(with_roles, folder_data):
    dataset = select("folder", None, dataset_folder_path=str(folder_data))["testing"]
    x = np.random.default_rng(0).normal(size=(len(dataset), 4)).astype(np.float32)
    labels = np.array([label for _, label in dataset.image_list])
    members = [evaluation.Embedded({"discriminative": x + k}, labels, 0.0, dataset) for k in range(2)]
    joined = importlib.import_module("evaluation.ensemble").join(members)
    task = from_splits.tasks(joined, read("--splits_to_eval test"), "discriminative")["test"]
    shapes = [rows.features.shape for rows in (task.queries, task.gallery, task.pool)]
    assert shapes == [(16, 8), (12, 8), (22, 8)]
