import math

import pytest
import torch
from torch.nn.functional import normalize
from torch.testing import assert_close

from tests.kit.mining import normal
from utilities.hyperbolic import FARTHEST, Ball


def exp_map(x: list[float], c: float, r: float) -> list[float]:
    """exp_0 of a clipped vector, in plain numbers."""
    norm = math.sqrt(sum(v * v for v in x))
    if norm == 0:
        return list(x)
    clipped = [v * min(1.0, r / norm) for v in x]
    norm = min(norm, r)
    return [math.tanh(math.sqrt(c) * norm) * v / (math.sqrt(c) * norm) for v in clipped]


def moebius_distance(x, y, c, r) -> float:
    """2 / sqrt(c) artanh(sqrt(c) |(-x) (+) y|) with Moebius addition."""
    x = [-v for v in exp_map(x, c, r)]
    y = exp_map(y, c, r)
    xx = sum(v * v for v in x)
    yy = sum(v * v for v in y)
    xy = sum(a * b for a, b in zip(x, y, strict=True))
    below = 1 + 2 * c * xy + c * c * xx * yy
    added = [((1 + 2 * c * xy + c * yy) * a + (1 - c * xx) * b) / below for a, b in zip(x, y, strict=True)]
    return 2 / math.sqrt(c) * math.atanh(math.sqrt(c * sum(v * v for v in added)))


def vectors(n: int, seed: int = 0, scale: float = 1.0) -> torch.Tensor:
    return scale * normal(n, 5, seed=seed)


@pytest.mark.parametrize(
    ("c", "r", "scale"), [(0.1, 2.3, 1.0), (0.1, 2.3, 0.01), (1.0, 2.3, 1.0), (0.5, 1e6, 1.5), (3.0, 0.5, 1.0)]
)
def test_distances_are_those_of_moebius_addition(c, r, scale):
    x = vectors(6, 0, scale)
    y = vectors(7, 1, scale)
    ball = Ball(c, r)
    y[0] = x[0]
    y[1] = 0
    expected = torch.tensor(
        [[moebius_distance(a, b, c, r) for b in y.tolist()] for a in x.tolist()], dtype=torch.float64
    )
    assert_close(ball.distances(x, y), expected, rtol=1e-9, atol=1e-9)
    rows, columns = torch.meshgrid(torch.arange(6), torch.arange(7), indexing="ij")
    paired = ball.paired(x[rows.flatten()], y[columns.flatten()]).view(6, 7)
    assert_close(paired, expected, rtol=1e-9, atol=1e-9)
    assert paired[0, 0] == ball.distances(x, y)[0, 0] == 0
    assert_close(ball.squared_distances(x, y), expected**2, rtol=1e-9, atol=1e-10)
    assert_close(ball.in_ball(x), torch.tensor([exp_map(a, c, r) for a in x.tolist()], dtype=torch.float64))
    single = ball.distances(x.float(), y.float())
    assert single.dtype == torch.float32
    assert_close(single.double(), expected, rtol=1e-3, atol=2e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("c", [1.0, 4.0, 100.0])
def test_on_a_ray_distances_are_right_up_to_the_border(dtype, c):
    """There the ball's own coordinates are all 1 in float32; |u - v| is not."""
    lengths = torch.tensor([0.0, 0.5, 3.0, 7.0, 8.5, 9.9], dtype=dtype)
    x = (lengths / math.sqrt(c))[:, None] * torch.tensor([[0.6, 0.8]], dtype=dtype)
    distances = Ball(c, 1e6).distances(x, -x)
    expected = 2 / math.sqrt(c) * (lengths[:, None] + lengths[None, :])
    assert_close(distances, expected, rtol=1e-5, atol=1e-3)
    same_side = Ball(c, 1e6).distances(x[:1], x)
    assert_close(same_side[0], 2 / math.sqrt(c) * lengths, rtol=1e-5, atol=1e-4)


def test_beyond_the_border_all_is_finite_but_nan():
    x = vectors(4, scale=1e4).float().requires_grad_()
    for c in (1.0, 100.0):
        distances = Ball(c, 1e6).distances(x, x)
        assert distances.isfinite().all() and distances.max() <= 4 * FARTHEST / math.sqrt(c) * 1.001
        (gradient,) = torch.autograd.grad(distances.sum(), x)
        assert gradient.isfinite().all()
    x = vectors(2)
    x[0, 0] = math.nan
    assert Ball(0.1, 2.3).distances(x, x)[0].isnan().all(), "NaN stays"


def test_gradients_are_the_numeric_ones_and_right_at_the_origin():
    # some are clipped, some not
    ball = Ball(0.4, 1.2)
    x = vectors(4).requires_grad_()
    y = vectors(3, 1).requires_grad_()
    assert torch.autograd.gradcheck(ball.distances, (x, y)) and torch.autograd.gradcheck(ball.in_ball, (x,))
    zero = torch.zeros(1, 5, dtype=torch.float64, requires_grad=True)
    point = 0.3 * normalize(vectors(1, 2))
    (gradient,) = torch.autograd.grad(ball.distances(zero, point).sum(), zero)
    # lengths at the origin count twice
    assert_close(gradient, -2 * normalize(point))
    points = vectors(2).requires_grad_()
    (gradient,) = torch.autograd.grad(ball.distances(points, points.detach().clone()).diagonal().sum(), points)
    assert (gradient == 0).all()
    curvature = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda c: Ball(c, 1.2).distances(x.detach(), y.detach()), (curvature,))


def test_the_sphere():
    x = vectors(4)
    y = vectors(3, 1)
    cosines = normalize(x) @ normalize(y).T
    assert_close(Ball(0, 2.3).distances(x, y), 2 - 2 * cosines)
    assert_close(Ball(0, 2.3).squared_distances(x, y), 2 - 2 * cosines)
    assert_close(Ball(0.0, 2.3).paired(x[:3], y), 2 - 2 * cosines.diagonal())
    assert_close(Ball(0, 2.3).in_ball(x).norm(dim=1), torch.ones(4, dtype=torch.float64))


def test_equal_pairs_are_equally_far_apart_wherever_they_stand():
    for seed in range(20):
        x = vectors(1, seed).expand(23, 5)
        y = vectors(1, seed + 100).expand(23, 5)
        assert len(Ball(0.1, 2.3).paired(x, y).unique()) == 1, seed
