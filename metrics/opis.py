"""Operating-point inconsistency score: how unevenly one threshold serves the classes (Zhang et al., ICLR 2024, arXiv
2307.04047).
"""

import numpy as np
import torch

from metrics import _pairs, fnmr
from metrics._metric import Metric as Base

RATES = (0.1, 0.01)  # false match rates at the ends of the paper's calibration range
THRESHOLDS = 101  # evenly spaced in the range, both ends among them


class Metric(Base):
    """Mean over the thresholds t of the calibration range of the variance over classes of the utility U_c(t).

    U_c is the paper's F-score with c = 1, the harmonic mean of sensitivity (share of the pairs within class c that
    match) and specificity (share of the pairs with one end in class c that do not). A pair matches if its cosine
    similarity is above t. Thresholds are evenly spaced in similarity between those at which 10 % and 1 % of all pairs
    of two classes match. Queries are at unit length, each pair counts once; classes of a single query have no
    sensitivity and are left out. NaN if there are no pairs of one class, or none of two.

    All pairs are counted. With more than 10^9, products are in float32,
    and the ends of the range come from a sample (see fnmr).
    """

    NAMES = {
        "opis": (
            "variance over classes of the harmonic mean of sensitivity and specificity at one threshold, mean over "
            "those at which 1 to 10 % of other-class pairs match"
        )
    }
    RANGE = (0.0, 0.25)
    HIGHER_IS_BETTER = False

    def value(self, space) -> float:
        pairs = _pairs.of_units(space)
        if not pairs.same or not pairs.other:
            return float("nan")
        # thresholds of the squared distance, as cosine similarities
        low, high = (1 - square / 2 for square in fnmr.thresholds(pairs, RATES))
        thresholds = torch.linspace(low, high, THRESHOLDS, dtype=pairs.dtype, device=pairs.device) + pairs.tolerance
        sizes = np.bincount(pairs.labels)
        chosen = sizes > 1
        sizes = sizes[chosen][:, None]
        sensitivity = _matches(pairs, thresholds, True)[chosen] / (sizes * (sizes - 1) / 2)
        specificity = 1 - _matches(pairs, thresholds, False)[chosen] / (sizes * (pairs.size - sizes))
        total = sensitivity + specificity
        utility = np.divide(2 * sensitivity * specificity, total, out=np.zeros_like(total), where=total > 0)
        return float(utility.var(axis=0).mean())


def _matches(pairs, thresholds: torch.Tensor, is_same: bool) -> np.ndarray:
    """Pairs `(C, T)` of each class that match at each threshold, ascending:
    of the class itself, or with other classes.
    """
    # by the number of thresholds that a pair is above
    counts = np.zeros((pairs.labels[-1] + 1, THRESHOLDS + 1), dtype=np.int64)
    for tile in pairs.tiles(of_one_class=is_same):
        above = 1 - tile.squares / 2 > thresholds[0]
        if tile.pairs is not None:
            above = above & tile.pairs
        row, column = torch.nonzero(above, as_tuple=True)
        place = torch.bucketize(1 - tile.squares[row, column] / 2, thresholds)
        classes_of_ends = [pairs.codes[tile.row + row]]
        if not is_same:
            classes_of_ends.append(pairs.codes[tile.column + column])
        for classes in classes_of_ends:
            numbered = torch.bincount(classes * (THRESHOLDS + 1) + place, minlength=counts.size)
            counts += numbered.cpu().numpy().reshape(counts.shape)
    return counts[:, ::-1].cumsum(1)[:, ::-1][:, 1:]
