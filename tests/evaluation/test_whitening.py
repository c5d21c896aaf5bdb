"""Whitening and several scales: the published values, plain loops, files, what is refused."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from evaluation import __main__ as command
from evaluation import scales, whitening
from tests.kit.plain_metrics import unit
from tests.kit.refusals import refused
from tests.kit.splits import measured, save
from utilities.errors import NotFinite

CROSS = np.array([[1.0, 0], [0, 2], [-1, 0], [0, -2]])


def test_principal_components_of_the_published_example():
    results = whitening.pca(CROSS)
    np.testing.assert_allclose(results.projection @ (CROSS.T @ CROSS / 8) @ results.projection.T, np.eye(2), atol=1e-12)
    # Another mean changes nothing
    for moved in ([0, 0], [3, 0]):
        np.testing.assert_allclose(
            np.abs(whitening.pca(CROSS + moved)(np.array([[1.0, 1.0]]) + moved)), [[0.447213, 0.894427]], atol=1e-5
        )
    assert whitening.pca(CROSS, 1)(CROSS).shape == (4, 1)


@pytest.mark.parametrize("has_few_pairs", [False, True], ids=["many pairs", "fewer than dimensions"])
def test_learned_whitening_by_plain_steps(has_few_pairs):
    features = np.random.default_rng(0).standard_normal((30, 4)) @ np.diag([3, 1, 0.5, 0.2])
    n_pairs = 2 if has_few_pairs else 20
    first = np.arange(n_pairs)
    projection = whitening.learned(features, (first, first + 10)).projection
    if not has_few_pairs:
        # differences of pairs have unit covariance, and features then lie along the axes, widest first
        differences = (features[first] - features[first + 10]) @ projection.T
        np.testing.assert_allclose(differences.T @ differences / 20, np.eye(4), atol=1e-9)
    turned = (features - features[first].mean(0)) @ projection.T
    spread = turned.T @ turned
    assert (np.diff(np.diag(spread)) <= 0).all()
    assert np.abs(spread - np.diag(np.diag(spread))).max() < 1e-5 * spread.max()


def test_what_cannot_be_whitened(tmp_path):
    with refused("spread in 1 dimensions of 2: request at most 1"):
        whitening.pca(np.array([[1.0, 0], [2, 0], [4, 0]]))
    with refused("no class has two images"):
        whitening.pairs_of_classes(np.arange(4))
    rows = whitening.pairs_of_classes(np.array([1, 0, 1, 1, 2]))
    assert [row.tolist() for row in rows] == [[0, 2], [2, 3]]
    mean = np.zeros(3)
    odd, large = save(tmp_path, b={"mean": mean, "projection": np.eye(2)}, c={"mean": mean, "projection": np.eye(3)})
    (tmp_path / "a.npz").write_bytes(b"nothing")
    for path, message in (
        (tmp_path / "a.npz", "cannot be read"),
        (odd, r"holds mean \(3,\) and projection \(2, 2\)"),
        (large, "takes 3 dimensions to 3; there are 2"),
    ):
        with refused(message):
            whitening.read(str(path), 2, None)


def test_fitted_on_one_file_and_used_on_another(tmp_path, capsys):
    rng = np.random.default_rng(1)
    mixed = rng.standard_normal((4, 4))
    names = ["map_r", "rho_spectrum@0"]
    train, test = (
        {"features": rng.standard_normal((rows, 4)) @ mixed, "labels": np.arange(rows) % 7} for rows in (80, 60)
    )
    path = str(tmp_path / "w.npz")
    fitted_on = save(tmp_path, train=train)
    for words, dims in ((["--dims", "3"], 3), (["--learned"], 4)):
        command.main(["whiten", *fitted_on, "--out", path, *words])
        assert f"80 embeddings, 4 dimensions to {dims}" in capsys.readouterr().out
        results = measured(tmp_path, "--eval_whiten", path, names=names, **test)
        whitened = whitening.read(path, 4, None)(test["features"])
        expected = measured(tmp_path, names=names, features=whitened, labels=test["labels"])
        assert results["map_r"] == expected["map_r"] and len(results["rho_spectrum@0"]) == dims
    measured(tmp_path, "--eval_whiten", "fit_gallery", **test)
    assert "whitened by the images that are searched" in capsys.readouterr().out
    with refused("a file has no training images"):
        measured(tmp_path, "--eval_whiten", "fit", **test)


def test_scales_are_joined_as_published():
    outputs = [torch.tensor([row], dtype=torch.float64) * 3 for row in ((0.6, 0.8), (0.8, 0.6), (0.0, 1.0))]
    for power, expected in ((1, (0.503871, 0.863779)), (3, (0.599824, 0.800132))):
        np.testing.assert_allclose(scales.joined(outputs, power)[0], expected, atol=1e-6)
    with refused("negative features"):
        scales.joined([-outputs[0]], 3)
    assert scales.power_of(None, SimpleNamespace(eval_scales_join="max"), False) == math.inf
    largest = scales.joined([outputs[0], outputs[1], -outputs[2]], math.inf)
    np.testing.assert_allclose(largest[0], (0.707107, 0.707107), atol=1e-6)


class Sums(torch.nn.Module):
    """Embeds an image as height, width and its mean in [0, 1]."""

    def forward(self, images):
        bright = images.float().mean((1, 2, 3)) / (1 if images.is_floating_point() else 255)
        height, width = images.shape[2:]
        return torch.stack([torch.full_like(bright, height), torch.full_like(bright, width), bright], 1), {}


def test_an_image_is_embedded_at_each_scale():
    images = torch.randint(0, 256, (2, 3, 40, 60), dtype=torch.uint8)

    def at(sizes):
        return scales.outputs_at(Sums(), images, sizes, 1.0, lambda embeddings, _: {"a": embeddings})["a"]

    rows = Sums()(images)[0].numpy()
    expected = unit(unit(rows) + unit(rows * [0.5, 0.5, 1]))
    np.testing.assert_allclose(at([1, 0.5]), expected, atol=1e-4)
    assert torch.equal(at([1]), Sums()(images)[0]), "one scale leaves the length"


def test_what_cannot_whiten_is_told_before_training_and_nan_is_not_finite(tmp_path):
    for whiten, dims, message in (
        ("fit", 9, "--eval_whiten_dims 9: the embeddings have 8 dimensions"),
        (str(tmp_path / "nosuch.npz"), None, "nosuch.npz: cannot be read"),
    ):
        with refused(message):
            whitening.check(SimpleNamespace(eval_whiten=whiten, eval_whiten_dims=dims), 8)
    assert whitening.check(SimpleNamespace(eval_whiten="fit", eval_whiten_dims=3), 8) == 3
    for fit in (whitening.pca, lambda x: whitening.learned(x, (np.arange(3), np.arange(3) + 1))):
        with pytest.raises(NotFinite, match="NaN or infinity"):
            fit(np.full((4, 2), np.nan))
