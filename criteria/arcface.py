"""ArcFace, additive angular margin (Deng et al., CVPR 2019, arXiv 1801.07698).

In the ICML 2020 pipeline's published rows the margin had no effect and cosines below 0 got no gradient; this is the
paper's form. Gradients are those of this formula, and the probability of the own class has no floor. Versions of the
authors' code (insightface, arcface_torch; also UNICOM's) leave the angle and its margin out of the backward pass, and
their PartialFC keeps that probability above 1e-30 in the loss.
"""

import torch

from criteria import _angular_margin
from criteria._shards import SoftmaxCriterion
from options.flags import Flag
from utilities.numbers import number

REQUIRES_OPTIM = True
# The loss compares samples with class vectors, not with each other.
COMPARES_SAMPLES = False
PER_CLASS = ("angular_margin", "feature_scale")

FLAGS = {
    "lr": Flag(number(0), 0.0005, "learning rate of the class weights"),
    "angular_margin": Flag(number(0, 3.1416), 0.5, "radians by which the angle to the own class is widened"),
    "feature_scale": Flag(number(above=0), 16, "multiplies the cosines"),
}


class Criterion(SoftmaxCriterion):
    """Cross-entropy of feature_scale * cosines, the own class's angle widened by angular_margin."""

    def logits(self, similarities, class_columns, labels, batch) -> torch.Tensor:
        """See `SoftmaxCriterion`."""
        margin, scale = (self.per_anchor(name, labels, 2) for name in PER_CLASS)
        return _angular_margin.logits(similarities, class_columns, margin, scale)
