"""No mining: every positive and every negative pair of the batch."""

import torch

from batch_mining._miner import Miner
from utilities.tuples import Pairs, pairs_of_masks, same_class

YIELDS = "pairs"


class BatchMiner(Miner):
    """All pairs, those of samples that have no positive or no negative included."""

    def mine(self, embeddings: torch.Tensor, labels: torch.Tensor) -> Pairs:
        """Every ordered pair of two different samples, once."""
        same = same_class(labels)
        return pairs_of_masks(same.clone().fill_diagonal_(False), ~same)
