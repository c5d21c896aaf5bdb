"""Neighbourhood components analysis (Goldberger et al., NeurIPS 2004)."""

import torch

from criteria._pairs import PairCriterion, log_sum_exp, pair_means
from utilities.numbers import number
from utilities.tensors import masked_mean

REQUIRES_BATCHMINER = False
REQUIRES_OPTIM = False
ALLOWED_MINING_OPS = None
MINES_PAIRS = True


def add_arguments(group) -> None:
    """Declare the flags of NCA."""
    group.add_argument("--loss_nca_scale", type=number(above=0), default=1, help="multiplies the squared distances")


class Criterion(PairCriterion):
    """-log(sum_p exp(-scale d^2) / sum_{j != i} exp(-scale d^2)), mean over anchors with a positive."""

    def __init__(self, opt, batchminer=None):
        super().__init__(batchminer)
        self.scale = opt.loss_nca_scale

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`."""
        centred = batch - batch.mean(0)  # the same distances, less rounding
        norms = centred.square().sum(1)
        distances = torch.addmm(norms[:, None] + norms, centred, centred.T, alpha=-2)  # (B, B), squared
        positives, negatives = self.pair_weights(batch, labels)
        logits = -self.scale * distances
        losses = log_sum_exp(logits, torch.maximum(positives, negatives)) - log_sum_exp(logits, positives)  # (B,)
        self.stats = pair_means("squared_distance", distances, positives, negatives)
        return masked_mean(losses, positives.sum(1) > 0)
