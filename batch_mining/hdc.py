"""The hardest share of all positive and of all negative pairs (Yuan et al., Hard-Aware Deeply Cascaded Embedding, arXiv
1611.05720).
"""

import torch

from batch_mining._miner import Miner, comparable_distances
from options.flags import Flag
from utilities.numbers import number, share_of
from utilities.reference import Reference
from utilities.tuples import Pairs

YIELDS = "pairs"

FLAGS = {
    "percentage": Flag(number(0, 1), 0.5, "share of the pairs that is kept, but one at least"),
}


class BatchMiner(Miner):
    """The farthest share of the positive pairs and the nearest share of the negative pairs, rounded up:
    at least one of each.
    """

    def mine(self, embeddings: torch.Tensor, labels: torch.Tensor, reference: Reference) -> Pairs:
        """The hardest of all pairs, also of anchors that lack a positive or a negative."""
        size = len(reference)
        distances = comparable_distances(embeddings, reference)  # (B, M)
        are_positive, are_negative = reference.masks(labels)
        n_pairs = torch.stack([are_positive.sum(), are_negative.sum()]).tolist()
        n_positives, n_negatives = (max(share_of(self.percentage, n), min(n, 1)) for n in n_pairs)
        positive_distances = distances.masked_fill(~are_positive, -torch.inf).flatten()
        negative_distances = distances.masked_fill(~are_negative, torch.inf).flatten()
        farthest = positive_distances.topk(n_positives, sorted=False).indices
        nearest = negative_distances.topk(n_negatives, largest=False, sorted=False).indices
        return Pairs(farthest // size, farthest % size, nearest // size, nearest % size)
