"""Sets for the N-pair and angular losses (Sohn, NIPS 2016): one random positive, all samples of other classes."""

import torch

from batch_mining._miner import Miner
from utilities.reference import Reference
from utilities.tuples import Sets, partners

YIELDS = "sets"


class BatchMiner(Miner):
    """`Sets` with one positive an anchor, `(A,)` long, and the mask of its negatives, boolean `(A, M)`."""

    def mine(self, embeddings: torch.Tensor, labels: torch.Tensor, reference: Reference) -> Sets:
        """Anchors that have a positive and a negative, each once."""
        classes = partners(labels, reference)
        anchors = classes.anchors()
        return Sets(anchors, classes.draw_positives(anchors), reference.negatives(labels)[anchors])
