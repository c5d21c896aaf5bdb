"""FastAP (Cakir et al., Deep Metric Learning to Rank, CVPR 2019): average precision relaxed by soft histograms."""

import torch

from criteria._pairs import PairCriterion, pair_means, pair_sums, soft_counts
from utilities.numbers import whole
from utilities.reference import Reference
from utilities.tensors import FLOOR, masked_mean, normalize

REQUIRES_BATCHMINER = False
REQUIRES_OPTIM = False
ALLOWED_MINING_OPS = None
MINES_PAIRS = True


def add_arguments(group) -> None:
    """Declare the flags of FastAP."""
    group.add_argument("--loss_fastap_num_bins", type=whole(1, 10**4), default=10, help="bins of the distance histograms")


class Criterion(PairCriterion):
    """1 - mean over anchors with a positive of 1/N+ sum_j h+_j H+_j / H_j over soft histograms of squared distances in [0, 4]."""

    def __init__(self, opt, batchminer=None):
        super().__init__(batchminer)
        self.num_bins = opt.loss_fastap_num_bins

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, reference: Reference, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`, compared with those of `reference`."""
        (average_precisions, n_positives), distances = self.compared(self.terms, batch, labels, reference, normalize)
        self.stats = pair_means("squared_distance", distances)
        return masked_mean(1 - average_precisions, n_positives > 0)

    def terms(self, batch, labels, reference, positives, negatives) -> tuple[tuple, tuple]:
        """Each anchor's average precision and number of positives; sums of the squared distances."""
        distances = (2 - 2 * (batch @ reference.embeddings.T)).clamp(0, 4)  # (B, M), squared
        counts = soft_counts(distances * (self.num_bins / 4), positives, negatives, self.num_bins + 1)  # (B, 2, nodes)
        cumulative = counts.cumsum(2)
        precisions = cumulative[:, 0] / cumulative.sum(1).clamp(min=FLOOR)  # (B, nodes), empty bins 0
        n_positives = positives.sum(1)
        average_precisions = (counts[:, 0] * precisions).sum(1) / n_positives.clamp(min=1)
        return (average_precisions, n_positives), pair_sums(distances, positives, negatives)
