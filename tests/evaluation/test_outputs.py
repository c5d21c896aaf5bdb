"""A finished run measured again, its embeddings in files, and `python -m evaluation` on those and on others."""

import importlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

import main
import metrics
import parameters
from tests import builders
from utilities.errors import UserError

PICTURES = True

command = importlib.import_module("evaluation.__main__")
ROOT = Path(__file__).resolve().parent.parent.parent
METRICS = ["e_recall@1", "map_r", "nmi", "rho_spectrum@0"]


def flags(folder_data, parent, *more):
    return parameters.read([
        "--dataset", "folder", "--dataset_folder_path", str(folder_data), "--save_path", str(parent), "--arch", "conv4_normalize",
        "--embed_dim", "16", "--loss", "triplet", "--batch_mining", "semihard", "--bs", "8", "--n_epochs", "3", "--kernels", "0",
        "--evaluation_metrics", *METRICS, "--lr", "0.001", "--group", "Again", "--seed", "3", *more,
    ])  # fmt: skip


def again(folder, *more):
    return main.main(parameters.read(["--evaluate", "--resume_from", str(folder), *more]))


@pytest.fixture(scope="module")
def trained(folder_data, tmp_path_factory):
    return main.main(flags(folder_data, tmp_path_factory.mktemp("runs"), "--dump_embeddings", "--eval_size_of_tsne", "12"))


@pytest.fixture
def run(trained, tmp_path_factory):
    """The run in a folder of the test's own, which evaluations add files to."""
    copy = tmp_path_factory.mktemp("own") / trained.folder.parent.name / trained.folder.name
    return SimpleNamespace(folder=shutil.copytree(trained.folder, copy))


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def selected(run):
    return json.loads((run.folder / "summary.json").read_text())["selected"]


def test_pictures_and_embeddings_of_the_best_epoch(run):
    for name in ("sample_recoveries", "worst_queries", "spectrum", "distances", "tsne_train", "tsne_test"):
        assert (run.folder / f"{name}.png").stat().st_size > 5000, name
    for split, dataset in (("train", "evaluation"), ("test", "testing")):
        with np.load(run.folder / f"embeddings_{split}.npz") as file:
            assert file["features"].shape == (24, 16) and file["features"].dtype == np.float32
            paths = file["paths"].tolist()
            assert [Path(path).parent.name for path in paths] == file["class_names"].tolist(), dataset
            assert len(set(paths)) == 24 and file["labels"].tolist() == sorted(file["labels"].tolist())


def test_evaluate_equals_the_recorded_values_exactly_and_touches_nothing(run, capsys):
    before = contents(run.folder)
    scores = again(run.folder)
    recorded = selected(run)
    for split, values in recorded["values"].items():
        for name, value in values.items():
            assert scores[split][name] == value, (split, name)
    assert set(scores) == set(recorded["values"])
    assert {path: content for path, content in contents(run.folder).items() if path in before} == before
    told = capsys.readouterr().out
    assert "e_recall@1" in told and f"epoch {recorded['epoch']}" in told and "rho_spectrum@0: 16 values" in told
    file = run.folder / "evaluation_Test_discriminative_e_recall@1.json"
    written = json.loads(file.read_text())
    assert written["epoch"] == recorded["epoch"] and written["checkpoint"] == "checkpoint_Test_discriminative_e_recall@1.pth.tar"
    numbers = {split: {k: v for k, v in values.items() if not isinstance(v, list)} for split, values in written["values"].items()}
    assert numbers == recorded["values"] and len(written["values"]["test"]["rho_spectrum@0"]) == 16


def dumped(folder):
    return {path: path.read_bytes() for path in folder.rglob("embeddings_*.npz")}


def test_embeddings_of_the_training_are_not_overwritten(run, capsys):
    trained = dumped(run.folder)
    assert {path.name for path in trained if path.parent == run.folder} == {"embeddings_train.npz", "embeddings_test.npz"}
    again(run.folder, "--dump_embeddings", "--eval_no_normalize")
    after = dumped(run.folder)
    assert {path: after[path] for path in trained} == trained
    new = set(after) - set(trained)
    assert {path.name for path in new} == {"embeddings_train.npz", "embeddings_test.npz"}
    (folder,) = {path.parent for path in new}
    assert json.loads(Path(f"{folder}.json").read_text())["flags"]["eval_no_normalize"]
    told = capsys.readouterr().out
    assert all(f"written  {path}" in told for path in new)
    for path, flag in ((run.folder / "embeddings_test.npz", False), (folder / "embeddings_test.npz", True)):
        with np.load(path) as file:
            assert json.loads(str(file["flags"]))["eval_no_normalize"] == flag
            assert np.allclose(np.linalg.norm(file["features"], axis=1), 1, atol=1e-5) != flag
        assert command.main([str(path), "--evaluation_metrics", "map_r"])
    again(run.folder, "--dump_embeddings", "--eval_no_normalize")
    assert dumped(run.folder).keys() == after.keys(), "the same flags have the same file"


