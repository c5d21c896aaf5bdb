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

import evaluation
import main
import metrics
import parameters
from evaluation import outputs
from tests import builders
from tests.builders import refused
from tests.evaluation._made import Network, made_splits, options, runtime
from utilities.errors import UserError

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
def trained(folder_data, tmp_path_factory, drawing):
    """A finished run with its pictures."""
    with pytest.MonkeyPatch.context() as patch:
        for (owner, name), draw in drawing.items():
            patch.setattr(owner, name, draw)
        return main.main(flags(folder_data, tmp_path_factory.mktemp("runs"), "--dump_embeddings", "--eval_size_of_tsne", "12"))


@pytest.fixture
def run(trained, tmp_path_factory):
    """The run in a folder of the test's own, which evaluations add files to."""
    copy = tmp_path_factory.mktemp("own") / trained.folder.parent.name / trained.folder.name
    return SimpleNamespace(folder=shutil.copytree(trained.folder, copy))


@pytest.fixture
def other(tmp_path):
    """Data that the run has not seen: five classes of three images."""
    return builders.make_folder(tmp_path / "other", n_classes=5, n_images=3, names=[f"new {i}" for i in range(5)])


def contents(folder, pattern="*"):
    return {path: path.read_bytes() for path in folder.rglob(pattern) if path.is_file()}


def dumped(folder):
    return contents(folder, "embeddings_*.npz")


def refused_in_one_line(argv, capsys):
    """What a refusal says."""
    with pytest.raises(SystemExit) as stop:
        parameters.read([str(word) for word in argv])
    said = capsys.readouterr().err
    assert stop.value.code == 2 and said.count("\n") == 1, said
    return said


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
    def no_json(word):
        raise AssertionError(f"{word} is no JSON")

    scores = again(run.folder, "--evaluation_metrics", "rho_spectrum@999", "e_recall@1", "--splits_to_eval", "test")
    assert np.isnan(scores["test"]["rho_spectrum@999"])
    written = [json.loads(path.read_text(), parse_constant=no_json) for path in run.folder.glob("evaluation_*.json")]
    assert [w["values"]["test"] for w in written if "rho_spectrum@999" in w["values"].get("test", {})] == [
        {"rho_spectrum@999": None, "e_recall@1": scores["test"]["e_recall@1"]}
    ]
    np.savez(tmp_path / "lone.npz", features=np.eye(3), labels=np.arange(3))
    command.main([str(tmp_path / "lone.npz"), "--evaluation_metrics", "dists@intra", "--out", str(tmp_path / "out.json")])
    assert json.loads((tmp_path / "out.json").read_text(), parse_constant=no_json) == {"dists@intra": None}


def test_components_that_are_not_there_are_refused_before_all_is_embedded(run, monkeypatch):
    monkeypatch.setattr(evaluation, "evaluate", None)
    with pytest.raises(UserError, match="--eval_pca 17: at most 16: the reference is 24 x 16"):
        again(run.folder, "--eval_pca", "17")


def test_pictures_are_of_what_is_evaluated(run, with_pictures):
    """Each of these flags changes what a query finds; the pictures of the training stay."""
    seen, whole = {}, contents(run.folder)
    for flags in ([], ["--eval_pca", "2"], ["--eval_reference_set", "compared_to_sets_combined"]):
        before = set(run.folder.glob("evaluation_*/sample_recoveries.png"))
        again(run.folder, "--evaluation_metrics", "mrr", "--splits_to_eval", "train", "test", *flags)
        (new,) = set(run.folder.glob("evaluation_*/sample_recoveries.png")) - before
        seen[new.read_bytes()] = flags
    assert len(seen) == 3 and contents(run.folder).items() >= whole.items()


def test_the_same_flags_have_one_file_others_another(run, folder_data):
    by_group = main.main(flags(folder_data, run.folder.parent.parent, "--evaluate", "--splits_to_eval", "test"))
    assert by_group["test"]["map_r"] == selected(run)["values"]["test"]["map_r"]
    assert len([path for path in run.folder.parent.iterdir() if path.is_dir()]) == 1, "found as by --resume: no new run"
    files = set(run.folder.glob("evaluation_*.json"))
    again(run.folder, "--splits_to_eval", "test")
    assert set(run.folder.glob("evaluation_*.json")) == files
    scores = again(run.folder, "--splits_to_eval", "train", "--evaluation_metrics", "precision@1", "--eval_pca", "4")
    (new,) = set(run.folder.glob("evaluation_*.json")) - files
    written = json.loads(new.read_text())
    assert written["values"] == scores and list(scores) == ["train"] and list(scores["train"]) == ["precision@1"]
    assert written["flags"]["eval_pca"] == 4


