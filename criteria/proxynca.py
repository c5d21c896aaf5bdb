"""ProxyNCA (Movshovitz-Attias et al., No Fuss Distance Metric Learning using Proxies, arXiv 1703.07464).

The denominator holds the other classes' proxies only, as in the paper; `proxynca_pp` has the form with all of them.
"""

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
    "scale": Flag(number(above=0), 3, "length of embeddings and proxies"),
}


class Criterion(ProxyCriterion):
    """mean_i |x_i - p_y|^2 + log sum_{k != y} exp(-|x_i - p_k|^2), embeddings and proxies at length `scale`."""

    def __init__(self, opt):
        start = functools.partial(torch.nn.init.normal_, std=1 / 8)
        super().__init__(opt, start=start, pml_start=torch.nn.init.normal_)

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`."""
        similarities = self.cosines(batch)  # (B, C)
        self.note(similarities, labels)
        # -|x - p|^2 but for a constant, which the difference below cancels
        logits = 2 * self.scale**2 * similarities
        own_logits = logits.gather(1, labels[:, None])
        # no other proxy: the sum is empty, nothing to learn
        if self.n_classes == 1:
            return 0.0 * own_logits.sum()
        other_logits = logits.scatter(1, labels[:, None], torch.finfo(logits.dtype).min)
        return (torch.logsumexp(other_logits, 1) - own_logits.squeeze(1)).mean()
