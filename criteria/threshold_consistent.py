"""Threshold-consistent margin, TCM (Zhang et al., ICLR 2024, arXiv 2307.04047):
holds cosines to one threshold for all classes.

The paper adds it to another loss; alone it is a contrastive loss on cosines.
"""

import torch

from criteria._pairs import PairCriterion, as_weights
from options.flags import Flag
from utilities.numbers import number

MINES_PAIRS = True

FLAGS = {
    "pos_margin": Flag(number(), 0.9, "cosine above which positives cost nothing"),
    "neg_margin": Flag(number(), 0.5, "cosine below which negatives cost nothing"),
    "pos_weight": Flag(number(0), 1, "weight of the positives' part (lambda+)"),
    "neg_weight": Flag(number(0), 1, "weight of the negatives' part (lambda-)"),
}


class Criterion(PairCriterion):
    """pos_weight mean of the pos_margin - s_ap >= 0 + neg_weight mean of the s_an - neg_margin >= 0,
    each over those pairs alone.
    """

    SPACE = "cosine"

    def formula(self, values, positives, negatives, labels) -> dict:
        """Sum and number of the violations, of positives and of negatives."""
        below = positives * as_weights(values <= self.pos_margin, values)
        above = negatives * as_weights(values >= self.neg_margin, values)
        sums = {
            "positives": ((self.pos_margin - values) * below).sum(),
            "negatives": ((values - self.neg_margin) * above).sum(),
        }
        return {**sums, "active_positives": below.sum(), "active_negatives": above.sum()}

    def join(self, results) -> torch.Tensor:
        """See the class."""
        for kind in ("positive", "negative"):
            self.stats[f"active_{kind}_share"] = results[f"active_{kind}s"] / results[f"n_{kind}s"].sum().clamp(min=1)
        positive_mean, negative_mean = (
            results[kind] / results[f"active_{kind}"].clamp(min=1) for kind in ("positives", "negatives")
        )
        return self.pos_weight * positive_mean + self.neg_weight * negative_mean
