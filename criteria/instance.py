"""Instance loss (Zheng et al., Dual-Path Convolutional Image-Text Embeddings, TOMM 2020, arXiv 1711.05535):
a linear classifier.

Each class (in the paper each image with its texts) has a class vector. Neither embeddings nor class vectors are
normalised. pytorch-metric-learning's InstanceLoss takes the batch's own embeddings as the vectors; with repeated labels
it takes the row at the label's rank as the class.
"""

import torch

from criteria._proxies import ProxyCriterion
from options.flags import Flag
from utilities.numbers import number

REQUIRES_OPTIM = True
# The loss compares samples with class vectors, not with each other.
COMPARES_SAMPLES = False

FLAGS = {
    "lr": Flag(number(0), 0.0005, "learning rate of the class vectors"),
    "gamma": Flag(
        number(above=0),
        1,
        "multiplies the products of embeddings and class vectors; the 64 of pytorch-metric-learning is meant for "
        "cosines",
    ),
}


class Criterion(ProxyCriterion):
    """Cross-entropy of gamma x . w_c."""

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`."""
        products = batch @ self.proxies.to(batch).T  # (B, C)
        self.note(products, labels)
        return torch.nn.functional.cross_entropy(self.gamma * products, labels)
