"""Histogram loss (Ustinova & Lempitsky, NeurIPS 2016, arXiv 1611.00822).

A pair's two nodes are found by rounding down, not by comparing floats, so that no pair is lost.
"""

import torch

from criteria._pairs import PairCriterion, soft_counts
from options.flags import Flag
from utilities.numbers import whole

FLAGS = {
    "nbins": Flag(whole(2, 10**5), 65, "nodes of the histograms from -1 to 1, both included"),
}


class Criterion(PairCriterion):
    """Probability that a negative pair is more similar than a positive one:
    sum_r h-_r sum_{q<=r} h+_q, soft histograms.

    Over the pairs of a batch, or over all pairs of an anchor and a sample of the reference.
    """

    def measure(self, points: torch.Tensor, reference_points: torch.Tensor, norms: torch.Tensor | None) -> torch.Tensor:
        """Similarities `(b, M)`; those of unit vectors may leave [-1, 1] by rounding."""
        return super().measure(points, reference_points, norms).clamp(-1, 1)

    def formula(self, values, positives, negatives, labels) -> dict:
        """The anchors' soft histograms, `(b, 2, nodes)`."""
        return {"counts": soft_counts((values + 1) * ((self.nbins - 1) / 2), positives, negatives, self.nbins)}

    def join(self, results) -> torch.Tensor:
        """See the class. The histograms are of all anchors: within a batch each pair counts twice,
        which the division undoes.
        """
        counts = results["counts"].sum(0)  # (2, nodes)
        positives, negatives = counts / counts.detach().sum(1, keepdim=True).clamp(min=1)
        return negatives @ positives.cumsum(0)
