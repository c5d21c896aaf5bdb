"""SphereFace and large-margin softmax, which differ in the lengths of the class weights."""

import math

import pytest
import torch
from pytorch_metric_learning.losses import LargeMarginSoftmaxLoss, SphereFaceLoss

from criteria._multiplicative_margin import psi
from tests.criteria._oracles import build, check_formula, check_gradient, check_peer, every_batch

NAMES = {"sphereface": SphereFaceLoss, "largemargin_softmax": LargeMarginSoftmaxLoss}
every_name = pytest.mark.parametrize("name", NAMES)


def reference(name, margin=4, scale=1.0, cosine_weight=0.0):
    def loss(batch, labels, weights):
        total = 0.0
        for x, y in zip(batch, labels, strict=True):
            cosines = [x @ w / x.norm() / w.norm() for w in weights]
            angle = torch.acos(cosines[y])
            k = math.floor(margin * float(angle.detach()) / math.pi)
            cosines[y] = ((-1) ** k * torch.cos(margin * angle) - 2 * k + cosine_weight * cosines[y]) / (1 + cosine_weight)
            lengths = [x.norm() * (w.norm() if name == "largemargin_softmax" else 1) for w in weights]
            logits = scale * torch.stack([length * cosine for length, cosine in zip(lengths, cosines, strict=True)])
            total = total - (logits[y] - torch.logsumexp(logits, 0))
        return total / len(labels)

    return loss


@every_name
@every_batch
def test_formula(name, kind, unit):
    check_formula(name, reference(name), kind, unit)


@every_name
@pytest.mark.parametrize("margin", [1, 2, 3, 5])
def test_flags(name, margin):
    flags = {f"loss_{name}_margin": margin, f"loss_{name}_scale": 3.0, f"loss_{name}_cosine_weight": 0.7}
    check_formula(name, reference(name, margin, 3.0, 0.7), "ragged", False, **flags)


@every_name
def test_gradient(name):
    check_gradient(name)


@every_name
@pytest.mark.parametrize("margin", [2, 4, 5])
def test_against_pytorch_metric_learning(name, margin):
    check_peer(name, NAMES[name](5, 6, margin=margin, scale=2), "W", **{f"loss_{name}_margin": margin, f"loss_{name}_scale": 2})


@pytest.mark.parametrize("margin", [1, 2, 3, 4, 7])
def test_psi_falls_from_one_to_one_minus_twice_the_margin(margin):
    angles = torch.linspace(0, math.pi, 2001, dtype=torch.float64)
    cosines = torch.cos(angles).requires_grad_()
    values = psi(cosines, margin)
    values.sum().backward()
    values = values.detach()
    assert float(values[0]) == pytest.approx(1) and float(values[-1]) == pytest.approx(1 - 2 * margin)
    assert (values.diff() < 1e-9).all() and values.diff().abs().max() < 0.02  # falls, without a jump
    assert torch.isfinite(cosines.grad).all()


@every_name
def test_cosines_of_plus_and_minus_one(name):
    criterion = build(name)
    weights = criterion.proxies.detach()
    batch = torch.stack([weights[0], -weights[1], 3 * weights[2], 0 * weights[2]]).clone().requires_grad_()
    loss = criterion(batch, torch.tensor([0, 1, 2, 2]))
    loss.backward()
    assert torch.isfinite(loss) and torch.isfinite(batch.grad).all() and torch.isfinite(criterion.proxies.grad).all()


@every_name
def test_a_network_that_normalises_is_warned_of(name, capsys):
    build(name, arch="resnet50_normalize")
    assert f"--loss {name} is meant for embeddings of any length" in capsys.readouterr().err
