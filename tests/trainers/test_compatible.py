"""Compatible training: its losses against loops and pins, old embeddings of a run and of files, what is refused."""

import math
import shutil

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy, normalize
from torch.testing import assert_close

import datasets
from evaluation import old_embeddings, same_images
from runs import Embedder
from tests.criteria._table import PINNED, PINNED_LABELS
from tests.kit import tiny
from tests.kit.refusals import refused
from tests.kit.runs import run_main
from trainers import compatible

V = normalize(torch.tensor([(1, 0.2, 0), (0, 1, 0.3), (0.1, 0, 1)], dtype=torch.float64))
OLD = V[[0, 0, 1, 2]]
LOSS = "--loss multisimilarity --batch_mining none --trainer compatible --compatible_with"


def cosine(x, y):
    lengths = x.norm() * y.norm()
    return x @ y / lengths if lengths > 0 else x @ y


def points_by_loops(x, labels, old, temperature):
    total = 0
    for i in range(len(x)):
        scores = [cosine(x[i], old[i])]
        for rows in (old, x):
            scores += [cosine(x[i], rows[j]) for j in range(len(x)) if labels[j] != labels[i]]
        masses = [torch.exp(score / temperature) for score in scores]
        total = total - torch.log(masses[0] / sum(masses))
    return total / len(x)


def classes_by_loops(x, labels, vectors, scale):
    total = 0
    for row, label in zip(x, labels.tolist(), strict=True):
        masses = [torch.exp(scale * cosine(row, vector)) for vector in vectors]
        total = total - torch.log(masses[label] / sum(masses))
    return total / len(x)


def test_the_pins():
    x = PINNED
    assert compatible.by_classes(x, PINNED_LABELS, V, None).item() == pytest.approx(0.7204222, abs=1e-7)
    assert compatible.by_classes(x, PINNED_LABELS, V).item() == pytest.approx(0.1581089, abs=1e-7)
    assert compatible.by_points(x, PINNED_LABELS, OLD, 0.1).item() == pytest.approx(0.0328720, abs=1e-7)
    # without the new negatives
    logits = (x @ OLD.T / 0.1).masked_fill(PINNED_LABELS[:, None] == PINNED_LABELS, -math.inf)
    positive = (x * OLD).sum(1, keepdim=True) / 0.1
    of_old = cross_entropy(torch.cat([positive, logits], 1), torch.zeros(4, dtype=torch.long))
    assert of_old.item() == pytest.approx(0.0102123, abs=1e-7)


@pytest.mark.parametrize("labels", [[0, 0, 1, 1, 2], [0, 1, 2, 3, 4], [1, 1, 1, 1, 1]])
def test_losses_and_gradients_are_those_of_loops(labels):
    generator = torch.Generator().manual_seed(1)
    x, old = torch.randn(2, 5, 3, generator=generator, dtype=torch.float64)
    # a duplicate
    x[1] = x[0]
    old[3] = 0
    vectors = torch.randn(5, 3, generator=generator, dtype=torch.float64)
    x.requires_grad_()
    labels = torch.tensor(labels)
    for ours, slow in (
        (compatible.by_points(x, labels, old, 0.2), points_by_loops(x, labels, old, 0.2)),
        (compatible.by_classes(x, labels, vectors, 4.0), classes_by_loops(x, labels, vectors, 4.0)),
    ):
        assert_close(ours, slow)
        assert_close(*(torch.autograd.grad(value, x)[0] for value in (ours, slow)))
    assert (labels.unique().numel() > 1) == bool(compatible.by_points(x, labels, old) > 0)


def test_class_vectors_are_plain_means():
    rows = torch.tensor([[1.0, 0], [3, 0], [0, 2]])
    assert torch.equal(compatible.class_means(rows, torch.tensor([1, 1, 0]), 2), torch.tensor([[0.0, 2], [2, 0]]))


@pytest.mark.parametrize("form", ["classes", "points"])
def test_the_first_dimensions_are_compared_and_nothing_old_is_in_the_checkpoint(form):
    trainer, opt = tiny.trainer("compatible", f"--compatible_with old.npz --compatible_form {form}")
    features = torch.randn(30, 3, dtype=torch.float64)
    labels = torch.arange(30) % 4
    batch = tiny.batch()
    with refused("embeds nothing with the old network"):
        tiny.losses(trainer, batch)
    trainer.take_old(trainer.rows_of(features, labels))
    outputs, losses = tiny.losses(trainer, batch)
    first = outputs["embeddings"][:, :3]
    if form == "classes":
        means = torch.stack([features[labels == label].mean(0) for label in range(4)])
        expected = classes_by_loops(first, batch.labels, means, 16)
    else:
        expected = points_by_loops(first, batch.labels, features[batch.indices], 0.05)
    assert_close(losses["compatible_loss"], expected)
    assert not any("old" in name for name in trainer.state_dict())
    assert tiny.groups(opt, trainer).keys() == tiny.groups(*reversed(tiny.trainer("metric_only"))).keys()
    with refused("its embeddings have 5 dimensions, those of the new network 4"):
        trainer.take_old(torch.zeros(30, 5))


