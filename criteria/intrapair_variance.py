"""Intra-pair variance loss (Yu & Tao, Deep Metric Learning with Tuplet Margin Loss, ICCV 2019), there beside the tuplet margin loss."""

import torch

from criteria import _forms, _streams
from criteria._pairs import PairCriterion, chosen_mean, pair_means, pair_sums
from criteria._reductions import Reduction
from utilities.numbers import number
from utilities.reference import Reference
from utilities.tensors import normalize

REQUIRES_BATCHMINER = False
REQUIRES_OPTIM = False
ALLOWED_MINING_OPS = None
MINES_PAIRS = True
REDUCES = True


def add_arguments(group) -> None:
    """Declare the flags of the intra-pair variance loss."""
    group.add_argument(
        "--loss_intrapair_variance_pos_eps", type=number(0, 1), default=0.01, help="share by which a positive pair may lie below their mean"
    )
    group.add_argument(
        "--loss_intrapair_variance_neg_eps", type=number(0, 1), default=0.01, help="share by which a negative pair may lie above their mean"
    )


class Criterion(PairCriterion):
    """mean_P [(1 - pos_eps) E[s_P] - s_ap]+^2 + mean_N [s_an - (1 + neg_eps) E[s_N]]+^2, s cosines, E their mean over such pairs."""

    def __init__(self, opt, batchminer=None):
        super().__init__(batchminer)
        self.pos_eps = opt.loss_intrapair_variance_pos_eps
        self.neg_eps = opt.loss_intrapair_variance_neg_eps
        self.reduction = Reduction(opt)

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, reference: Reference, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`, compared with those of `reference`."""
        apart = self.streamed(labels, reference) if self.reduction.is_own else None
        if apart is not None:
            return self.stream(batch, reference, apart)
        similarities, positives, negatives = self.cosine_pairs(batch, labels, reference)  # (B, M) each
        below = torch.relu((1 - self.pos_eps) * chosen_mean(similarities, positives) - similarities)
        above = torch.relu(similarities - (1 + self.neg_eps) * chosen_mean(similarities, negatives))
        self.stats = pair_means("similarity", pair_sums(similarities, positives, negatives))
        of_pairs = self.reduction.of_pairs
        return of_pairs(below.square(), positives, labels) + of_pairs(above.square(), negatives, labels)

    def stream(self, batch, reference, apart) -> torch.Tensor:
        """The loss over all pairs with a large reference."""
        unit, reference = reference.mapped(normalize, batch)
        found = _streams.positive_products(unit, reference.embeddings, apart)  # (P,)
        totals = _streams.pair_totals(unit, reference.embeddings, apart, found)
        positive_mean, negative_mean = (total / count.clamp(min=1) for total, count in (totals[:2], totals[2:]))
        below = torch.relu((1 - self.pos_eps) * positive_mean - found)
        above = _forms.beyond((1 + self.neg_eps) * negative_mean, unit, reference.embeddings)
        form = _streams.Form(1, lambda products, spare: products.relu_().square_(), lambda products, spare: products.relu_().mul_(2))
        squares, _ = _streams.sums(*above, apart, form)
        self.stats = pair_means("similarity", [total.detach() for total in totals])
        return below.square().sum() / totals[1].clamp(min=1) + squares.sum() / totals[3].clamp(min=1)
