"""Negatives by the inverse density of distances on the unit sphere, which three miners share (Wu et al., arXiv
1706.07567).
"""

import torch

from batch_mining._miner import Miner, draw_columns, hard_share
from utilities.reference import Reference
from utilities.tensors import normalize, squared_distances
from utilities.tuples import Partners, Triplets, partners

FARTHEST = 2 - 1e-4  # of two points on the unit sphere; the density is 0 at 2
NEAREST = 1e-6  # keeps the logarithm finite where --..._lower_cutoff is 0


class DistanceMiner(Miner):
    """One triplet an anchor: a random positive, a negative with probability proportional
    to the inverse density of its distance.

    Attributes, flags of a subclass:
        lower_cutoff: nearer negatives are treated as being at this distance.
        upper_cutoff: farther negatives are left out, unless the anchor has no others; None: no limit.
    """

    def weights(self, squared: torch.Tensor, are_negative: torch.Tensor, dimensions: int) -> torch.Tensor:
        """Weights `(B, M)`, the largest of a row 1, from squared distances on the unit sphere;
        0 outside `are_negative`.
        """
        clamped = squared.clamp(min=max(self.lower_cutoff, NEAREST) ** 2, max=FARTHEST**2)
        # log w = (2 - D) log d - (D - 3)/2 log(1 - d^2/4)
        log_weights = clamped.log().mul_((2 - dimensions) / 2)
        log_weights.add_(clamped.mul_(-0.25).log1p_(), alpha=-(dimensions - 3) / 2)
        if self.upper_cutoff is not None:
            near = are_negative & (squared <= self.upper_cutoff**2)
            are_negative = torch.where(near.any(1, keepdim=True), near, are_negative)
        log_weights.masked_fill_(~are_negative, -torch.inf)
        # finite in a row without a negative
        highest = log_weights.amax(1, keepdim=True).clamp(min=torch.finfo(squared.dtype).min)
        return log_weights.sub_(highest).exp_()

    def partners(
        self, embeddings: torch.Tensor, labels: torch.Tensor, reference: Reference
    ) -> tuple[Partners, torch.Tensor, torch.Tensor, torch.Tensor]:
        """The `Partners`, a drawn positive and negative of every sample, each `(B,)`, squared distances `(B, M)`."""
        classes = partners(labels, reference)
        unit, units = reference.mapped(normalize, embeddings)
        squared = squared_distances(unit, units.embeddings)
        weights = self.weights(squared, reference.negatives(labels), embeddings.shape[1])
        return classes, classes.draw_positives(), draw_columns(weights, classes.draw_negatives()), squared

    def mine(self, embeddings: torch.Tensor, labels: torch.Tensor, reference: Reference) -> Triplets:
        """Exactly one triplet for every anchor that has a positive and a negative."""
        classes, positives, negatives, squared = self.partners(embeddings, labels, reference)
        anchors = classes.anchors()
        mined = Triplets(anchors, positives[anchors], negatives[anchors])
        self.stats["hard_share"] = hard_share(squared[anchors, mined.positives], squared[anchors, mined.negatives])
        return mined
