"""A finished run measured again, its embeddings in files, and `python -m evaluation` on those and on others."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

import datasets
import evaluation
import main
import metrics
import parameters
from evaluation import __main__ as command
from evaluation import outputs
from tests.kit.data_sets import make_folder
from tests.kit.refusals import refused
from tests.kit.runs import on_folder, run_words
from tests.kit.splits import Network, evaluated, made_splits, options

CHECKPOINT = "checkpoint_Test_discriminative_e_recall@1.pth.tar"


ROOT = Path(__file__).resolve().parent.parent.parent
METRICS = ["e_recall@1", "map_r", "nmi", "rho_spectrum@0"]


def evaluate_again(folder, *flags):
    return main.main(parameters.read(["--evaluate", "--resume_from", str(folder), *map(str, flags)]))


def of_file(path, *words):
    """What `python -m evaluation` finds of a file."""
    return command.main([str(path), "--evaluation_metrics", *map(str, words)])


@pytest.fixture
def new_data(tmp_path):
    """Data that the run has not seen: five classes of three images."""
    root = make_folder(tmp_path / "other", n_classes=5, n_images=3, names=[f"new {i}" for i in range(5)])
    return ("--dataset", "folder", "--dataset_folder_path", str(root))


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def strict(path):
    """JSON without NaN."""
    return json.loads(path.read_text(), parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


def evaluations(run, before):
    """The new files of evaluations."""
    return [path for path in run.glob("evaluation_*.json") if path not in before]


def selected(run):
    return json.loads((run / "summary.json").read_text())["selected"]


def test_pictures_and_embeddings_of_the_best_epoch(run, capsys):
    for name in ("sample_recoveries", "worst_queries", "spectrum", "distances", "tsne_train", "tsne_test"):
        assert (run / f"{name}.png").stat().st_size > 5000, name
    for split, recorded in selected(run)["values"].items():
        path = run / f"embeddings_{split}.npz"
        with np.load(path) as file:
            assert file["features"].shape == (24, 16) and file["features"].dtype == np.float32
            paths = file["paths"].tolist()
            assert [Path(path).parent.name for path in paths] == file["class_names"].tolist()
            assert len(set(paths)) == 24 and file["labels"].tolist() == sorted(file["labels"].tolist())
        values = of_file(path, *METRICS, "--seed", 3, "--out", run / "out.json")
        assert {name: values[name] for name in recorded} == recorded
        assert strict(run / "out.json")["map_r"] == recorded["map_r"]
        message = capsys.readouterr().out
        assert "24 embeddings of 16 dimensions, 4 classes" in message and f"{recorded['map_r']:.4f}" in message


def test_evaluate_equals_the_recorded_values_exactly_and_touches_nothing(run, capsys):
    before = contents(run)
    recorded = selected(run)
    scores = evaluate_again(run)
    for split, values in recorded["values"].items():
        assert {name: scores[split][name] for name in values} == values
    message = capsys.readouterr().out
    for text in ("e_recall@1", f"epoch {recorded['epoch']}", "rho_spectrum@0: 16 values"):
        assert text in message
    written = strict(run / "evaluation_Test_discriminative_e_recall@1.json")
    assert (written["epoch"], written["checkpoint"]) == (recorded["epoch"], CHECKPOINT)
    spectra = [values.pop("rho_spectrum@0") for values in written["values"].values()]
    assert written["values"] == recorded["values"] and list(map(len, spectra)) == [16, 16]
    assert contents(run).items() >= before.items()


def test_other_flags_have_files_of_their_own_and_the_same_the_same(run, capsys, monkeypatch):
    """Embeddings and pictures of the training stay; what is not defined is null."""
    before = contents(run)
    drawings = []
    monkeypatch.setattr(outputs, "draw_pictures", lambda folder, *arguments: drawings.append(folder))
    flags = "--dump_embeddings --eval_no_normalize --evaluation_metrics precision@1 rho_spectrum@999"
    argv = [*flags.split(), "--eval_size_of_tsne", "0"]
    scores = evaluate_again(run, *argv)
    after = contents(run)
    message = capsys.readouterr().out
    files = [path for path in set(after) - set(before) if path.suffix == ".npz"]
    assert {path.name for path in files} == {"embeddings_train.npz", "embeddings_test.npz"}
    assert all(f"written  {path}" in message for path in files)
    (written,) = (path for path in set(after) - set(before) if path.suffix == ".json")
    record = strict(written)
    assert drawings == [written.with_suffix("")]
    assert record["flags"]["eval_no_normalize"] and np.isnan(scores["test"]["rho_spectrum@999"])
    assert record["values"]["test"] == {"precision@1": scores["test"]["precision@1"], "rho_spectrum@999": None}
    for path, flag in ((run / "embeddings_test.npz", False), (written.with_suffix("") / "embeddings_test.npz", True)):
        with np.load(path) as file:
            flags_of_file = json.loads(str(file["flags"]))
            assert flags_of_file["eval_no_normalize"] == flag
            assert (flags_of_file["split"], flags_of_file["selected_on"]) == ("test", "test")
            assert np.allclose(np.linalg.norm(file["features"], axis=1), 1, atol=1e-5) != flag
    assert of_file(path, "precision@1")["precision@1"] == scores["test"]["precision@1"]
    evaluate_again(run, *argv)
    assert contents(run).keys() == after.keys() and drawings[1:] == drawings[:1]
    assert contents(run).items() >= before.items()


def test_a_run_is_found_by_group_and_seed_as_by_resume(run):
    root = yaml.safe_load((run / "parameters.yaml").read_text())["dataset_folder_path"]
    words = on_folder(root, run.parent.parent, "--evaluate", "--group", "Again", "--seed", "3")
    assert main.main(parameters.read(words))["test"]["map_r"] == selected(run)["values"]["test"]["map_r"]
    assert [path for path in run.parent.iterdir() if path.is_dir()] == [run], "no new run"


def test_what_is_refused_in_one_line(run, tmp_path, capsys, monkeypatch):
    resume = f"--resume_from {run}"
    evaluate = f"--evaluate {resume}"
    folds = "--split_scheme class_disjoint"
    for words, message in (
        (f"--evaluate --save_path {tmp_path}/none --group Nobody", "no run there"),
        (f"--evaluate --resume_from {tmp_path}", "no run there"),
        (f"{evaluate} --embed_dim 32", "--embed_dim 32 (saved: 16)"),
        (f"{evaluate} --splits_to_eval val", "no validation data"),
        (f"{evaluate} --dataset glyphs --evaluate_all --splits_to_eval train test", "one split, test"),
        (
            f"{evaluate} --dataset glyphs --evaluate_all --eval_reference_set compared_to_training_set",
            "one split, test",
        ),
        (f"{evaluate} --split_shuffle 3", "--split_shuffle 3 (saved: None)"),
        (f"{evaluate} --use_tv_split", "stay those of"),
        (f"{evaluate} --dataset glyphs {folds}", f"{folds} (saved: half)"),
        (f"{resume} --eval_pca 3", "--eval_pca 3 (saved: None)"),
        (f"{resume} --dataset glyphs", "stay those of"),
        ("--evaluate_all", "measures and does not train"),
    ):
        with pytest.raises(SystemExit):
            parameters.read(words.split())
        printed = capsys.readouterr().err
        assert message in printed and printed.count("\n") == 1, words
    assert parameters.read([*resume.split(), "--eval_size_of_tsne", "0"]).eval_size_of_tsne == 0
    # a run older than the flag is split as it was
    text = (run / "parameters.yaml").read_text()
    old = tmp_path / "old"
    old.mkdir()
    (old / "parameters.yaml").write_text(text.replace("split_shuffle: null\n", ""))
    assert "split_shuffle" in text and parameters.read(["--resume_from", str(old)]).split_shuffle is None
    with refused(r"--split_shuffle 1 \(saved: None\)"):
        parameters.resolve(["--resume_from", str(old), "--split_shuffle", "1", "--resume_allow_changes"])
    monkeypatch.setattr(evaluation, "evaluate", None)
    with refused("--eval_pca 17: at most 16: the reference is 24 x 16"):
        evaluate_again(run, "--eval_pca", "17")


def test_a_run_is_measured_on_other_data(run, new_data, capsys):
    before = contents(run)
    root = new_data[-1]
    argv = (*new_data, "--dataset_name", "new things", "--splits_to_eval", "test")
    scores = evaluate_again(run, *argv, "--dump_embeddings")
    assert f"on {root}" in capsys.readouterr().out
    (file,) = evaluations(run, before)
    written = strict(file)
    data = written["data"]
    assert data["root"] == written["other_data"]["dataset_folder_path"] == root and data["dataset_name"] == "new things"
    assert data["counts"]["test"]["images"] == 9 and data["fingerprint"]["files"] == 15
    assert written["values"]["test"]["map_r"] == scores["test"]["map_r"]
    with np.load(file.with_suffix("") / "embeddings_test.npz") as embedded:
        assert len(embedded["features"]) == 9 and all(path.startswith(root) for path in embedded["paths"])
    # the same flags on the run's own data
    own_scores = evaluate_again(run, "--splits_to_eval", "test")
    assert own_scores["test"]["map_r"] == selected(run)["values"]["test"]["map_r"]
    assert evaluate_again(run, *argv, "--split_shuffle", "3") != scores, "how other data are split is theirs, and told"
    assert strict(file) == written and contents(run).items() >= before.items()


def test_metrics_on_other_data_are_those_of_that_data_set(run):
    words = ["--evaluate", "--resume_from", str(run), "--dataset", "roxford5k"]
    # The run's own metrics may not be defined on the other data set
    expected = datasets.REGISTRY.module("roxford5k").EVALUATION_METRICS
    assert parameters.read(words).evaluation_metrics == expected
    assert parameters.read([*words, "--evaluation_metrics", "ap"]).evaluation_metrics == ["ap"]


def test_all_images_of_other_data_are_measured_as_one_split(run, new_data):
    before = contents(run)
    all_images = evaluate_again(run, *new_data, "--evaluate_all", "--dump_embeddings")
    (file,) = evaluations(run, before)
    assert strict(file)["data"]["counts"]["test"] == {"images": 15, "classes": 5, "single_image_classes": 0}
    with np.load(file.with_suffix("") / "embeddings_test.npz") as embedded:
        features, labels, names = (embedded[name] for name in ("features", "labels", "class_names"))
    assert sorted(set(names)) == [f"new {i}" for i in range(5)] and np.bincount(labels).tolist() == [3] * 5
    distances = np.linalg.norm(features[:, None] - features, axis=2) + np.diag([np.inf] * 15)
    assert all_images["test"]["e_recall@1"] == np.mean(labels[distances.argmin(1)] == labels)


@pytest.mark.long
def test_how_a_run_crops_is_nothing_to_images_that_are_shown_whole(run, capsys):
    flags = yaml.safe_load((run / "parameters.yaml").read_text())
    flags |= {"augmentation": "big", "resize_size": 40, "crop_size": 36, "crop_scale": [0.4, 1.0]}
    (run / "parameters.yaml").write_text(yaml.safe_dump(flags))
    argv = ("--dataset", "glyphs", "--splits_to_eval", "test")
    assert set(evaluate_again(run, *argv)) == {"test"}
    with pytest.raises(SystemExit):
        evaluate_again(run, *argv, "--resize_size", "44")
    assert "--resize_size: images of --dataset glyphs are shown whole. Leave it out" in capsys.readouterr().err


@pytest.mark.parametrize("reference", ["compared_to_self", "compared_to_sets_combined", "compared_to_training_set"])
def test_a_dump_holds_what_was_measured_after_principal_components(tmp_path, reference):
    names = ["mrr", "e_recall@2", "e_recall@1"]
    flags = f"--eval_pca 2 --eval_reference_set {reference} --splits_to_eval train val --evaluation_metrics".split()
    scores, embedded, _ = evaluated(made_splits(shared=True), *flags, *names)
    train, val = (dict(np.load(path)) for path in outputs.dump(tmp_path, embedded, options(*flags, *names)))
    assert val["features"].shape == (21, 2) and json.loads(str(val["flags"]))["eval_pca"] == 2
    of_train = (train["features"], train["class_names"])
    of_val = (val["features"], val["class_names"])
    joined = tuple(map(np.concatenate, zip(of_train, of_val, strict=True)))
    searched, exclude = {
        "compared_to_self": ((), None),
        "compared_to_sets_combined": (joined, 21 + np.arange(21)),
        "compared_to_training_set": (of_train, None),
    }[reference]
    expected = metrics.compute(names, *of_val, *searched, exclude=exclude)
    assert scores["val"] == pytest.approx(expected, abs=1e-12)


def test_dump_of_several_embeddings(tmp_path):
    flags = ["--evaltypes", "a", "Combined_a_b", "--splits_to_eval", "val"]
    _, embedded, _ = evaluated(made_splits(), *flags, network=Network(heads=("a", "b")))
    paths = outputs.dump(tmp_path, embedded, options(*flags))
    results = {path.name: np.load(path)["features"].shape for path in paths}
    assert results == {"embeddings_val_a.npz": (21, 3), "embeddings_val_Combined_a_b.npz": (21, 6)}


@pytest.mark.long
def test_the_commands_as_programs(tmp_path):
    np.savez(tmp_path / "f.npz", features=np.eye(4)[[0, 0, 1, 1]], labels=[0, 0, 1, 1])
    file = [str(tmp_path / "f.npz"), "--evaluation_metrics"]
    for words, printed in (
        (["evaluation", *file, "map_r"], None),
        (["evaluation", *file, "map_q"], "python -m evaluation: error: unknown metric"),
        (["evaluation.overlap", str(tmp_path / "no")], "no such folder"),
    ):
        done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, cwd=ROOT)
        if printed is None:
            assert done.returncode == 0 and "map_r" in done.stdout and "1.0000" in done.stdout
        else:
            assert done.returncode == 2 and printed in done.stderr and done.stderr.count("\n") == 1


def test_a_network_is_measured_without_a_run_and_dumped_untrained(folder_data, tmp_path):
    flags = run_words(folder_data, tmp_path, "--seed", "3")

    def measured(*words):
        return main.main(parameters.read([*flags, "--evaluate_only", *words]))

    scores = measured()
    run = main.main(parameters.read([*flags, "--n_epochs", "0", "--check_untrained_accuracy", "--dump_embeddings"]))
    recorded = run.untrained(0)["test"]
    bare = pytest.approx(run.untrained(-1)["test"])
    assert scores["test"] == pytest.approx(recorded)
    assert of_file(run.folder / "embeddings_test.npz", "e_recall@1", "map_r") == recorded
    (folder,) = (path.parent for path in tmp_path.glob("folder/*/evaluation.json"))
    written = strict(folder / "evaluation.json")
    assert written["values"] == {split: pytest.approx(values) for split, values in scores.items()}
    assert written["bare_backbone"]["test"] == bare
    assert measured("--embed_dim", "0")["test"] == bare, "the bare backbone has unit length, as the network has"
    all_images = measured("--evaluate_all")
    assert list(all_images) == ["test"] and all_images["test"] != scores["test"]
    for words, printed in (
        (["--evaluate_only", "--resume_from", str(folder)], "as it starts"),
        (["--evaluate_all"], "add --evaluate_only"),
    ):
        with refused(printed):
            parameters.resolve([*flags, *words])
    # the run's own data, whole
    assert evaluate_again(run.folder, "--evaluate_all")["test"] == pytest.approx(all_images["test"])
