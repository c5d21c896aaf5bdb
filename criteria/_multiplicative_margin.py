"""The multiplicative angular margin that large-margin softmax and SphereFace share."""

import math

import torch


def psi(cosines: torch.Tensor, margin: int) -> torch.Tensor:
    """(-1)^k cos(margin t) - 2 k of angles t with `cosines` `(B,)`, k = floor(margin t / pi): falls from 1 at 0 to 1 -
    2 margin at pi.

    cos(margin t) is the Chebyshev polynomial of the cosine, whose slope is finite at cosines of +-1, too.
    """
    # cos(0 t), cos(1 t)
    previous = torch.ones_like(cosines)
    multiple = cosines
    for _ in range(margin - 1):
        following = 2 * cosines * multiple - previous
        previous = multiple
        multiple = following
    k = (margin / math.pi * cosines.detach().clamp(-1, 1).acos()).floor()
    return (1 - 2 * (k % 2)) * multiple - 2 * k


def margin_logits(cosines: torch.Tensor, labels: torch.Tensor, margin: int, cosine_weight: float) -> torch.Tensor:
    """`cosines` `(B, C)` with (psi + cosine_weight cos) / (1 + cosine_weight) at the own class."""
    own_cosines = cosines.gather(1, labels[:, None])
    return cosines.scatter(
        1, labels[:, None], (psi(own_cosines, margin) + cosine_weight * own_cosines) / (1 + cosine_weight)
    )
