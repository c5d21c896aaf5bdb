"""MagFace: the longer an embedding, the larger its margin, and long embeddings are favoured (Meng et al., CVPR 2021,
arXiv 2103.06627). After training the length of an embedding is a measure of the image's quality.
"""

import math

import torch

from criteria._angular_margin import LIMIT
from criteria._lengths import LengthCriterion, lengths
from options.flags import Flag
from utilities.errors import UserError
from utilities.numbers import number

REQUIRES_OPTIM = True
# The loss compares samples with class vectors, not with each other.
COMPARES_SAMPLES = False
READS_LENGTHS = True
# lengths are cut to them
FIXED = ("shortest", "longest")
PER_CLASS = ("scale",)

FLAGS = {
    "lr": Flag(number(0), 0.0005, "learning rate of the class weights"),
    "shortest": Flag(number(above=0), 10, "length of an embedding up to which the margin is the lower one"),
    "longest": Flag(number(above=0), 110, "length from which the margin is the upper one"),
    "lower_margin": Flag(number(0, math.pi), 0.45, "radians, at the shortest length"),
    "upper_margin": Flag(number(0, math.pi), 0.8, "radians, at the longest length"),
    "weight": Flag(number(0), 35, "weight of the term that favours long embeddings"),
    "scale": Flag(number(above=0), 64, "multiplies the cosines"),
}


class Criterion(LengthCriterion):
    """Cross-entropy of scale * cosines, the angle to the own class widened by a margin that is linear in the length a,
    cut to [shortest, longest]; + weight * mean(a / longest^2 + 1 / a). A cosine of 0 or less gets no margin.
    """

    def __init__(self, opt):
        super().__init__(opt)
        if not self.shortest < self.longest:
            raise UserError(
                f"--loss_magface_longest {self.longest}: expected above --loss_magface_shortest {self.shortest}"
            )

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`."""
        clipped = lengths(batch).clamp(self.shortest, self.longest)
        favour = (clipped / self.longest**2 + 1 / clipped).mean()
        return super().forward(batch, labels, **kwargs) + self.weight * favour

    def logits(self, similarities, class_columns, labels, batch) -> torch.Tensor:
        """See `SoftmaxCriterion`."""
        share = (lengths(batch).clamp(self.shortest, self.longest) - self.shortest) / (self.longest - self.shortest)
        margins = self.lower_margin + share * (self.upper_margin - self.lower_margin)  # (B, 1)
        similarities = similarities.clamp(-LIMIT, LIMIT)
        own_cosines = similarities.gather(1, class_columns[:, None])
        widened = (own_cosines.acos() + margins).cos()
        own_logits = torch.where(own_cosines > 0, widened, own_cosines)
        return self.per_anchor("scale", labels, 2) * similarities.scatter(1, class_columns[:, None], own_logits)
