"""Triplets chosen by d_an - d_ap: all that violate a margin, or the hard, semihard or easy ones (Schroff et al., arXiv
1503.03832).
"""

import torch

from batch_mining._miner import Miner, comparable_distances
from options.flags import Flag
from utilities.numbers import number
from utilities.reference import Reference
from utilities.tuples import Triplets, spread

FLAGS = {
    "margin": Flag(number(), 0.2, "gap between negative and positive distance"),
    "type": Flag(
        str,
        "all",
        "d_an - d_ap at most the margin (all), at most 0 (hard), above 0 and at most the margin (semihard), above "
        "the margin (easy)",
        choices=["all", "hard", "semihard", "easy"],
    ),
}


class BatchMiner(Miner):
    """Every valid triplet of the chosen type.

    An anchor's negatives are sorted by distance, so those that fit a positive are a contiguous range. Memory beyond the
    triplets themselves is O(B M).
    """

    def mine(self, embeddings: torch.Tensor, labels: torch.Tensor, reference: Reference) -> Triplets:
        """Each triplet of the type once, sorted by anchor."""
        size = len(reference)
        are_positive, are_negative = reference.masks(labels)
        distances = comparable_distances(embeddings, reference)  # (B, M)
        # (B, M)
        negative_distances, negatives = distances.masked_fill(~are_negative, torch.inf).sort(dim=1, stable=True)
        # (B, M): by anchor and positive
        within_margin = torch.searchsorted(negative_distances, distances + self.margin, right=True)
        nearer = torch.searchsorted(negative_distances, distances, right=True)  # (B, M)
        available = are_negative.sum(1, keepdim=True).expand(-1, size)
        first, last = {
            "all": (torch.zeros_like(nearer), within_margin),
            "hard": (torch.zeros_like(nearer), nearer),
            "semihard": (nearer, within_margin),
            "easy": (within_margin, available),
        }[self.type]
        counts = (torch.minimum(last, available) - first).clamp(min=0).masked_fill(~are_positive, 0).flatten()
        pairs, numbers = spread(counts)
        anchors = pairs // size
        positives = pairs % size
        self.stats["hard_share"] = nearer.masked_fill(~are_positive, 0).sum() / (available * are_positive).sum().clamp(
            min=1
        )
        return Triplets(anchors, positives, negatives[anchors, first.flatten()[pairs] + numbers])
