"""Every valid triplet of the batch; their number, and so the memory, grows with the cube of the batch."""

import torch

from batch_mining._miner import Miner
from utilities.reference import Reference
from utilities.tuples import Triplets, partners, spread


class BatchMiner(Miner):
    """Every (a, p, n), a and p two samples of one class, n of another one."""

    def mine(self, embeddings: torch.Tensor, labels: torch.Tensor, reference: Reference) -> Triplets:
        """Each valid triplet once, sorted by anchor."""
        classes = partners(labels, reference)
        anchors, numbers = spread(classes.n_positives * classes.n_negatives)
        of_anchor = classes.n_negatives[anchors]
        return Triplets(
            anchors, classes.positives(anchors, numbers // of_anchor), classes.negatives(anchors, numbers % of_anchor)
        )
