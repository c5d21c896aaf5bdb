"""P2SGrad (Zhang et al., CVPR 2019, arXiv 1905.02479):
squared errors of the cosines to the class vectors, no scale, no margin.

Its gradient is equation 11 of the paper, averaged over the batch. pytorch-metric-learning takes the mean over all B x C
squares, which is 2 / C times this loss, and rescales the class vectors to unit length at every step. Here only their
direction matters, and their length may drift.
"""

import torch

from criteria._proxies import ProxyCriterion, in_columns
from options.flags import Flag
from utilities.numbers import number

REQUIRES_OPTIM = True
# The loss compares samples with class vectors, not with each other.
COMPARES_SAMPLES = False

FLAGS = {
    "lr": Flag(number(0), 0.0005, "learning rate of the class vectors"),
}


class Criterion(ProxyCriterion):
    """mean over samples of 1/2 sum_c (cos t_c - [c is the own class])^2."""

    def __init__(self, opt):
        super().__init__(opt, pml_start=lambda vectors: in_columns(_unit_columns, vectors))

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`."""
        cosines = self.cosines(batch)  # (B, C)
        self.note(cosines, labels)
        errors = cosines.scatter_add(1, labels[:, None], cosines.new_full((len(labels), 1), -1.0))
        return errors.square().sum(1).mean() / 2


def _unit_columns(columns: torch.Tensor) -> None:
    columns.uniform_(-1, 1).renorm_(2, 1, 1e-5).mul_(1e5)