def test_images_are_joined_by_paths(capsys):
    paths = ["/a/x/1.png", "/a/x/2.png", "/a/y/1.png", "/a/y/1.png"]
    assert same_images.rows_of(paths, paths[::-1], "/a", "F").tolist() == [3, 2, 0, 1]
    moved = [path.replace("/a", "/b/c") for path in paths]
    assert not capsys.readouterr().out
    assert same_images.rows_of(paths, moved, "/a", "F").tolist() == [0, 1, 2, 3]
    assert "F: its paths are in another folder" in capsys.readouterr().out
    assert same_images.rows_of(paths, paths[:3], "/a", "F").tolist() == [0, 1, -1, -1]
    twice = ["/b/x/1.png", "/c/x/1.png"]
    assert same_images.rows_of(["/a/x/1.png"], twice, "/a", "F").tolist() == [-1]


def test_a_run_and_its_file_of_embeddings_give_the_same_run(data, tmp_path):
    """The old network embeds with its own transform; afterwards the run goes on without it."""
    old = tiny.run(data, tmp_path, "--n_epochs 1 --savename Old --embed_dim 6 --crop_size 32 --resize_size 40")
    flags = [LOSS, old.folder, "--n_epochs 2 --embed_dim 8"]
    new = tiny.run(data, tmp_path, *flags, "--savename New")
    with np.load(new.folder / old_embeddings.FILE) as arrays:
        rows = arrays["rows"]
        assert str(arrays["fingerprint"]) == Embedder(old.folder).fingerprint
    images = new_images(data)
    features = Embedder(old.folder)([path for path, _ in images])
    labels = torch.tensor([label for _, label in images])
    expected = compatible.class_means(torch.from_numpy(features), labels, 6)
    np.testing.assert_allclose(rows, expected, atol=1e-6)
    names = [path.replace(str(data), "/elsewhere/things") for path, _ in images]
    file = tmp_path / "old.npz"
    np.savez(file, features=features[::-1], paths=names[::-1])
    of_file = tiny.run(data, tmp_path, LOSS, file, "--n_epochs 2 --embed_dim 8 --savename File")
    values, expected = (tiny.values_of_training(run) for run in (of_file, new))
    for epoch in (1, 2):
        assert values[epoch, "compatible_loss"] == pytest.approx(expected[epoch, "compatible_loss"], rel=1e-3)
    parted = tiny.run(data, tmp_path, LOSS, old.folder, "--n_epochs 1 --embed_dim 8 --savename Parted")
    shutil.rmtree(old.folder)
    run_main("--resume_from", parted.folder, "--n_epochs 2")
    tiny.assert_equal_runs(new.folder, parted.folder)


@pytest.mark.long
def test_half_precision_frozen_features_and_folds(data, tmp_path):
    """Old embeddings are float32 whatever the new network's precision is, and of images, not of cached features."""
    old = tiny.run(data, tmp_path, "--n_epochs 1 --savename Old --embed_dim 6")
    flags = [LOSS, old.folder, "--n_epochs 1 --embed_dim 8 --compatible_form points"]
    frozen = "--freeze_backbone --feature_cache --augmentation none --arch conv4_normalize"
    runs = [
        tiny.run(data, tmp_path, *flags, words, "--savename", name)
        for name, words in (("Plain", ""), ("Half", "--precision bfloat16"), ("Frozen", frozen))
    ]
    rows = []
    for run in runs:
        with np.load(run.folder / old_embeddings.FILE) as arrays:
            rows.append(arrays["rows"])
    assert rows[0].shape == (30, 6) and all(np.array_equal(rows[0], of_run) for of_run in rows)
    losses = [tiny.values_of_training(run)[1, "compatible_loss"] for run in runs[:2]]
    assert losses[0] == pytest.approx(losses[1], rel=0.05)
    folds = "--split_scheme class_disjoint --split_partitions 2 --split_sets 2"
    cross = tiny.run(data, tmp_path, *flags, folds)
    assert [(cross.folder / f"fold_{fold}" / old_embeddings.FILE).exists() for fold in (0, 1)] == [True, True]


def new_images(data):
    """Path and label of the training images, in the order of their indices."""
    splits = datasets.select("folder", dataset_folder_path=str(data), input_size=32)
    return splits["evaluation"].image_list


def test_an_old_index_that_does_not_serve_is_refused_before_anything_is_trained(data, tmp_path):
    paths = [path for path, _ in new_images(data)]
    features = np.ones((len(paths), 4))
    cases = [
        ({"features": features}, "has no paths"),
        ({"features": features, "paths": [f"/x/{row}.png" for row in range(len(paths))]}, "lacks 30 of 30 training"),
        (
            {"features": features[:-1], "paths": paths[:-1]},
            "lacks 1 of 30 training images, first .*splits_to_eval train",
        ),
        ({"features": features[:-1], "paths": paths}, "expected \\(N, d\\) and \\(N,\\)"),
        ({"features": np.where(np.eye(len(paths), 4), np.nan, 1), "paths": paths}, "row 0 holds NaN"),
        ({"features": np.ones((len(paths), 9)), "paths": paths}, "have 9 dimensions, those of the new network 8"),
    ]
    file = tmp_path / "old.npz"
    for arrays, message in cases:
        np.savez(file, **arrays)
        with refused(message):
            tiny.run(data, tmp_path, LOSS, file, "--embed_dim 8")
    for name, message in (("gone", "neither the folder of a run nor"), ("gone.npz", "gone.npz"), (".", "no run in")):
        with refused(message):
            tiny.run(data, tmp_path, LOSS, tmp_path / name)
    assert not (tmp_path / "runs").exists() or not list((tmp_path / "runs").rglob("parameters.yaml"))
