"""Ablation: anchor, positive and negative from one class (Roth et al., arXiv 2002.08473)."""

import torch

from batch_mining._miner import Miner
from utilities.tuples import Classes, Triplets, below

YIELDS = "triplets"


class BatchMiner(Miner):
    """B triplets: a class of the batch drawn uniformly, then a, p, n from it with replacement. None of them is a valid triplet."""

    def mine(self, embeddings: torch.Tensor, labels: torch.Tensor) -> Triplets:
        """B triplets, whatever the batch."""
        classes = Classes(labels)
        begins = classes.starts[classes.order] == classes.places  # (B,), at each place of the order: does a class begin?
        numbers = begins.cumsum(0)  # (B,), 1, 1, 2, 2, ...: the class at each place
        chosen = below(numbers[-1].expand(len(labels)))
        members = classes.order[torch.searchsorted(numbers, chosen + 1)]  # the first of each chosen class
        starts, counts = classes.starts[members], classes.counts[members]
        return Triplets(*classes.order[starts + below(counts.expand(3, -1))].unbind(0))
