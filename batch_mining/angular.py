"""Triplets whose angle at the negative is too wide (Wang et al., Deep Metric Learning with Angular Loss, arXiv
1708.01682).
"""

import math

import torch

from batch_mining._miner import Miner
from options.flags import Flag
from utilities.numbers import number
from utilities.reference import Reference
from utilities.tensors import normalize, pairwise_distances
from utilities.tuples import Triplets

# entries of the largest matrix of pairs against negatives
CHUNK = 2**22

FLAGS = {
    "angle": Flag(number(0, below=90), 20.0, "degrees above which a triplet is taken"),
}


class BatchMiner(Miner):
    """Triplets with tan(angle) < d_ap / (2 |x_n - (x_a + x_p)/2|), all of unit length."""

    def __init__(self, opt):
        super().__init__(opt)
        self.tangent = math.tan(math.radians(self.angle))

    def mine(self, embeddings: torch.Tensor, labels: torch.Tensor, reference: Reference) -> Triplets:
        """Each triplet with a wider angle once.

        Waits for the device to learn the numbers of positive pairs and of triplets: rows for pairs that do not exist
        would take O(B^3) memory.
        """
        embeddings, reference = reference.mapped(normalize, embeddings)
        are_positive, are_negative = reference.masks(labels)
        # (P, 2); within a batch of one label per image (a, p) and (p, a) have the same negatives
        is_symmetric = reference.plain and reference.relevance is None
        if is_symmetric:
            are_positive = are_positive.triu()
        pairs = are_positive.nonzero()
        triplets = []
        # in chunks: all pairs against all negatives would take O(B^3) memory where classes are large
        for chunk in pairs.split(max(1, CHUNK // len(reference))):
            anchors, positives = chunk.unbind(1)
            differences = embeddings[anchors] - reference.embeddings[positives]
            centres = (embeddings[anchors] + reference.embeddings[positives]) / 2
            from_centre = pairwise_distances(centres, reference.embeddings)  # (P, M)
            wide = differences.norm(dim=1, keepdim=True) > 2 * self.tangent * from_centre
            pair, negatives = (wide & are_negative[anchors]).nonzero().unbind(1)
            triplets.append((anchors[pair], positives[pair], negatives))
            if is_symmetric:
                triplets.append((positives[pair], anchors[pair], negatives))
        empty = labels.new_empty(0, dtype=torch.long)
        if not triplets:
            return Triplets(empty, empty, empty)
        return Triplets(*(torch.cat([empty, *parts]) for parts in zip(*triplets, strict=True)))
