"""Neighbourhood components analysis (Goldberger et al., NeurIPS 2004)."""

import dataclasses

import torch

from criteria import _forms, _streams
from criteria._pairs import PairCriterion, log_sum_exp, pair_means, pair_sums
from criteria._ranking import sums_per_anchor
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
        mean, apart = batch.mean(0), self.streamed(labels, reference)

        def centre(points):  # leaves the distances, lessens their rounding error
            return points - mean

        if apart is None:
            (losses, n_positives), distances = self.compared(self.terms, batch, labels, reference, centre, keep=True)
        else:
            (losses, n_positives), distances = self.stream(*reference.mapped(centre, batch), apart)
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

    def stream(self, batch, reference, apart) -> tuple[tuple, tuple]:
        """What `terms` gives, of all pairs with a large reference."""
        points, others = _forms.squared(batch, reference.embeddings)
        everything, logits, *_ = _streams.log_sum_exp(-self.scale * points, others, apart, positives=True)
        losses = everything - _streams.sum_exp_per_anchor(logits, apart.anchors, len(batch))
        n_positives = sums_per_anchor(torch.ones_like(logits), apart.anchors, len(batch))
        distances = _streams.pair_sums(points, dataclasses.replace(reference, embeddings=others), apart, logits / -self.scale)
        return (losses, n_positives), distances
