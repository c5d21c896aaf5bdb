"""Tuplet margin loss (Yu & Tao, Deep Metric Learning with Tuplet Margin Loss, ICCV 2019).

Every positive pair is compared with all negatives of its anchor, as in pytorch-metric-learning; the paper draws one of
each other class.
"""

import torch

from criteria._angular_margin import LIMIT
from criteria._guided import negative_masses
from criteria._pairs import PairCriterion, anchors_of, positive_pairs, softplus
from criteria._reductions import Reduction
from options.flags import Flag
from utilities.numbers import number
from utilities.tensors import take_pairs

MINES_PAIRS = True
REDUCES = True

FLAGS = {
    "margin": Flag(
        number(0, 3.1416),
        0.1,
        "radians taken off the angle of a positive pair: one this near is drawn no nearer (the paper's beta; 5.73 "
        "degrees)",
    ),
    "scale": Flag(number(above=0), 64, "multiplies the cosines (the paper's s)"),
}


class Criterion(PairCriterion):
    """Mean over positive pairs of log(1 + sum_n exp(scale (cos t_an - cos(t_ap - margin)))),
    t the angle between two embeddings.

    A positive pair whose anchor has no negative gives 0.
    """

    SPACE = "cosine"
    GUIDES_PAIRS = True

    def __init__(self, opt, batchminer=None):
        super().__init__(opt, batchminer)
        self.reduction = Reduction(opt)

    def formula(self, values, positives, negatives, labels, guide=None) -> torch.Tensor:
        """The term of each positive pair, `(P,)`."""
        anchors, partners = positive_pairs(positives)  # (P,) each
        narrowed = torch.cos(take_pairs(values, anchors, partners).clamp(-LIMIT, LIMIT).acos() - self.margin)
        near_negatives, _ = negative_masses(self.scale * values, negatives, anchors, partners, guide)
        return softplus(near_negatives - self.scale * narrowed)

    def join(self, results) -> torch.Tensor:
        """See the class."""
        return self.reduction(results["loss"], anchors_of(results["n_positives"], results["loss"]), results["labels"])
