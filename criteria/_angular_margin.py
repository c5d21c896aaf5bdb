"""The additive angular margin that arcface and its form with sub-centres share."""

import math

import torch

# the largest cosine: at 1 the angle has an infinite gradient
LIMIT = 1 - 1e-7


def widened(cosines: torch.Tensor, margin) -> torch.Tensor:
    """Cosines of the angles widened by `margin` (radians), of the shape of `cosines`.

    Beyond pi the cosine of the widened angle would rise again: there it is cos - margin sin(margin), as in the official
    code. `margin`: a number or `(B, 1)`.
    """
    angles = cosines.acos()
    sine = margin.sin() if isinstance(margin, torch.Tensor) else math.sin(margin)
    beyond_pi = cosines - margin * sine
    return torch.where(angles + margin <= math.pi, torch.cos(angles + margin), beyond_pi)


def logits(similarities: torch.Tensor, labels: torch.Tensor, margin, scale) -> torch.Tensor:
    """`scale` * cosines `(B, C)`, the angle to the own class `widened` by `margin`.

    `margin` and `scale` are numbers or `(B, 1)`.
    """
    similarities = similarities.clamp(-LIMIT, LIMIT)
    own_cosines = similarities.gather(1, labels[:, None])  # (B, 1)
    return scale * similarities.scatter(1, labels[:, None], widened(own_cosines, margin))
