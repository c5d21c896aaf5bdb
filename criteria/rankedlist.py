"""Ranked list loss (Wang et al., CVPR 2019, arXiv 1903.03238).

A pair's weight among an anchor's active pairs is a constant for the gradient, as in the paper, where it is the size of the pair's
gradient. pytorch-metric-learning differentiates the weight, adds 1e-5 to every weight in the divisor and omits negatives at distance 0.
"""

import dataclasses

import torch

from criteria import _forms, _streams
from criteria._pairs import PairCriterion, as_weights, pair_means, pair_sums
from utilities.numbers import number
from utilities.reference import Reference
from utilities.tensors import pairwise_distances, safe_sqrt

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


def derived(opt) -> dict:
    """The default of alpha."""
    return {"loss_rankedlist_alpha": 1 + opt.loss_rankedlist_margin / 2}


class Criterion(PairCriterion):
    """mean over anchors of (1 - imbalance) sum_p w_p [d_ap - (alpha - margin)]+ + imbalance sum_n w_n [alpha - d_an]+.

    The weights of an anchor's active positives, and those of its active negatives, are a softmax of temperature * violation.
    """

    def __init__(self, opt, batchminer=None):
        super().__init__(batchminer)
        self.margin = opt.loss_rankedlist_margin
        self.alpha = opt.loss_rankedlist_alpha
        self.neg_temperature = opt.loss_rankedlist_neg_temperature
        self.pos_temperature = opt.loss_rankedlist_pos_temperature
        self.imbalance = opt.loss_rankedlist_imbalance

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, reference: Reference, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`, compared with those of `reference`."""
        apart = self.streamed(labels, reference)
        if apart is None:
            _, (total, *distances) = self.compared(self.terms, batch, labels, reference)
        else:
            total, *distances = self.stream(batch, reference, apart)
        self.stats = pair_means("squared_distance", distances)
        return total / len(batch) + 0 * batch.sum()  # NaN embeddings give distances of 0: NaN must reach the loss

    def terms(self, batch, labels, reference, positives, negatives) -> tuple[tuple, tuple]:
        """The sum of all anchors' losses; sums of the squared distances."""
        distances = pairwise_distances(batch, reference.embeddings)  # (B, M)
        far_positives = distances - (self.alpha - self.margin)
        near_negatives = self.alpha - distances
        positive_shares = _shares(far_positives.detach(), positives, self.pos_temperature)
        negative_shares = _shares(near_negatives.detach(), negatives, self.neg_temperature)
        terms = (1 - self.imbalance) * positive_shares * far_positives + self.imbalance * negative_shares * near_negatives
        return (), (terms.sum(), *pair_sums(distances.detach().square(), positives, negatives))

    def streamed(self, labels, reference) -> _streams.Apart | None:
        """See `PairCriterion.streamed`; None too where the negatives' weights do not depend on distances, or fall too steeply."""
        logit = self.neg_temperature * self.alpha  # of a negative at distance 0
        return super().streamed(labels, reference) if logit > 0 and _streams.fits(logit, len(reference)) else None

    def stream(self, batch, reference, apart) -> tuple:
        """What `terms` gives, of all pairs with a large reference.

        The weights of an anchor's negatives are the slopes of log sum exp(neg_temperature [alpha - d_an]+) / neg_temperature, which so
        gives the gradient.
        """
        points, others = _forms.squared(batch, reference.embeddings)
        every = _forms.closeness(self.alpha, self.neg_temperature, points, others)

        def value(products, spare):
            every.value(products, spare)
            torch.nn.functional.threshold_(products, 0.0, -1e30)  # whose exponential is 0

        form, bound = every._replace(value=value), self.neg_temperature * self.alpha
        logits, *_, means = _streams.log_sum_exp(points, others, apart, bound=bound, mean=True, form=form)
        near_negatives = _streams.with_gradient(means, logits).sum() / self.neg_temperature
        squares = _streams.positive_distances(batch, reference.embeddings, apart)  # (P,)
        far_positives = safe_sqrt(squares) - (self.alpha - self.margin)
        active = as_weights(far_positives > 0, batch)
        exponents = self.pos_temperature * far_positives.detach() + (active - 1) * (torch.finfo(batch.dtype).max / 4)
        totals = _streams.sum_exp_per_anchor(exponents, apart.anchors, len(batch))
        positive_shares = active * torch.exp(exponents - totals.index_select(0, apart.anchors))
        total = (1 - self.imbalance) * (positive_shares * far_positives).sum() + self.imbalance * near_negatives
        return total, *_streams.pair_sums(points, dataclasses.replace(reference, embeddings=others), apart, squares)


def _shares(violations: torch.Tensor, chosen: torch.Tensor, temperature: float) -> torch.Tensor:
    """Softmax `(B, M)` of temperature * violation over each row's chosen pairs that are violated; 0 elsewhere."""
    active = chosen * as_weights(violations > 0, violations)
    exponents = temperature * violations + (active - 1) * (torch.finfo(violations.dtype).max / 4)
    return active * torch.softmax(exponents, 1)
