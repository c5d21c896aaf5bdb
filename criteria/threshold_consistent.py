"""Threshold-consistent margin, TCM (Zhang et al., ICLR 2024, arXiv 2307.04047): holds cosines to one threshold for all classes.

The paper adds it to another loss; alone it is a contrastive loss on cosines.
"""

import torch

from criteria._pairs import PairCriterion, as_weights, chosen_mean, pair_means, pair_sums
from utilities.numbers import number
from utilities.reference import Reference

REQUIRES_BATCHMINER = False
REQUIRES_OPTIM = False
ALLOWED_MINING_OPS = None
MINES_PAIRS = True


def add_arguments(group) -> None:
    """Declare the flags of the threshold-consistent margin."""
    group.add_argument(
        "--loss_threshold_consistent_pos_margin", type=number(), default=0.9, help="cosine above which positives cost nothing"
    )
    group.add_argument(
        "--loss_threshold_consistent_neg_margin", type=number(), default=0.5, help="cosine below which negatives cost nothing"
    )
    group.add_argument("--loss_threshold_consistent_pos_weight", type=number(0), default=1, help="weight of the positives' part (lambda+)")
    group.add_argument("--loss_threshold_consistent_neg_weight", type=number(0), default=1, help="weight of the negatives' part (lambda-)")


class Criterion(PairCriterion):
    """pos_weight mean of the pos_margin - s_ap >= 0 + neg_weight mean of the s_an - neg_margin >= 0, each over those pairs alone."""

    def __init__(self, opt, batchminer=None):
        super().__init__(batchminer)
        self.pos_margin, self.neg_margin = opt.loss_threshold_consistent_pos_margin, opt.loss_threshold_consistent_neg_margin
        self.pos_weight, self.neg_weight = opt.loss_threshold_consistent_pos_weight, opt.loss_threshold_consistent_neg_weight

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, reference: Reference, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`, compared with those of `reference`."""
        similarities, positives, negatives = self.cosine_pairs(batch, labels, reference)  # (B, M) each
        below = positives * as_weights(similarities <= self.pos_margin, batch)
        above = negatives * as_weights(similarities >= self.neg_margin, batch)
        self.stats = {
            "active_positive_share": below.sum() / positives.sum().clamp(min=1),
            "active_negative_share": above.sum() / negatives.sum().clamp(min=1),
            **pair_means("similarity", pair_sums(similarities, positives, negatives)),
        }
        positive_part = chosen_mean(self.pos_margin - similarities, below)
        return self.pos_weight * positive_part + self.neg_weight * chosen_mean(similarities - self.neg_margin, above)
