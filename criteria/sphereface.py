"""SphereFace, A-Softmax (Liu et al., CVPR 2017, arXiv 1704.08063):
large-margin softmax with class weights at unit length.
"""

import torch

from criteria._multiplicative_margin import margin_logits
from criteria._sets import warn_of_normalized
from criteria._shards import SoftmaxCriterion
from options.flags import Flag
from utilities.numbers import number, whole
from utilities.tensors import safe_sqrt

REQUIRES_OPTIM = True
# The loss compares samples with class vectors, not with each other.
COMPARES_SAMPLES = False

FLAGS = {
    "lr": Flag(number(0), 0.0005, "learning rate of the class weights"),
    "margin": Flag(whole(1, 20), 4, "multiplies the angle to the own class"),
    "scale": Flag(number(above=0), 1, "multiplies the products of lengths and cosines"),
    "cosine_weight": Flag(
        number(0),
        0,
        "weight of the plain cosine relative to that of the multiplied angle, which eases training (lambda; the "
        "official code lowers it to 5)",
    ),
}


class Criterion(SoftmaxCriterion):
    """Cross-entropy of scale |x| cos t_c, psi(t) for cos t at the own class, psi(t) = (-1)^k cos(margin t) - 2 k.

    The lengths of embeddings matter: the loss is meant for networks that do not normalise.
    """

    def __init__(self, opt):
        super().__init__(opt)
        warn_of_normalized("sphereface", opt)

    def logits(self, similarities, class_columns, labels, batch) -> torch.Tensor:
        """See `SoftmaxCriterion`."""
        lengths = safe_sqrt(batch.square().sum(1))[:, None]
        return self.scale * lengths * margin_logits(similarities, class_columns, self.margin, self.cosine_weight)
