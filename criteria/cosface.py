"""CosFace, additive cosine margin (Wang et al., CVPR 2018, arXiv 1801.09414)."""

import torch

from criteria._shards import SoftmaxCriterion
from options.flags import Flag
from utilities.numbers import number

REQUIRES_OPTIM = True
# The loss compares samples with class vectors, not with each other.
COMPARES_SAMPLES = False
PER_CLASS = ("margin", "scale")

FLAGS = {
    "lr": Flag(number(0), 0.0005, "learning rate of the class weights"),
    "margin": Flag(number(), 0.35, "subtracted from the cosine to the own class"),
    "scale": Flag(number(above=0), 64, "multiplies the cosines"),
}


class Criterion(SoftmaxCriterion):
    """Cross-entropy of scale * (cosines, less margin at the own class)."""

    def logits(self, similarities, class_columns, labels, batch) -> torch.Tensor:
        """See `SoftmaxCriterion`."""
        margins = similarities.new_zeros(len(labels), 1) - self.per_anchor("margin", labels, 2)
        return self.per_anchor("scale", labels, 2) * similarities.scatter_add(1, class_columns[:, None], margins)
