"""Outliers of sub-centers: pytorch-metric-learning's, a run's images, and what is refused."""

import importlib
import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from pytorch_metric_learning.losses import SubCenterArcFaceLoss

import criteria
import main
import parameters
from evaluation import outliers
from utilities.errors import UserError

command = importlib.import_module("evaluation.__main__")


@pytest.mark.parametrize("threshold", [40, 75, 100])
@pytest.mark.parametrize("n_centers", [1, 3])
def test_the_angles_are_those_of_pytorch_metric_learning(n_centers, threshold):
    n_classes, dimensions, generator = 5, 6, torch.Generator().manual_seed(0)
    peer = SubCenterArcFaceLoss(num_classes=n_classes, embedding_size=dimensions, sub_centers=n_centers)
    criterion = criteria.select(
        "subcenter_arcface", n_classes=n_classes, embed_dim=dimensions, loss_subcenter_arcface_n_centers=n_centers
    ).double()
    with torch.no_grad():
        peer.W.data = peer.W.data.double()
        criterion.proxies.copy_(peer.W.T)
    labels = torch.randint(4, (60,), generator=generator)  # the last class has no sample
    batch = torch.randn(60, dimensions, dtype=torch.float64, generator=generator)
    theirs, dominant = peer.get_outliers(batch, labels, threshold)
    angles = criterion.angles_to_dominant(batch, labels)
    assert sorted(theirs.tolist()) == (angles > threshold).nonzero().flatten().tolist()
    for i in range(60):
        centre = dominant[:, labels[i]]
        cosine = float(batch[i] @ centre / batch[i].norm() / centre.norm())
        assert float(angles[i]) == pytest.approx(math.degrees(math.acos(cosine)), abs=1e-6)


def trained(folder_data, parent, loss, *more):
    return main.main(parameters.read([
        "--dataset", "folder", "--dataset_folder_path", str(folder_data), "--save_path", str(parent), "--arch", "conv4_normalize", "--embed_dim", "16",
        "--loss", loss, "--bs", "8", "--n_epochs", "2", "--kernels", "0", "--evaluation_metrics", "e_recall@1", "--lr", "0.001", "--seed", "3",
        "--splits_to_eval", "train", "test", *more,
    ]))  # fmt: skip


@pytest.fixture(scope="module")
def run(folder_data, tmp_path_factory):
    made = trained(folder_data, tmp_path_factory.mktemp("runs"), "subcenter_arcface", "--loss_subcenter_arcface_n_centers", "2")
    main.main(parameters.read(["--evaluate", "--resume_from", str(made.folder), "--splits_to_eval", "train", "test", "--dump_embeddings"]))
    return made


def test_a_runs_images(run, tmp_path, capsys):
    found = command.main([str(run.folder), "--outliers", "--outlier_angle", "0", "--out", str(tmp_path / "found.json")])
    told = capsys.readouterr().out
    with np.load(run.folder / outliers.EMBEDDINGS) as file:
        features, labels, paths = torch.tensor(file["features"]).double(), file["labels"], file["paths"].tolist()
    name = json.loads((run.folder / "evaluation_Test_discriminative_e_recall@1.json").read_text())["checkpoint"]
    centres = torch.load(run.folder / name, weights_only=True)["criterion"]["proxies"].double().view(-1, 2, 16)
    assert [one.path for one in found] != paths and sorted(one.path for one in found) == sorted(paths)  # every image, in another order
    assert [one.angle for one in found] == sorted((one.angle for one in found), reverse=True)
    cosines = torch.nn.functional.normalize(features) @ torch.nn.functional.normalize(centres, dim=2).transpose(1, 2)  # (C, N, 2)
    for one in found:
        own = cosines[labels[one.index]]
        nearest = own.argmax(1)[torch.as_tensor(labels == labels[one.index])]
        dominant = int(nearest.double().mean() > 0.5)
        assert one.path == paths[one.index] and Path(one.path).parent.name == one.class_name
        assert one.angle == pytest.approx(math.degrees(math.acos(float(own[one.index, dominant]))), abs=1e-4)
    written = json.loads((tmp_path / "found.json").read_text())
    assert written["images"] == len(paths) and [one["path"] for one in written["outliers"]] == [one.path for one in found]
    assert f"{len(found)} of {len(paths)} training images" in told and found[0].path in told

    angle = (found[3].angle + found[4].angle) / 2
    fewer = command.main([str(run.folder / outliers.EMBEDDINGS), "--outliers", "--outlier_angle", str(angle)])
    assert fewer == found[:4]


def refused(argv, words):
    with pytest.raises(UserError) as error:
        command.main([*argv, "--outliers"])
    assert words in str(error.value) and "\n" not in str(error.value), str(error.value)


def test_what_is_refused_in_one_line(run, folder_data, tmp_path):
    refused([str(tmp_path)], "python main.py --evaluate --resume_from")
    refused([str(run.folder), "--outlier_angle", "181"], "--outlier_angle 181 must be at most 180")
    refused([str(run.folder / "embeddings_test.npz")], "outliers are training images")
    for name, arrays, words in (
        ("embeddings_train_narrow", {"features": np.ones((4, 3)), "labels": np.arange(4)}, "16 dimensions"),
        ("embeddings_train_others", {"features": np.ones((4, 16)), "labels": np.arange(4) + 2}, "trained on 4 classes, 0 to 3"),
        ("embeddings_train_none", {"features": np.ones((4, 16))}, "has no labels"),
    ):
        np.savez(run.folder / f"{name}.npz", **arrays)
        refused([str(run.folder / f"{name}.npz")], words)
    other = trained(folder_data, tmp_path, "softmax")
    shutil.copy(run.folder / outliers.EMBEDDINGS, other.folder)
    refused([str(other.folder)], "trained with --loss softmax; outliers are those of --loss subcenter_arcface")
