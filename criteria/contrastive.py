"""Contrastive loss (Hadsell et al., Dimensionality Reduction by Learning an Invariant Mapping, CVPR 2006)."""

import torch

from criteria._pairs import PairCriterion
from criteria._reductions import Reduction
from criteria._tuples import active_share, tuple_distances
from options.flags import Flag
from utilities.numbers import number
from utilities.reference import Reference

REQUIRES_BATCHMINER = True
PER_CLASS = ("pos_margin", "neg_margin")
REDUCES = True

FLAGS = {
    "pos_margin": Flag(number(), 0.0, "positives nearer than this cost nothing"),
    "neg_margin": Flag(number(), 1.0, "negatives farther than this cost nothing"),
    "reduction": Flag(
        str,
        "mean",
        "over all pairs or active ones",
        choices=["mean", "nonzero"],
    ),
}


class Criterion(PairCriterion):
    """mean [d_ap - pos_margin]+ over positive pairs + mean [neg_margin - d_an]+ over negative pairs;
    distances are not squared.
    """

    SPACE = "euclidean"
    STATISTIC = None

    def __init__(self, opt, batchminer):
        super().__init__(opt, batchminer)
        self.reduction = Reduction(opt, self.reduction)

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, reference: Reference, **kwargs) -> torch.Tensor:
        """See the base. A miner's pairs count as often as it lists them;
        only all pairs with a large reference are not listed.
        """
        if getattr(self.batchminer, "EVERY_PAIR", False) and not reference.plain:
            return self.finish(self.compare(batch, labels, reference), batch)
        pairs = self.pairs(batch, labels, reference)
        positive_distances, negative_distances = tuple_distances(batch, reference, pairs)
        far_positives = self.far(positive_distances, labels[pairs.anchors_p])  # (P,)
        near_negatives = self.near(negative_distances, labels[pairs.anchors_n])  # (N,)
        self.stats = {
            "active_positives": active_share(far_positives.detach()),
            "active_negatives": active_share(near_negatives.detach()),
        }
        positive_part = self.reduction(far_positives, pairs.anchors_p, labels)
        return positive_part + self.reduction(near_negatives, pairs.anchors_n, labels)

    def far(self, distances: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """What positives cost whose anchors have `labels`."""
        return torch.relu(distances - self.per_anchor("pos_margin", labels, distances.ndim))

    def near(self, distances: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """What negatives cost whose anchors have `labels`."""
        return torch.relu(self.per_anchor("neg_margin", labels, distances.ndim) - distances)

    def formula(self, values, positives, negatives, labels) -> dict:
        """What the reduction needs of all pairs."""
        of_pairs = self.reduction.of_pairs
        return {
            **of_pairs("positives", self.far(values, labels), positives),
            **of_pairs("negatives", self.near(values, labels), negatives),
        }

    def join(self, results) -> torch.Tensor:
        """See the class."""
        kinds = ("positives", "negatives")
        self.stats |= {
            f"active_{kind}": results[f"active_{kind}"] / results[f"n_{kind}"].sum().clamp(min=1) for kind in kinds
        }
        return sum(self.reduction.join(kind, results) for kind in kinds)
