"""Ablation: anchor, positive and negative from one class (Roth et al., arXiv 2002.08473)."""

import torch

from batch_mining._miner import Miner
from utilities.reference import Reference
from utilities.tuples import Classes, Triplets, below

YIELDS = "triplets"


class BatchMiner(Miner):
    """B triplets: a class of the batch drawn uniformly, then a, p, n from it with replacement. None of them is a valid triplet.

    With a reference, classes without other images in it are left out: a is an anchor of the class, and p and n are drawn with replacement
    from a's positives in the reference.
    """

    def mine(self, embeddings: torch.Tensor, labels: torch.Tensor, reference: Reference) -> Triplets:
        """B triplets, whatever the batch; none where a reference holds no other image of any class of the batch."""
        classes = Classes(labels, reference)
        if not reference.plain:
            return _with_a_reference(labels, classes)
        begins = classes.starts[classes.order] == classes.places  # (B,), whether a class begins at each place of the order
        numbers = begins.cumsum(0)  # (B,), 1, 1, 2, 2, ...: the class at each place
        chosen = below(numbers[-1].expand(len(labels)))
        members = classes.order[torch.searchsorted(numbers, chosen + 1)]  # the first of each chosen class
        starts, counts = classes.starts[members], classes.counts[members]
        return Triplets(*classes.order[starts + below(counts.expand(3, -1))].unbind(0))


def _with_a_reference(labels: torch.Tensor, classes: Classes) -> Triplets:
    """See `BatchMiner`."""
    able = (classes.n_positives > 0).nonzero().squeeze(1)
    if not len(able):
        return Triplets(able, able, able)
    drawn = Classes(labels[able])
    firsts = drawn.order[(drawn.starts[drawn.order] == drawn.places).nonzero().squeeze(1)]  # one anchor of each class
    members = firsts[below(torch.full_like(labels, len(firsts)))]
    anchors = able[drawn.order[drawn.starts[members] + below(drawn.counts[members])]]
    return Triplets(anchors, classes.draw_positives(anchors), classes.draw_positives(anchors))
