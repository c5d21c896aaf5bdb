"""The batch's own triplets: rows 3t, 3t + 1 and 3t + 2, as the samplers fixed_triplets and hard_triplets lay them."""

import torch

from batch_mining._miner import Miner
from utilities.errors import UserError
from utilities.reference import Reference
from utilities.tuples import Triplets

# needs a sampler whose batches are consecutive triplets
NEEDS_TRIPLETS = True


class BatchMiner(Miner):
    """Triplet t is (3t, 3t + 1, 3t + 2).

    With a reference, positive and negative are the reference's rows of those two images; a triplet that it does not
    hold is left out. Raises UserError for a batch that is not made of triplets. On a GPU only the first batch's labels
    are checked, as that waits for the device.
    """

    several_labels = False

    def __init__(self, opt=None):
        super().__init__(opt)
        self.looked = False

    def mine(self, embeddings: torch.Tensor, labels: torch.Tensor, reference: Reference) -> Triplets:
        """Each triplet of the batch once, in its order."""
        size = len(labels)
        anchors, positives, negatives = torch.arange(size - size % 3, device=labels.device).view(-1, 3).unbind(1)
        looks = labels.device.type == "cpu" or not self.looked
        self.looked = True
        if (
            size % 3
            or looks
            and not bool(((labels[anchors] == labels[positives]) & (labels[anchors] != labels[negatives])).all())
        ):
            raise UserError(
                f"--batch_mining packaged: a batch of {size} images is not made of triplets, two of one class and one "
                "of another: use --data_sampler fixed_triplets or hard_triplets"
            )
        if reference.plain:
            return Triplets(anchors, positives, negatives)
        return _in_reference(labels, reference, anchors, positives, negatives)


def _in_reference(labels, reference: Reference, anchors, positives, negatives) -> Triplets:
    """The triplets whose positive and negative are in the reference, are not the anchor's own image,
    and fit by the reference's labels.
    """
    own_rows = reference.own[anchors]
    positives = reference.own[positives]
    negatives = reference.own[negatives]
    are_held = (positives >= 0) & (negatives >= 0) & (positives != own_rows) & (negatives != own_rows)
    are_held &= (reference.labels[positives.clamp(min=0)] == labels[anchors]) & (
        reference.labels[negatives.clamp(min=0)] != labels[anchors]
    )
    are_held = are_held.nonzero().squeeze(1)
    return Triplets(anchors[are_held], positives[are_held], negatives[are_held])
