"""Alignment: how near samples of a class lie to each other on the unit sphere (Wang & Isola, ICML 2020, arXiv
2005.10242).
"""

import numpy as np

from metrics._metric import Metric as Base
from metrics._sums import class_lengths


class Metric(Base):
    """Mean squared distance |x_i - x_j|^2 of the queries at unit length over all pairs of one class; NaN where there is
    no pair.

    The paper's positive pairs are two views of an image; here they are two images of a class. All pairs weigh the same,
    so that a class counts by the square of its size.
    """

    NAMES = {"alignment": "mean squared distance of unit vectors over the pairs of one class"}
    RANGE = (0.0, 4.0)
    HIGHER_IS_BETTER = False

    def value(self, space) -> float:
        """The mean, from the classes' sums: sum_{i<j} |x_i - x_j|^2 = n sum |x_i|^2 - |sum x_i|^2."""
        counts = np.bincount(space.labels)
        pairs = counts * (counts - 1) / 2
        if not pairs.any():
            return float("nan")
        lengths, squares = class_lengths(space)
        totals = counts * squares - lengths
        # rounding of a class of equal samples
        totals = np.where(totals <= 8 * np.finfo(np.float64).eps * counts**2, 0.0, totals)
        return float(min(totals.sum() / pairs.sum(), 4.0))