def test_what_is_not_defined_is_null(run, tmp_path):
    def refused(word):
        raise AssertionError(f"{word} is no JSON")

    scores = again(run.folder, "--evaluation_metrics", "rho_spectrum@999", "e_recall@1", "--splits_to_eval", "test")
    assert np.isnan(scores["test"]["rho_spectrum@999"])
    written = [json.loads(path.read_text(), parse_constant=refused) for path in run.folder.glob("evaluation_*.json")]
    assert [w["values"]["test"] for w in written if "rho_spectrum@999" in w["values"].get("test", {})] == [
        {"rho_spectrum@999": None, "e_recall@1": scores["test"]["e_recall@1"]}
    ]
    np.savez(tmp_path / "lone.npz", features=np.eye(3), labels=np.arange(3))
    command.main([str(tmp_path / "lone.npz"), "--evaluation_metrics", "dists@intra", "--out", str(tmp_path / "out.json")])
    assert json.loads((tmp_path / "out.json").read_text(), parse_constant=refused) == {"dists@intra": None}


def test_components_that_are_not_there_are_refused_before_all_is_embedded(run, monkeypatch):
    import evaluation

    monkeypatch.setattr(evaluation, "evaluate", None)
    with pytest.raises(UserError, match="--eval_pca 17: at most 16: the reference is 24 x 16"):
        again(run.folder, "--eval_pca", "17")


def test_pictures_are_of_what_is_evaluated(run):
    """Each of these flags changes what a query finds."""
    seen = {}
    for flags in ([], ["--eval_pca", "2"], ["--eval_reference_set", "compared_to_sets_combined"]):
        before = set(run.folder.glob("evaluation_*/sample_recoveries.png"))
        again(run.folder, "--evaluation_metrics", "mrr", "--splits_to_eval", "train", "test", *flags)
        (new,) = set(run.folder.glob("evaluation_*/sample_recoveries.png")) - before
        seen[new.read_bytes()] = flags
    assert len(seen) == 3


@pytest.mark.long
def test_the_same_flags_have_one_file_others_another(run):
    again(run.folder)
    files = set(run.folder.glob("evaluation_*.json"))
    again(run.folder)
    assert set(run.folder.glob("evaluation_*.json")) == files
    scores = again(run.folder, "--splits_to_eval", "train", "--evaluation_metrics", "precision@1", "--eval_pca", "4")
    (new,) = set(run.folder.glob("evaluation_*.json")) - files
    written = json.loads(new.read_text())
    assert written["values"] == scores and list(scores) == ["train"] and list(scores["train"]) == ["precision@1"]
    assert written["flags"]["eval_pca"] == 4


def test_the_run_is_found_as_by_resume(run, folder_data):
    by_group = main.main(flags(folder_data, run.folder.parent.parent, "--evaluate", "--splits_to_eval", "test"))
    assert by_group["test"]["map_r"] == selected(run)["values"]["test"]["map_r"]
    assert len([path for path in run.folder.parent.iterdir() if path.is_dir()]) == 1, "no new run"


def test_evaluate_refuses_in_one_line(run, folder_data, tmp_path, capsys):
    for argv, words in (
        (["--evaluate", "--save_path", str(tmp_path), "--group", "Nobody"], "no run there"),
        (["--evaluate", "--resume_from", str(tmp_path)], "no run there"),
        (["--evaluate", "--resume_from", str(run.folder), "--embed_dim", "32"], "--embed_dim 32 (saved: 16)"),
        (["--evaluate", "--resume_from", str(run.folder), "--splits_to_eval", "val"], "no validation data"),
        (["--resume_from", str(run.folder), "--eval_pca", "3"], "--eval_pca 3 (saved: None)"),
    ):
        with pytest.raises(SystemExit) as stop:
            parameters.read(argv)
        message = capsys.readouterr().err
        assert stop.value.code == 2 and words in message and message.count("\n") == 1, message
    assert parameters.read(["--resume_from", str(run.folder), "--eval_size_of_tsne", "0"]).eval_size_of_tsne == 0


