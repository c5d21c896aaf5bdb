"""Whitening and several scales: the published values, plain loops, files, what is refused."""

import numpy as np
import pytest
import torch

from evaluation import __main__ as command
from evaluation import scales, whitening
from tests.builders import refused
from utilities.errors import UserError

CROSS = np.array([[1.0, 0], [0, 2], [-1, 0], [0, -2]])


def test_principal_components_of_the_published_example():
    found = whitening.pca(CROSS)
    covariance = CROSS.T @ CROSS / 8
    np.testing.assert_allclose(found.projection @ covariance @ found.projection.T, np.eye(2), atol=1e-12)
    for moved in ([0, 0], [3, 0]):  # another mean
        np.testing.assert_allclose(np.abs(whitening.pca(CROSS + moved)(np.array([[1.0, 1.0]]) + moved)), [[0.447213, 0.894427]], atol=1e-5)
    assert whitening.pca(CROSS, 1)(CROSS).shape == (4, 1)


@pytest.mark.parametrize("few", [False, True], ids=["many pairs", "fewer than dimensions"])
def test_learned_whitening_by_plain_steps(few):
    rng = np.random.default_rng(0)
    features = rng.standard_normal((30, 4)) @ np.diag([3, 1, 0.5, 0.2])
    pairs = np.arange(2 if few else 20), np.arange(2 if few else 20) + 10
    found = whitening.learned(features, pairs)
    differences = features[pairs[0]] - features[pairs[1]]
    covariance, added = sum(np.outer(d, d) for d in differences) / len(differences), 0.0
    while np.linalg.eigvalsh(covariance + added * np.eye(4))[0] <= 0 or few and added == 0:
        added = max(added * 10, 1e-10)
    whitened = found.projection @ covariance @ found.projection.T
    if not few:  # differences of pairs have unit covariance, and features then lie along the axes, widest first
        np.testing.assert_allclose(whitened, np.eye(4), atol=1e-9)
    turned = (features - features[pairs[0]].mean(0)) @ found.projection.T
    spread = turned.T @ turned
    assert (np.diff(np.diag(spread)) <= 0).all() and np.abs(spread - np.diag(np.diag(spread))).max() < 1e-5 * spread.max()


def test_what_cannot_be_whitened(tmp_path):
    with pytest.raises(UserError, match="spread in 1 dimensions of 2: ask for at most 1"):
        whitening.pca(np.array([[1.0, 0], [2, 0], [4, 0]]))
    with pytest.raises(UserError, match="no class has two images"):
        whitening.pairs_of_classes(np.arange(4))
    rows = whitening.pairs_of_classes(np.array([1, 0, 1, 1, 2]))
    assert [row.tolist() for row in rows] == [[0, 2], [2, 3]]
    (tmp_path / "a.npz").write_bytes(b"nothing")
    np.savez(tmp_path / "b.npz", mean=np.zeros(3), projection=np.eye(2))
    np.savez(tmp_path / "c.npz", mean=np.zeros(3), projection=np.eye(3))
    for name, dims, told in (("a", None, "cannot be read"), ("b", None, r"holds mean \(3,\) and projection \(2, 2\)"), ("c", None, "takes 3 dimensions to 3; there are 2")):
        with refused(told):
            whitening.read(str(tmp_path / f"{name}.npz"), 2, dims)


def test_fitted_on_one_file_and_used_on_another(tmp_path, capsys):
    rng = np.random.default_rng(1)
    mixed = rng.standard_normal((4, 4))
    for name, rows in (("train", 80), ("test", 60)):
        np.savez(tmp_path / f"{name}.npz", features=rng.standard_normal((rows, 4)) @ mixed, labels=np.arange(rows) % 7)
    path, test = str(tmp_path / "w.npz"), str(tmp_path / "test.npz")
    for words, dims in ((["--dims", "3"], 3), (["--learned"], 4)):
        command.main(["whiten", str(tmp_path / "train.npz"), "--out", path, *words])
        assert f"80 embeddings, 4 dimensions to {dims}" in capsys.readouterr().out
        found = command.main([test, "--eval_whiten", path, "--evaluation_metrics", "map_r", "rho_spectrum@0"])
        plain = dict(np.load(test))
        np.savez(tmp_path / "by_hand.npz", features=whitening.read(path, 4, None)(plain["features"]), labels=plain["labels"])
        expected = command.main([str(tmp_path / "by_hand.npz"), "--evaluation_metrics", "map_r", "rho_spectrum@0"])
        assert found["map_r"] == expected["map_r"] and len(found["rho_spectrum@0"]) == dims
    capsys.readouterr()
    command.main([test, "--eval_whiten", "fit_gallery", "--evaluation_metrics", "map_r"])
    assert "whitened by the images that are searched" in capsys.readouterr().out
    with pytest.raises(UserError, match="a file has no training images"):
        command.main([test, "--eval_whiten", "fit"])


def test_scales_are_joined_as_published():
    outputs = [torch.tensor([row], dtype=torch.float64) * 3 for row in ((0.6, 0.8), (0.8, 0.6), (0.0, 1.0))]
    for power, expected in ((1, (0.503871, 0.863779)), (3, (0.599824, 0.800132))):
        np.testing.assert_allclose(scales.joined(outputs, power)[0], expected, atol=1e-6)
    with pytest.raises(UserError, match="negative features"):
        scales.joined([-outputs[0]], 3)


class Sums(torch.nn.Module):
    """Embeds an image as height, width and its mean in [0, 1]."""

    def forward(self, images):
        bright = images.float().mean((1, 2, 3)) / (1 if images.is_floating_point() else 255)
        return torch.stack([torch.full_like(bright, images.shape[2]), torch.full_like(bright, images.shape[3]), bright], 1), {}


def test_an_image_is_embedded_at_each_scale():
    images = torch.randint(0, 256, (2, 3, 40, 60), dtype=torch.uint8)
    found = scales.outputs_at(Sums(), images, [1, 0.5], 1.0, lambda embeddings, _: {"discriminative": embeddings})["discriminative"]
    bright = images.float().mean((1, 2, 3)) / 255
    expected = sum(row / row.norm(dim=1, keepdim=True) for row in (torch.stack([torch.full_like(bright, 40 * s), torch.full_like(bright, 60 * s), bright], 1) for s in (1, 0.5)))
    torch.testing.assert_close(found, expected / expected.norm(dim=1, keepdim=True), atol=1e-4, rtol=0)
    (same,) = (scales.outputs_at(Sums(), images, [1], 1.0, lambda embeddings, _: {"a": embeddings})["a"],)
    assert torch.equal(same, Sums()(images)[0]), "one scale leaves the length"
