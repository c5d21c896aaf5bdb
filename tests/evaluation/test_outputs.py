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
from tests.kit.runs import SHORT_RUN
from tests.kit.splits import Network, made_splits, options, runtime

ROOT = Path(__file__).resolve().parent.parent.parent
METRICS = ["e_recall@1", "map_r", "nmi", "rho_spectrum@0"]


def evaluate_again(folder, *flags):
    return main.main(parameters.read(["--evaluate", "--resume_from", str(folder), *map(str, flags)]))


@pytest.fixture
def new_data(tmp_path):
    """Data that the run has not seen: five classes of three images."""
    root = make_folder(tmp_path / "other", n_classes=5, n_images=3, names=[f"new {i}" for i in range(5)])
    return ("--dataset", "folder", "--dataset_folder_path", str(root))


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def strict(path):
    """JSON without NaN."""

    def no_json(word):
        raise AssertionError(f"{word} is no JSON")

    return json.loads(path.read_text(), parse_constant=no_json)


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
        values = command.main(
            [str(path), "--evaluation_metrics", *METRICS, "--seed", "3", "--out", str(run / "out.json")]
        )
        assert {name: values[name] for name in recorded} == recorded
        assert strict(run / "out.json")["map_r"] == recorded["map_r"]
        message = capsys.readouterr().out
        assert "24 embeddings of 16 dimensions, 4 classes" in message and f"{recorded['map_r']:.4f}" in message


def test_evaluate_equals_the_recorded_values_exactly_and_touches_nothing(run, capsys):
    before = contents(run)
    recorded = selected(run)
    scores = evaluate_again(run)
    assert {
        split: {name: scores[split][name] for name in values} for split, values in recorded["values"].items()
    } == recorded["values"]
    message = capsys.readouterr().out
    assert (
        "e_recall@1" in message and f"epoch {recorded['epoch']}" in message and "rho_spectrum@0: 16 values" in message
    )
    written = strict(run / "evaluation_Test_discriminative_e_recall@1.json")
    assert (
        written["epoch"] == recorded["epoch"]
        and written["checkpoint"] == "checkpoint_Test_discriminative_e_recall@1.pth.tar"
    )
    numbers = {}
    for split, values in written["values"].items():
        numbers[split] = {name: value for name, value in values.items() if not isinstance(value, list)}
    assert numbers == recorded["values"] and len(written["values"]["test"]["rho_spectrum@0"]) == 16
    assert contents(run).items() >= before.items()


def test_other_flags_have_files_of_their_own_and_the_same_the_same(run, capsys, monkeypatch):
    """Embeddings and pictures of the training stay; what is not defined is null."""
    before = contents(run)
    drawings = []
    monkeypatch.setattr(outputs, "draw_pictures", lambda folder, *arguments: drawings.append(folder))
    argv = (
        "--dump_embeddings --eval_no_normalize --evaluation_metrics precision@1 rho_spectrum@999 --eval_size_of_tsne 0"
    ).split()
    scores = evaluate_again(run, *argv)
    after = contents(run)
    message = capsys.readouterr().out
    new = set(after) - set(before)
    assert {path.name for path in new if path.suffix == ".npz"} == {"embeddings_train.npz", "embeddings_test.npz"}
    assert all(f"written  {path}" in message for path in new if path.suffix == ".npz")
    (written,) = (path for path in new if path.suffix == ".json")
    record = strict(written)
    assert drawings == [written.with_suffix("")]
    assert record["flags"]["eval_no_normalize"] and np.isnan(scores["test"]["rho_spectrum@999"])
    assert record["values"]["test"] == {"precision@1": scores["test"]["precision@1"], "rho_spectrum@999": None}
    for path, flag in ((run / "embeddings_test.npz", False), (written.with_suffix("") / "embeddings_test.npz", True)):
        with np.load(path) as file:
            assert json.loads(str(file["flags"]))["eval_no_normalize"] == flag
            assert np.allclose(np.linalg.norm(file["features"], axis=1), 1, atol=1e-5) != flag
    values = command.main([str(path), "--evaluation_metrics", "precision@1"])
    assert values["precision@1"] == scores["test"]["precision@1"]
    evaluate_again(run, *argv)
    assert contents(run).keys() == after.keys() and drawings[1:] == drawings[:1]
    root = yaml.safe_load((run / "parameters.yaml").read_text())["dataset_folder_path"]
    data = ["--dataset", "folder", "--dataset_folder_path", root]
    by_group = main.main(
        parameters.read(["--evaluate", *data, "--save_path", str(run.parent.parent), "--group", "Again", "--seed", "3"])
    )
    assert by_group["test"]["map_r"] == selected(run)["values"]["test"]["map_r"], "found as by --resume"
    assert [path for path in run.parent.iterdir() if path.is_dir()] == [run], "no new run"
    assert contents(run).items() >= before.items()