def test_dumped_by_evaluate_then_measured_by_the_command(run, tmp_path, capsys):
    for path in run.folder.glob("embeddings_*.npz"):
        path.unlink()
    scores = again(run.folder, "--dump_embeddings")
    capsys.readouterr()
    for split in ("train", "test"):
        out = tmp_path / f"{split}.json"
        argv = [str(run.folder / f"embeddings_{split}.npz"), "--evaluation_metrics", *METRICS, "--seed", "3", "--out", str(out)]
        values = command.main(argv)
        for name in METRICS:
            assert np.array_equal(values[name], scores[split][name]), (split, name)
        assert json.loads(out.read_text())["map_r"] == scores[split]["map_r"]
        told = capsys.readouterr().out
        assert "24 embeddings of 16 dimensions, 4 classes" in told and f"{scores[split]['map_r']:.4f}" in told


def test_a_run_is_measured_on_other_data(run, tmp_path, capsys):
    from tests import builders

    other = builders.make_folder(tmp_path / "other", n_classes=5, n_images=3, names=[f"new {i}" for i in range(5)])
    before = contents(run.folder)
    argv = ("--dataset", "folder", "--dataset_folder_path", str(other), "--dataset_name", "new things", "--splits_to_eval", "test")
    scores = again(run.folder, *argv, "--dump_embeddings")
    assert {path: content for path, content in contents(run.folder).items() if path in before} == before
    told = capsys.readouterr().out
    assert f"on {other}" in told
    (file,) = (path for path in run.folder.glob("evaluation_*.json") if path not in before)
    written = json.loads(file.read_text())
    assert written["data"]["root"] == str(other) and written["data"]["dataset_name"] == "new things"
    assert written["data"]["counts"]["test"]["images"] == 9 and written["data"]["fingerprint"]["files"] == 15
    assert written["other_data"]["dataset_folder_path"] == str(other) and written["values"]["test"]["map_r"] == scores["test"]["map_r"]
    with np.load(file.with_suffix("") / "embeddings_test.npz") as embedded:
        assert len(embedded["features"]) == 9 and all(path.startswith(str(other)) for path in embedded["paths"])
    assert not any(path.parent == run.folder for path in set(dumped(run.folder)) - set(before))
    own = again(run.folder, "--splits_to_eval", "test")  # the same flags on the run's own data
    assert own["test"]["map_r"] == selected(run)["values"]["test"]["map_r"]
    assert json.loads(file.read_text()) == written
    again(run.folder, *argv)
    assert json.loads(file.read_text()) == written, "the same data, the same file"
    shuffled = again(run.folder, *argv, "--split_shuffle", "3")
    assert shuffled != scores and json.loads(file.read_text()) == written, "how other data are split is theirs, and told"


@pytest.mark.long
def test_how_a_run_crops_is_nothing_to_images_that_are_shown_whole(run, tmp_path, capsys):
    folder = shutil.copytree(run.folder, tmp_path / "cropped")
    flags = yaml.safe_load((folder / "parameters.yaml").read_text())
    flags |= {"augmentation": "big", "resize_size": 40, "crop_size": 36, "crop_scale": [0.4, 1.0]}
    (folder / "parameters.yaml").write_text(yaml.safe_dump(flags))
    argv = ("--dataset", "glyphs", "--splits_to_eval", "test")
    assert set(again(folder, *argv)) == {"test"}
    with pytest.raises(SystemExit):
        again(folder, *argv, "--resize_size", "44")
    assert "--resize_size: images of --dataset glyphs are shown whole. Leave it out" in capsys.readouterr().err


