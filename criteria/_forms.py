"""What `_streams` adds up: embeddings whose products are distances or differences, and element-wise forms of these products."""

import torch

from criteria._streams import LOG2E, Form

TINY = 1e-24  # floor of squared distances and of their rounding error, against division by 0


def squared(points: torch.Tensor, others: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """`(B, D + 2)` and `(M, D + 2)`, whose products are the squared distances of `points` `(B, D)` and `others` `(M, D)`, up to rounding.

    The last column but one of the second is 1; its last is the squared length.
    """
    lengths, of_others = (torch.linalg.vector_norm(part, dim=1, keepdim=True).square() for part in (points, others))
    return torch.cat([-2 * points, lengths, torch.ones_like(lengths)], 1), torch.cat([others, torch.ones_like(of_others), of_others], 1)


def beyond(limit: float | torch.Tensor, points: torch.Tensor, others: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """`(B, D + 1)` and `(M, D + 1)`, whose products are those of `points` `(B, D)` and `others` `(M, D)` less `limit`."""
    return torch.cat([points, -limit * points.new_ones(len(points), 1)], 1), torch.cat([others, others.new_ones(len(others), 1)], 1)


def rounding_error(points: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Bound `(B, 1)` on the rounding error of the products of `points` and `others` from `squared`, at least `TINY`."""
    longest = others.detach()[:, -1].amax() if len(others) else 0.0
    return (8 * torch.finfo(points.dtype).eps * (points.detach()[:, -2:-1] + longest)).clamp(min=TINY)


def near(margin: float, points: torch.Tensor, others: torch.Tensor) -> tuple[Form, torch.Tensor]:
    """The form [margin - d]+ of the products d^2 of `points` and `others` from `squared`, and the units `(B,)` of its values.

    The unit is the square root of the rounding error of d^2. A d^2 within that error counts as 0, as in
    `utilities.tensors.squared_distances`.
    """
    noise = rounding_error(points, others)
    units = noise.sqrt()
    margins = max(margin, 0.0) / units

    def inverse(products, spare, cleared):
        return torch.pow(torch.nn.functional.threshold_(products, 1.0, cleared), -0.5, out=spare)  # three times as quick as sqrt on a CPU

    def value(products, spare):
        torch.addcmul(margins, products, inverse(products, spare, TINY), value=-1, out=products).relu_()

    def slope(products, spare):
        inverses = inverse(products, spare, torch.inf)  # slope 0 at d = 0, where the square root has none
        return inverses.mul_(torch.lt(products, margins.square(), out=products)).mul_(-0.5 / noise)

    return Form(1 / noise, value, slope), units.squeeze(1)


def closeness(limit: float, scale: float, points: torch.Tensor, others: torch.Tensor) -> Form:
    """The form scale (limit - d) of the products d^2 of `points` and `others` from `squared`, as logits to base 2; see `near`."""
    noise = rounding_error(points, others)
    steps, highest = scale * LOG2E * noise.sqrt(), torch.full_like(noise, scale * LOG2E * limit)

    def value(products, spare):
        distances = torch.nn.functional.threshold_(products, 1.0, 0.0).sqrt_()
        torch.addcmul(highest, distances, steps, value=-1, out=products)

    def slope(products, spare):
        inverses = torch.clamp(products, min=1, out=spare).pow_(-0.5)
        return inverses.mul_(products > 1).mul_(-scale / 2 * noise.rsqrt())  # slope 0 at d = 0, as in `near`

    return Form(1 / noise, value, slope)
