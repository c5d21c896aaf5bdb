"""General pair weighting (Wang et al., CVPR 2019, arXiv 1904.06627):
cosines times weights that are constants for the gradient.

The paper's view of pair losses: a pair's weight is the derivative of a loss by the pair's cosine. The gradient here is
that of the loss that the weights are named after; the value is the weighted sum itself and may be negative.
pytorch-metric-learning has only an abstract base, GenericPairLoss.
"""

import torch

from criteria._pairs import PairCriterion, as_weights, log_sum_exp, softplus
from options.flags import Flag
from utilities.numbers import number

# they enter the weights only, which are constants for the gradient
FIXED = (
    "pos_scale",
    "neg_scale",
    "threshold",
    "margin",
)
MINES_PAIRS = True

HAS_SCALES = {"only_with": {"loss_gpw_weights": ["binomial", "multisimilarity"]}}
HAS_THRESHOLD = {"only_with": {"loss_gpw_weights": ["contrastive", "binomial", "multisimilarity"]}}
HAS_MARGIN = {"only_with": {"loss_gpw_weights": ["triplet"]}}

FLAGS = {
    "weights": Flag(
        str,
        "multisimilarity",
        "weights of the pairs: 1 for positives and for negatives above the threshold (contrastive), the triplets "
        "violated (triplet), sigmoids (binomial deviance), a softmax over an anchor's positives and one over its "
        "negatives (lifted structure), multi-similarity",
        choices=["contrastive", "triplet", "binomial", "lifted", "multisimilarity"],
    ),
    "pos_scale": Flag(number(above=0), 2, "scale of the cosines of positive pairs (alpha)", rules=HAS_SCALES),
    "neg_scale": Flag(number(above=0), 50, "scale of the cosines of negative pairs (beta)", rules=HAS_SCALES),
    "threshold": Flag(
        number(),
        0.5,
        "cosine above which a negative counts, and the middle of the sigmoids (lambda)",
        rules=HAS_THRESHOLD,
    ),
    "margin": Flag(number(), 0.1, "cosine by which a positive is to exceed a negative", rules=HAS_MARGIN),
}


class Criterion(PairCriterion):
    """sum over anchors of (sum_n w_n s_an - sum_p w_p s_ap), over B; s are cosines."""

    SPACE = "cosine"

    def formula(self, values, positives, negatives, labels) -> dict:
        """Sum of the weighted cosines, sums of the positives' and of the negatives' weights."""
        # one of the methods below
        weigh = getattr(self, self.weights)
        with torch.no_grad():
            positive_weights, negative_weights = weigh(values, positives, negatives)
            positive_weights = positive_weights * positives
            negative_weights = negative_weights * negatives
        total = ((negative_weights - positive_weights) * values).sum()
        return {
            "loss": total,
            "positive_weights": positive_weights.sum(),
            "negative_weights": negative_weights.sum(),
        }

    def join(self, results) -> torch.Tensor:
        """See the class."""
        for kind in ("positive", "negative"):
            self.stats[f"{kind}_weight"] = results[f"{kind}_weights"] / results[f"n_{kind}s"].sum().clamp(min=1)
        return results["loss"] / len(results["labels"])

    def contrastive(self, values, positives, negatives):
        """Slopes of sum_p -s + sum_n [s - threshold]+."""
        return torch.ones_like(values), as_weights(values > self.threshold, values)

    def triplet(self, values, positives, negatives):
        """Slopes of sum over triplets of [s_an - s_ap + margin]+:
        each pair's number of violated triplets, counted in sorted rows.
        """
        far = torch.finfo(values.dtype).max / 4
        sorted_negatives = (values * negatives - far * (1 - negatives)).sort(1).values
        sorted_positives = (values * positives + far * (1 - positives)).sort(1).values
        nearer_negatives = values.shape[1] - torch.searchsorted(sorted_negatives, values - self.margin, right=True)
        farther_positives = torch.searchsorted(sorted_positives, values + self.margin)
        return nearer_negatives.to(values.dtype), farther_positives.to(values.dtype)

    def binomial(self, values, positives, negatives):
        """Slopes of mean_p softplus(pos_scale (threshold - s)) + mean_n softplus(neg_scale (s - threshold))."""
        of_positives = self.pos_scale * torch.sigmoid(self.pos_scale * (self.threshold - values))
        of_negatives = self.neg_scale * torch.sigmoid(self.neg_scale * (values - self.threshold))
        n_positives, n_negatives = (chosen.sum(1, keepdim=True).clamp(min=1) for chosen in (positives, negatives))
        return of_positives / n_positives, of_negatives / n_negatives

    def lifted(self, values, positives, negatives):
        """Slopes of [log sum_p exp(-s) + log sum_n exp(s)]+."""
        far_positives = log_sum_exp(-values, positives)
        near_negatives = log_sum_exp(values, negatives)
        active = as_weights(far_positives + near_negatives > 0, values)[:, None]
        # at most 1 where chosen; elsewhere it is not used
        rising = torch.exp((-values - far_positives[:, None]).clamp(max=0))
        return active * rising, active * torch.exp((values - near_negatives[:, None]).clamp(max=0))

    def multisimilarity(self, values, positives, negatives):
        """Slopes of 1/pos_scale log(1 + sum_p exp(-pos_scale (s - threshold))) and its mirror, without that loss's
        selection of pairs.
        """
        positive_exponents = self.pos_scale * (self.threshold - values)
        negative_exponents = self.neg_scale * (values - self.threshold)
        of_positives = positive_exponents - softplus(log_sum_exp(positive_exponents, positives))[:, None]
        of_negatives = negative_exponents - softplus(log_sum_exp(negative_exponents, negatives))[:, None]
        return of_positives.clamp(max=0).exp(), of_negatives.clamp(max=0).exp()
