"""FastAP (Cakir et al., Deep Metric Learning to Rank, CVPR 2019): average precision relaxed by soft histograms."""

import torch

from criteria._pairs import PairCriterion, soft_counts
from options.flags import Flag
from utilities.numbers import whole
from utilities.tensors import FLOOR, masked_mean

MINES_PAIRS = True

FLAGS = {
    "num_bins": Flag(whole(1, 10**4), 10, "bins of the distance histograms"),
}


class Criterion(PairCriterion):
    """1 - mean over anchors with a positive of 1/N+ sum_j h+_j H+_j / H_j over soft histograms
    of squared distances in [0, 4].
    """

    SPACE = "cosine"
    STATISTIC = "squared_distance"

    def measure(self, points: torch.Tensor, reference_points: torch.Tensor, norms: torch.Tensor | None) -> torch.Tensor:
        """Squared distances `(b, M)` of unit vectors."""
        return (2 - 2 * super().measure(points, reference_points, norms)).clamp(0, 4)

    def formula(self, values, positives, negatives, labels) -> torch.Tensor:
        """See the class."""
        counts = soft_counts(values * (self.num_bins / 4), positives, negatives, self.num_bins + 1)  # (b, 2, nodes)
        cumulative = counts.cumsum(2)
        precisions = cumulative[:, 0] / cumulative.sum(1).clamp(min=FLOOR)  # (b, nodes), empty bins 0
        return 1 - (counts[:, 0] * precisions).sum(1) / positives.sum(1).clamp(min=1)

    def join(self, results) -> torch.Tensor:
        """See the class."""
        return masked_mean(results["loss"], results["n_positives"] > 0)
