"""CosFace, additive cosine margin (Wang et al., CVPR 2018, arXiv 1801.09414)."""

import torch

from criteria._shards import SoftmaxCriterion
from utilities.numbers import number

REQUIRES_BATCHMINER = False
REQUIRES_OPTIM = True
COMPARES_SAMPLES = False  # with class vectors alone
ALLOWED_MINING_OPS = None
PER_CLASS = ("margin", "scale")


def add_arguments(group) -> None:
    """Declare the flags of CosFace."""
    group.add_argument("--loss_cosface_lr", type=number(0), default=0.0005, help="learning rate of the class weights")
    group.add_argument(
        "--loss_cosface_margin", type=number(), default=0.35, help="subtracted from the cosine to the own class"
    )
    group.add_argument("--loss_cosface_scale", type=number(above=0), default=64, help="multiplies the cosines")


class Criterion(SoftmaxCriterion):
    """Cross-entropy of scale * (cosines, less margin at the own class)."""

    def __init__(self, opt):
        super().__init__(opt, opt.loss_cosface_lr)
        self.margin = opt.loss_cosface_margin
        self.scale = opt.loss_cosface_scale

    def logits(self, similarities, own, labels, batch) -> torch.Tensor:
        """See `SoftmaxCriterion`."""
        margins = similarities.new_zeros(len(labels), 1) - self.per_anchor("margin", labels, 2)
        return self.per_anchor("scale", labels, 2) * similarities.scatter_add(1, own[:, None], margins)
