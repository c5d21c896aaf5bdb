"""Triplets by a smooth hinge: log(1 + exp(scale (d_ap - d_an)))."""

import torch

from utilities.criterion import MetricCriterion
from utilities.numbers import number
from utilities.tensors import pair_distances

REQUIRES_BATCHMINER = True
REQUIRES_OPTIM = False  # it has no parameters
ALLOWED_MINING_OPS = None


def add_arguments(group) -> None:
    """Declare the flags."""
    group.add_argument("--loss_mine_scale", type=number(above=0), default=10, help="steepness of the hinge")


class Criterion(MetricCriterion):
    """mean over triplets of log(1 + exp(scale (d_ap - d_an))) / scale, Euclidean distances."""

    def __init__(self, opt, batchminer):
        super().__init__(batchminer)
        self.scale = opt.loss_mine_scale

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`."""
        # (T,) each: indices into the batch, whatever the miner
        anchors, positives, negatives = self.triplets(batch, labels)
        violations = pair_distances(batch, anchors, positives) - pair_distances(batch, anchors, negatives)  # (T,)
        self.stats = {"violated": (violations.detach() > 0).sum() / max(len(violations), 1)}
        terms = torch.nn.functional.softplus(self.scale * violations) / self.scale
        return terms.sum() / max(len(terms), 1)  # no mean(): of no triplets it is NaN
