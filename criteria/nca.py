"""Neighbourhood components analysis (Goldberger et al., NeurIPS 2004)."""

import torch

from criteria._pairs import PairCriterion, log_sum_exp, pair_means, pair_sums
from utilities.numbers import number
from utilities.reference import Reference
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

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, reference: Reference, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`, compared with those of `reference`."""
        centre = batch.mean(0)  # centring leaves the distances and lessens their rounding error
        (losses, n_positives), distances = self.compared(self.terms, batch, labels, reference, lambda points: points - centre, keep=True)
        self.stats = pair_means("squared_distance", distances)
        return masked_mean(losses, n_positives > 0)

    def terms(self, batch, labels, reference, positives, negatives) -> tuple[tuple, tuple]:
        """Each anchor's loss and number of positives; sums of the squared distances."""
        norms, others = reference.mapped(lambda points: points.square().sum(1), batch)
        distances = torch.addmm(norms[:, None] + others.embeddings, batch, reference.embeddings.T, alpha=-2)  # (B, M), squared
        logits = -self.scale * distances
        everything = log_sum_exp(logits, torch.maximum(positives, negatives), reference.plain)
        losses = everything - log_sum_exp(logits, positives, reference.plain)  # (B,)
        return (losses, positives.sum(1)), pair_sums(distances, positives, negatives)
