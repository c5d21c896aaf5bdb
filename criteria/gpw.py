"""General pair weighting (Wang et al., CVPR 2019, arXiv 1904.06627): cosines times weights that are constants for the gradient.

The paper's view of pair losses: a pair's weight is the derivative of a loss by the pair's cosine. The gradient here is that of the loss
that the weights are named after; the value is the weighted sum itself and may be negative. pytorch-metric-learning has only an abstract
base, GenericPairLoss.
"""

import torch

from criteria import _streams
from criteria._pairs import PairCriterion, as_weights, log_sum_exp, pair_means, pair_sums, softplus
from utilities.numbers import number
from utilities.reference import Reference
from utilities.tensors import normalize

REQUIRES_BATCHMINER = False
REQUIRES_OPTIM = False
ALLOWED_MINING_OPS = None
FIXED = ("pos_scale", "neg_scale", "threshold", "margin")  # they enter the weights only, which are constants for the gradient
MINES_PAIRS = True


def add_arguments(group) -> None:
    """Declare the flags of general pair weighting."""
    group.add_argument(
        "--loss_gpw_weights",
        default="multisimilarity",
        choices=list(WEIGHTS),
        help="whose weights: 1 for positives and for negatives above the threshold (contrastive), the triplets violated (triplet), sigmoids "
        "(binomial deviance), a softmax over an anchor's positives and one over its negatives (lifted structure), multi-similarity",
    )
    group.add_argument("--loss_gpw_pos_scale", type=number(above=0), default=2, help="of binomial and multisimilarity (alpha)")
    group.add_argument("--loss_gpw_neg_scale", type=number(above=0), default=50, help="of binomial and multisimilarity (beta)")
    group.add_argument("--loss_gpw_threshold", type=number(), default=0.5, help="of contrastive, binomial and multisimilarity (lambda)")
    group.add_argument(
        "--loss_gpw_margin", type=number(), default=0.1, help="cosine by which a positive is to exceed a negative, of triplet"
    )


