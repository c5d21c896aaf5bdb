"""Circle loss with class vectors (Sun et al., Circle Loss, CVPR 2020, arXiv 2002.10857),
as FastReID's CircleSoftmax has it.
"""

import torch

from criteria._shards import SoftmaxCriterion
from options.flags import Flag
from utilities.numbers import number

REQUIRES_OPTIM = True
# The loss compares samples with class vectors, not with each other.
COMPARES_SAMPLES = False
PER_CLASS = ("margin", "scale")
# deviation of the class vectors before training, as in FastReID
START_DEVIATION = 0.01

FLAGS = {
    "lr": Flag(number(0), 3.5e-4, "learning rate of the class weights"),
    "margin": Flag(number(), 0.35, "relaxation m: the optimum is 1 + m, the limit 1 - m"),
    "scale": Flag(number(above=0), 64, "multiplies the weighted cosines"),
}


class Criterion(SoftmaxCriterion):
    """Cross-entropy of scale * a (cos - d): a = [1 + m - cos]+, d = 1 - m at the own class; a = [cos + m]+, d = m at
    the others; a has no gradient.
    """

    def __init__(self, opt):
        super().__init__(opt, start=lambda proxies: proxies.normal_(std=START_DEVIATION))

    def logits(self, similarities, class_columns, labels, batch) -> torch.Tensor:
        """See `SoftmaxCriterion`."""
        return self.per_anchor("scale", labels, 2) * weighted(
            similarities, class_columns, self.per_anchor("margin", labels, 2)
        )


def weighted(cosines: torch.Tensor, labels: torch.Tensor, margin: torch.Tensor | float) -> torch.Tensor:
    """The logits `(B, C)` of `cosines` `(B, C)`, without the scale; `margin`: a number, or `(B, 1)`."""
    own_cosines = cosines.gather(1, labels[:, None])
    own_logits = torch.relu(1 + margin - own_cosines.detach()) * (own_cosines - (1 - margin))
    other_logits = torch.relu(cosines.detach() + margin) * (cosines - margin)
    return other_logits.scatter(1, labels[:, None], own_logits)
