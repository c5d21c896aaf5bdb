"""Pairs that the multi-similarity rule keeps (Wang et al., arXiv 1904.06627)."""

import torch

from batch_mining._miner import Miner
from options.flags import Flag
from utilities.numbers import number
from utilities.reference import Reference
from utilities.tuples import Pairs, pairs_of_masks

YIELDS = "pairs"

FLAGS = {
    "epsilon": Flag(number(inf=True), 0.1, "slack with which a pair counts as hard"),
}


class BatchMiner(Miner):
    """Negatives with s + epsilon > the anchor's smallest positive s,
    positives with s - epsilon < its largest negative s.
    """

    def mine(self, embeddings: torch.Tensor, labels: torch.Tensor, reference: Reference) -> Pairs:
        """Kept pairs; an anchor without a positive or without a negative keeps none."""
        are_positive, are_negative = reference.masks(labels)
        similarities = embeddings @ reference.embeddings.T  # (B, M)
        lowest_positive = similarities.masked_fill(~are_positive, torch.inf).amin(1, keepdim=True)  # (B, 1)
        highest_negative = similarities.masked_fill(~are_negative, -torch.inf).amax(1, keepdim=True)  # (B, 1)
        return pairs_of_masks(
            are_positive & (similarities - self.epsilon < highest_negative),
            are_negative & (similarities + self.epsilon > lowest_positive),
        )
