"""Mean cosine distances within and between classes, and their ratio
(ICML 2020, arXiv 2002.08473: pi_intra, pi_inter, pi_ratio).

The paper writes d(., .); in its code, and here, that is the cosine distance. In the paper a higher ratio on
the training set went with a better R@1 on the test set; the direction stated here is the plain one, tight
classes far apart.
"""

import numpy as np

from metrics._metric import Metric as Base
from metrics._sums import class_lengths, sum_of_means


def mean_distance(lengths: np.ndarray, squares: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Mean pairwise cosine distance, `(G,)` in [0, 2], in each of G groups of two or more unit vectors;
    0 where it is within rounding.

    Args:
        lengths: `(G,)` squared lengths of the sums of the groups' vectors. squares: `(G,)` sums of their squared norms.
        counts: `(G,)`.
    """
    distances = 1.0 - (lengths - squares) / (counts * (counts - 1.0))
    # bound of the rounding error of a sum of `counts` vectors
    rounding = 4.0 * np.finfo(np.float64).eps * counts
    return np.where(distances <= rounding, 0.0, np.minimum(distances, 2.0))


class Metric(Base):
    """Mean over classes of two or more of the mean cosine distance within a class; mean cosine distance between
    normalised class means.

    NaN where nothing is left to average: no class of two, one class only.
    The ratio is NaN where the class means coincide.
    """

    NAMES = {
        "dists@intra": "mean over classes of the mean pairwise cosine distance within",
        "dists@inter": "mean pairwise cosine distance between the normalised class means",
        "dists@intra_over_inter": "dists@intra / dists@inter",
    }

    @property
    def range(self) -> tuple[float, float]:
        highest = 2.0
        if self.name == "dists@intra_over_inter":
            highest = np.inf
        return 0.0, highest

    @property
    def higher_is_better(self) -> bool:
        return self.name == "dists@inter"

    def value(self, space) -> float:
        def mean(part):
            return space.remember(part.__name__, lambda: part(space))

        if self.name == "dists@intra":
            return mean(intra)
        if self.name == "dists@inter":
            return mean(inter)
        if not mean(inter):
            return float("nan")
        return float(np.divide(mean(intra), mean(inter)))


def intra(space) -> float:
    """Mean over the classes that have a pair."""
    counts = np.bincount(space.labels)
    paired = counts > 1
    if not paired.any():
        return float("nan")
    lengths, squares = class_lengths(space)
    return float(mean_distance(lengths[paired], squares[paired], counts[paired]).mean())


def inter(space) -> float:
    """Mean over the pairs of classes."""
    counts = np.bincount(space.labels)
    present = counts > 0
    if present.sum() < 2:
        return float("nan")
    total, square = sum_of_means(space)
    return float(mean_distance((total**2).sum()[None], square[None], np.array([present.sum()]))[0])
