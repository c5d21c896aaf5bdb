"""Ranked list loss (Wang et al., CVPR 2019, arXiv 1903.03238).

A pair's weight among an anchor's active pairs is a constant for the gradient, as in the paper, where it is the size of
the pair's gradient. pytorch-metric-learning differentiates the weight, adds 1e-5 to every weight in the divisor and
omits negatives at distance 0.
"""

import torch

from criteria._pairs import PairCriterion, as_weights
from options.flags import Flag
from utilities.numbers import number

MINES_PAIRS = True

FLAGS = {
    "margin": Flag(number(0), 0.4, "distance between the positives' boundary and alpha (m)"),
    "alpha": Flag(number(), None, "distance beyond which negatives cost nothing (default: 1 + margin / 2)"),
    "neg_temperature": Flag(
        number(0), 10, "temperature of the weights of negatives: higher values favour nearer ones (T_n)"
    ),
    "pos_temperature": Flag(
        number(0), 0, "temperature of the weights of positives: higher values favour farther ones (T_p)"
    ),
    "imbalance": Flag(number(0, 1), 0.5, "share of the negatives' part (lambda)"),
}


def derived(opt) -> dict:
    """The default of alpha."""
    return {"loss_rankedlist_alpha": 1 + opt.loss_rankedlist_margin / 2}


class Criterion(PairCriterion):
    """mean over anchors of (1 - imbalance) sum_p w_p [d_ap - (alpha - margin)]+ + imbalance sum_n w_n [alpha - d_an]+.

    The weights of an anchor's active positives, and those of its active negatives,
    are a softmax of temperature * violation.
    """

    SPACE = "euclidean"
    STATISTIC = "squared_distance"

    def formula(self, values, positives, negatives, labels) -> dict:
        """The sum of the anchors' terms."""
        far_positives = values - (self.alpha - self.margin)
        near_negatives = self.alpha - values
        positive_shares = _shares(far_positives.detach(), positives, self.pos_temperature)
        negative_shares = _shares(near_negatives.detach(), negatives, self.neg_temperature)
        terms = (
            1 - self.imbalance
        ) * positive_shares * far_positives + self.imbalance * negative_shares * near_negatives
        return {"loss": terms.sum()}

    def join(self, results) -> torch.Tensor:
        """See the class."""
        return results["loss"] / len(results["labels"])


def _shares(violations: torch.Tensor, chosen: torch.Tensor, temperature: float) -> torch.Tensor:
    """Softmax `(B, M)` of temperature * violation over each row's chosen pairs that are violated; 0 elsewhere."""
    active = chosen * as_weights(violations > 0, violations)
    exponents = temperature * violations + (active - 1) * (torch.finfo(violations.dtype).max / 4)
    return active * torch.softmax(exponents, 1)
