"""Large-margin softmax, L-Softmax (Liu et al., ICML 2016, arXiv 1612.02295):
the angle to the own class is multiplied.
"""

import torch

from criteria._multiplicative_margin import margin_logits
from criteria._proxies import ProxyCriterion
from criteria._sets import warn_of_normalized
from options.flags import Flag
from utilities.numbers import number, whole
from utilities.tensors import safe_sqrt

REQUIRES_OPTIM = True
# The loss compares samples with class vectors, not with each other.
COMPARES_SAMPLES = False

FLAGS = {
    "lr": Flag(number(0), 0.0005, "learning rate of the class weights"),
    "margin": Flag(whole(1, 20), 4, "multiplies the angle to the own class; 1 is the plain softmax"),
    "scale": Flag(number(above=0), 1, "multiplies the products of embeddings and class weights"),
    "cosine_weight": Flag(
        number(0),
        0,
        "weight of the plain cosine relative to that of the multiplied angle, which eases training (the paper's "
        "lambda, lowered there in steps)",
    ),
}


class Criterion(ProxyCriterion):
    """Cross-entropy of scale |w_c| |x| cos t_c, psi(t) for cos t at the own class, psi(t) = (-1)^k cos(margin t) - 2 k.

    The lengths of embeddings and of class weights matter: the loss is meant for networks that do not normalise.
    """

    def __init__(self, opt):
        super().__init__(opt)
        warn_of_normalized("largemargin_softmax", opt)

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`."""
        cosines = self.cosines(batch)  # (B, C)
        self.note(cosines, labels)
        lengths = safe_sqrt(batch.square().sum(1))[:, None] * safe_sqrt(self.proxies.to(batch).square().sum(1))
        logits = self.scale * lengths * margin_logits(cosines, labels, self.margin, self.cosine_weight)
        return torch.nn.functional.cross_entropy(logits, labels)
