"""--dataset arrays: rows of features that another program has computed, in place of images."""

import numpy as np
import pytest
import torch

import architectures
import datasets
import parameters
from evaluation import outputs
from retrieval import __main__ as retrieval
from runs import Embedder
from tests.kit.refusals import refused
from tests.kit.runs import (
    assert_same_run,
    equal_states,
    last_checkpoint,
    on_folder,
    recorded_values,
    resolve,
    run_main,
)

CLASSES = 8
ROWS = 6
WIDTH = 5
SHORT = (
    "--embed_dim 4 --bs 8 --kernels 0 --lr 0.01 --n_epochs 2 --loss triplet --batch_mining semihard --plot_every 0 "
    "--evaluation_metrics e_recall@1 map_r --storage_metrics map_r --no_records"
)


def arrays(**changes):
    """Rows around a centre of their class; None leaves an array out."""
    generator = np.random.default_rng(0)
    labels = np.arange(CLASSES).repeat(ROWS)
    features = generator.normal(size=(CLASSES, WIDTH))[labels] + generator.normal(size=(len(labels), WIDTH)) / 2
    content = {"features": features.astype(np.float32), "labels": labels, **changes}
    return {name: values for name, values in content.items() if values is not None}


def written(path, **changes):
    """The path of a file of `arrays`."""
    np.savez(path, **arrays(**changes))
    return str(path)


def splits(path, **flags):
    """What `datasets.select` gives of a file."""
    return datasets.select("arrays", dataset_arrays=str(path), **flags)


def train(path, tmp_path, *words):
    """A short run on a file."""
    return run_main("--dataset arrays --dataset_arrays", path, "--save_path", tmp_path, SHORT, *words)


def test_rows_come_in_the_order_of_their_classes_as_they_are(tmp_path):
    labels = arrays()["labels"][::-1] + 3
    read = splits(written(tmp_path / "a.npz", labels=labels))
    features = arrays()["features"]
    assert list(read["training"].class_names.values()) == ["3", "4", "5", "6"]
    label, row, index = read["training"][1]
    assert (label, index) == (0, 1) and row.dtype == torch.float32
    assert torch.equal(row, torch.from_numpy(features[labels == 3][1]))
    assert read["training"].paths[0] == "a.npz:42" and read["training"].width == WIDTH
    text = datasets.describe(read)
    assert "training: 24 rows of 4 classes" in text and "rows: 5 features, as they are" in text


