"""Contrastive loss on signal-to-noise distances (Yuan et al., Signal-to-Noise Ratio, CVPR 2019, arXiv 1904.02616)."""

import dataclasses

import torch

from criteria import _forms, _streams
from criteria._pairs import PairCriterion, active_means, as_weights, pair_sums
from criteria._reductions import Reduction
from utilities.numbers import number
from utilities.reference import Reference
from utilities.tensors import FLOOR, squared_distances

REQUIRES_BATCHMINER = False
REQUIRES_OPTIM = False
ALLOWED_MINING_OPS = None
MINES_PAIRS = True
REDUCES = True


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
    """D(a, b) = var(x_a - x_b) / var(x_a): mean of the active [D_ap - pos_margin]+ and of the active [neg_margin - D_an]+.

    The denominator and the regularised sums are the anchors'; b may come from another reference.
    """

    def __init__(self, opt, batchminer=None):
        super().__init__(batchminer)
        self.pos_margin = opt.loss_snr_contrastive_pos_margin
        self.neg_margin = opt.loss_snr_contrastive_neg_margin
        self.regularizer_weight = opt.loss_snr_contrastive_regularizer_weight
        self.reduction = Reduction(opt, "nonzero")

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, reference: Reference, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`, compared with those of `reference`."""
        apart = self.streamed(labels, reference) if self.reduction.is_own and not self.learns() else None
        if apart is None:
            _, sums = self.compared(self.terms, batch, labels, reference, centre)
        else:
            sums = self.stream(batch, reference, apart)
        positive_mean, negative_mean, self.stats = active_means("snr_distance", sums)
        loss = positive_mean + negative_mean if self.reduction.is_own else self.reduced(batch, labels, reference)
        return loss + self.regularizer_weight * batch.sum(1).abs().mean()

    def learns(self) -> bool:
        """Whether a margin is learned."""
        return isinstance(self.pos_margin, torch.Tensor) or isinstance(self.neg_margin, torch.Tensor)

    def stream(self, batch, reference, apart) -> tuple:
        """The sums of `terms` for all pairs with a large reference."""
        centred, reference = reference.mapped(centre, batch)
        scales = 1 / signals(centred)  # (B, 1)
        points, others = _forms.squared(centred, reference.embeddings)
        points = points * scales
        violated = -points
        violated[:, -2] += self.neg_margin  # the matching column of `others` is 1, so the products are neg_margin - D

        def value(products, spare):  # with a margin of 0 or less no negative is active: a distance below 0 is rounding
            return products.relu_() if self.neg_margin > 0 else products.mul_(0)

        form = _streams.Form(1, value, lambda products, spare: value(products, spare).sign_())
        total, n_active = _streams.sums(violated, others, apart, form)
        distances = _streams.positive_distances(centred, reference.embeddings, apart)  # (P,)
        distances = distances * scales.squeeze(1).index_select(0, apart.anchors)
        violations = torch.relu(distances - self.pos_margin)
        of_pairs = _streams.pair_sums(points, dataclasses.replace(reference, embeddings=others), apart, distances)
        return (violations.sum(), (violations > 0).sum(), total.sum(), n_active.sum(), *of_pairs)

    def reduced(self, batch, labels, reference) -> torch.Tensor:
        """The violations of the positives, reduced by `--loss_reduction`, plus those of the negatives."""
        chosen = self.weighted_pairs(batch, labels, reference)
        centred, others = reference.mapped(centre, batch)
        distances = snr_distances(centred, others)
        violations = torch.relu(distances - self.pos_margin), torch.relu(self.neg_margin - distances)  # (B, M) each
        return sum(self.reduction.of_pairs(values, weights, labels) for values, weights in zip(violations, chosen, strict=True))

    def terms(self, centred, labels, reference, positives, negatives) -> tuple[tuple, tuple]:
        """Sum and number of the active violations, of positives and of negatives; sums of the distances."""
        distances = snr_distances(centred, reference)
        sums = []
        for violations, chosen in ((distances - self.pos_margin, positives), (self.neg_margin - distances, negatives)):
            violations = torch.relu(violations)
            active = chosen * as_weights(violations > 0, centred)
            sums += [(violations * active).sum(), active.sum()]
        return (), (*sums, *pair_sums(distances, positives, negatives))


def centre(points: torch.Tensor) -> torch.Tensor:
    """Rows `(N, D)` less their means."""
    return points - points.mean(1, keepdim=True)


def snr_distances(centred: torch.Tensor, reference: Reference) -> torch.Tensor:
    """var(x_a - x_b) / var(x_a), `(B, M)`. The variance of a difference times D - 1 is a squared distance of centred embeddings."""
    return squared_distances(centred, reference.embeddings) / signals(centred)


def signals(centred: torch.Tensor) -> torch.Tensor:
    """var(x_a) (D - 1) of each row, `(B, 1)`."""
    freedom = max(centred.shape[1] - 1, 1)
    return freedom * (centred.square().sum(1, keepdim=True) / freedom).clamp(min=FLOOR)
