"""Soft margin loss on cosines: negatives below a margin, positives above it."""

import torch

from criteria._pairs import PairCriterion, log_sum_exp, softplus
from utilities.numbers import number

REQUIRES_BATCHMINER = False  # it works on all pairs
REQUIRES_OPTIM = False  # it has no parameters
ALLOWED_MINING_OPS = None  # any miner
MINES_PAIRS = True  # it takes a miner's pairs under --mine_pairs


def add_arguments(group) -> None:
    """Declare the flags: each begins with the loss's name, and says its range."""
    group.add_argument("--loss_mine_margin", type=number(), default=0.2, help="cosine between positives and negatives")
    group.add_argument("--loss_mine_scale", type=number(above=0), default=5, help="multiplies the cosines")


class Criterion(PairCriterion):
    """mean over anchors of log(1 + sum_n exp(scale (s_an - margin)) + sum_p exp(scale (margin - s_ap))), s cosines."""

    SPACE = "cosine"

    def __init__(self, opt, batchminer=None):
        super().__init__(batchminer)
        self.margin, self.scale = opt.loss_mine_margin, opt.loss_mine_scale

    def formula(self, values, positives, negatives, labels):
        """Terms `(b,)` of b anchors: `values` `(b, M)`, weights 0 and 1 `(b, M)`, `labels` `(b,)`."""
        excesses = self.scale * (values - self.margin)
        return softplus(torch.logaddexp(log_sum_exp(excesses, negatives), log_sum_exp(-excesses, positives)))
