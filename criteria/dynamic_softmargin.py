"""Dynamic soft margin
(Zhang & Rusinkiewicz, Learning Local Descriptors with a CDF-based Dynamic Soft Margin, ICCV 2019).

As in the official code: the weights are constants for the gradient, and a batch enters the histogram as shares that sum
to 1. The first and last node lie at the ends of the range. In pytorch-metric-learning the weights have a gradient,
which through the histogram reaches former batches too; a batch enters as counts, so that more triplets mean a larger
momentum; and the last node is missing.
"""

import torch

from criteria._tuples import tuple_distances
from options.flags import Flag
from utilities.criterion import MetricCriterion
from utilities.numbers import number, whole
from utilities.reference import Reference
from utilities.tensors import normalize

REQUIRES_BATCHMINER = True
# the momentum of a running histogram
FIXED = ("momentum",)

# difference of two distances between unit vectors
LARGEST = 2.0

FLAGS = {
    "nbins": Flag(whole(2, 10**6), 512, "nodes of the histogram, from -2 to 2"),
    "momentum": Flag(number(above=0, most=1), 0.01, "share of a batch in the moving histogram"),
}


class Criterion(MetricCriterion):
    """mean over triplets of w (d_ap - d_an), distances of unit vectors,
    w the share of triplets, over time, that are easier.

    w is the distribution function of d_ap - d_an at its node, from a moving histogram `(nbins,)`. That is a buffer:
    part of the state.
    """

    several_labels = True

    def __init__(self, opt, batchminer):
        super().__init__(opt, batchminer)
        self.register_buffer("histogram", torch.zeros(self.nbins))

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, reference: Reference, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`, compared with those of `reference`."""
        triplets = self.triplets(batch, labels, reference)
        unit, compared = reference.mapped(normalize, batch)
        positive_distances, negative_distances = tuple_distances(unit, compared, triplets)  # (T,) each
        differences = positive_distances - negative_distances
        weights = self.weights(differences.detach())
        self.stats = {"weight": weights.sum() / max(len(weights), 1)}
        return (weights * differences).sum() / max(len(weights), 1)

    @torch.no_grad()
    def weights(self, differences: torch.Tensor) -> torch.Tensor:
        """Weights `(T,)` of `differences` `(T,)`. These enter the histogram first,
        each split between its two nearest nodes.
        """
        if not len(differences):
            return differences
        positions = (
            (differences + LARGEST).mul((self.nbins - 1) / (2 * LARGEST)).clamp(0, self.nbins - 1).nan_to_num(0.0)
        )
        lower = positions.floor().clamp(max=self.nbins - 2)
        above = positions - lower
        counts = (
            differences.new_zeros(self.nbins)
            .scatter_add(0, lower.long(), 1 - above)
            .scatter_add(0, lower.long() + 1, above)
        )
        before = self.histogram.to(differences)
        # before the first batch the histogram is empty
        former_share = (1 - self.momentum) * (before.sum() > 0).to(before)
        moved = former_share * before + (1 - former_share) * counts / len(differences)
        # in place: who restores buffers holds this tensor
        self.histogram.copy_(moved.detach())
        return (moved / moved.sum()).cumsum(0).index_select(0, positions.long())
