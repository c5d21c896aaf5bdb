"""Ablation: distance-weighted negatives under permuted labels (Roth et al., arXiv 2002.08473).

Reads the flags of the distance miner. Its triplets are valid under the permuted labels, not under the batch's.
"""

import dataclasses

import torch

from batch_mining._distance import DistanceMiner
from utilities.reference import Reference
from utilities.tuples import Triplets


class BatchMiner(DistanceMiner):
    """The distance miner on randomly permuted labels."""

    several_labels = False

    def __init__(self, opt):
        super().__init__(opt)
        self.lower_cutoff = opt.miner_distance_lower_cutoff
        self.upper_cutoff = opt.miner_distance_upper_cutoff

    def mine(self, embeddings: torch.Tensor, labels: torch.Tensor, reference: Reference) -> Triplets:
        """Exactly one triplet for every anchor that has a positive and a negative under the permuted labels."""
        # one order for both: restricted to the shorter of them it is a random permutation too
        order = torch.randperm(max(len(labels), len(reference)), device=labels.device)
        permuted, reference_labels = (
            part.index_select(
                0, order.index_select(0, torch.nonzero_static(order < len(part), size=len(part)).squeeze(1))
            )
            for part in (labels, reference.labels)
        )
        # an image has the same label in batch and reference
        if not reference.plain and len(reference):
            permuted = torch.where(reference.own >= 0, reference_labels[reference.own.clamp(min=0)], permuted)
        return super().mine(embeddings, permuted, dataclasses.replace(reference, labels=reference_labels))
