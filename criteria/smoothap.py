"""Smooth-AP (Brown et al., ECCV 2020, arXiv 2007.12163): average precision with sigmoids for steps.

Classes may come in any order and have any number of samples; the official code wants classes of equal size, one after the other. The
query is not in its own list; the official code ranks it too, among its own positives.
"""

import torch

from criteria import _ranking
from criteria._pairs import PairCriterion, pair_means, pair_sums, positive_pairs
from utilities.numbers import number
from utilities.reference import Reference
from utilities.tensors import masked_mean

REQUIRES_BATCHMINER = False
REQUIRES_OPTIM = False
ALLOWED_MINING_OPS = None


def add_arguments(group) -> None:
    """Declare the flags of Smooth-AP."""
    group.add_argument(
        "--loss_smoothap_temperature", type=number(1e-6), default=0.01, help="temperature of the sigmoids between similarities"
    )


class Criterion(PairCriterion):
    """1 - mean over anchors with a positive of mean_p (soft rank of p among the positives) / (soft rank of p among all)."""

    def __init__(self, opt):
        super().__init__()
        self.temperature = opt.loss_smoothap_temperature

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, reference: Reference, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`, compared with those of `reference`."""
        (average_precisions, n_positives), similarities = self.compared(self.terms, batch, labels, reference)
        self.stats = pair_means("similarity", similarities)
        return masked_mean(1 - average_precisions, n_positives > 0)

    def terms(self, batch, labels, reference, positives, negatives) -> tuple[tuple, tuple]:
        """Each anchor's average precision and number of positives; sums of the similarities."""
        similarities = batch @ reference.embeddings.T  # (B, M)
        anchors, others = positive_pairs(positives)  # (P,) each
        own = _ranking.left_out(reference, anchors, others)
        ranks = _ranking.soft_ranks(similarities, anchors, others, own, self.temperature, positives)  # (2, P)
        n_positives = positives.sum(1)
        average_precisions = _ranking.sums_per_anchor(ranks[1] / ranks[0], anchors, len(batch)) / n_positives.clamp(min=1)
        return (average_precisions, n_positives), pair_sums(similarities, positives, negatives)
