"""Circle loss with pairwise labels (Sun et al., CVPR 2020, arXiv 2002.10857)."""

import torch

from criteria._pairs import PairCriterion, log_sum_exp, pair_means, pair_sums, softplus
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
        (losses, n_positives, n_negatives), similarities = self.compared(self.terms, batch, labels, reference, normalize)
        counted = (n_positives > 0) & (n_negatives > 0) & (losses != 0)
        self.stats = {"active_anchor_share": counted.to(losses.dtype).mean(), **pair_means("similarity", similarities)}
        return masked_mean(losses, counted)

    def terms(self, batch, labels, reference, positives, negatives) -> tuple[tuple, tuple]:
        """Of each anchor its loss and its numbers of positives and of negatives; sums of the similarities."""
        similarities = batch @ reference.embeddings.T  # (B, M)
        values = similarities.detach()
        m, gamma = (self.per_anchor(name, labels, 2) for name in PER_CLASS)
        positive_logits = -gamma * torch.relu(1 + m - values) * (similarities - (1 - m))
        negative_logits = gamma * torch.relu(values + m) * (similarities - m)
        exponents = log_sum_exp(negative_logits, negatives, reference.plain) + log_sum_exp(positive_logits, positives, reference.plain)
        return (softplus(exponents), positives.sum(1), negatives.sum(1)), pair_sums(similarities, positives, negatives)
