"""NT-Xent / InfoNCE with labels (Sohn, NeurIPS 2016; Chen et al., SimCLR, arXiv 2002.05709); decoupled: Yeh et al.,
Decoupled Contrastive Learning (ECCV 2022, arXiv 2110.06848).
"""

import torch

from criteria._pairs import PairCriterion, log_sum_exp, positive_pairs, softplus
from criteria._tuples import mean_term
from options.flags import Flag
from utilities.numbers import number
from utilities.tensors import take_pairs

PER_CLASS = ("temperature",)
MINES_PAIRS = True

FLAGS = {
    "temperature": Flag(number(1e-6), 0.07, "divides the cosines"),
    "decoupled": Flag(bool, False, "the positive is not in the denominator (DCL)"),
}


class Criterion(PairCriterion):
    """Mean over positive pairs (i, p) of -log(exp(s_ip/T) /
    (exp(s_ip/T) + sum over negatives n of i of exp(s_in/T))); decoupled, the denominator has the negatives alone, and
    a pair whose anchor has none counts 0.
    """

    SPACE = "cosine"

    def formula(self, values, positives, negatives, labels) -> torch.Tensor:
        """The term of each positive pair, `(P,)`."""
        logits = values / self.per_anchor("temperature", labels, 2)
        negative_mass = log_sum_exp(logits, negatives)  # (b,), once an anchor, not a positive pair
        anchors, partners = positive_pairs(positives)  # (P,) each
        differences = negative_mass.index_select(0, anchors) - take_pairs(logits, anchors, partners)
        if not self.decoupled:
            return softplus(differences)
        has_negatives = (negatives.sum(1) > 0).index_select(0, anchors)
        return torch.where(has_negatives, differences, 0.0)

    def join(self, results) -> torch.Tensor:
        """See the class."""
        return mean_term(results["loss"])
