"""Ranked list loss (Wang et al., CVPR 2019, arXiv 1903.03238).

A pair's weight among an anchor's active pairs is a constant for the gradient, as in the paper, where it is the size of the pair's
gradient. pytorch-metric-learning differentiates the weight, adds 1e-5 to every weight in the divisor and omits negatives at distance 0.
"""

import torch

from criteria._pairs import PairCriterion, as_weights, pair_means, pair_sums
from utilities.numbers import number
from utilities.reference import Reference
from utilities.tensors import pairwise_distances

REQUIRES_BATCHMINER = False
REQUIRES_OPTIM = False
ALLOWED_MINING_OPS = None
MINES_PAIRS = True


def add_arguments(group) -> None:
    """Declare the flags of the ranked list loss."""
    group.add_argument(
        "--loss_rankedlist_margin", type=number(0), default=0.4, help="distance between the positives' boundary and alpha (m)"
    )
    group.add_argument(
        "--loss_rankedlist_alpha",
        type=number(),
        default=None,
        help="distance beyond which negatives cost nothing (default: 1 + margin / 2)",
    )
    group.add_argument("--loss_rankedlist_neg_temperature", type=number(0), default=10, help="how much nearer negatives weigh more (T_n)")
    group.add_argument("--loss_rankedlist_pos_temperature", type=number(0), default=0, help="how much farther positives weigh more (T_p)")
    group.add_argument("--loss_rankedlist_imbalance", type=number(0, 1), default=0.5, help="share of the negatives' part (lambda)")


class Criterion(PairCriterion):
    """mean over anchors of (1 - imbalance) sum_p w_p [d_ap - (alpha - margin)]+ + imbalance sum_n w_n [alpha - d_an]+.

    The weights of an anchor's active positives, and those of its active negatives, are a softmax of temperature * violation.
    """

    def __init__(self, opt, batchminer=None):
        super().__init__(batchminer)
        self.margin = opt.loss_rankedlist_margin
        self.alpha = 1 + self.margin / 2 if opt.loss_rankedlist_alpha is None else opt.loss_rankedlist_alpha
        self.neg_temperature = opt.loss_rankedlist_neg_temperature
        self.pos_temperature = opt.loss_rankedlist_pos_temperature
        self.imbalance = opt.loss_rankedlist_imbalance

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, reference: Reference, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`, compared with those of `reference`."""
        _, (total, *distances) = self.compared(self.terms, batch, labels, reference)
        self.stats = pair_means("distance", distances)
        return total / len(batch) + 0 * batch.sum()  # NaN embeddings give distances of 0: NaN must reach the loss

    def terms(self, batch, labels, reference, positives, negatives) -> tuple[tuple, tuple]:
        """The sum of all anchors' losses; sums of the distances."""
        distances = pairwise_distances(batch, reference.embeddings)  # (B, M)
        far_positives = distances - (self.alpha - self.margin)
        near_negatives = self.alpha - distances
        positive_shares = _shares(far_positives.detach(), positives, self.pos_temperature)
        negative_shares = _shares(near_negatives.detach(), negatives, self.neg_temperature)
        terms = (1 - self.imbalance) * positive_shares * far_positives + self.imbalance * negative_shares * near_negatives
        return (), (terms.sum(), *pair_sums(distances, positives, negatives))


def _shares(violations: torch.Tensor, chosen: torch.Tensor, temperature: float) -> torch.Tensor:
    """Softmax `(B, M)` of temperature * violation over each row's chosen pairs that are violated; 0 elsewhere."""
    active = chosen * as_weights(violations > 0, violations)
    exponents = temperature * violations + (active - 1) * (torch.finfo(violations.dtype).max / 4)
    return active * torch.softmax(exponents, 1)
