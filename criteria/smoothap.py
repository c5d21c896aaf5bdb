"""Smooth-AP (Brown et al., ECCV 2020, arXiv 2007.12163): average precision with sigmoids for steps.

Classes may come in any order and have any number of samples; the official code wants classes of equal size, one after
the other. The query is not in its own list; the official code ranks it too, among its own positives.
"""

import torch

from criteria import _ranking
from criteria._pairs import PairCriterion, positive_pairs
from options.flags import Flag
from utilities.numbers import number
from utilities.tensors import masked_mean

# soft ranks are those among all images
TAKES_GUIDE = False

FLAGS = {
    "temperature": Flag(number(1e-6), 0.01, "temperature of the sigmoids between similarities"),
}


class Criterion(PairCriterion):
    """1 - mean over anchors with a positive of mean_p (soft rank of p among the positives) /
    (soft rank of p among all).
    """

    def formula(self, values, positives, negatives, labels) -> torch.Tensor:
        """See the class."""
        anchors, partners = positive_pairs(positives)  # (P,) each
        left_out = _ranking.left_out(positives, negatives, anchors, partners)
        ranks = _ranking.soft_ranks(values, anchors, partners, left_out, self.temperature, positives)  # (2, P)
        return 1 - _ranking.sums_per_anchor(ranks[1] / ranks[0], anchors, len(values)) / positives.sum(1).clamp(min=1)

    def join(self, results) -> torch.Tensor:
        """See the class."""
        return masked_mean(results["loss"], results["n_positives"] > 0)
