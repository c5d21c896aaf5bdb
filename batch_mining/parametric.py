"""Negatives by a given probability per bin of distance (the fixed part of PADS, Roth et al., arXiv 2003.11113)."""

import torch

from batch_mining._miner import Miner, draw_columns, hard_share
from options.flags import Flag
from utilities.errors import UserError
from utilities.numbers import number, whole
from utilities.reference import Reference
from utilities.tensors import pairwise_distances
from utilities.tuples import Triplets, partners

# of distance, by mode
LIMITS = {
    "uniform": (0.0, float("inf")),
    "hards": (0.0, 0.5),
    "semihards": (0.3, 0.7),
    "veryhards": (0.0, 0.3),
}

FLAGS = {
    "mode": Flag(str, "uniform", "which negatives are drawn, each with the same probability", choices=list(LIMITS)),
    "n_support": Flag(whole(2, 10**5), 30, "points that bound the bins, one more than bins"),
    "support_lim": Flag(number(0), [0.1, 1.4], "first and last of these points", nargs=2),
}


class BatchMiner(Miner):
    """One triplet an anchor: a random positive, a negative with probability proportional to that of its distance's bin.

    Negatives outside the support have probability 0; an anchor with only such negatives draws uniformly. A mode gives
    every bin within its limits of distance the same probability. `distribution`: `(bins,)`.
    """

    def __init__(self, opt):
        super().__init__(opt)
        low, high = self.support_lim
        if low >= high:
            raise UserError(f"--miner_parametric_support_lim {low} {high}: from a distance to a larger one")
        self.set_distribution(torch.ones(self.n_support - 1))
        lowest, highest = LIMITS[self.mode]
        self.limits = max(lowest, low), min(highest, high)
        if self.limits[0] >= self.limits[1]:
            raise UserError(
                f"--miner_parametric_mode {self.mode}: no distance of --miner_parametric_support_lim {low:g} {high:g} "
                f"is within its {lowest:g} to {highest:g}"
            )

    def set_distribution(self, p) -> None:
        """Set the bins' probabilities to `p` `(bins,)`; the bins divide the support into equal widths.

        They need not sum to 1. The limits of the mode no longer hold.
        Raises ValueError where `p` is not a distribution.
        """
        p = torch.as_tensor(p, dtype=torch.float64).detach().clone()
        if p.ndim != 1 or not len(p) or not bool(torch.isfinite(p).all() & (p >= 0).all() & (p.sum() > 0)):
            raise ValueError(
                f"a distribution over bins of distance has one dimension, no negative entry and a positive sum, not {p}"
            )
        self.distribution = p / p.sum()
        self.inner_edges = torch.linspace(*self.support_lim, len(p) + 1, dtype=torch.float64)[1:-1]
        self.limits = tuple(self.support_lim)

    def mine(self, embeddings: torch.Tensor, labels: torch.Tensor, reference: Reference) -> Triplets:
        """Exactly one triplet for every anchor that has a positive and a negative."""
        classes = partners(labels, reference)
        distances = pairwise_distances(embeddings, reference.embeddings)  # (B, M)
        self.distribution = self.distribution.to(distances)
        self.inner_edges = self.inner_edges.to(distances)
        probabilities = self.distribution[torch.bucketize(distances, self.inner_edges)]
        outside = (distances < self.limits[0]) | (distances > self.limits[1])
        probabilities.masked_fill_(outside | ~reference.negatives(labels), 0.0)
        positives = classes.draw_positives()
        negatives = draw_columns(probabilities, classes.draw_negatives())
        anchors = classes.anchors()
        mined = Triplets(anchors, positives[anchors], negatives[anchors])
        self.stats["hard_share"] = hard_share(distances[anchors, mined.positives], distances[anchors, mined.negatives])
        return mined