def test_evaluate_refuses_in_one_line(run, tmp_path, capsys):
    other = ["--dataset", "glyphs", "--evaluate_all"]
    for argv, words in (
        (["--save_path", tmp_path, "--group", "Nobody"], "no run there"),
        (["--resume_from", tmp_path], "no run there"),
        (["--resume_from", run.folder, "--embed_dim", "32"], "--embed_dim 32 (saved: 16)"),
        (["--resume_from", run.folder, "--splits_to_eval", "val"], "no validation data"),
        (["--resume_from", run.folder, *other, "--splits_to_eval", "train", "test"], "one split, test"),
        (["--resume_from", run.folder, *other, "--eval_reference_set", "compared_to_training_set"], "one split, test"),
        (["--resume_from", run.folder, "--split_shuffle", "3"], "--split_shuffle 3 (saved: None)"),
        (["--resume_from", run.folder, "--use_tv_split"], "stay those of"),
        (["--resume_from", run.folder, "--dataset", "glyphs", "--split_scheme", "class_disjoint"], "--split_scheme class_disjoint (saved: half)"),
    ):
        assert words in refused_in_one_line(["--evaluate", *argv], capsys), argv
    for argv, words in (
        (["--resume_from", run.folder, "--eval_pca", "3"], "--eval_pca 3 (saved: None)"),
        (["--resume_from", run.folder, "--dataset", "glyphs"], "stay those of"),
        (["--evaluate_all"], "measures and does not train"),
    ):
        assert words in refused_in_one_line(argv, capsys), argv
    assert parameters.read(["--resume_from", str(run.folder), "--eval_size_of_tsne", "0"]).eval_size_of_tsne == 0
    old, text = tmp_path / "old", (run.folder / "parameters.yaml").read_text()
    old.mkdir()
    (old / "parameters.yaml").write_text(text.replace("split_shuffle: null\n", ""))  # a run older than the flag is split as it was
    assert "split_shuffle" in text and parameters.read(["--resume_from", str(old)]).split_shuffle is None
    said = refused_in_one_line(["--resume_from", old, "--split_shuffle", "1", "--resume_allow_changes"], capsys)
    assert "--split_shuffle 1 (saved: None)" in said


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


def test_a_run_is_measured_on_other_data(run, other, capsys):
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


def test_all_images_of_other_data_are_one_split(run, other):
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
def test_a_dump_holds_what_was_measured_after_principal_components(tmp_path, reference):
    names = ["mrr", "e_recall@2", "e_recall@1"]
    opt = options("--eval_pca", "2", "--eval_reference_set", reference, "--splits_to_eval", "train", "val", "--evaluation_metrics", *names)
    scores, embedded = evaluation.evaluate(Network(), evaluation.loaders(made_splits(shared=True), opt), opt, runtime(opt))
    train, val = (dict(np.load(path)) for path in outputs.dump(tmp_path, embedded, opt))
    assert val["features"].shape == (21, 2) and json.loads(str(val["flags"]))["eval_pca"] == 2
    joined = {name: np.concatenate([train[name], val[name]]) for name in ("features", "class_names")}
    arguments = {
        "compared_to_self": {},
        "compared_to_sets_combined": {"reference": joined["features"], "reference_labels": joined["class_names"], "exclude": 21 + np.arange(21)},
        "compared_to_training_set": {"reference": train["features"], "reference_labels": train["class_names"]},
    }[reference]
    values = metrics.compute(names, val["features"], val["class_names"], **arguments, uncounted=0.0)
    assert {name: scores["val"][name] for name in names} == pytest.approx(values, abs=1e-12)