def test_all_images_of_other_data_are_one_split(run, tmp_path, capsys):
    from tests import builders

    other = builders.make_folder(tmp_path / "other", n_classes=5, n_images=3, names=[f"new {i}" for i in range(5)])
    argv = ("--dataset", "folder", "--dataset_folder_path", str(other))
    scores = again(run.folder, *argv, "--evaluate_all", "--dump_embeddings")
    (file,) = (path for path in run.folder.glob("evaluation_*.json") if "evaluate_all" in path.read_text())
    written = json.loads(file.read_text())
    assert set(scores) == {"test"} and written["data"]["counts"]["test"] == {"images": 15, "classes": 5, "single_image_classes": 0}
    with np.load(file.with_suffix("") / "embeddings_test.npz") as embedded:
        features, labels, names = embedded["features"], embedded["labels"], embedded["class_names"]
    assert sorted(set(names)) == [f"new {i}" for i in range(5)] and np.bincount(labels).tolist() == [3] * 5
    distances = np.linalg.norm(features[:, None] - features, axis=2) + np.diag([np.inf] * 15)
    assert scores["test"]["e_recall@1"] == np.mean(labels[distances.argmin(1)] == labels)
    half = again(run.folder, *argv, "--splits_to_eval", "test")
    assert json.loads(file.read_text()) == written and half["test"] != scores["test"], "half of them is another measurement"


def test_only_other_data_may_be_split_otherwise(run, capsys):
    other = ["--dataset", "glyphs", "--evaluate_all"]
    for argv, words in (
        ([*other, "--splits_to_eval", "train", "test"], "one split, test"),
        ([*other, "--eval_reference_set", "compared_to_training_set"], "one split, test"),
        (["--split_shuffle", "3"], "--split_shuffle 3 (saved: None)"),
        (["--use_tv_split"], "stay those of"),
        (["--dataset", "glyphs", "--split_scheme", "class_disjoint"], "--split_scheme class_disjoint (saved: half)"),
    ):
        with pytest.raises(SystemExit):
            parameters.read(["--evaluate", "--resume_from", str(run.folder), *argv])
        assert words in capsys.readouterr().err
    with pytest.raises(SystemExit):
        parameters.read(["--resume_from", str(run.folder), "--dataset", "glyphs"])
    assert "stay those of" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        parameters.read(["--evaluate_all"])
    assert "measures and does not train" in capsys.readouterr().err


def test_a_run_older_than_a_flag_of_the_split_is_split_as_it_was(run, tmp_path, capsys):
    old = tmp_path / "old"
    old.mkdir()
    text = (run.folder / "parameters.yaml").read_text()
    (old / "parameters.yaml").write_text(text.replace("split_shuffle: null\n", ""))
    assert "split_shuffle" in text and parameters.read(["--resume_from", str(old)]).split_shuffle is None
    with pytest.raises(SystemExit):
        parameters.read(["--resume_from", str(old), "--split_shuffle", "1", "--resume_allow_changes"])
    assert "--split_shuffle 1 (saved: None)" in capsys.readouterr().err


@pytest.mark.long
def test_the_untrained_network_is_dumped(folder_data, tmp_path, capsys):
    run = main.main(flags(folder_data, tmp_path, "--n_epochs", "0", "--dump_embeddings"))
    assert {path.name for path in dumped(tmp_path)} == {"embeddings_train.npz", "embeddings_test.npz"}
    assert f"written  {run.folder / 'embeddings_test.npz'}" in capsys.readouterr().out
    recorded = run.untrained(0)["test"]
    assert not run.untrained(-1)
    values = command.main([str(run.folder / "embeddings_test.npz"), "--evaluation_metrics", "map_r", "e_recall@1"])
    assert values["map_r"] == recorded["map_r"] and values["e_recall@1"] == recorded["e_recall@1"]
    both = main.main(flags(folder_data, tmp_path, "--n_epochs", "0", "--dump_embeddings", "--check_untrained_accuracy"))
    with np.load(both.folder / "embeddings_test.npz") as again_dumped, np.load(run.folder / "embeddings_test.npz") as file:
        assert np.array_equal(again_dumped["features"], file["features"]) and both.untrained(-1) and both.untrained(0)
    trained = main.main(flags(folder_data, tmp_path, "--n_epochs", "1", "--check_untrained_accuracy"))
    assert trained.untrained(0) and not any(path.parent == trained.folder for path in dumped(tmp_path))


