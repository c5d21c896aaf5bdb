"""The additive angular margin that arcface and its form with sub-centres share."""

import math

import torch

LIMIT = 1 - 1e-7  # of cosines: at 1 the angle has an infinite gradient


def logits(similarities: torch.Tensor, labels: torch.Tensor, margin, scale) -> torch.Tensor:
    """`scale` * cosines `(B, C)`, the angle to the own class widened by `margin` (radians).

    `margin` and `scale` are numbers or `(B, 1)`. Beyond pi the cosine of the widened angle would rise again: there it
    is cos - margin sin(margin), as in the official code.
    """
    similarities = similarities.clamp(-LIMIT, LIMIT)
    own_cosines = similarities.gather(1, labels[:, None])  # (B, 1)
    angles = own_cosines.acos()
    sine = margin.sin() if isinstance(margin, torch.Tensor) else math.sin(margin)
    beyond_pi = own_cosines - margin * sine
    widened = torch.where(angles + margin <= math.pi, torch.cos(angles + margin), beyond_pi)
    return scale * similarities.scatter(1, labels[:, None], widened)
