"""Random ones of the hard positives and negatives, not the hardest
(Roth and Brattoli, Confusezius/Deep-Metric-Learning-Baselines).
"""

import torch

from batch_mining._miner import Miner, comparable_distances, draw_columns
from utilities.reference import Reference
from utilities.tuples import Triplets, partners


class BatchMiner(Miner):
    """One triplet an anchor: a positive farther than the nearest negative,
    a negative nearer than the farthest positive.

    Each is drawn at random among these; if there are none, among all positives or negatives.
    """

    def mine(self, embeddings: torch.Tensor, labels: torch.Tensor, reference: Reference) -> Triplets:
        """Exactly one triplet for every anchor that has a positive and a negative."""
        classes = partners(labels, reference)
        distances = comparable_distances(embeddings, reference)  # (B, M)
        are_positive, are_negative = reference.masks(labels)
        nearest_negative = distances.masked_fill(~are_negative, torch.inf).amin(1, keepdim=True)  # (B, 1)
        farthest_positive = distances.masked_fill(~are_positive, -torch.inf).amax(1, keepdim=True)  # (B, 1)
        hard_positives = are_positive & (distances > nearest_negative)
        hard_negatives = (distances < farthest_positive) & are_negative
        positives = draw_columns(hard_positives, classes.draw_positives())
        negatives = draw_columns(hard_negatives, classes.draw_negatives())
        anchors = classes.anchors()
        # an anchor has a hard positive exactly where it has a hard negative: both say d_ap > d_an for some p, n
        self.stats["hard_share"] = (farthest_positive > nearest_negative)[anchors].sum() / max(len(anchors), 1)
        return Triplets(anchors, positives[anchors], negatives[anchors])
