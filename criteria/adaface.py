"""AdaFace: margins that follow the length of an embedding (Kim et al., CVPR 2022, arXiv 2204.00964).

The length stands for the quality of an image: a hard image of high quality is emphasised, one of low quality is not.
"""

import math

import torch

from criteria._lengths import LengthCriterion, lengths
from options.flags import Flag
from utilities.numbers import number

REQUIRES_OPTIM = True
# The loss compares samples with class vectors, not with each other.
COMPARES_SAMPLES = False
READS_LENGTHS = True
# the momentum of statistics that have no gradient
FIXED = ("momentum",)
PER_CLASS = ("margin", "scale")
SHORTEST = 1e-3
LONGEST = 100.0
EPSILON = 1e-3  # of cosines and angles at their ends, and of the deviation of the lengths
START = (20.0, 100.0)  # mean and deviation of the lengths before the first batch

FLAGS = {
    "lr": Flag(number(0), 0.0005, "learning rate of the class weights"),
    "margin": Flag(number(0, math.pi), 0.4, "size of the margins: radians of the angle, and of the cosine"),
    "concentration": Flag(number(above=0), 0.333, "share of the lengths' deviation that spreads the margins (h)"),
    "momentum": Flag(number(0, 1), 1.0, "weight of a batch in the moving mean and deviation of the lengths"),
    "scale": Flag(number(above=0), 64, "multiplies the cosines"),
}


class Criterion(LengthCriterion):
    """Cross-entropy of scale * cosines; at the own class cos(t - margin z) - margin (1 + z).

    z = h (length - mean) / deviation, in [-1, 1], has no gradient. Mean and deviation of the lengths are moving ones;
    a batch of one image changes the mean alone.
    """

    def __init__(self, opt):
        super().__init__(opt)
        self.register_buffer("mean_length", torch.tensor(START[0]))
        self.register_buffer("deviation", torch.tensor(START[1]))

    @torch.no_grad()
    def follow(self, batch, vectors, class_columns) -> None:
        """Move the mean and the deviation of the lengths towards those of a batch; see `ShardedCriterion`."""
        if not self.training:
            return
        batch_lengths = _clipped_lengths(batch)
        self.mean_length.lerp_(batch_lengths.mean().to(self.mean_length), self.momentum)
        if len(batch_lengths) > 1:
            self.deviation.lerp_(batch_lengths.std().to(self.deviation), self.momentum)

    def logits(self, similarities, class_columns, labels, batch) -> torch.Tensor:
        """See `SoftmaxCriterion`."""
        margin = self.per_anchor("margin", labels, 2)
        distance = _clipped_lengths(batch) - self.mean_length.to(batch)
        quality = (self.concentration * distance / (self.deviation.to(batch) + EPSILON)).clamp(-1, 1)  # (B, 1)
        similarities = similarities.clamp(EPSILON - 1, 1 - EPSILON)
        angles = similarities.gather(1, class_columns[:, None]).acos()  # (B, 1)
        angles = (angles - margin * quality).clamp(EPSILON, math.pi - EPSILON)
        own_logits = angles.cos() - margin * (1 + quality)
        return self.per_anchor("scale", labels, 2) * similarities.scatter(1, class_columns[:, None], own_logits)


def _clipped_lengths(batch: torch.Tensor) -> torch.Tensor:
    """`(B, 1)`, without gradient."""
    return lengths(batch.detach()).clamp(SHORTEST, LONGEST)
