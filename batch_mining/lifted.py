"""Sets for the lifted-structure loss (Hermans et al., arXiv 1703.07737):
all positives and all negatives of an anchor.
"""

import torch

from batch_mining._miner import Miner
from utilities.reference import Reference
from utilities.tuples import Sets, partners

YIELDS = "sets"


class BatchMiner(Miner):
    """`Sets` with masks of positives and negatives, each boolean `(A, M)`."""

    def mine(self, embeddings: torch.Tensor, labels: torch.Tensor, reference: Reference) -> Sets:
        """Anchors that have a positive and a negative, each once."""
        anchors = partners(labels, reference).anchors()
        positives, negatives = reference.masks(labels)  # (B, M)
        return Sets(anchors, positives[anchors], negatives[anchors])
