"""SphereFace, A-Softmax (Liu et al., CVPR 2017, arXiv 1704.08063): large-margin softmax with class weights at unit
length.
"""

import torch

from criteria._multiplicative_margin import margin_logits
from criteria._sets import warn_of_normalized
from criteria._shards import SoftmaxCriterion
from utilities.numbers import number, whole
from utilities.tensors import safe_sqrt

REQUIRES_BATCHMINER = False
REQUIRES_OPTIM = True
ALLOWED_MINING_OPS = None
COMPARES_SAMPLES = False  # with class vectors alone


def add_arguments(group) -> None:
    """Declare the flags of SphereFace."""
    group.add_argument(
        "--loss_sphereface_lr", type=number(0), default=0.0005, help="learning rate of the class weights"
    )
    group.add_argument(
        "--loss_sphereface_margin", type=whole(1, 20), default=4, help="multiplies the angle to the own class"
    )
    group.add_argument(
        "--loss_sphereface_scale",
        type=number(above=0),
        default=1,
        help="multiplies the products of lengths and cosines",
    )
    group.add_argument(
        "--loss_sphereface_cosine_weight",
        type=number(0),
        default=0,
        help=(
            "weight of the plain cosine beside that of the multiplied angle, which eases training (lambda; the "
            "official code lowers it to 5)"
        ),
    )


class Criterion(SoftmaxCriterion):
    """Cross-entropy of scale |x| cos t_c, psi(t) for cos t at the own class, psi(t) = (-1)^k cos(margin t) - 2 k.

    The lengths of embeddings matter: the loss is meant for networks that do not normalise.
    """

    def __init__(self, opt):
        super().__init__(opt, opt.loss_sphereface_lr)
        self.margin = opt.loss_sphereface_margin
        self.scale = opt.loss_sphereface_scale
        self.cosine_weight = opt.loss_sphereface_cosine_weight
        warn_of_normalized("sphereface", opt)

    def logits(self, similarities, own, labels, batch) -> torch.Tensor:
        """See `SoftmaxCriterion`."""
        lengths = safe_sqrt(batch.square().sum(1))[:, None]
        return self.scale * lengths * margin_logits(similarities, own, self.margin, self.cosine_weight)
