"""Regularisers of embeddings and class vectors against pytorch-metric-learning and plain sums."""

import pytest
import torch
from pytorch_metric_learning import regularizers

import criteria
import parameters
import trainers
from tests.trainers.test_trainers import Network, batch
from trainers import _regularizers
from utilities.errors import UserError


def points(rows=7, seed=0):
    return torch.randn(rows, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def same(ours, theirs, x):
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(*(torch.autograd.grad(value, x, retain_graph=True)[0] for value in (ours, theirs)))


@pytest.mark.parametrize(("p", "power"), [(2, 1), (2, 2), (1, 1), (3, 1.5)])
def test_lp(p, power):
    x = points()
    same(_regularizers.lp(x, p, power), regularizers.LpRegularizer(p=p, power=power)(x), x)


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("power", [1, 2, 0.5])
def test_lp_of_zeros_is_finite(p, power):
    x = torch.zeros(2, 3, requires_grad=True)
    value = _regularizers.lp(x, p, power)
    value.backward()
    assert value.isfinite() and x.grad.isfinite().all()


def test_zero_mean():
    x = points()
    same(_regularizers.zero_mean(x), regularizers.ZeroMeanRegularizer()(x), x)


def test_center_invariant():
    x = points()
    same(_regularizers.center_invariant(x), regularizers.CenterInvariantRegularizer()(x), x)


def test_regular_face():
    x = points()
    same(_regularizers.regular_face(x), regularizers.RegularFaceRegularizer()(x), x)


def test_regular_face_of_sub_centres_compares_classes():
    x = points(6)
    unit = x / x.norm(dim=1, keepdim=True)
    expected = sum(max(unit[i] @ unit[k] for k in range(6) if k // 2 != i // 2) for i in range(6)) / 6
    same(_regularizers.regular_face(x, 2), expected, x)


def trainer_of(*flags, loss="softtriplet", **criterion):
    opt = parameters.read(["--dataset", "glyphs", "--loss", loss, "--evaltypes", "first", "--arch", "conv4", *flags])
    return trainers.select("metric_only", opt, Network(), criteria.select(loss, opt, n_classes=3, embed_dim=4, **criterion))


def test_they_are_losses_of_a_step_with_their_weights():
    flags = [
        "--embed_regularizer",
        "lp",
        "--embed_regularizer_power",
        "2",
        "--weight_regularizer",
        "sparse_centers",
    ]
    trainer = trainer_of(*flags, loss_softtriplet_n_centroids=2)
    outputs = trainer.outputs(batch().images)
    losses = trainer.losses(outputs, batch())
    assert list(losses) == ["metric_loss", "embed_regularizer", "weight_regularizer"]
    torch.testing.assert_close(losses["embed_regularizer"], outputs["first"].square().sum(1).mean())
    theirs = regularizers.SparseCentersRegularizer(num_classes=3, centers_per_class=2)
    torch.testing.assert_close(losses["weight_regularizer"], theirs(trainer.criterion.proxies), rtol=1e-3, atol=0)  # other epsilons


def test_what_cannot_work_is_refused_in_one_line():
    with pytest.raises(UserError, match="--loss contrastive trains no class vectors"):
        trainer_of("--weight_regularizer", "regular_face", loss="contrastive")
    with pytest.raises(UserError, match="--loss arcface has one vector a class"):
        trainer_of("--weight_regularizer", "sparse_centers", loss="arcface")
    with pytest.raises(UserError, match="have length 1"):
        trainer_of("--embed_regularizer", "lp", "--arch", "conv4_normalize")