class Criterion(PairCriterion):
    """sum over anchors of (sum_n w_n s_an - sum_p w_p s_ap), over B; s are cosines."""

    def __init__(self, opt, batchminer=None):
        super().__init__(batchminer)
        self.weights, self.summed = WEIGHTS[opt.loss_gpw_weights], STREAMS.get(opt.loss_gpw_weights)
        self.pos_scale, self.neg_scale = opt.loss_gpw_pos_scale, opt.loss_gpw_neg_scale
        self.threshold, self.margin = opt.loss_gpw_threshold, opt.loss_gpw_margin

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, reference: Reference, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`, compared with those of `reference`."""
        apart = self.streamed(labels, reference) if self.summed else None
        if apart is None:
            _, (total, of_positives, of_negatives, *similarities) = self.compared(self.terms, batch, labels, reference, normalize)
        else:
            total, of_positives, of_negatives, *similarities = self.stream(*reference.mapped(normalize, batch), apart)
        _, n_positives, _, n_negatives = similarities
        self.stats = {
            "positive_weight": of_positives / n_positives.clamp(min=1),
            "negative_weight": of_negatives / n_negatives.clamp(min=1),
            **pair_means("similarity", similarities),
        }
        return total / len(batch)

    def terms(self, unit, labels, reference, positives, negatives) -> tuple[tuple, tuple]:
        """Sum of the weighted cosines, sums of the positives' and of the negatives' weights; sums of the cosines."""
        similarities = unit @ reference.embeddings.T  # (B, M)
        with torch.no_grad():
            of_positives, of_negatives = self.weights(self, similarities, positives, negatives)
            of_positives, of_negatives = of_positives * positives, of_negatives * negatives
        total = ((of_negatives - of_positives) * similarities).sum()
        return (), (total, of_positives.sum(), of_negatives.sum(), *pair_sums(similarities, positives, negatives))

    def stream(self, unit, reference, apart) -> tuple:
        """The sums of `terms` for all pairs with a large reference."""
        of_positives, weights, near_negatives, of_negatives = self.summed(self, unit, reference.embeddings, apart)
        weights = weights.detach()
        total = near_negatives.sum() - (weights * of_positives).sum()
        return total, weights.sum(), of_negatives.sum(), *_streams.pair_sums(unit, reference, apart, of_positives)

    def contrastive(self, values, positives, negatives):
        """Slopes of sum_p -s + sum_n [s - threshold]+."""
        return torch.ones_like(values), as_weights(values > self.threshold, values)

    def triplet(self, values, positives, negatives):
        """Slopes of sum over triplets of [s_an - s_ap + margin]+: each pair's number of violated triplets, counted in sorted rows."""
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
        far_positives, near_negatives = log_sum_exp(-values, positives), log_sum_exp(values, negatives)
        active = as_weights(far_positives + near_negatives > 0, values)[:, None]
        rising = torch.exp((-values - far_positives[:, None]).clamp(max=0))  # at most 1 where chosen; elsewhere it is not used
        return active * rising, active * torch.exp((values - near_negatives[:, None]).clamp(max=0))

    def multisimilarity(self, values, positives, negatives):
        """Slopes of 1/pos_scale log(1 + sum_p exp(-pos_scale (s - threshold))) and its mirror, without that loss's selection of pairs."""
        positive_exponents, negative_exponents = self.pos_scale * (self.threshold - values), self.neg_scale * (values - self.threshold)
        of_positives = positive_exponents - softplus(log_sum_exp(positive_exponents, positives))[:, None]
        of_negatives = negative_exponents - softplus(log_sum_exp(negative_exponents, negatives))[:, None]
        return of_positives.clamp(max=0).exp(), of_negatives.clamp(max=0).exp()

    # For `stream`, of the products of `unit` `(B, D)` with `others` `(M, D)`: cosines and weights `(P,)` of the positive pairs; of each
    # anchor's negatives the sum of weighted cosines, and of weights, `(B,)`.

    def contrastive_stream(self, unit, others, apart):
        """See `contrastive`: s is threshold + (s - threshold)."""

        def value(products, spare):
            return products.sub_(self.threshold).relu_()

        form = _streams.Form(1, value, lambda products, spare: value(products, spare).sign_())
        above, n_above = _streams.sums(unit, others, apart, form)
        of_positives = _streams.positive_products(unit, others, apart)
        return of_positives, torch.ones_like(of_positives), above + self.threshold * n_above, n_above

    def lifted_stream(self, unit, others, apart):
        """See `lifted`."""
        logits, of_positives, *_, means = _streams.log_sum_exp(unit, others, apart, bound=1.0, mean=True)
        far_positives = _streams.sum_exp_per_anchor(-of_positives, apart.anchors, len(unit))
        active = as_weights(far_positives + logits > 0, unit)
        rising = torch.exp(-of_positives - far_positives.index_select(0, apart.anchors))
        weights = active.index_select(0, apart.anchors) * rising
        return of_positives, weights, active * _streams.with_gradient(means, logits), active

    def multisimilarity_stream(self, unit, others, apart):
        """See `multisimilarity`."""
        logits, of_positives, *_, means = _streams.log_sum_exp(self.neg_scale * unit, others, apart, bound=self.neg_scale, mean=True)
        of_positives = of_positives / self.neg_scale
        exponents = self.pos_scale * (self.threshold - of_positives)
        totals = softplus(_streams.sum_exp_per_anchor(exponents, apart.anchors, len(unit)))
        shares = torch.sigmoid(logits - self.neg_scale * self.threshold).detach()
        weights = torch.exp(exponents - totals.index_select(0, apart.anchors))
        return of_positives, weights, shares * _streams.with_gradient(means, logits) / self.neg_scale, shares


WEIGHTS = {
    "contrastive": Criterion.contrastive,
    "triplet": Criterion.triplet,
    "binomial": Criterion.binomial,
    "lifted": Criterion.lifted,
    "multisimilarity": Criterion.multisimilarity,
}
STREAMS = {
    "contrastive": Criterion.contrastive_stream,
    "lifted": Criterion.lifted_stream,
    "multisimilarity": Criterion.multisimilarity_stream,
}  # the others take the matrix a few anchors at a time
