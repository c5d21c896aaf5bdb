"""Lifted structured embedding, the original form (Song et al., CVPR 2016, arXiv 1511.06452); `lifted` is Hermans et al.'s."""

import dataclasses

import torch

from criteria import _forms, _streams
from criteria._pairs import PairCriterion, log_sum_exp, pair_means, pair_sums, positive_pairs
from criteria._reductions import Reduction
from utilities.numbers import number
from utilities.reference import Reference
from utilities.tensors import pairwise_distances, safe_sqrt, take_pairs

REQUIRES_BATCHMINER = False
REQUIRES_OPTIM = False
ALLOWED_MINING_OPS = None
MINES_PAIRS = True
REDUCES = True


def add_arguments(group) -> None:
    """Declare the flags of the original lifted loss."""
    group.add_argument(
        "--loss_lifted_original_neg_margin",
        type=number(),
        default=1.0,
        help="distance that negatives are pushed beyond (the paper's alpha)",
    )


class Criterion(PairCriterion):
    """mean over positive pairs (i, j) of [d_ij + log(sum exp(neg_margin - d_ik) + sum exp(neg_margin - d_lj))]+^2 / 2.

    The first sum is over the negatives k of i, the second over the anchors l of which j is a negative; without a separate reference these
    are the negatives of j. Both orders of a pair count, which does not change the mean. A pair without any negative gives 0.
    """

    def __init__(self, opt, batchminer=None):
        super().__init__(batchminer)
        self.neg_margin = opt.loss_lifted_original_neg_margin
        self.reduction = Reduction(opt)

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, reference: Reference, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`, compared with those of `reference`."""
        apart = self.streamed(labels, reference)
        if apart is None:
            terms, anchors, sums = self.in_matrix(batch, labels, reference)
        else:
            terms, anchors, sums = self.stream(batch, reference, apart)
        self.stats = pair_means("squared_distance", sums)
        return self.reduction(terms, anchors, labels) + 0 * batch.sum()  # NaN embeddings give distances of 0: NaN must reach the loss

    def in_matrix(self, batch, labels, reference) -> tuple[torch.Tensor, torch.Tensor, tuple]:
        """Terms `(P,)` of the positive pairs, their anchors `(P,)`, sums of the squared distances; from the whole matrix of distances."""
        parts, sums = self.compared(self.terms, batch, labels, reference)
        of_anchors, of_positives, distances, others, counts = parts
        of_positives = of_positives.squeeze(0) if len(of_positives) == 1 else of_positives.logsumexp(0)
        anchors = torch.arange(len(batch), device=batch.device).repeat_interleave(counts, output_size=len(others))
        near_negatives = torch.logaddexp(of_anchors.index_select(0, anchors), of_positives.index_select(0, others))
        return torch.relu(distances + near_negatives).square() / 2, anchors, sums

    def stream(self, batch, reference, apart) -> tuple[torch.Tensor, torch.Tensor, tuple]:
        """What `in_matrix` gives, of all pairs with a large reference."""
        points, others = _forms.squared(batch, reference.embeddings)
        form = _forms.closeness(self.neg_margin, 1.0, points, others)
        of_anchors, of_samples = _streams.both_log_sum_exp(points, others, apart, form)
        samples = apart.columns.index_select(0, apart.positive)
        near_negatives = torch.logaddexp(of_anchors.index_select(0, apart.anchors), of_samples.index_select(0, samples))
        squares = _streams.positive_distances(batch, reference.embeddings, apart)  # (P,)
        sums = _streams.pair_sums(points, dataclasses.replace(reference, embeddings=others), apart, squares)
        return torch.relu(safe_sqrt(squares) + near_negatives).square() / 2, apart.anchors, sums

    def terms(self, batch, labels, reference, positives, negatives) -> tuple[tuple, tuple]:
        """log sum exp over each anchor's negatives `(B,)`, and over the given anchors of which a sample is a negative `(1, M)`; distances
        and samples of the positive pairs, sorted by anchor, `(P,)` each; number of positives per anchor `(B,)`; sums of the squared distances."""
        distances = pairwise_distances(batch, reference.embeddings)  # (B, M)
        nearness = self.neg_margin - distances
        of_anchors, of_positives = log_sum_exp(nearness, negatives), log_sum_exp(nearness.T, negatives.T)
        anchors, others = positive_pairs(positives)
        found = of_anchors, of_positives[None], take_pairs(distances, anchors, others), others, positives.sum(1).long()
        return found, pair_sums(distances.detach().square(), positives, negatives)
