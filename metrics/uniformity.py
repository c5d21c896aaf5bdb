"""Uniformity: how evenly samples spread over the unit sphere (Wang & Isola, ICML 2020, arXiv 2005.10242)."""

import math

import torch

from metrics import _pairs
from metrics._metric import Metric as Base


class Metric(Base):
    """log of the mean over all pairs of queries, at unit length, of exp(-2 |x_i - x_j|^2), t = 2 as in the paper.

    The farther below 0, the more even; 0 where all are equal, NaN if there is no pair. Beyond 10^9 pairs, products
    are in float32.
    """

    NAMES = {"uniformity": "log of the mean of exp(-2 |x_i - x_j|^2) over all pairs of unit vectors"}
    RANGE = (-8.0, 0.0)
    HIGHER_IS_BETTER = False
    CLASS_WISE = False

    def value(self, space) -> float:
        pairs = _pairs.of_units(space)
        if pairs.size < 2:
            return float("nan")
        total = torch.zeros((), dtype=torch.float64, device=pairs.device)
        for tile in pairs.tiles():
            total += torch.exp(tile.values * -2).sum(dtype=torch.float64)
        return min(0.0, math.log(float(total) / (pairs.same + pairs.other)))
