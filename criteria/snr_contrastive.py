"""Contrastive loss on signal-to-noise distances (Yuan et al., Signal-to-Noise Ratio, CVPR 2019, arXiv 1904.02616)."""

import torch

from criteria._pairs import PairCriterion
from criteria._reductions import Reduction
from options.flags import Flag
from utilities.numbers import number
from utilities.reference import Reference
from utilities.tensors import FLOOR, squared_distances

MINES_PAIRS = True
REDUCES = True

FLAGS = {
    "pos_margin": Flag(number(), 0, "distance up to which a positive pair costs nothing"),
    "neg_margin": Flag(number(), 1, "distance from which a negative pair costs nothing"),
    "regularizer_weight": Flag(number(0), 0, "weight of the mean absolute sum of an embedding's entries"),
}


class Criterion(PairCriterion):
    """D(a, b) = var(x_a - x_b) / var(x_a):
    mean of the active [D_ap - pos_margin]+ and of the active [neg_margin - D_an]+.

    The denominator and the regularised sums are the anchors'; b may come from another reference.
    """

    SPACE = "squared"
    STATISTIC = "snr_distance"

    def __init__(self, opt, batchminer=None):
        super().__init__(opt, batchminer)
        self.reduction = Reduction(opt, "nonzero")

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, reference: Reference, **kwargs) -> torch.Tensor:
        """See the base."""
        return super().forward(batch, labels, reference) + self.regularizer_weight * batch.sum(1).abs().mean()

    def prepare(self, batch: torch.Tensor, reference: Reference) -> tuple[torch.Tensor, Reference]:
        """Embeddings less the means of their entries."""
        return reference.mapped(lambda points: points - points.mean(1, keepdim=True), batch)

    def measure(self, points: torch.Tensor, reference_points: torch.Tensor, norms: torch.Tensor | None) -> torch.Tensor:
        """D `(b, M)`. The variance of a difference times D - 1 is a squared distance of centred embeddings."""
        distances = squared_distances(points, reference_points, norms)
        freedom = max(points.shape[1] - 1, 1)
        signals = freedom * (points.square().sum(1, keepdim=True) / freedom).clamp(min=FLOOR)  # (b, 1)
        return distances / signals

    def formula(self, values, positives, negatives, labels) -> dict:
        """What the reduction needs of the violations."""
        far_positives = torch.relu(values - self.pos_margin)
        near_negatives = torch.relu(self.neg_margin - values)
        of_pairs = self.reduction.of_pairs
        return {**of_pairs("positives", far_positives, positives), **of_pairs("negatives", near_negatives, negatives)}

    def join(self, results) -> torch.Tensor:
        """See the class."""
        for kind in ("positive", "negative"):
            self.stats[f"active_{kind}_share"] = results[f"active_{kind}s"] / results[f"n_{kind}s"].sum().clamp(min=1)
        return self.reduction.join("positives", results) + self.reduction.join("negatives", results)