def test_roles_sequences_supers_splits_and_distractors(tmp_path):
    labels = np.where(arrays()["labels"] == 7, "", arrays()["labels"].astype(str))
    is_labelled = labels != ""
    names = np.array([f"clip {row}" for row in range(len(labels))])
    content = {
        "split": np.where(arrays()["labels"] < 4, "train", "test"),
        "is_query": is_labelled & (np.arange(len(labels)) % 2 == 0),
        "is_gallery": np.ones(len(labels), dtype=np.int8),
        "sequence": np.where(np.arange(len(labels)) % 3, np.arange(len(labels)) // 3, -1),
        "super_names": np.where(arrays()["labels"] % 2, "odd", "even"),
        "paths": names,
    }
    test = splits(written(tmp_path / "a.npz", labels=labels, **content))["testing"]
    assert test.paths == names[24:].tolist()
    assert test.counts == {"images": 18, "classes": 3, "single_image_classes": 0, "distractors": 6}
    assert test.is_query.tolist() == content["is_query"][24:].tolist() and test.is_gallery.all()
    assert (test.sequences < 0).tolist() == (content["sequence"][24:] < 0).tolist()
    assert test.super_labels == {0: "even", 1: "odd", 2: "even"}


def test_a_folder_of_maps_and_other_types_give_the_same_rows(tmp_path):
    content = arrays(split=np.where(arrays()["labels"] < 4, "train", "validation"))
    for name, values in {**content, "labels": content["labels"].astype("S2"), "notes": np.zeros(2)}.items():
        np.save(tmp_path / f"{name}.npy", values)
    expected = splits(written(tmp_path / "a.npz", **content))
    assert len(expected["validation"]) == len(expected["testing"]) == 24
    for path in (tmp_path, tmp_path / "features.npy"):
        read = splits(path)
        for split in ("training", "testing"):
            assert all(torch.equal(a[1], b[1]) for a, b in zip(read[split], expected[split], strict=True))
        assert "arrays that are not read: notes" in read["training"].notes
    halves = splits(written(tmp_path / "b.npz", features=content["features"].astype(np.float16)))["training"]
    assert torch.equal(halves[0][1], torch.from_numpy(content["features"][0].astype(np.float16)).float())


def test_equal_rows_of_training_and_test_are_noted(tmp_path):
    features = arrays()["features"]
    features[-1] = features[0]
    path = written(tmp_path / "a.npz", features=features)
    expected = "duplicate rows: 1 group (2 rows) in more than one class, 1 group (2 rows) both in test and in training"
    assert any(note.startswith(expected) for note in splits(path)["training"].notes)
    assert datasets.problems(resolve("--dataset arrays --dataset_arrays", path))[0].startswith("duplicate rows")


def _bad(**changes):
    return changes


LABELS = arrays()["labels"]
FEATURES = arrays()["features"]
BAD = {
    "features, row 7, counted from 0: NaN": _bad(features=np.where(np.arange(48)[:, None] == 7, np.nan, FEATURES)),
    "NaN or infinity (32 bits)": _bad(features=FEATURES.astype(np.float64) * 1e300),
    "joined first, as by features.mean(1)": _bad(features=FEATURES[:, None]),
    "features has shape (48,)": _bad(features=FEATURES[:, 0]),
    "expected numbers (N, F)": _bad(features=FEATURES.astype(str)),
    "features and labels are needed, it has features": _bad(labels=None),
    "labels has shape (47,)": _bad(labels=LABELS[1:]),
    "labels: fractions": _bad(labels=LABELS + 0.5),
    "labels, row 0: none": _bad(labels=np.where(LABELS, LABELS, np.nan)),
    "all rows of testing are of class '4'": _bad(
        labels=np.minimum(LABELS, 4), split=np.where(LABELS < 4, "train", "test")
    ),
    "split, row 0: 'tset', expected train": _bad(split=np.full(48, "tset")),
    "all rows are of train": _bad(split=np.full(48, "train")),
    "is_query: expected True and False": _bad(is_query=LABELS),
    "paths has 'a' 48 times": _bad(paths=np.full(48, "a")),
    "not an .npz file of plain arrays": _bad(labels=LABELS.astype(object)),
}


@pytest.mark.parametrize("expected", BAD)
def test_bad_arrays_are_refused_in_one_line(tmp_path, expected):
    with refused(None, expected):
        splits(written(tmp_path / "a.npz", **BAD[expected]))


def test_flags_of_images_and_backbones_are_refused(tmp_path):
    path = written(tmp_path / "a.npz")
    for words in (
        *("--augmentation base", "--views 2", "--trainer diva", "--crop_size 32", "--eval_scales 1 2", "--decode_once"),
        *("--freeze_backbone", "--feature_cache", "--not_pretrained", "--pool max", "--weights x", "--lora_rank 2"),
        *("--channels_last", "--layer_decay .5", "--last_stride 1", "--download"),
    ):
        with refused(None, "the rows of --dataset arrays are features"):
            resolve("--dataset arrays --dataset_arrays", path, words)
    for words, expected in (
        ("--dataset arrays", "needs --dataset_arrays FILE.npz"),
        (f"--dataset arrays --dataset_arrays {tmp_path}/b.npz", "there is no file"),
        ("--dataset glyphs --arch features_normalize", "takes the rows of --dataset arrays"),
    ):
        with refused(None, expected):
            resolve(words)
    opt = resolve("--dataset arrays --dataset_arrays", path)
    assert (opt.arch, opt.augmentation, opt.views) == ("features:5_normalize", "none", 1)
    assert resolve("--dataset arrays --arch conv4_frozen --dataset_arrays", path).arch == "features:5:conv4"


def test_the_network_is_what_lies_behind_a_backbone():
    opt = parameters.read("--arch conv4_layernorm_normalize --embed_dim 3 --embed_hidden 4 --neck bn".split())
    network = architectures.behind(WIDTH, opt).eval()
    rows = torch.randn(7, WIDTH)
    state = {name: value.double() for name, value in network.state_dict().items()}
    x = rows.double()
    x = (x - x.mean(1, keepdim=True)) / (x.var(1, unbiased=False, keepdim=True) + 1e-5).sqrt()
    x = (x @ state["hidden.0.weight"].T + state["hidden.0.bias"]).clamp(min=0)
    x = (x @ state["last_linear.weight"].T + state["last_linear.bias"]) / (1 + 1e-5) ** 0.5
    embeddings, features = network(rows)
    torch.testing.assert_close(embeddings.double(), x / x.norm(dim=1, keepdim=True), rtol=1e-4, atol=1e-6)
    assert torch.equal(features["pooled"], rows) and network.takes_features == WIDTH
    for images in (torch.zeros(2, 3, 8, 8), torch.zeros(2, WIDTH + 1)):
        with refused(None, "takes rows (B, 5) of features"):
            network(images)
    with refused(None, "of how many features"):
        architectures.select("features_normalize", embed_dim=3)


def test_rows_and_images_do_not_meet(tmp_path):
    path = written(tmp_path / "a.npz")
    with refused(None, "gives rows of 5 features, and this network takes images"):
        splits(path, input_size=32)
    with refused(None, "gives rows of 5 features, and this network takes rows of 6 features"):
        splits(path, input_size=(6,))
    with refused(None, "--dataset glyphs gives images, and this network takes rows of 6 features"):
        datasets.select("glyphs", input_size=(6,))


def test_a_run_equals_that_on_cached_features_to_the_bit(folder_data, tmp_path):
    """`--arch` names the network of the features, behind whose random weights those of the head are generated."""
    images = "--not_pretrained --augmentation none --resize_size 18 --crop_size 16"
    words = on_folder(folder_data, tmp_path, SHORT, images)
    dump = "--evaluate_only --dump_embeddings --embed_dim 0 --splits_to_eval train test --savename dump"
    run_main(*words, dump, "--arch conv4")
    content = {"features": [], "labels": [], "paths": [], "split": []}
    for split in ("train", "test"):
        with np.load(tmp_path / "folder" / "dump" / f"embeddings_{split}.npz") as file:
            content["features"].append(file["features"])
            content["labels"].append(file["class_names"])
            content["paths"].append(file["paths"])
            content["split"].append(np.full(len(file["labels"]), split))
    np.savez(tmp_path / "a.npz", **{name: np.concatenate(parts) for name, parts in content.items()})
    head = "--arch conv4_normalize --embed_hidden 6 --neck bn"
    cached = run_main(*words, head, "--freeze_backbone --feature_cache --savename cached")
    run = train(tmp_path / "a.npz", tmp_path, head, "--savename rows")
    assert run.opt.arch == "features:576:conv4_normalize"
    assert recorded_values(run.folder).equals(recorded_values(cached.folder))
    state = last_checkpoint(cached.folder)["state_dict"]
    row_state = last_checkpoint(run.folder)["state_dict"]
    assert len(row_state) > 4 and equal_states(row_state, {name: state[name] for name in row_state})


def test_a_run_goes_on_is_measured_and_embeds_rows(tmp_path, monkeypatch, capsys):
    path = written(tmp_path / "a.npz", split=np.where(LABELS < 3, "train", np.where(LABELS < 5, "val", "test")))
    words = "--final_test --savename run"
    run = train(path, tmp_path / "a", words)
    train(path, tmp_path / "b", words, "--n_epochs 1")
    resumed = train(path, tmp_path / "b", words, "--resume")
    assert_same_run(resumed.folder, run.folder)
    pictures = []
    monkeypatch.setattr(outputs, "recoveries", lambda *args, **kwargs: pictures.append(args))
    measured = run_main("--evaluate --resume_from", run.folder, "--splits_to_eval test")
    values = run.state["selected"]["values"]["test"]
    assert measured["test"]["map_r"] == values["map_r"] and not pictures
    embedder = Embedder(run.folder)
    network = embedder.network
    rows = FEATURES[:3]
    assert np.array_equal(embedder(rows), network(torch.from_numpy(rows))[0].detach().numpy())
    for wrong, expected in ((rows[:, 1:], "(4,): this run takes rows of 5 features"), ("a.jpg", "takes rows of 5")):
        with refused(None, expected):
            embedder(wrong)
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a.jpg").touch()
    command = ["index", str(run.folder), str(tmp_path / "images"), "--out", str(tmp_path / "index")]
    for code in ("float32", "int8"):
        with refused(None, "takes rows of 5 features (--dataset arrays), not images: search the embeddings"):
            retrieval.main([*command, "--code", code])
    wider = written(tmp_path / "wide.npz", features=np.tile(FEATURES, 2), split=np.load(path)["split"])
    with refused(None, "gives rows of 10 features, and this network takes rows of 5"):
        run_main("--evaluate --resume_from", run.folder, "--dataset_arrays", wider)
    changed = written(tmp_path / "a.npz", features=FEATURES + 1, split=np.load(path)["split"])
    with refused(None, "are not those that it began with"):
        train(changed, tmp_path / "a", words, "--n_epochs 3 --resume")


def test_a_run_on_rows_teaches_another_and_a_compatible_one(tmp_path):
    path = written(tmp_path / "a.npz")
    old = train(path, tmp_path, "--savename old --n_epochs 1").folder
    for name, words in (
        ("student", f"--teacher {old} --distill rkd_distance"),
        ("new", f"--trainer compatible --compatible_with {old}"),
    ):
        assert train(path, tmp_path, "--n_epochs 1 --savename", name, *words.split()).epoch == 1
    with refused(None, "sees images, the student rows of 5 features"):
        train(path, tmp_path, "--teacher timm:resnet18 --distill sp")


@pytest.mark.long
def test_exports_take_features(tmp_path):
    run = train(written(tmp_path / "a.npz"), tmp_path, "--n_epochs 1").folder
    formats = "--format onnx torchscript torch_export safetensors --code int8"
    cosines = retrieval.main(["export", str(run), "--out", str(tmp_path / "out"), *formats.split()])
    assert min(cosines.values()) > 0.9999
    import onnxruntime

    session = onnxruntime.InferenceSession(str(tmp_path / "out" / "model.onnx"))
    assert [(node.name, node.shape[1]) for node in session.get_inputs()] == [("features", WIDTH)]
    (embeddings,) = session.run(["embeddings"], {"features": FEATURES})
    np.testing.assert_allclose(embeddings, Embedder(run)(FEATURES), atol=1e-6)
    card = (tmp_path / "out" / "README.md").read_text()
    assert "network(features)  # features: torch float32 (B, 5)" in card and "images = " not in card


@pytest.mark.long
def test_folds_and_a_frozen_measurement(tmp_path):
    path = written(tmp_path / "a.npz")
    folds = train(path, tmp_path, "--split_scheme class_disjoint --split_partitions 2 --n_epochs 1 --savename folds")
    assert folds.complete
    scores = train(path, tmp_path, "--evaluate_only --embed_dim 0 --evaluate_all --savename all")
    assert 0.5 < scores["test"]["e_recall@1"] <= 1
