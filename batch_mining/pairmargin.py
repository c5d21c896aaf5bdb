"""Pairs that violate a margin: far positives and near negatives (Hadsell et al., CVPR 2006)."""

import torch

from batch_mining._miner import Miner
from utilities.numbers import number
from utilities.reference import Reference
from utilities.tensors import pairwise_distances
from utilities.tuples import Pairs, pairs_of_masks

YIELDS = "pairs"


def add_arguments(group) -> None:
    """Declare the flags of the pairmargin miner."""
    group.add_argument(
        "--miner_pairmargin_pos_margin", type=number(), default=0.2, help="positives farther than this are taken"
    )
    group.add_argument(
        "--miner_pairmargin_neg_margin", type=number(), default=0.8, help="negatives nearer than this are taken"
    )


class BatchMiner(Miner):
    """Positive pairs with d > pos_margin, negative pairs with d < neg_margin."""

    def __init__(self, opt):
        super().__init__()
        self.pos_margin = opt.miner_pairmargin_pos_margin
        self.neg_margin = opt.miner_pairmargin_neg_margin

    def mine(self, embeddings: torch.Tensor, labels: torch.Tensor, reference: Reference) -> Pairs:
        """The pairs `(i, j)` that violate a margin, also of anchors that lack a positive or a negative."""
        are_positive, are_negative = reference.masks(labels)
        distances = pairwise_distances(embeddings, reference.embeddings)  # (B, M)
        return pairs_of_masks(
            are_positive & (distances > self.pos_margin), are_negative & (distances < self.neg_margin)
        )
