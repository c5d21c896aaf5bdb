"""Outliers of sub-centers: pytorch-metric-learning's, a run's images, and what is refused."""

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from pytorch_metric_learning.losses import SubCenterArcFaceLoss

import criteria
from evaluation import __main__ as command
from tests.kit.refusals import refused
from tests.kit.splits import save
from tools import outliers


@pytest.mark.parametrize("threshold", [40, 75, 100])
@pytest.mark.parametrize("n_centers", [1, 3])
def test_the_angles_are_those_of_pytorch_metric_learning(n_centers, threshold):
    n_classes = 5
    dimensions = 6
    generator = torch.Generator().manual_seed(0)
    peer = SubCenterArcFaceLoss(num_classes=n_classes, embedding_size=dimensions, sub_centers=n_centers)
    criterion = criteria.select(
        "subcenter_arcface", n_classes=n_classes, embed_dim=dimensions, loss_subcenter_arcface_n_centers=n_centers
    ).double()
    with torch.no_grad():
        peer.W.data = peer.W.data.double()
        criterion.proxies.copy_(peer.W.T)
    # the last class has no sample
    labels = torch.randint(4, (60,), generator=generator)
    batch = torch.randn(60, dimensions, dtype=torch.float64, generator=generator)
    theirs, dominant = peer.get_outliers(batch, labels, threshold)
    angles = criterion.angles_to_dominant(batch, labels)
    assert sorted(theirs.tolist()) == (angles > threshold).nonzero().flatten().tolist()
    cosines = torch.nn.functional.cosine_similarity(batch, dominant.T[labels])
    assert angles.tolist() == pytest.approx([math.degrees(math.acos(cosine)) for cosine in cosines], abs=1e-6)


def test_a_runs_images(run, tmp_path, capsys):
    results = command.main([str(run), "--outliers", "--outlier_angle", "0", "--out", str(tmp_path / "found.json")])
    message = capsys.readouterr().out
    page = run.with_name(f"{run.name}_train.html")
    assert message.splitlines()[-1] == f"next: python -m retrieval explore {run} --split train --out {page}"
    with np.load(run / outliers.EMBEDDINGS) as file:
        features = torch.tensor(file["features"]).double()
        labels = file["labels"]
        paths = file["paths"].tolist()
    content = torch.load(run / "checkpoint_Test_discriminative_e_recall@1.pth.tar", weights_only=True)
    centres = content["criterion"]["proxies"].double().view(-1, 2, 16)
    result_paths = [outlier.path for outlier in results]
    angles = [outlier.angle for outlier in results]
    assert result_paths != paths and sorted(result_paths) == sorted(paths), "every image, in another order"
    assert angles == sorted(angles, reverse=True)
    # (C, N, 2)
    cosines = torch.nn.functional.normalize(features) @ torch.nn.functional.normalize(centres, dim=2).transpose(1, 2)
    for outlier in results:
        of_class = cosines[labels[outlier.index]]
        dominant = int(of_class.argmax(1)[torch.as_tensor(labels == labels[outlier.index])].double().mean() > 0.5)
        assert outlier.path == paths[outlier.index] and Path(outlier.path).parent.name == outlier.class_name
        expected = math.degrees(math.acos(float(of_class[outlier.index, dominant])))
        assert outlier.angle == pytest.approx(expected, abs=1e-4)
    written = json.loads((tmp_path / "found.json").read_text())
    assert written["images"] == len(paths) and [outlier["path"] for outlier in written["outliers"]] == result_paths
    assert f"{len(results)} of {len(paths)} training images" in message and results[0].path in message
    angle = (angles[3] + angles[4]) / 2
    assert command.main([str(run / outliers.EMBEDDINGS), "--outliers", "--outlier_angle", str(angle)]) == results[:4]


def test_what_is_refused_in_one_line(run, trained_run, tmp_path):
    shutil.copy(run / outliers.EMBEDDINGS, trained_run)
    narrow, other_classes, unlabelled = save(
        run,
        embeddings_train_narrow={"features": np.ones((4, 3)), "labels": np.arange(4)},
        embeddings_train_others={"features": np.ones((4, 16)), "labels": np.arange(4) + 2},
        embeddings_train_none={"features": np.ones((4, 16))},
    )
    for argv, words in (
        ([tmp_path], "python main.py --evaluate --resume_from"),
        ([run, "--outlier_angle", "181"], "--outlier_angle 181 must be at most 180"),
        ([run / "embeddings_test.npz"], "outliers are training images"),
        ([narrow], "16 dimensions"),
        ([other_classes], "trained on 4 classes, 0 to 3"),
        ([unlabelled], "has no labels"),
        ([trained_run], "trained with --loss margin; outliers are those of --loss subcenter_arcface"),
    ):
        with refused(None, words):
            command.main([*map(str, argv), "--outliers"])
