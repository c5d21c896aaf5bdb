"""NT-Xent / InfoNCE with labels (Sohn, NeurIPS 2016; Chen et al., SimCLR, arXiv 2002.05709)."""

import torch

from criteria._pairs import PairCriterion, log_sum_exp, positive_pairs, softplus
from criteria._tuples import mean_term
from utilities.numbers import number
from utilities.tensors import take_pairs

REQUIRES_BATCHMINER = False
REQUIRES_OPTIM = False
ALLOWED_MINING_OPS = None
PER_CLASS = ("temperature",)
MINES_PAIRS = True


def add_arguments(group) -> None:
    """Declare the flags of NT-Xent."""
    group.add_argument("--loss_ntxent_temperature", type=number(1e-6), default=0.07, help="divides the cosines")


class Criterion(PairCriterion):
    """Mean over positive pairs (i, p) of -log(exp(s_ip/T) / (exp(s_ip/T) + sum over negatives n of i of
    exp(s_in/T))).
    """

    SPACE = "cosine"

    def __init__(self, opt, batchminer=None):
        super().__init__(batchminer)
        self.temperature = opt.loss_ntxent_temperature

    def formula(self, values, positives, negatives, labels) -> torch.Tensor:
        """The term of each positive pair, `(P,)`."""
        logits = values / self.per_anchor("temperature", labels, 2)
        negative_mass = log_sum_exp(logits, negatives)  # (b,), once an anchor, not a positive pair
        anchors, others = positive_pairs(positives)  # (P,) each
        return softplus(negative_mass.index_select(0, anchors) - take_pairs(logits, anchors, others))

    def join(self, found) -> torch.Tensor:
        """See the class."""
        return mean_term(found["loss"])
