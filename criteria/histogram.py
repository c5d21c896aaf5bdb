"""Histogram loss (Ustinova & Lempitsky, NeurIPS 2016, arXiv 1611.00822).

A pair's two nodes are found by rounding down, not by comparing floats, so that no pair is lost.
"""

import torch

from criteria._pairs import PairCriterion, pair_means, pair_sums, soft_counts
from utilities.numbers import whole
from utilities.reference import Reference

REQUIRES_BATCHMINER = False
REQUIRES_OPTIM = False
ALLOWED_MINING_OPS = None


def add_arguments(group) -> None:
    """Declare the flags of the histogram loss."""
    group.add_argument(
        "--loss_histogram_nbins", type=whole(2, 10**5), default=65, help="nodes of the histograms from -1 to 1, both included"
    )


class Criterion(PairCriterion):
    """Probability that a negative pair is more similar than a positive one: sum_r h-_r sum_{q<=r} h+_q, soft histograms.

    Over the pairs of a batch, or over all pairs of an anchor and a sample of the reference.
    """

    def __init__(self, opt):
        super().__init__()
        self.n_nodes = opt.loss_histogram_nbins

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, reference: Reference, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`, compared with those of `reference`."""
        _, (densities, *similarities) = self.compared(self.terms, batch, labels, reference)  # (2, n_nodes)
        densities = densities / densities.detach().sum(1, keepdim=True).clamp(min=1)
        self.stats = pair_means("similarity", similarities)
        return densities[1] @ densities[0].cumsum(0)

    def terms(self, batch, labels, reference, positives, negatives) -> tuple[tuple, tuple]:
        """The soft histograms, summed over the anchors; sums of the similarities."""
        # (B, M): within a batch each pair counts twice, which the division by counts undoes
        similarities = (batch @ reference.embeddings.T).clamp(-1, 1)
        counts = soft_counts((similarities + 1) * ((self.n_nodes - 1) / 2), positives, negatives, self.n_nodes)
        return (), (counts.sum(0), *pair_sums(similarities, positives, negatives))
