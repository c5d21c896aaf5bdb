"""ProxyNCA++ (Teh et al., ECCV 2020, arXiv 2004.01113): ProxyNCA as a probability over all proxies."""

import functools

import torch

from criteria._proxies import ProxyCriterion
from options.flags import Flag
from utilities.numbers import number

REQUIRES_OPTIM = True
# The loss compares samples with class vectors, not with each other.
COMPARES_SAMPLES = False

FLAGS = {
    "lrmulti": Flag(number(0), 50, "learning rate of the proxies, in multiples of --lr"),
    "scale": Flag(number(above=0), 3, "length of embeddings and proxies (temperature 1 / scale^2)"),
    "softmax_scale": Flag(
        number(above=0),
        None,
        "the same as the factor of squared distances between unit vectors, as pytorch-metric-learning states it; "
        "where it is given it decides (unset: the square of --loss_proxynca_pp_scale)",
    ),
}


class Criterion(ProxyCriterion):
    """mean_i |x_i - p_y|^2 + log sum_k exp(-|x_i - p_k|^2), embeddings and proxies at length `scale`."""

    def __init__(self, opt):
        start = functools.partial(torch.nn.init.normal_, std=1 / 8)
        super().__init__(opt, start=start, pml_start=torch.nn.init.normal_)
        if self.softmax_scale is not None:
            self.scale = None

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`."""
        similarities = self.cosines(batch)  # (B, C)
        self.note(similarities, labels)
        factor = self.scale**2 if self.softmax_scale is None else self.softmax_scale
        # The logits are -|x - p|^2 but for a constant.
        return torch.nn.functional.cross_entropy(2 * factor * similarities, labels)