@pytest.mark.parametrize("reference", ["compared_to_self", "compared_to_sets_combined", "compared_to_training_set"])
def test_a_dump_holds_what_was_measured_after_principal_components(run, reference):
    more = ("--eval_reference_set", reference, "--splits_to_eval", "train", "test", "--evaluation_metrics", "mrr", "e_recall@2", "nmi")
    before = set(dumped(run.folder))
    scores = again(run.folder, "--dump_embeddings", "--eval_pca", "3", *more)
    new = {path.name: path for path in set(dumped(run.folder)) - before}
    with np.load(new["embeddings_test.npz"]) as test, np.load(new["embeddings_train.npz"]) as train:
        assert test["features"].shape == (24, 3) and json.loads(str(test["flags"]))["eval_pca"] == 3
        labels, own = np.array([f"{name}" for name in test["class_names"]]), np.arange(24)
        joined = np.concatenate([train["features"], test["features"]])
        names = np.concatenate([train["class_names"], test["class_names"]])
        arguments = {
            "compared_to_self": {}, "compared_to_sets_combined": {"reference": joined, "reference_labels": names, "exclude": 24 + own},
            "compared_to_training_set": {"reference": train["features"], "reference_labels": train["class_names"]},
        }[reference]  # fmt: skip
        values = metrics.compute(["mrr", "e_recall@2"], test["features"], labels, **arguments, uncounted=0.0)
    for name, value in values.items():
        assert value == pytest.approx(scores["test"][name], abs=1e-12, nan_ok=True)


def test_dump_of_several_embeddings(tmp_path):
    import evaluation
    from evaluation import outputs
    from tests.evaluation._made import Network, made_splits, options, runtime

    opt = options("--evaltypes", "a", "Combined_a_b", "--splits_to_eval", "val")
    _, embedded = evaluation.evaluate(Network(heads=("a", "b")), evaluation.loaders(made_splits(), opt), opt, runtime(opt))
    paths = outputs.dump(tmp_path, embedded, opt)
    assert [path.name for path in paths] == ["embeddings_val_a.npz", "embeddings_val_Combined_a_b.npz"]
    assert np.load(paths[1])["features"].shape == (21, 6)


def test_the_command_with_a_reference(tmp_path):
    generator = np.random.default_rng(0)
    queries, gallery = generator.normal(size=(6, 3)), generator.normal(size=(9, 3))
    labels, gallery_labels = np.array(list("aabbcc")), np.array(list("aaabbbccc"))
    np.savez(tmp_path / "both.npz", features=queries, labels=labels, reference_features=gallery, reference_labels=gallery_labels)
    values = command.main([str(tmp_path / "both.npz"), "--evaluation_metrics", "e_recall@1"])
    nearest = [min(range(9), key=lambda j: np.square(query - gallery[j]).sum()) for query in queries]
    assert values["e_recall@1"] == np.mean([gallery_labels[j] == label for j, label in zip(nearest, labels, strict=True)])
    exclude = np.array(nearest)  # each query's nearest is itself
    np.savez(
        tmp_path / "own.npz", features=queries, labels=labels, reference_features=gallery, reference_labels=gallery_labels, exclude=exclude
    )
    second = [
        min(set(range(9)) - {own}, key=lambda j: np.square(query - gallery[j]).sum()) for query, own in zip(queries, nearest, strict=True)
    ]
    values = command.main([str(tmp_path / "own.npz"), "--evaluation_metrics", "e_recall@1"])
    assert values["e_recall@1"] == np.mean([gallery_labels[j] == label for j, label in zip(second, labels, strict=True)])


def test_the_commands_default_metrics_exist(tmp_path):
    features, labels = np.random.default_rng(1).normal(size=(12, 4)).astype(np.float16), np.repeat([7, 9, 11], 4)
    np.savez(tmp_path / "f.npz", features=features, labels=labels)
    values = command.main([str(tmp_path / "f.npz")])
    assert values == metrics.compute(command.DEFAULT_METRICS, features, labels, seed=1)
    values = command.main([str(tmp_path / "f.npz"), "--eval_kmeans_starts", "3"])
    assert values == metrics.compute(command.DEFAULT_METRICS, features, labels, seed=range(3))


