"""Circle loss with pairwise labels (Sun et al., CVPR 2020, arXiv 2002.10857)."""

import math

import torch

from criteria import _streams
from criteria._pairs import PairCriterion, log_sum_exp, pair_means, pair_sums, softplus
from criteria._ranking import sums_per_anchor
from utilities.numbers import number
from utilities.reference import Reference
from utilities.tensors import masked_mean, normalize

REQUIRES_BATCHMINER = False
REQUIRES_OPTIM = False
ALLOWED_MINING_OPS = None
PER_CLASS = ("m", "gamma")
MINES_PAIRS = True


def add_arguments(group) -> None:
    """Declare the flags of the circle loss."""
    group.add_argument("--loss_circle_m", type=number(), default=0.4, help="relaxation: positives aim at 1 - m, negatives at m")
    group.add_argument("--loss_circle_gamma", type=number(above=0), default=80, help="scale of the similarities")


class Criterion(PairCriterion):
    """Per anchor with both: softplus(logsumexp_n(g [s_n + m]+ (s_n - m)) + logsumexp_p(-g [1 + m - s_p]+ (s_p - 1 + m))).

    The weights [..]+ are constants for the gradient. Mean over the anchors whose value is not zero.
    """

    def __init__(self, opt, batchminer=None):
        super().__init__(batchminer)
        self.m = opt.loss_circle_m
        self.gamma = opt.loss_circle_gamma

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, reference: Reference, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`, compared with those of `reference`."""
        learned = isinstance(self.m, torch.Tensor) or isinstance(self.gamma, torch.Tensor)
        apart = None if learned else self.streamed(labels, reference)
        if apart is None:
            (losses, n_positives, n_negatives), similarities = self.compared(self.terms, batch, labels, reference, normalize)
        else:
            (losses, n_positives, n_negatives), similarities = self.stream(batch, reference, apart)
        counted = (n_positives > 0) & (n_negatives > 0) & (losses != 0)
        self.stats = {"active_anchor_share": counted.to(losses.dtype).mean(), **pair_means("similarity", similarities)}
        return masked_mean(losses, counted)

    def terms(self, batch, labels, reference, positives, negatives) -> tuple[tuple, tuple]:
        """Each anchor's loss and its numbers of positives and of negatives; sums of the similarities."""
        similarities = batch @ reference.embeddings.T  # (B, M)
        values = similarities.detach()
        m, gamma = (self.per_anchor(name, labels, 2) for name in PER_CLASS)
        positive_logits = -gamma * torch.relu(1 + m - values) * (similarities - (1 - m))
        negative_logits = gamma * torch.relu(values + m) * (similarities - m)
        exponents = log_sum_exp(negative_logits, negatives, reference.plain) + log_sum_exp(positive_logits, positives, reference.plain)
        return (softplus(exponents), positives.sum(1), negatives.sum(1)), pair_sums(similarities, positives, negatives)

    def stream(self, batch, reference, apart) -> tuple[tuple, tuple]:
        """The result of `terms` for all pairs with a large reference."""
        unit, reference = reference.mapped(normalize, batch)

        scale = math.sqrt(self.gamma * _streams.LOG2E)
        shifted = self.m * scale

        def value(products, spare):  # [s + m]+ (s - m) is v^2 of v = max(s, -m), less m^2
            products.clamp_(min=-shifted)
            products.mul_(products)

        def slope(products, spare):
            return torch.add(products, shifted, out=spare).relu_().mul_(self.gamma / scale)

        form, bound = _streams.Form(scale, value, slope), self.gamma * max(self.m**2, 1)
        near_negatives, similarities, *_ = _streams.log_sum_exp(unit, reference.embeddings, apart, bound=bound, form=form)
        logits = -self.gamma * torch.relu(1 + self.m - similarities.detach()) * (similarities - (1 - self.m))
        near_negatives = near_negatives - self.gamma * self.m**2
        far_positives = _streams.sum_exp_per_anchor(logits, apart.anchors, len(batch))
        sums = _streams.pair_sums(unit, reference, apart, similarities)
        n_positives = sums_per_anchor(torch.ones_like(logits), apart.anchors, len(batch))
        n_own = (reference.own >= 0).to(n_positives.dtype)
        return (softplus(near_negatives + far_positives), n_positives, len(reference) - n_positives - n_own), sums
