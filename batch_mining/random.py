"""Triplets drawn uniformly from all valid ones (the baseline in Schroff et al., FaceNet, arXiv 1503.03832)."""

import torch

from batch_mining._miner import Miner
from options.flags import Flag
from utilities.numbers import whole
from utilities.reference import Reference
from utilities.tuples import Triplets, partners

FLAGS = {
    "per_anchor": Flag(
        whole(1, 1000), None, "triplets for each anchor (unset: as many as the batch has samples, from all valid ones)"
    ),
}


class BatchMiner(Miner):
    """B triplets drawn from all valid ones with replacement, or N for each anchor."""

    def mine(self, embeddings: torch.Tensor, labels: torch.Tensor, reference: Reference) -> Triplets:
        """Does not list all triplets: draws an anchor in proportion to its number of triplets,
        then its positive and its negative.
        """
        classes = partners(labels, reference)
        if self.per_anchor is None:
            ends = (classes.n_positives * classes.n_negatives).cumsum(0)  # (B,)
            # the one wait for the device
            total = int(ends[-1])
            n_triplets = len(labels) if total else 0
            draws = torch.randint(max(total, 1), (n_triplets,), device=labels.device)
            anchors = torch.searchsorted(ends, draws, right=True)
        else:
            anchors = classes.anchors().repeat_interleave(self.per_anchor)
        return Triplets(anchors, classes.draw_positives(anchors), classes.draw_negatives(anchors))
