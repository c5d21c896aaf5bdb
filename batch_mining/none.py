"""No mining: every positive and every negative pair of the batch."""

import torch

from batch_mining._miner import Miner
from utilities.reference import Reference
from utilities.tuples import Pairs, pairs_of_masks

YIELDS = "pairs"


class BatchMiner(Miner):
    """All pairs, including those of samples that have no positive or no negative.

    `EVERY_PAIR`: a criterion may form all pairs itself, without this miner's list.
    """

    EVERY_PAIR = True

    def mine(self, embeddings: torch.Tensor, labels: torch.Tensor, reference: Reference) -> Pairs:
        """Every pair of an anchor and another sample, once."""
        return pairs_of_masks(*reference.masks(labels))
