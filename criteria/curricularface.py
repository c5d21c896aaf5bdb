"""CurricularFace: hard classes weigh little at first and more as training goes on (Huang et al., CVPR 2020,
arXiv 2004.00288).
"""

import math

import torch

from criteria import _angular_margin
from criteria._shards import SoftmaxCriterion
from options.flags import Flag
from utilities.numbers import number
from utilities.tensors import normalize

REQUIRES_OPTIM = True
COMPARES_SAMPLES = False  # with class vectors alone
FIXED = ("momentum",)  # of statistics without a gradient
PER_CLASS = ("scale",)
# deviation of the class vectors before training, as in the authors' code
START_DEVIATION = 0.01

FLAGS = {
    "lr": Flag(number(0), 0.0005, "learning rate of the class weights"),
    "margin": Flag(number(0, math.pi), 0.5, "radians by which the angle to the own class is widened"),
    "momentum": Flag(number(0, 1), 0.01, "weight of a batch in the moving mean of the cosines to the own class"),
    "scale": Flag(number(above=0), 64, "multiplies the cosines"),
}


class Criterion(SoftmaxCriterion):
    """Cross-entropy of scale * cosines: cos(t + margin) at the own class, cos (u + cos) at the classes above that.

    u is the moving mean of the cosines to the own class, from 0 on, that of the batch included.
    """

    def __init__(self, opt):
        super().__init__(opt, start=lambda vectors: vectors.normal_(std=START_DEVIATION))
        self.register_buffer("progress", torch.zeros(()))
        self.hard_from = None  # (B, 1), cosines from which other classes are hard, of the step

    @torch.no_grad()
    def follow(self, batch, vectors, class_columns) -> None:
        """Move the mean of the cosines to the own class, and keep these cosines, widened; see `ShardedCriterion`."""
        n = len(vectors)
        own_vectors = vectors.to(batch).index_select(0, class_columns.clamp(max=n - 1))
        cosines = (normalize(batch) * normalize(own_vectors)).sum(1)
        cosines = self.shard.total(torch.where(class_columns < n, cosines, 0.0))  # (B,), 0 where others hold the class
        limit = _angular_margin.LIMIT
        self.hard_from = (cosines.clamp(-limit, limit).acos() + self.margin).cos()[:, None]
        if self.training:
            self.progress.lerp_(cosines.mean().to(self.progress), self.momentum)

    def logits(self, similarities, class_columns, labels, batch) -> torch.Tensor:
        """See `SoftmaxCriterion`."""
        similarities = similarities.clamp(-_angular_margin.LIMIT, _angular_margin.LIMIT)
        own_cosines = similarities.gather(1, class_columns[:, None])  # (B, 1)
        own_logits = _angular_margin.widened(own_cosines, self.margin)
        emphasised = similarities * (self.progress.to(similarities) + similarities)
        cosines = torch.where(similarities > self.hard_from, emphasised, similarities)
        return self.per_anchor("scale", labels, 2) * cosines.scatter(1, class_columns[:, None], own_logits)
