"""NT-Xent / InfoNCE with labels (Sohn, NeurIPS 2016; Chen et al., SimCLR, arXiv 2002.05709); decoupled: Yeh et al.,
Decoupled Contrastive Learning (ECCV 2022, arXiv 2110.06848).
"""

import torch

from criteria._guided import negative_masses
from criteria._pairs import PairCriterion, positive_pairs, softplus
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
    GUIDES_PAIRS = True

    def formula(self, values, positives, negatives, labels, guide=None) -> torch.Tensor:
        """The term of each positive pair, `(P,)`."""
        logits = values / self.per_anchor("temperature", labels, 2)
        anchors, partners = positive_pairs(positives)  # (P,) each
        negative_mass, has_negatives = negative_masses(logits, negatives, anchors, partners, guide)
        differences = negative_mass - take_pairs(logits, anchors, partners)
        if not self.decoupled:
            return softplus(differences)
        return torch.where(has_negatives, differences, 0.0)

    def join(self, results) -> torch.Tensor:
        """See the class."""
        return mean_term(results["loss"])
