"""Triplet loss (Schroff et al., FaceNet, arXiv 1503.03832)."""

import torch

from criteria._tuples import active_share, mean_term, tuple_distances
from utilities.criterion import MetricCriterion
from utilities.numbers import number
from utilities.reference import Reference

REQUIRES_BATCHMINER = True
REQUIRES_OPTIM = False
ALLOWED_MINING_OPS = None  # any miner that yields triplets or pairs


def add_arguments(group) -> None:
    """Declare the flags of the triplet loss."""
    group.add_argument("--loss_triplet_margin", type=number(), default=0.2, help="how much farther a negative is to be than a positive")
    group.add_argument("--loss_triplet_distance", default="squared", choices=["squared", "euclidean"], help="squared (FaceNet) or plain")
    group.add_argument("--loss_triplet_reduction", default="mean", choices=["mean", "nonzero"], help="over all triplets or the active ones")


class Criterion(MetricCriterion):
    """mean over triplets of [d_ap^2 - d_an^2 + margin]+ (or of plain distances, or over the active triplets only)."""

    def __init__(self, opt, batchminer):
        super().__init__(batchminer)
        self.margin = opt.loss_triplet_margin
        self.squared = opt.loss_triplet_distance == "squared"
        self.reduction = opt.loss_triplet_reduction

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, reference: Reference, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`, compared with those of `reference`."""
        positive_distances, negative_distances = tuple_distances(
            batch, reference, self.triplets(batch, labels, reference), self.squared
        )  # (T,) each
        violations = torch.relu(positive_distances - negative_distances + self.margin)
        self.stats = {"active_share": active_share(violations.detach())}
        return mean_term(violations, self.reduction)
