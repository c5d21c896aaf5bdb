"""Cosines of negatives below a margin, of positives above it: one soft maximum an anchor."""

import torch

from criteria._pairs import PairCriterion, log_sum_exp, softplus
from utilities.numbers import number

REQUIRES_BATCHMINER = False
REQUIRES_OPTIM = False
ALLOWED_MINING_OPS = None
MINES_PAIRS = True  # takes a miner's pairs under --mine_pairs
PER_CLASS = ("margin", "scale")  # may be learned one a class


def add_arguments(group) -> None:
    """Declare the flags."""
    group.add_argument("--loss_mine_margin", type=number(), default=0.2, help="cosine between positives and negatives")
    group.add_argument("--loss_mine_scale", type=number(above=0), default=5, help="multiplies the cosines")


class Criterion(PairCriterion):
    """mean over anchors of log(1 + sum_n exp(scale (s_an - margin)) + sum_p exp(scale (margin - s_ap))), s cosines."""

    SPACE = "cosine"  # or dot (as given), euclidean, squared

    def __init__(self, opt, batchminer=None):
        super().__init__(batchminer)
        self.margin, self.scale = opt.loss_mine_margin, opt.loss_mine_scale

    def formula(self, values, positives, negatives, labels):
        """Terms `(b,)` of b anchors: `values` `(b, M)`, weights 0 and 1 `(b, M)`, `labels` `(b,)`."""
        excesses = self.per_anchor("scale", labels, 2) * (values - self.per_anchor("margin", labels, 2))
        return softplus(torch.logaddexp(log_sum_exp(excesses, negatives), log_sum_exp(-excesses, positives)))