def test_dump_of_several_embeddings(tmp_path):
    opt = options("--evaltypes", "a", "Combined_a_b", "--splits_to_eval", "val")
    _, embedded = evaluation.evaluate(Network(heads=("a", "b")), evaluation.loaders(made_splits(), opt), opt, runtime(opt))
    paths = outputs.dump(tmp_path, embedded, opt)
    assert [path.name for path in paths] == ["embeddings_val_a.npz", "embeddings_val_Combined_a_b.npz"]
    assert np.load(paths[1])["features"].shape == (21, 6)


def test_the_command_with_a_reference(tmp_path):
    generator = np.random.default_rng(0)
    queries, gallery = generator.normal(size=(6, 3)), generator.normal(size=(9, 3))
    labels, names = np.array(list("aabbcc")), np.array(list("aaabbbccc"))
    orders = [sorted(range(9), key=lambda j: np.square(query - gallery[j]).sum()) for query in queries]
    for place, more in enumerate(({}, {"exclude": np.array([order[0] for order in orders])})):  # each query's nearest is itself
        np.savez(tmp_path / "f.npz", features=queries, labels=labels, reference_features=gallery, reference_labels=names, **more)
        values = command.main([str(tmp_path / "f.npz"), "--evaluation_metrics", "e_recall@1"])
        assert values["e_recall@1"] == np.mean([names[order[place]] == label for order, label in zip(orders, labels, strict=True)])


def test_the_commands_default_metrics_exist(tmp_path):
    features, labels = np.random.default_rng(1).normal(size=(12, 4)).astype(np.float16), np.repeat([7, 9, 11], 4)
    np.savez(tmp_path / "f.npz", features=features, labels=labels)
    values = command.main([str(tmp_path / "f.npz")])
    assert values == metrics.compute(command.DEFAULT_METRICS, features, labels, seed=1)
    values = command.main([str(tmp_path / "f.npz"), "--eval_kmeans_starts", "3"])
    assert values == metrics.compute(command.DEFAULT_METRICS, features, labels, seed=range(3))


def test_what_the_command_refuses(tmp_path):
    x, y = np.ones((4, 2)), np.arange(4)
    good, both = {"features": x, "labels": y}, {"features": x, "labels": y, "reference_features": x, "reference_labels": y}
    (tmp_path / "text.npz").write_text("no arrays")
    (tmp_path / "folder").mkdir()
    np.save(tmp_path / "one.npy", x)
    cases = {
        "no_labels": ({"features": x}, "has no labels"),
        "no_features": ({"labels": y, "embeddings": x}, "has no features; it holds labels, embeddings"),
        "short": ({"features": x, "labels": y[:3]}, "labels have shape (3,)"),
        "flat": ({"features": x[:, 0], "labels": y}, "(N, D)"),
        "words": ({"features": np.array([["a", "b"]] * 4), "labels": y}, "expected numbers"),
        "parts": ({**both, "exclude": y + 0.5}, "whole numbers"),
        "letters": ({**both, "exclude": np.array(list("abcd"))}, "whole numbers"),
        "nan": ({"features": x * np.nan, "labels": y}, "NaN"),
        "half": ({**good, "reference_features": x}, "has no reference_labels"),
        "other_half": ({**good, "reference_labels": y}, "needs reference_features"),
        "width": ({**both, "reference_features": np.ones((4, 3))}, "3 dimensions"),
        "pickled": ({"features": x, "labels": np.array([1, None, "a", 2], dtype=object)}, "plain arrays"),
    }
    for name, (arrays, _) in {**cases, "good": (good, "")}.items():
        np.savez(tmp_path / f"{name}.npz", **arrays)
    for name, argv, words in (
        ("folder", [], "a folder, expected a file of embeddings"), ("absent.npz", [], "no such file"), ("text.npz", [], "not an .npz file"),
        ("one.npy", [], "one array"), *((f"{name}.npz", [], words) for name, (_, words) in cases.items()),
        ("good.npz", ["--evaluation_metrics", "e_recal@1"], "Did you mean"), ("good.npz", ["--evaluation_metrics", "e_recall@0"], "ill-formed"),
        ("good.npz", ["--eval_kmeans_starts", "0"], "must be at least 1"), ("good.npz", ["--unknown"], "unrecognized arguments: --unknown"),
        ("good.npz", ["--out", str(tmp_path / "nowhere" / "x.json")], "cannot write"),
    ):  # fmt: skip
        with refused(None, words):
            command.main([str(tmp_path / name), *argv])


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