def test_what_is_refused_in_one_line(run, tmp_path, capsys, monkeypatch):
    evaluate = ["--evaluate", "--resume_from", run]
    glyphs = ["--dataset", "glyphs", "--evaluate_all"]
    for argv, words in (
        (["--evaluate", "--save_path", tmp_path / "none", "--group", "Nobody"], "no run there"),
        (["--evaluate", "--resume_from", tmp_path], "no run there"),
        ([*evaluate, "--embed_dim", "32"], "--embed_dim 32 (saved: 16)"),
        ([*evaluate, "--splits_to_eval", "val"], "no validation data"),
        ([*evaluate, *glyphs, "--splits_to_eval", "train", "test"], "one split, test"),
        ([*evaluate, *glyphs, "--eval_reference_set", "compared_to_training_set"], "one split, test"),
        ([*evaluate, "--split_shuffle", "3"], "--split_shuffle 3 (saved: None)"),
        ([*evaluate, "--use_tv_split"], "stay those of"),
        (
            [*evaluate, "--dataset", "glyphs", "--split_scheme", "class_disjoint"],
            "--split_scheme class_disjoint (saved: half)",
        ),
        (["--resume_from", run, "--eval_pca", "3"], "--eval_pca 3 (saved: None)"),
        (["--resume_from", run, "--dataset", "glyphs"], "stay those of"),
        (["--evaluate_all"], "measures and does not train"),
    ):
        with pytest.raises(SystemExit):
            parameters.read([str(word) for word in argv])
        printed = capsys.readouterr().err
        assert words in printed and printed.count("\n") == 1, argv
    assert parameters.read(["--resume_from", str(run), "--eval_size_of_tsne", "0"]).eval_size_of_tsne == 0
    old = tmp_path / "old"
    text = (run / "parameters.yaml").read_text()
    old.mkdir()
    # a run older than the flag is split as it was
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
    (file,) = (path for path in run.glob("evaluation_*.json") if path not in before)
    written = strict(file)
    assert written["data"]["root"] == root and written["data"]["dataset_name"] == "new things"
    assert written["data"]["counts"]["test"]["images"] == 9 and written["data"]["fingerprint"]["files"] == 15
    assert (
        written["other_data"]["dataset_folder_path"] == root
        and written["values"]["test"]["map_r"] == scores["test"]["map_r"]
    )
    with np.load(file.with_suffix("") / "embeddings_test.npz") as embedded:
        assert len(embedded["features"]) == 9 and all(path.startswith(root) for path in embedded["paths"])
    words = ["--evaluate", "--resume_from", str(run), "--dataset", "roxford5k"]
    assert parameters.read(words).evaluation_metrics == datasets.REGISTRY.module("roxford5k").EVALUATION_METRICS, (
        "those of the run may not be defined there"
    )
    assert parameters.read([*words, "--evaluation_metrics", "ap"]).evaluation_metrics == ["ap"]
    own_scores = evaluate_again(run, "--splits_to_eval", "test")  # the same flags on the run's own data
    assert own_scores["test"]["map_r"] == selected(run)["values"]["test"]["map_r"]
    assert evaluate_again(run, *argv, "--split_shuffle", "3") != scores, "how other data are split is theirs, and told"
    assert strict(file) == written and contents(run).items() >= before.items()
    all_images = evaluate_again(run, *argv, "--evaluate_all", "--dump_embeddings")
    (file,) = (path for path in run.glob("evaluation_*.json") if "evaluate_all" in path.read_text())
    assert strict(file)["data"]["counts"]["test"] == {"images": 15, "classes": 5, "single_image_classes": 0}
    with np.load(file.with_suffix("") / "embeddings_test.npz") as embedded:
        features = embedded["features"]
        labels = embedded["labels"]
        names = embedded["class_names"]
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
    opt = options(
        "--eval_pca",
        "2",
        "--eval_reference_set",
        reference,
        *"--splits_to_eval train val --evaluation_metrics".split(),
        *names,
    )
    scores, embedded = evaluation.evaluate(
        Network(), evaluation.loaders(made_splits(shared=True), opt), opt, runtime(opt)
    )
    train, val = (dict(np.load(path)) for path in outputs.dump(tmp_path, embedded, opt))
    assert val["features"].shape == (21, 2) and json.loads(str(val["flags"]))["eval_pca"] == 2
    joined = {name: np.concatenate([train[name], val[name]]) for name in ("features", "class_names")}
    arguments = {
        "compared_to_self": {},
        "compared_to_sets_combined": {
            "reference": joined["features"],
            "reference_labels": joined["class_names"],
            "exclude": 21 + np.arange(21),
        },
        "compared_to_training_set": {"reference": train["features"], "reference_labels": train["class_names"]},
    }[reference]
    assert scores["val"] == pytest.approx(
        metrics.compute(names, val["features"], val["class_names"], **arguments), abs=1e-12
    )


