import math

import pytest
import torch
from pytorch_metric_learning.losses import ArcFaceLoss

from tests.criteria._oracles import build, check_formula, check_gradient, check_peer, every_batch


def reference(margin, scale):
    def loss(batch, labels, weights):
        total = 0.0
        for x, y in zip(batch, labels, strict=True):
            cosines = [(x @ w / x.norm() / w.norm()).clamp(-1 + 1e-7, 1 - 1e-7) for w in weights]
            angle = torch.acos(cosines[y])
            cosines[y] = torch.cos(angle + margin) if angle + margin <= math.pi else cosines[y] - margin * math.sin(margin)
            logits = scale * torch.stack(cosines)
            total = total - (logits[y] - torch.logsumexp(logits, 0))
        return total / len(labels)

    return loss


@every_batch
def test_formula(kind, unit):
    check_formula("arcface", reference(0.5, 16), kind, unit)


@pytest.mark.parametrize("margin", [0.0, 1.3, 2.5])  # wide margins pass pi
def test_margins(margin):
    check_formula("arcface", reference(margin, 16), "ragged", True, loss_arcface_angular_margin=margin)


def test_gradient():
    check_gradient("arcface")


def test_against_pytorch_metric_learning():
    check_peer("arcface", ArcFaceLoss(5, 6, margin=math.degrees(0.5), scale=16), "W")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_cosines_of_plus_and_minus_one(dtype):
    criterion = build("arcface").to(dtype)
    weights = criterion.proxies.detach()
    batch = torch.stack([weights[0], -weights[1], 3 * weights[2], -5 * weights[2]]).clone().requires_grad_()
    loss = criterion(batch, torch.tensor([0, 1, 2, 2]))
    loss.backward()
    assert torch.isfinite(loss) and torch.isfinite(batch.grad).all() and torch.isfinite(criterion.proxies.grad).all()
    expected = reference(0.5, 16)(batch.detach().double(), torch.tensor([0, 1, 2, 2]), weights.double())
    torch.testing.assert_close(loss.double().detach(), expected, rtol=0, atol=5e-3 if dtype == torch.float32 else 1e-6)


def test_negative_cosines_have_a_gradient():
    criterion = build("arcface")
    batch = -criterion.proxies.detach()[:2] + 0.1 * torch.eye(6, dtype=torch.float64)[:2]
    batch.requires_grad_()
    criterion(batch, torch.tensor([0, 1])).backward()
    assert (batch.grad.abs().sum(1) > 0).all()
