"""Pairs that violate a margin: far positives and near negatives (Hadsell et al., CVPR 2006)."""

import torch

from batch_mining._miner import Miner
from options.flags import Flag
from utilities.numbers import number
from utilities.reference import Reference
from utilities.tensors import pairwise_distances
from utilities.tuples import Pairs, pairs_of_masks

YIELDS = "pairs"

FLAGS = {
    "pos_margin": Flag(number(), 0.2, "positives farther than this are taken"),
    "neg_margin": Flag(number(), 0.8, "negatives nearer than this are taken"),
}


class BatchMiner(Miner):
    """Positive pairs with d > pos_margin, negative pairs with d < neg_margin."""

    def mine(self, embeddings: torch.Tensor, labels: torch.Tensor, reference: Reference) -> Pairs:
        """The pairs `(i, j)` that violate a margin, also of anchors that lack a positive or a negative."""
        are_positive, are_negative = reference.masks(labels)
        distances = pairwise_distances(embeddings, reference.embeddings)  # (B, M)
        return pairs_of_masks(
            are_positive & (distances > self.pos_margin), are_negative & (distances < self.neg_margin)
        )
