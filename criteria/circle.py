"""Circle loss with pairwise labels (Sun et al., CVPR 2020, arXiv 2002.10857)."""

import torch

from criteria._pairs import PairCriterion, log_sum_exp, softplus
from options.flags import Flag
from utilities.numbers import number
from utilities.tensors import masked_mean

PER_CLASS = ("m", "gamma")
MINES_PAIRS = True

FLAGS = {
    "m": Flag(number(), 0.4, "relaxation: positives aim at 1 - m, negatives at m"),
    "gamma": Flag(number(above=0), 80, "scale of the similarities"),
}


class Criterion(PairCriterion):
    """Per anchor with both: softplus(logsumexp_n(g [s_n + m]+ (s_n - m)) + logsumexp_p(-g [1 + m - s_p]+
    (s_p - 1 + m))).

    The weights [..]+ are constants for the gradient. Mean over the anchors whose value is not zero.
    """

    SPACE = "cosine"

    def formula(self, values, positives, negatives, labels) -> torch.Tensor:
        """See the class."""
        m, gamma = (self.per_anchor(name, labels, 2) for name in PER_CLASS)
        positive_logits = -gamma * torch.relu(1 + m - values.detach()) * (values - (1 - m))
        negative_logits = gamma * torch.relu(values.detach() + m) * (values - m)
        return softplus(log_sum_exp(negative_logits, negatives) + log_sum_exp(positive_logits, positives))

    def join(self, results) -> torch.Tensor:
        """See the class."""
        losses = results["loss"]
        counted = (results["n_positives"] > 0) & (results["n_negatives"] > 0) & (losses != 0)
        self.stats["active_anchor_share"] = counted.to(losses.dtype).mean()
        return masked_mean(losses, counted)
