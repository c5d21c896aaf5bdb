"""Hyp-ViT's loss beyond its formula: what the authors' code computes, written down anew; the border of the ball."""

import itertools

import pytest
import torch
from torch.testing import assert_close

from tests.criteria.test_table import build
from tests.kit.mining import normal


def exp_map(x, c, r):
    x = x * (r / x.norm(dim=-1, keepdim=True)).clamp(max=1)
    norm = x.norm(dim=-1, keepdim=True)
    return torch.tanh(c**0.5 * norm) * x / (c**0.5 * norm)


def gap_of(x, y, c):
    """As in the authors' code: 1e-5 is added to the denominator of the addition and kept from 1 in artanh."""
    xx = x @ x
    yy = y @ y
    xy = -(x @ y)
    gap = ((1 + 2 * c * xy + c * yy) * -x + (1 - c * xx) * y) / (1 + 2 * c * xy + c * c * xx * yy + 1e-5)
    return 2 / c**0.5 * torch.atanh((c**0.5 * gap.norm()).clamp(max=1 - 1e-5))


@pytest.mark.parametrize(("views", "c"), [(2, 0.1), (4, 0.1), (3, 0.0)])
def test_it_is_what_the_authors_code_computes(views, c):
    """All views of a class one behind the other, a mask of 1e9 on the diagonal, the place as the target."""
    n = 5
    z = normal(n, views, 7, seed=views)
    points = exp_map(z, c, 2.3) if c else torch.nn.functional.normalize(z, dim=-1)

    def similarity(x, y):
        return torch.stack([torch.stack([-gap_of(a, b, c) for b in y]) for a in x]) if c else x @ y.T

    expected = 0.0
    for i, j in itertools.permutations(range(views), 2):
        within = similarity(points[:, i], points[:, i]) / 0.2 - 1e9 * torch.eye(n)
        logits = torch.cat([similarity(points[:, i], points[:, j]) / 0.2, within], 1)
        expected = expected + torch.nn.functional.cross_entropy(logits, torch.arange(n))
    value = build("hyperbolic", c=c)(z.flatten(0, 1), torch.arange(n).repeat_interleave(views))
    # The authors' code adds 1e-5 to denominators
    assert_close(value, expected, rtol=3e-5, atol=0)


@pytest.mark.parametrize("settings", [{"c": 0}, {"c": 0.1, "clip_r": 1e3}, {"c": 100, "clip_r": 1e3}])
def test_the_border_and_zeros(settings):
    criterion = build("hyperbolic", **settings).float()
    for batch in (1e4 * torch.randn(6, 4), torch.zeros(6, 4), torch.ones(6, 4), 1e-8 * torch.randn(6, 4)):
        value = criterion(batch.requires_grad_(), torch.tensor([0, 0, 1, 1, 2, 2]))
        value.backward()
        assert value.isfinite() and batch.grad.isfinite().all()
