"""Supervised contrastive loss, the form with the sum outside the log (Khosla et al., arXiv 2004.11362)."""

import torch

from criteria._pairs import PairCriterion, log_sum_exp
from options.flags import Flag
from utilities.numbers import number
from utilities.tensors import masked_mean

PER_CLASS = ("temperature",)
MINES_PAIRS = True

FLAGS = {
    "temperature": Flag(number(1e-6), 0.1, "divides the cosines"),
}


class Criterion(PairCriterion):
    """Per anchor with a positive: -mean_p log(exp(s_ip/T) / sum_{j != i} exp(s_ij/T)); mean over these anchors."""

    SPACE = "cosine"

    def formula(self, values, positives, negatives, labels) -> torch.Tensor:
        """See the class."""
        logits = values / self.per_anchor("temperature", labels, 2)
        mean_positive = (logits * positives).sum(1) / positives.sum(1).clamp(min=1)  # (b,)
        return log_sum_exp(logits, torch.maximum(positives, negatives)) - mean_positive

    def join(self, results) -> torch.Tensor:
        """See the class."""
        return masked_mean(results["loss"], results["n_positives"] > 0)
