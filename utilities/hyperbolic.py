"""Hyperbolic distances of embeddings that are tangent vectors at the origin of a Poincare ball.

An embedding x, clipped to length r, stands for the point exp_0(x) = tanh(sqrt(c) |x|) x / (sqrt(c) |x|) of the ball of
curvature -c. The distance 2 / sqrt(c) artanh(sqrt(c) |(-x) (+) y|) of two such points is computed on the hyperboloid,
which has no boundary to come close to: with u = sqrt(c) x,

    sinh^2(sqrt(c) d / 2) = sinh^2(|u| - |v|) + (|s| |t| - s.t) / 2,    s = sinh(2 |u|) u / |u|, t likewise of v.
"""

from typing import NamedTuple

import numpy as np
import torch

from utilities.tensors import normalize, safe_sqrt

# sqrt(c) |x| is clipped here: tanh is 1 - 4e-9, and the product of two sinh(2 * FARTHEST) stays within float32
FARTHEST = 10.0


def _sinh(x: torch.Tensor) -> torch.Tensor:
    """NumPy's sinh, which gives equal numbers equal results wherever they stand."""
    return torch.from_numpy(np.sinh(x.numpy()))


class Points(NamedTuple):
    """Points of the hyperboloid: `lengths` `(B,)`, sqrt(c) / 2 times the distance from the origin; `space` `(B, D)`, of
    norm sinh(2 lengths).
    """

    lengths: torch.Tensor
    space: torch.Tensor


class Ball:
    """The Poincare ball of curvature -c, and the sphere for c = 0.

    Args:
        c: a number, 0 or above; or a tensor that is learned, above 0.
        clip_r: length to which embeddings are clipped.
    """

    def __init__(self, c, clip_r):
        self.c = c
        self.clip_r = clip_r
        self.flat = not isinstance(c, torch.Tensor) and c == 0

    def _scaled(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """sqrt(c) times the clipped embeddings `(B, D)`, and their lengths `(B,)`."""
        norms = safe_sqrt(x.square().sum(1))
        root = self.c**0.5
        longest = self.clip_r * root
        longest = longest.to(x) if isinstance(longest, torch.Tensor) else x.new_full((), longest)
        longest = longest.clamp(max=FARTHEST)
        long = norms * root > longest
        lengths = torch.where(long, longest, norms * root)
        return x * torch.where(long, longest / torch.where(norms > 0, norms, 1.0), root)[:, None], lengths

    def points(self, x: torch.Tensor) -> Points:
        """The points of the hyperboloid that embeddings `(B, D)` stand for."""
        scaled, lengths = self._scaled(x)
        is_off_origin = lengths > 0
        growth = torch.where(is_off_origin, torch.sinh(2 * lengths) / torch.where(is_off_origin, lengths, 1.0), 2.0)
        return Points(lengths, scaled * growth[:, None])

    def in_ball(self, x: torch.Tensor) -> torch.Tensor:
        """The points `(B, D)` of the Poincare ball; of the sphere for c = 0."""
        if self.flat:
            return normalize(x)
        scaled, lengths = self._scaled(x)
        is_off_origin = lengths > 0
        shrunk = torch.where(is_off_origin, torch.tanh(lengths) / torch.where(is_off_origin, lengths, 1.0), 1.0)
        return scaled * shrunk[:, None] / self.c**0.5

    def distances(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Distances `(B, M)` of embeddings `(B, D)` and `(M, D)`; for c = 0 the squared chords 2 - 2 cos.

        By matrix product. An angular part within its rounding error of 0 counts as 0, with gradient 0.
        """
        if self.flat:
            return 2 - 2 * normalize(x) @ normalize(y).T
        x_points = self.points(x)
        y_points = self.points(y)
        lengths = torch.sinh(2 * x_points.lengths)[:, None] * torch.sinh(2 * y_points.lengths)[None, :]
        angular = lengths - x_points.space @ y_points.space.T
        noise = (8 * torch.finfo(x.dtype).eps * lengths).detach()
        angular = torch.where(angular < noise, 0.0, angular)
        radial = torch.sinh(x_points.lengths[:, None] - y_points.lengths[None, :]).square()
        return self._distance(radial + angular / 2)

    def squared_distances(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Squared distances `(B, M)` in few passes over the matrix, for float64 without a gradient;
        for c = 0 the squared chords.
        """
        if self.flat:
            return self.distances(x, y)
        x_points = self.points(x)
        y_points = self.points(y)
        # sinh(a - b) = sinh a cosh b - cosh a sinh b
        x_radial = torch.stack([x_points.lengths.sinh(), -x_points.lengths.cosh()], 1)
        y_radial = torch.stack([y_points.lengths.cosh(), y_points.lengths.sinh()])
        radial = x_radial @ y_radial
        x_rows = torch.cat([torch.sinh(2 * x_points.lengths)[:, None], -x_points.space], 1)
        y_rows = torch.cat([torch.sinh(2 * y_points.lengths)[:, None], y_points.space], 1)
        angular = x_rows @ y_rows.T
        squared = radial.square_().add_(angular.clamp_(min=0), alpha=0.5)
        return squared.sqrt_().asinh_().mul_(2 / self.c**0.5).square_()

    def paired(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Distances `(P,)` of the rows of `x` `(P, D)` and `y` `(P, D)`, without gradient, by differences: equal ones
        are exactly 0 apart.

        Equal pairs have equal distances wherever they stand, which torch.sinh does not give: it rounds a tensor's last
        elements in another way.
        """
        if self.flat:
            return (normalize(x) - normalize(y)).square().sum(1)
        scaled_x, x_lengths = self._scaled(x)
        scaled_y, y_lengths = self._scaled(y)
        chords = (normalize(scaled_x) - normalize(scaled_y)).square().sum(1)
        angular = _sinh(2 * x_lengths) * _sinh(2 * y_lengths) * chords / 4
        return self._distance(_sinh(x_lengths - y_lengths).square() + angular)

    def _distance(self, squared_sinh: torch.Tensor) -> torch.Tensor:
        return 2 / self.c**0.5 * torch.asinh(safe_sqrt(squared_sinh))
