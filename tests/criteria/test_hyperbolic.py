"""Hyp-ViT's loss: against plain loops, and against what the authors' code computes, written down anew."""

import pytest
import torch

from criteria.hyperbolic import views_of
from tests.criteria._oracles import batch_of as unscaled
from tests.criteria._oracles import build


def exp_map(x, c, r):
    norm = x.norm(dim=-1, keepdim=True)
    x = x * (r / norm).clamp(max=1)
    norm = x.norm(dim=-1, keepdim=True)
    return torch.tanh(c**0.5 * norm) * x / (c**0.5 * norm)


@pytest.mark.parametrize("views", [2, 3, 4])
@pytest.mark.parametrize("c", [0.1, 0.0])
def test_it_is_what_the_authors_code_computes(views, c):
    """Their batches: all views of a class one behind the other, the mask of a thousand million on the diagonal, cross-entropy with the place as target."""
    n, temperature = 5, 0.2
    z = torch.randn(n, views, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(views))
    if c:
        points = exp_map(z, c, 2.3)
        similarity = lambda x, y: torch.stack([torch.stack([-apart(a, b, c) for b in y]) for a in x])  # noqa: E731
    else:
        points = torch.nn.functional.normalize(z, dim=-1)
        similarity = lambda x, y: x @ y.T  # noqa: E731
    expected = 0.0
    for i in range(views):
        for j in range(views):
            if i != j:
                own = similarity(points[:, i], points[:, i]) / temperature - 1e9 * torch.eye(n)
                logits = torch.cat([similarity(points[:, i], points[:, j]) / temperature, own], 1)
                expected = expected + torch.nn.functional.cross_entropy(logits, torch.arange(n))
    criterion = build("hyperbolic", arch="resnet50", loss_hyperbolic_c=c)
    value = criterion(z.flatten(0, 1), torch.arange(n).repeat_interleave(views))
    torch.testing.assert_close(value, expected, rtol=3e-5, atol=0)  # their 1e-5 in denominators


def apart(x, y, c):
    """As in the authors' code: 1e-5 is added to the denominator of the addition and kept from 1 in artanh."""
    xx, yy, xy = x @ x, y @ y, -(x @ y)
    gap = ((1 + 2 * c * xy + c * yy) * -x + (1 - c * xx) * y) / (1 + 2 * c * xy + c * c * xx * yy + 1e-5)
    return 2 / c**0.5 * torch.atanh((c**0.5 * gap.norm()).clamp(max=1 - 1e-5))


@pytest.mark.parametrize("learned", [["T"], ["c", "clip_r"]])
def test_its_numbers_can_be_learned(learned):
    criterion = build("hyperbolic", arch="resnet50", loss_learn=learned, loss_hyperbolic_clip_r=1.0)
    batch, labels = unscaled("pairs", False)
    value = criterion(batch, labels)
    torch.testing.assert_close(value, build("hyperbolic", arch="resnet50", loss_hyperbolic_clip_r=1.0)(batch, labels))
    value.backward()
    assert len(list(criterion.parameters())) == len(learned)
    assert all(parameter.grad.abs().sum() > 0 for parameter in criterion.parameters())


def test_views():
    assert views_of(torch.tensor([3, 1, 3, 3, 0, 1])).tolist() == [0, 0, 1, 2, 0, 1]
    assert views_of(torch.empty(0, dtype=torch.long)).tolist() == []


def test_a_normalising_network_is_said(capsys):
    build("hyperbolic", arch="resnet50_frozen_normalize")
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "--loss hyperbolic is meant for embeddings of any length" in said
    build("hyperbolic", arch="resnet50_frozen")
    assert not capsys.readouterr().err


@pytest.mark.parametrize("c", [0, 0.1, 100])
def test_the_border_zeros_and_half_precision(c):
    criterion = build("hyperbolic", arch="resnet50", loss_hyperbolic_c=c, loss_hyperbolic_clip_r=1e3).float()
    for batch in (1e4 * torch.randn(6, 4), torch.zeros(6, 4), torch.ones(6, 4), 1e-8 * torch.randn(6, 4), torch.randn(6, 4).bfloat16()):
        batch.requires_grad_()
        value = criterion(batch, torch.tensor([0, 0, 1, 1, 2, 2]))
        value.backward()
        assert value.dtype == torch.float32 and value.isfinite() and batch.grad.isfinite().all()
