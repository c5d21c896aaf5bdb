"""The angular miner against three loops and pytorch-metric-learning."""

import math

import numpy as np
import pytest
import torch
from pytorch_metric_learning import miners

import batch_mining
from tests.batch_mining._reference import all_triplets, as_lists, batch_of


@pytest.mark.parametrize("angle", [5.0, 20.0, 35.0])
@pytest.mark.parametrize("labels", [[0, 0, 1, 1, 2], [0] * 6 + [1] * 5, [0, 1, 2]])
def test_rule(labels, angle):
    embeddings, y = batch_of(labels, 3, seed=2, dtype=torch.float64)
    x = embeddings.numpy() / np.linalg.norm(embeddings.numpy(), axis=1, keepdims=True)
    expected = []
    for a, p, n in all_triplets(labels):
        tangent = np.linalg.norm(x[a] - x[p]) / (2 * np.linalg.norm(x[n] - (x[a] + x[p]) / 2))
        if math.degrees(math.atan(tangent)) > angle:
            expected.append((a, p, n))
    mined = batch_mining.select("angular", miner_angular_angle=angle)(embeddings, y)
    assert sorted(as_lists(*mined)) == sorted(expected)
    assert expected or len(labels) == 3


def test_agrees_with_pytorch_metric_learning():
    embeddings, y = batch_of([0, 1, 2, 3] * 5, 4, seed=1)
    embeddings = torch.nn.functional.normalize(embeddings)  # which the package leaves to the caller
    mined = as_lists(*batch_mining.select("angular", miner_angular_angle=30.0)(embeddings, y))
    assert sorted(mined) == sorted(as_lists(*miners.AngularMiner(angle=30)(embeddings, y)))
    assert mined


def test_chunks_give_the_same(monkeypatch):
    labels = [i % 3 for i in range(60)]  # 570 positive pairs
    embeddings, y = batch_of(labels, 3)
    whole = batch_mining.select("angular")(embeddings, y)
    monkeypatch.setattr("batch_mining.angular.CHUNK", 1)
    chunked = batch_mining.select("angular")(embeddings, y)
    assert sorted(as_lists(*whole)) == sorted(as_lists(*chunked))
    assert len(whole.anchors) > 0


def test_negative_in_the_middle():
    x = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])  # the zero vector lies at the centre of 0 and 1
    mined = as_lists(*batch_mining.select("angular", miner_angular_angle=89.0)(x, torch.tensor([0, 0, 1, 2])))
    assert sorted(mined) == [(0, 1, 3), (1, 0, 3)]
