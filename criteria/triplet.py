"""Triplet loss (Schroff et al., FaceNet, arXiv 1503.03832)."""

import torch

from utilities.criterion import MetricCriterion
from utilities.tensors import pair_distances

REQUIRES_BATCHMINER = True
REQUIRES_OPTIM = False
ALLOWED_MINING_OPS = None  # any miner that yields triplets or pairs


def add_arguments(group) -> None:
    """Declare the flags of the triplet loss."""
    group.add_argument("--loss_triplet_margin", type=float, default=0.2, help="by how much a negative is to be farther than a positive")
    group.add_argument("--loss_triplet_distance", default="squared", choices=["squared", "euclidean"], help="squared as in FaceNet, or plain")
    group.add_argument("--loss_triplet_reduction", default="mean", choices=["mean", "nonzero"], help="mean over all triplets or the active ones")


class Criterion(MetricCriterion):
    """mean over triplets of [d_ap^2 - d_an^2 + margin]+ (or of plain distances, or over the active triplets only)."""

    def __init__(self, opt, batchminer):
        super().__init__(batchminer)
        self.margin = opt.loss_triplet_margin
        self.squared = opt.loss_triplet_distance == "squared"
        self.reduction = opt.loss_triplet_reduction

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`."""
        anchors, positives, negatives = self.triplets(batch, labels)
        positive_distances = pair_distances(batch, anchors, positives, self.squared)  # (T,)
        negative_distances = pair_distances(batch, anchors, negatives, self.squared)  # (T,)
        violations = torch.relu(positive_distances - negative_distances + self.margin)
        active = (violations > 0).sum()
        self.stats = {"active_share": active / max(len(anchors), 1), "tuples": active.new_tensor(len(anchors))}
        count = active.clamp(min=1) if self.reduction == "nonzero" else max(len(anchors), 1)
        return violations.sum() / count + 0.0 * batch.sum()
