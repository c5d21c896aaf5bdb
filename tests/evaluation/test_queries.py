"""What each query found, in files: against the metrics and plain loops; of a run, of its evaluation, of a file of embeddings."""

import csv
import importlib
import json

import numpy as np
import pytest

import evaluation
import main
import metrics
import parameters
from evaluation import queries
from tests.builders import refused
from tests.evaluation._made import Network, evaluated, made_splits, options
from tests.metrics._plain import plain_value, random_space, ranked
from utilities.errors import UserError

command = importlib.import_module("evaluation.__main__")
NAMES = ("hit", "ap_at_r", "first_hit")


def test_what_a_query_finds_by_loops():
    features, labels = random_space(n=60, classes=25, seed=4)  # some classes of one sample
    found = metrics.query_results(metrics.EmbeddingSpace(features, labels))
    assert [found[name].dtype for name in NAMES] == [np.uint8, np.float64, np.int32]
    for i, query in enumerate(features):
        relevance = [bool(labels[j] == labels[i]) for j in ranked(query, features, i)]
        total = sum(relevance)
        assert found["hit"][i] == plain_value("e_recall@1", relevance, total, total + 1)
        assert found["ap_at_r"][i] == pytest.approx(plain_value("map_r", relevance, total, total + 1), nan_ok=True)
        assert found["first_hit"][i] == (relevance.index(True) + 1 if total else 0)
    assert (found["first_hit"] == 0).any()


def embedded(*more, **how):
    opt = options(*more)
    scores, features, _ = evaluated(made_splits(), *more, network=Network(**how))
    return opt, scores, features


def parents_of(dataset):
    return np.array([dataset.parent(row) for row in range(len(dataset))])


def read(path):
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


@pytest.mark.parametrize(
    "more", [(), ("--eval_reference_set", "compared_to_sets_combined"), ("--eval_pca", "2"), ("--label_hierarchy_level", "1")]
)
def test_a_file_holds_the_terms_of_the_metrics(tmp_path, more):
    opt, scores, features = embedded(*more)
    paths = queries.dump(tmp_path, features, opt, 7)
    assert [path.name for path in paths] == [f"query_results_{split}.npz" for split in scores]
    for split, path in zip(scores, paths, strict=True):
        file, dataset = read(path), features[split].dataset
        assert file["hit"].mean() == pytest.approx(scores[split]["e_recall@1"], abs=1e-12)
        assert np.nanmean(file["ap_at_r"]) == pytest.approx(scores[split]["map_r"], abs=1e-12)
        assert file["paths"].tolist() == dataset.paths and file["class_names"].tolist() == dataset.names
        assert int(file["epoch"]) == 7 and json.loads(str(file["flags"]))["eval_pca"] == opt.eval_pca
        assert {len(file[name]) for name in (*NAMES, "labels")} == {len(dataset)}


def test_inside_super_classes_and_gaps_between_them(tmp_path):
    opt, scores, features = embedded("--tester", "same_parent_label")
    _, plain, _ = embedded("--evaluation_metrics", "e_recall@1", "e_recall@1_group_gap")
    _, _, everywhere = embedded()
    for split, path in zip(scores, queries.dump(tmp_path, features, opt, 1), strict=True):
        hit, parents = read(path)["hit"], parents_of(features[split].dataset)
        assert np.mean([hit[parents == parent].mean() for parent in set(parents)]) == pytest.approx(scores[split]["e_recall@1"], abs=1e-12)
    for split, path in zip(plain, queries.dump(tmp_path, everywhere, options(), 1), strict=True):
        hit, parents = read(path)["hit"], parents_of(everywhere[split].dataset)
        means = [hit[parents == parent].mean() for parent in set(parents)]
        assert plain[split]["e_recall@1_group_gap"] == pytest.approx(max(means) - min(means), abs=1e-12)
    gap = ("--evaluation_metrics", "e_recall@1", "c_recall@1_group_gap")
    with refused("--evaluation_metrics c_recall@1_group_gap: .* no super-classes"):
        evaluation.loaders(made_splits(parents=False), options(*gap))
    for more in (("--tester", "same_parent_label"), ("--label_hierarchy_level", "1")):
        with pytest.raises(UserError, match=f"leave out {more[0]}"):
            evaluation.loaders(made_splits(), options(*gap, *more))


