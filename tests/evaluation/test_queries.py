"""What each query found, in files: against the metrics and plain loops; of a run, of its evaluation, of a file."""

import json

import numpy as np
import pytest

import evaluation
import main
import metrics
import parameters
from evaluation import __main__ as command
from evaluation import queries
from tests.kit.plain_metrics import orders, plain_value, random_space
from tests.kit.refusals import refused
from tests.kit.runs import run_words
from tests.kit.splits import Network, evaluated, made_splits, options

NAMES = ("hit", "ap_at_r", "first_hit")


def test_what_a_query_finds_by_loops():
    # some classes of one sample
    features, labels = random_space(n=60, classes=25, seed=4)
    results = metrics.query_results(metrics.EmbeddingSpace(features, labels))
    assert [results[name].dtype for name in NAMES] == [np.uint8, np.float64, np.int32]
    for i, order in orders(features):
        relevance = [bool(labels[j] == labels[i]) for j in order]
        total = sum(relevance)
        assert results["hit"][i] == plain_value("e_recall@1", relevance, total, total + 1)
        assert results["ap_at_r"][i] == pytest.approx(plain_value("map_r", relevance, total, total + 1), nan_ok=True)
        assert results["first_hit"][i] == (relevance.index(True) + 1 if total else 0)
    assert (results["first_hit"] == 0).any()


def dumped(folder, *flags, heads=()):
    """The scores, split -> evaltype -> a file's arrays, and split -> Embedded."""
    scores, embedded, _ = evaluated(made_splits(), *flags, network=Network(heads=heads))
    paths = queries.dump(folder, embedded, options(*flags), 7)
    endings = [f"_{head}" for head in heads] or [""]
    names = [f"query_results_{split}{ending}.npz" for split in scores for ending in endings]
    assert [path.name for path in paths] == names
    return scores, [read(path) for path in paths], embedded


def read(path):
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


def of_parents(file, dataset):
    """The share of hits in each super-class."""
    parents = np.array([dataset.parent(row) for row in range(len(dataset))])
    return [file["hit"][parents == parent].mean() for parent in set(parents)]


@pytest.mark.parametrize(
    "flags", ["", "--eval_reference_set compared_to_sets_combined", "--eval_pca 2", "--label_hierarchy_level 1"]
)
def test_a_file_holds_the_terms_of_the_metrics(tmp_path, flags):
    has_gap = "level" not in flags
    names = ["e_recall@1", "map_r", "e_recall@1_group_gap"][: 2 + has_gap]
    flags = flags.split()
    scores, files, embedded = dumped(tmp_path, *flags, "--evaluation_metrics", *names)
    for (split, values), file in zip(scores.items(), files, strict=True):
        dataset = embedded[split].dataset
        means = (file["hit"].mean(), np.nanmean(file["ap_at_r"]))
        assert means == pytest.approx((values["e_recall@1"], values["map_r"]), abs=1e-12)
        assert file["paths"].tolist() == dataset.paths and file["class_names"].tolist() == dataset.names
        assert int(file["epoch"]) == 7 and json.loads(str(file["flags"]))["eval_pca"] == options(*flags).eval_pca
        assert {len(file[name]) for name in (*NAMES, "labels")} == {len(dataset)}
        if has_gap:
            assert values[names[2]] == pytest.approx(np.ptp(of_parents(file, dataset)), abs=1e-12)


def test_inside_super_classes_and_of_several_embeddings(tmp_path):
    inside = ("--tester", "same_parent_label")
    scores, files, embedded = dumped(tmp_path, *inside)
    for split, file in zip(scores, files, strict=True):
        mean = np.mean(of_parents(file, embedded[split].dataset))
        assert mean == pytest.approx(scores[split]["e_recall@1"], abs=1e-12)
    scores, files, _ = dumped(tmp_path, "--evaltypes", "a", "b", "--splits_to_eval", "val", heads=("a", "b"))
    for file, head in zip(files, "ab", strict=True):
        assert file["hit"].mean() == pytest.approx(scores["val"][f"{head}/e_recall@1"])
    for flags, parents, message in (
        ((), False, "--evaluation_metrics c_recall@1_group_gap: .* no super-classes"),
        (inside, True, "leave out --tester"),
        (("--label_hierarchy_level", "1"), True, "leave out --label_hierarchy_level"),
    ):
        opt = options("--evaluation_metrics", "e_recall@1", "c_recall@1_group_gap", *flags)
        with refused(message):
            evaluation.loaders(made_splits(parents=parents), opt)


def test_of_a_run_those_of_the_selected_epoch_and_measured_again(run, tmp_path):
    selected = json.loads((run / "summary.json").read_text())["selected"]
    for split in ("train", "test"):
        file = read(run / f"query_results_{split}.npz")
        assert int(file["epoch"]) == selected["epoch"]
        assert file["hit"].mean() == pytest.approx(selected["values"][split]["e_recall@1"])
        command.main([str(run / f"embeddings_{split}.npz"), "--dump_query_results", str(tmp_path / "later.npz")])
        later = read(tmp_path / "later.npz")
        assert all(np.array_equal(file[name], later[name], equal_nan=True) for name in (*NAMES, "labels"))
        assert all(np.array_equal(file[name], later[name]) for name in ("paths", "class_names"))
        of_run, of_file = (json.loads(str(arrays["flags"])) for arrays in (file, later))
        assert of_file == {**of_run, "split": split, "selected_on": "test"}
    words = ["--evaluate", "--resume_from", str(run)]
    before = (run / "query_results_test.npz").read_bytes()
    main.main(parameters.read([*words, "--eval_pca", "3", "--dump_query_results"]))
    assert (run / "query_results_test.npz").read_bytes() == before
    (new_file,) = [path for path in run.rglob("query_results_test.npz") if path.parent != run]
    assert json.loads(str(read(new_file)["flags"]))["eval_pca"] == 3
    assert not parameters.read(words).dump_query_results, "no habit of the run's"


@pytest.mark.parametrize("is_trained", [False, True])
def test_untrained_and_with_a_final_test(is_trained, folder_data, tmp_path):
    flags = "--n_epochs 0"
    if is_trained:
        flags = "--use_tv_split --tv_split_perc .5 --splits_to_eval val --final_test --n_epochs 1"
    words = ["--loss", "softmax", "--dump_query_results", *flags.split()]
    run = main.main(parameters.read(run_words(folder_data, tmp_path, *words)))
    epoch = run.state["selected"]["epoch"] if is_trained else 0
    values = run.state["selected"]["values"] if is_trained else run.untrained(0)
    file = read(run.folder / "query_results_test.npz")
    assert int(file["epoch"]) == epoch and file["hit"].mean() == pytest.approx(values["test"]["e_recall@1"])
