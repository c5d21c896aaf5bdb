"""Circle loss with pairwise labels (Sun et al., CVPR 2020, arXiv 2002.10857)."""

import torch

from criteria._pairs import PairCriterion, log_sum_exp, softplus
from utilities.numbers import number
from utilities.tensors import masked_mean

REQUIRES_BATCHMINER = False
REQUIRES_OPTIM = False
ALLOWED_MINING_OPS = None
PER_CLASS = ("m", "gamma")
MINES_PAIRS = True


def add_arguments(group) -> None:
    """Declare the flags of the circle loss."""
    group.add_argument(
        "--loss_circle_m", type=number(), default=0.4, help="relaxation: positives aim at 1 - m, negatives at m"
    )
    group.add_argument("--loss_circle_gamma", type=number(above=0), default=80, help="scale of the similarities")


class Criterion(PairCriterion):
    """Per anchor with both: softplus(logsumexp_n(g [s_n + m]+ (s_n - m)) + logsumexp_p(-g [1 + m - s_p]+ (s_p - 1 +
    m))).

    The weights [..]+ are constants for the gradient. Mean over the anchors whose value is not zero.
    """

    SPACE = "cosine"

    def __init__(self, opt, batchminer=None):
        super().__init__(batchminer)
        self.m = opt.loss_circle_m
        self.gamma = opt.loss_circle_gamma

    def formula(self, values, positives, negatives, labels) -> torch.Tensor:
        """See the class."""
        m, gamma = (self.per_anchor(name, labels, 2) for name in PER_CLASS)
        positive_logits = -gamma * torch.relu(1 + m - values.detach()) * (values - (1 - m))
        negative_logits = gamma * torch.relu(values.detach() + m) * (values - m)
        return softplus(log_sum_exp(negative_logits, negatives) + log_sum_exp(positive_logits, positives))

    def join(self, found) -> torch.Tensor:
        """See the class."""
        losses = found["loss"]
        counted = (found["n_positives"] > 0) & (found["n_negatives"] > 0) & (losses != 0)
        self.stats["active_anchor_share"] = counted.to(losses.dtype).mean()
        return masked_mean(losses, counted)