def broken(folder):
    """Name of a file, what is in it, words of the error."""
    x, y = np.ones((4, 2)), np.arange(4)
    (folder / "text.npz").write_text("no arrays")
    (folder / "folder").mkdir()
    np.save(folder / "one.npy", x)
    for name, arrays in {
        "no_labels": {"features": x},
        "no_features": {"labels": y, "embeddings": x},
        "short": {"features": x, "labels": y[:3]},
        "flat": {"features": x[:, 0], "labels": y},
        "words": {"features": np.array([["a", "b"]] * 4), "labels": y},
        "parts": {"features": x, "labels": y, "reference_features": x, "reference_labels": y, "exclude": y + 0.5},
        "letters": {"features": x, "labels": y, "reference_features": x, "reference_labels": y, "exclude": np.array(list("abcd"))},
        "nan": {"features": x * np.nan, "labels": y},
        "half": {"features": x, "labels": y, "reference_features": x},
        "other_half": {"features": x, "labels": y, "reference_labels": y},
        "width": {"features": x, "labels": y, "reference_features": np.ones((4, 3)), "reference_labels": y},
        "pickled": {"features": x, "labels": np.array([1, None, "a", 2], dtype=object)},
    }.items():
        np.savez(folder / f"{name}.npz", **arrays)
    return {
        "folder": "a folder, expected a file of embeddings", "absent.npz": "no such file", "text.npz": "not an .npz file", "one.npy": "one array", "no_labels.npz": "has no labels",
        "no_features.npz": "has no features; it holds labels, embeddings", "short.npz": "labels have shape (3,)", "flat.npz": "(N, D)",
        "words.npz": "expected numbers", "nan.npz": "NaN", "parts.npz": "whole numbers", "letters.npz": "whole numbers", "half.npz": "has no reference_labels", "other_half.npz": "needs reference_features",
        "width.npz": "3 dimensions", "pickled.npz": "plain arrays",
    }  # fmt: skip


def test_what_the_command_refuses(tmp_path):
    for name, words in broken(tmp_path).items():
        with pytest.raises(UserError) as error:
            command.main([str(tmp_path / name)])
        assert words in str(error.value) and "\n" not in str(error.value), (name, str(error.value))
    np.savez(tmp_path / "good.npz", features=np.ones((4, 2)), labels=np.arange(4))
    for argv, words in (
        (["--evaluation_metrics", "e_recal@1"], "Did you mean"),
        (["--evaluation_metrics", "e_recall@0"], "ill-formed"),
        (["--eval_kmeans_starts", "0"], "must be at least 1"),
        (["--unknown"], "unrecognized arguments: --unknown"),
        (["--out", str(tmp_path / "nowhere" / "x.json")], "cannot write"),
    ):
        with pytest.raises(UserError) as error:
            command.main([str(tmp_path / "good.npz"), *argv])
        assert words in str(error.value) and "\n" not in str(error.value), str(error.value)


@pytest.mark.long
def test_the_command_as_a_program(tmp_path):
    np.savez(tmp_path / "f.npz", features=np.eye(4)[[0, 0, 1, 1]], labels=[0, 0, 1, 1])
    run = [sys.executable, "-m", "evaluation", str(tmp_path / "f.npz"), "--evaluation_metrics"]
    good = subprocess.run([*run, "map_r"], capture_output=True, text=True, cwd=ROOT)
    assert good.returncode == 0 and "map_r" in good.stdout and "1.0000" in good.stdout
    bad = subprocess.run([*run, "map_q"], capture_output=True, text=True, cwd=ROOT)
    assert bad.returncode == 2 and bad.stderr.startswith("python -m evaluation: error: unknown metric") and bad.stderr.count("\n") == 1


def test_a_network_is_measured_without_a_run(folder_data, tmp_path):
    flags = ["--dataset", "folder", "--dataset_folder_path", str(folder_data), "--save_path", str(tmp_path), *builders.SHORT_RUN, "--seed", "3"]
    scores = main.main(parameters.read([*flags, "--evaluate_only"]))
    trained = main.main(parameters.read([*flags, "--n_epochs", "0", "--check_untrained_accuracy"]))
    assert scores["test"] == pytest.approx(trained.untrained(0)["test"])
    (folder,) = (path.parent for path in tmp_path.glob("folder/*/evaluation.json"))
    written = json.loads((folder / "evaluation.json").read_text())
    assert all(written["values"][split] == pytest.approx(scores[split]) for split in scores) and written["bare_backbone"]["test"] == pytest.approx(trained.untrained(-1)["test"])
    whole = main.main(parameters.read([*flags, "--evaluate_only", "--evaluate_all"]))
    assert list(whole) == ["test"] and whole["test"] != scores["test"]
    for words, said in ((["--evaluate_only", "--resume_from", str(folder)], "as it starts"), (["--evaluate_all"], "add --evaluate_only")):
        with pytest.raises(UserError, match=said):
            parameters.resolve([*flags, *words])
    again = main.main(parameters.read(["--evaluate", "--resume_from", str(trained.folder), "--evaluate_all"]))  # the run's own data, whole
    assert again["test"] == pytest.approx(whole["test"])