def test_several_embeddings_have_files_of_their_own(tmp_path):
    opt, scores, features = embedded("--evaltypes", "a", "b", "--splits_to_eval", "val", heads=("a", "b"))
    paths = queries.dump(tmp_path, features, opt, 1)
    assert [path.name for path in paths] == ["query_results_val_a.npz", "query_results_val_b.npz"]
    for path, evaltype in zip(paths, "ab", strict=True):
        assert read(path)["hit"].mean() == pytest.approx(scores["val"][f"{evaltype}/e_recall@1"])


def flags(folder_data, parent, *more):
    return parameters.read([
        "--dataset", "folder", "--dataset_folder_path", str(folder_data), "--save_path", str(parent), "--arch", "conv4_normalize",
        "--embed_dim", "16", "--loss", "triplet", "--batch_mining", "semihard", "--bs", "8", "--n_epochs", "2", "--kernels", "0",
        "--evaluation_metrics", "e_recall@1", "map_r", "--lr", "0.001", "--group", "Queries", "--no_records", "--dump_query_results", *more,
    ])  # fmt: skip


@pytest.fixture(scope="module")
def run(folder_data, tmp_path_factory):
    return main.main(flags(folder_data, tmp_path_factory.mktemp("runs"), "--dump_embeddings"))


def test_of_a_run_those_of_the_selected_epoch(run, tmp_path):
    selected = json.loads((run.folder / "summary.json").read_text())["selected"]
    for split in ("train", "test"):
        file = read(run.folder / f"query_results_{split}.npz")
        assert int(file["epoch"]) == selected["epoch"] and file["hit"].mean() == pytest.approx(selected["values"][split]["e_recall@1"])
        command.main([str(run.folder / f"embeddings_{split}.npz"), "--dump_query_results", str(tmp_path / "later.npz")])
        later = read(tmp_path / "later.npz")
        assert all(np.array_equal(file[name], later[name], equal_nan=True) for name in (*NAMES, "labels"))
        assert all(np.array_equal(file[name], later[name]) for name in ("paths", "class_names", "flags"))
    with open(run.folder / "CSV_Logs" / "metrics.csv", newline="") as rows:
        assert {row["metric"] for row in csv.DictReader(rows)} >= {"e_recall@1"}


def test_measured_again(run):
    before = (run.folder / "query_results_test.npz").read_bytes()
    main.main(parameters.read(["--evaluate", "--resume_from", str(run.folder), "--eval_pca", "3", "--dump_query_results"]))
    assert (run.folder / "query_results_test.npz").read_bytes() == before
    (again,) = [path for path in run.folder.rglob("query_results_test.npz") if path.parent != run.folder]
    assert json.loads(str(read(again)["flags"]))["eval_pca"] == 3
    assert not parameters.read(["--evaluate", "--resume_from", str(run.folder)]).dump_query_results, "no habit of the run's"


def test_untrained_and_with_a_final_test(folder_data, tmp_path):
    untrained = main.main(flags(folder_data, tmp_path, "--n_epochs", "0"))
    file = read(untrained.folder / "query_results_test.npz")
    assert int(file["epoch"]) == 0 and file["hit"].mean() == pytest.approx(untrained.untrained(0)["test"]["e_recall@1"])
    more = ("--use_tv_split", "--tv_split_perc", ".5", "--splits_to_eval", "val", "--final_test", "--n_epochs", "1")
    final = main.main(flags(folder_data, tmp_path, *more))
    file, selected = read(final.folder / "query_results_test.npz"), final.state["selected"]
    assert int(file["epoch"]) == selected["epoch"] and file["hit"].mean() == pytest.approx(selected["values"]["test"]["e_recall@1"])


def test_a_file_of_embeddings_may_hold_super_classes(tmp_path):
    features, labels = random_space(n=40, classes=6)
    np.savez(tmp_path / "f.npz", features=features, labels=labels, groups=labels % 2)
    values = command.main([str(tmp_path / "f.npz"), "--evaluation_metrics", "e_recall@1_group_gap"])
    assert values == metrics.compute(["e_recall@1_group_gap"], features, labels, groups=labels % 2)
