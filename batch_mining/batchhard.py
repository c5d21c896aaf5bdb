"""Farthest positive and nearest negative (Hermans et al., In Defense of the Triplet Loss, arXiv 1703.07737)."""

import torch

from batch_mining._miner import Miner, hard_share
from utilities.tensors import pairwise_distances
from utilities.tuples import Classes, Triplets, positive_mask, same_class

YIELDS = "triplets"


class BatchMiner(Miner):
    """One triplet an anchor: the positive with the largest distance, the negative with the smallest."""

    def mine(self, embeddings: torch.Tensor, labels: torch.Tensor) -> Triplets:
        """Exactly one triplet for every anchor that has a positive and a negative."""
        distances = pairwise_distances(embeddings)  # (B, B)
        positive_distances, positives = distances.masked_fill(~positive_mask(labels), -torch.inf).max(1)
        negative_distances, negatives = distances.masked_fill(same_class(labels), torch.inf).min(1)
        anchors = Classes(labels).anchors()
        self.stats["hard_share"] = hard_share(positive_distances[anchors], negative_distances[anchors])
        return Triplets(anchors, positives[anchors], negatives[anchors])
