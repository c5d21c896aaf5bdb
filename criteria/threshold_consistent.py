"""Threshold-consistent margin, TCM (Zhang et al., ICLR 2024, arXiv 2307.04047): holds cosines to one threshold for all classes.

The paper adds it to another loss; alone it is a contrastive loss on cosines.
"""

import torch

from criteria import _forms, _streams
from criteria._pairs import PairCriterion, active_means, as_weights, pair_sums
from utilities.numbers import number
from utilities.reference import Reference
from utilities.tensors import normalize

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
        apart = self.streamed(labels, reference)
        if apart is None:
            _, sums = self.compared(self.terms, batch, labels, reference, normalize)
        else:
            sums = self.stream(batch, reference, apart)
        positive_mean, negative_mean, self.stats = active_means("similarity", sums)
        return self.pos_weight * positive_mean + self.neg_weight * negative_mean

    def terms(self, unit, labels, reference, positives, negatives) -> tuple[tuple, tuple]:
        """Sum and number of the active violations, of positives and of negatives; sums of the cosines."""
        similarities = unit @ reference.embeddings.T  # (B, M)
        below = positives * as_weights(similarities <= self.pos_margin, unit)
        above = negatives * as_weights(similarities >= self.neg_margin, unit)
        positive_sum, negative_sum = ((self.pos_margin - similarities) * below).sum(), ((similarities - self.neg_margin) * above).sum()
        return (), (positive_sum, below.sum(), negative_sum, above.sum(), *pair_sums(similarities, positives, negatives))

    def stream(self, batch, reference, apart) -> tuple:
        """The sums of `terms` for all pairs with a large reference, but a negative whose cosine equals neg_margin is not counted."""
        unit, reference = reference.mapped(normalize, batch)
        form = _streams.Form(1, lambda products, spare: products.relu_(), lambda products, spare: products.gt_(0))
        total, n_above = _streams.sums(*_forms.beyond(self.neg_margin, unit, reference.embeddings), apart, form)
        found = _streams.positive_products(unit, reference.embeddings, apart)  # (P,)
        below = as_weights(found <= self.pos_margin, unit)
        positive_sum = ((self.pos_margin - found) * below).sum()
        return (positive_sum, below.sum(), total.sum(), n_above.sum(), *_streams.pair_sums(unit, reference, apart, found))
