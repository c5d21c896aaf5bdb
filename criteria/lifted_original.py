"""Lifted structured embedding, the original form (Song et al., CVPR 2016, arXiv 1511.06452); `lifted` is Hermans et al.'s."""

import torch

from criteria._pairs import PairCriterion, log_sum_exp, pair_means, pair_sums, positive_pairs
from criteria._reductions import Reduction
from utilities.numbers import number
from utilities.reference import Reference
from utilities.tensors import pairwise_distances, take_pairs

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
        parts, sums = self.compared(self.terms, batch, labels, reference)
        of_anchors, of_positives, distances, others, counts = parts
        of_positives = of_positives.squeeze(0) if len(of_positives) == 1 else of_positives.logsumexp(0)
        anchors = torch.arange(len(batch), device=batch.device).repeat_interleave(counts, output_size=len(others))
        near_negatives = torch.logaddexp(of_anchors.index_select(0, anchors), of_positives.index_select(0, others))
        self.stats = pair_means("distance", sums)
        terms = torch.relu(distances + near_negatives).square() / 2
        return self.reduction(terms, anchors, labels) + 0 * batch.sum()  # NaN embeddings give distances of 0: NaN must reach the loss

    def terms(self, batch, labels, reference, positives, negatives) -> tuple[tuple, tuple]:
        """log sum exp over each anchor's negatives `(B,)`, and over the given anchors of which a sample is a negative `(1, M)`; distances
        and samples of the positive pairs, sorted by anchor, `(P,)` each; number of positives per anchor `(B,)`; sums of the distances."""
        distances = pairwise_distances(batch, reference.embeddings)  # (B, M)
        nearness = self.neg_margin - distances
        of_anchors, of_positives = log_sum_exp(nearness, negatives), log_sum_exp(nearness.T, negatives.T)
        anchors, others = positive_pairs(positives)
        found = of_anchors, of_positives[None], take_pairs(distances, anchors, others), others, positives.sum(1).long()
        return found, pair_sums(distances, positives, negatives)
