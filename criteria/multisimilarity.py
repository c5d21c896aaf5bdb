"""Multi-similarity loss (Wang et al., CVPR 2019, arXiv 1904.06627).

The sum is divided by the batch size as in the official code; the ICML 2020 pipeline divided by the number of anchors
that kept pairs.
"""

import math

import torch

from criteria._pairs import PairCriterion, as_weights, easiest, hardest, log_sum_exp, softplus
from options.flags import Flag
from utilities.numbers import number

PER_CLASS = ("pos_weight", "neg_weight", "margin", "thresh")
MINES_PAIRS = True

FLAGS = {
    "pos_weight": Flag(number(1e-6), 2, "exponential weight of positive pairs (the paper's alpha)"),
    "neg_weight": Flag(number(1e-6), 40, "exponential weight of negative pairs (the paper's beta)"),
    "margin": Flag(
        number(inf=True),
        0.1,
        "slack in the comparison that keeps pairs (the paper's epsilon); inf compares nothing and keeps all",
    ),
    "thresh": Flag(number(), 0.5, "similarity at which a pair weighs one half (the paper's lambda)"),
}


class Criterion(PairCriterion):
    """sum over anchors of 1/pos_weight log(1 + sum_p exp(-pos_weight
    (s - thresh))) and its mirror for negatives, over B.

    An anchor keeps the negatives with s + margin > its least similar positive and the positives with s - margin < its
    most similar negative; an anchor without positives or without negatives gives 0. With an infinite margin every pair
    is kept, and such an anchor gives the term of the kind it has, as in the official code without its miner. That code
    tells the anchor from its positives by s < 1 - 1e-5 and so drops duplicates of it; here the anchor is known by its
    place, and duplicates count.
    """

    def formula(self, values, positives, negatives, labels) -> dict:
        """See the class."""
        thresh, pos_weight, neg_weight = (
            self.per_anchor(name, labels, 2) for name in ("thresh", "pos_weight", "neg_weight")
        )
        margin = self.per_anchor("margin", labels, 2)
        positives, negatives = self.keep_pairs(values.detach(), positives, negatives, margin)
        positive_terms = softplus(log_sum_exp(pos_weight * (thresh - values), positives))  # (b,)
        negative_terms = softplus(log_sum_exp(neg_weight * (values - thresh), negatives))
        losses = positive_terms / self.per_anchor("pos_weight", labels) + negative_terms / self.per_anchor(
            "neg_weight", labels
        )
        # A learned margin only decides which pairs count, so its gradient is 0.
        if isinstance(margin, torch.Tensor):
            losses = losses + 0 * self.per_anchor("margin", labels)
        return {"loss": losses, "kept_positives": positives.sum(), "kept_negatives": negatives.sum()}

    def keep_pairs(self, values, positives, negatives, margin) -> tuple[torch.Tensor, torch.Tensor]:
        """The weights `(b, M)` of the positives and of the negatives that the comparison keeps."""
        if not isinstance(margin, torch.Tensor) and margin == math.inf:
            return positives, negatives
        most_similar_negative = hardest(values, negatives)[:, None]
        least_similar_positive = easiest(values, positives)[:, None]
        kept_positives = positives * as_weights(values - margin < most_similar_negative, values)
        return kept_positives, negatives * as_weights(values + margin > least_similar_positive, values)

    def join(self, results) -> torch.Tensor:
        """See the class."""
        for kind in ("positive", "negative"):
            self.stats[f"kept_{kind}_share"] = results[f"kept_{kind}s"] / results[f"n_{kind}s"].sum().clamp(min=1)
        return results["loss"].mean()