def test_dump_of_several_embeddings(tmp_path):
    opt = options("--evaltypes", "a", "Combined_a_b", "--splits_to_eval", "val")
    _, embedded = evaluation.evaluate(
        Network(heads=("a", "b")), evaluation.loaders(made_splits(), opt), opt, runtime(opt)
    )
    results = {path.name: np.load(path)["features"].shape for path in outputs.dump(tmp_path, embedded, opt)}
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
    data = ["--dataset", "folder", "--dataset_folder_path", str(folder_data)]
    flags = [*data, "--save_path", str(tmp_path), *SHORT_RUN, "--seed", "3"]
    scores = main.main(parameters.read([*flags, "--evaluate_only"]))
    run = main.main(parameters.read([*flags, "--n_epochs", "0", "--check_untrained_accuracy", "--dump_embeddings"]))
    recorded = run.untrained(0)
    assert scores["test"] == pytest.approx(recorded["test"])
    assert (
        command.main([str(run.folder / "embeddings_test.npz"), "--evaluation_metrics", "e_recall@1", "map_r"])
        == recorded["test"]
    )
    (folder,) = (path.parent for path in tmp_path.glob("folder/*/evaluation.json"))
    written = strict(folder / "evaluation.json")
    assert all(written["values"][split] == pytest.approx(scores[split]) for split in scores) and written[
        "bare_backbone"
    ]["test"] == pytest.approx(run.untrained(-1)["test"])
    without_layer = main.main(parameters.read([*flags, "--evaluate_only", "--embed_dim", "0"]))
    assert run.untrained(-1)["test"] == pytest.approx(without_layer["test"]), (
        "the bare backbone has unit length, as the network has"
    )
    all_images = main.main(parameters.read([*flags, "--evaluate_only", "--evaluate_all"]))
    assert list(all_images) == ["test"] and all_images["test"] != scores["test"]
    for words, printed in (
        (["--evaluate_only", "--resume_from", str(folder)], "as it starts"),
        (["--evaluate_all"], "add --evaluate_only"),
    ):
        with refused(printed):
            parameters.resolve([*flags, *words])
    assert evaluate_again(run.folder, "--evaluate_all")["test"] == pytest.approx(all_images["test"]), (
        "the run's own data, whole"
    )
