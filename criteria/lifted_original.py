"""Lifted structured embedding, the original form (Song et al., CVPR 2016, arXiv 1511.06452);
`lifted` is Hermans et al.'s.
"""

import torch

from criteria._pairs import PairCriterion, anchors_of, log_sum_exp, positive_pairs
from criteria._reductions import Reduction
from options.flags import Flag
from utilities.numbers import number
from utilities.tensors import take_pairs

MINES_PAIRS = True
REDUCES = True

FLAGS = {
    "neg_margin": Flag(number(), 1.0, "distance that negatives are pushed beyond (the paper's alpha)"),
}


class Criterion(PairCriterion):
    """mean over positive pairs (i, j) of [d_ij + log(sum exp(neg_margin - d_ik) + sum exp(neg_margin - d_lj))]+^2 / 2.

    The first sum is over the negatives k of i, the second over the anchors l of which j is a negative; without a
    separate reference these are the negatives of j. Both orders of a pair count, which does not change the mean. A pair
    without any negative gives 0.
    """

    SPACE = "euclidean"
    STATISTIC = "squared_distance"

    def __init__(self, opt, batchminer=None):
        super().__init__(opt, batchminer)
        self.reduction = Reduction(opt)

    def formula(self, values, positives, negatives, labels) -> dict:
        """Distances and samples `(P,)` of the positive pairs; log sum exp over each anchor's negatives `(b,)`, and for
        each sample over those of these anchors of which it is a negative `(1, M)`."""
        nearness = self.neg_margin - values
        of_anchors = log_sum_exp(nearness, negatives)
        of_samples = log_sum_exp(nearness.T, negatives.T)
        anchors, partners = positive_pairs(positives)
        distances = take_pairs(values, anchors, partners)
        return {"distances": distances, "samples": partners, "of_anchors": of_anchors, "of_samples": of_samples[None]}

    def join(self, results) -> torch.Tensor:
        """See the class. A pair's term needs the sum over all anchors at its other end, so it is complete only here."""
        distances = results["distances"]
        of_samples = results["of_samples"]
        of_samples = of_samples.squeeze(0) if len(of_samples) == 1 else of_samples.logsumexp(0)
        anchors = anchors_of(results["n_positives"], distances)
        near_negatives = torch.logaddexp(
            results["of_anchors"].index_select(0, anchors), of_samples.index_select(0, results["samples"])
        )
        return self.reduction(torch.relu(distances + near_negatives).square() / 2, anchors, results["labels"])
