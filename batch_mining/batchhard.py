"""Farthest positive and nearest negative (Hermans et al., In Defense of the Triplet Loss, arXiv 1703.07737)."""

import torch

from batch_mining._miner import Miner, comparable_distances, hard_share
from utilities.reference import Reference
from utilities.tuples import Triplets, partners


class BatchMiner(Miner):
    """One triplet an anchor: the positive with the largest distance, the negative with the smallest."""

    def mine(self, embeddings: torch.Tensor, labels: torch.Tensor, reference: Reference) -> Triplets:
        """Exactly one triplet for every anchor that has a positive and a negative."""
        are_positive, are_negative = reference.masks(labels)
        distances = comparable_distances(embeddings, reference)  # (B, M)
        positive_distances, positives = distances.masked_fill(~are_positive, -torch.inf).max(1)
        negative_distances, negatives = distances.masked_fill(~are_negative, torch.inf).min(1)
        anchors = partners(labels, reference).anchors()
        self.stats["hard_share"] = hard_share(positive_distances[anchors], negative_distances[anchors])
        return Triplets(anchors, positives[anchors], negatives[anchors])
