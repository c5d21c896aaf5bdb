"""Contrastive loss on signal-to-noise distances (Yuan et al., Signal-to-Noise Ratio, CVPR 2019, arXiv 1904.02616)."""

import torch

from criteria._pairs import PairCriterion, as_weights, chosen_mean, pair_means
from utilities.numbers import number
from utilities.tensors import FLOOR, squared_distances

REQUIRES_BATCHMINER = False
REQUIRES_OPTIM = False
ALLOWED_MINING_OPS = None
MINES_PAIRS = True


def add_arguments(group) -> None:
    """Declare the flags of the SNR contrastive loss."""
    group.add_argument(
        "--loss_snr_contrastive_pos_margin", type=number(), default=0, help="distance up to which a positive pair costs nothing"
    )
    group.add_argument(
        "--loss_snr_contrastive_neg_margin", type=number(), default=1, help="distance from which a negative pair costs nothing"
    )
    group.add_argument(
        "--loss_snr_contrastive_regularizer_weight",
        type=number(0),
        default=0,
        help="weight of the mean absolute sum of an embedding's entries",
    )


class Criterion(PairCriterion):
    """D(a, b) = var(x_a - x_b) / var(x_a): mean of the active [D_ap - pos_margin]+ and of the active [neg_margin - D_an]+."""

    def __init__(self, opt, batchminer=None):
        super().__init__(batchminer)
        self.pos_margin = opt.loss_snr_contrastive_pos_margin
        self.neg_margin = opt.loss_snr_contrastive_neg_margin
        self.regularizer_weight = opt.loss_snr_contrastive_regularizer_weight

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`."""
        positives, negatives = self.pair_weights(batch, labels)
        centred = batch - batch.mean(1, keepdim=True)  # var(x_a - x_b) (D - 1) is then a squared distance
        freedom = max(batch.shape[1] - 1, 1)
        variances = (centred.square().sum(1, keepdim=True) / freedom).clamp(min=FLOOR)  # (B, 1), of the anchor
        distances = squared_distances(centred) / (freedom * variances)  # (B, B)
        positive_violations = torch.relu(distances - self.pos_margin)
        negative_violations = torch.relu(self.neg_margin - distances)
        active_positives = positives * as_weights(positive_violations > 0, batch)
        active_negatives = negatives * as_weights(negative_violations > 0, batch)
        self.stats = {
            "active_positive_share": active_positives.sum() / positives.sum().clamp(min=1),
            "active_negative_share": active_negatives.sum() / negatives.sum().clamp(min=1),
            **pair_means("snr_distance", distances, positives, negatives),
        }
        loss = chosen_mean(positive_violations, active_positives) + chosen_mean(negative_violations, active_negatives)
        return loss + self.regularizer_weight * batch.sum(1).abs().mean()
