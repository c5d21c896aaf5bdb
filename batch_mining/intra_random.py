"""Ablation: anchor, positive and negative from one class (Roth et al., arXiv 2002.08473)."""

import torch

from batch_mining._miner import Miner
from utilities.reference import Reference
from utilities.tuples import Classes, Triplets, below


class BatchMiner(Miner):
    """B triplets: a class of the batch drawn uniformly, then a, p, n from it with replacement.
    None of them is a valid triplet.

    With a reference p and n are drawn from the class's images there, and classes that have none are left out.
    """

    several_labels = False

    def mine(self, embeddings: torch.Tensor, labels: torch.Tensor, reference: Reference) -> Triplets:
        """B triplets, whatever the batch; none where a reference holds no image of any class of the batch."""
        classes = Classes(labels)
        partners = classes if reference.plain else Classes(labels, reference)
        begins = classes.starts[classes.order] == classes.places  # (B,), does a class begin at this place of the order?
        begins &= partners.counts[classes.order] > 0
        numbers = begins.cumsum(0)  # (B,), 1, 1, 2, 2, ...: the class at each place
        if not reference.plain and not numbers[-1]:
            return Triplets(*labels.new_empty(3, 0).unbind(0))
        chosen_numbers = below(numbers[-1].expand(len(labels))) + 1
        # the first of each chosen class
        members = classes.order[torch.searchsorted(numbers, chosen_numbers)]
        sizes = torch.stack([classes.counts, partners.counts, partners.counts])[:, members]
        anchor_places, positive_places, negative_places = below(sizes).unbind(0)
        anchors = classes.order[classes.starts[members] + anchor_places]
        positives = partners.order[partners.starts[members] + positive_places]
        negatives = partners.order[partners.starts[members] + negative_places]
        return Triplets(anchors, positives, negatives)
