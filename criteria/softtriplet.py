"""SoftTriple loss (Qian et al., ICCV 2019, arXiv 1909.05235), several centres a class.

As in the official code: centres at unit length, softmax over a class's centres with similarities divided by gamma. The
ICML 2020 pipeline differed in these three points.
"""

import functools
import math

import torch

from criteria._proxies import ProxyCriterion, in_columns, spread_of_centres
from options.flags import Flag
from utilities.numbers import number, whole

REQUIRES_OPTIM = True
# The loss compares samples with class vectors, not with each other.
COMPARES_SAMPLES = False

FLAGS = {
    "n_centroids": Flag(whole(1, 1000), 2, "centres a class"),
    "margin_delta": Flag(number(), 0.01, "subtracted from the similarity to the own class"),
    "gamma": Flag(number(1e-6), 0.1, "temperature of the softmax over a class's centres"),
    "lambda": Flag(number(above=0), 8, "multiplies the similarities to the classes", attribute="scale"),
    "reg_weight": Flag(
        number(0),
        0.2,
        "weight of the term that draws a class's centres together",
        rules={"idle_with": {"loss_softtriplet_n_centroids": [1]}},
    ),
    "lrmulti": Flag(number(0), 1, "learning rate of the centres, in multiples of --lr"),
}


class Criterion(ProxyCriterion):
    """Cross-entropy of lambda (S - margin_delta at the own class), S_c = sum_k softmax_k(s_ck / gamma) s_ck, +
    reg_weight * reg.

    reg = sum_c sum_{t<u} sqrt(2 + 1e-5 - 2 w_ct.w_cu) / (C K (K - 1)); none with one centre per class.
    """

    def __init__(self, opt):
        # Its fan is D here, C * n_centroids in pytorch-metric-learning.
        start = functools.partial(torch.nn.init.kaiming_uniform_, a=math.sqrt(5))
        pml_start = functools.partial(in_columns, start)
        super().__init__(opt, start=start, per_class=opt.loss_softtriplet_n_centroids, pml_start=pml_start)

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`."""
        centres = self.unit_centres(batch)  # (K, C, D)
        to_centres = self.centre_cosines(batch, centres)  # (B, K, C)
        similarities = (torch.softmax(to_centres / self.gamma, 1) * to_centres).sum(1)  # (B, C)
        self.note(similarities, labels)
        margins = similarities.new_zeros(len(labels), 1) - self.margin_delta
        loss = torch.nn.functional.cross_entropy(
            self.scale * similarities.scatter_add(1, labels[:, None], margins), labels
        )
        return loss + self.reg_weight * spread_of_centres(centres) if self.per_class > 1 else loss
