"""SoftTriple loss (Qian et al., ICCV 2019, arXiv 1909.05235), several centres a class.

As in the official code: centres at unit length, softmax over a class's centres with similarities divided by gamma. The
ICML 2020 pipeline differed in these three points.
"""

import functools
import math

import torch

from criteria._proxies import ProxyCriterion, in_columns, spread_of_centres
from utilities.numbers import number, whole

REQUIRES_BATCHMINER = False
REQUIRES_OPTIM = True
COMPARES_SAMPLES = False  # with class vectors alone
ALLOWED_MINING_OPS = None
ATTRIBUTES = {"lambda": "scale"}  # `lambda` is a Python keyword


def add_arguments(group) -> None:
    """Declare the flags of SoftTriple."""
    group.add_argument("--loss_softtriplet_n_centroids", type=whole(1, 1000), default=2, help="centres a class")
    group.add_argument(
        "--loss_softtriplet_margin_delta",
        type=number(),
        default=0.01,
        help="subtracted from the similarity to the own class",
    )
    group.add_argument(
        "--loss_softtriplet_gamma",
        type=number(1e-6),
        default=0.1,
        help="temperature of the softmax over a class's centres",
    )
    group.add_argument(
        "--loss_softtriplet_lambda", type=number(above=0), default=8, help="multiplies the similarities to the classes"
    )
    group.add_argument(
        "--loss_softtriplet_reg_weight",
        type=number(0),
        default=0.2,
        help="weight of the term that draws a class's centres together",
    )
    group.add_argument(
        "--loss_softtriplet_lrmulti",
        type=number(0),
        default=1,
        help="learning rate of the centres, in multiples of --lr",
    )


class Criterion(ProxyCriterion):
    """Cross-entropy of lambda (S - margin_delta at the own class), S_c = sum_k softmax_k(s_ck / gamma) s_ck, +
    reg_weight * reg.

    reg = sum_c sum_{t<u} sqrt(2 + 1e-5 - 2 w_ct.w_cu) / (C K (K - 1)); none with one centre per class.
    """

    def __init__(self, opt):
        start = functools.partial(
            torch.nn.init.kaiming_uniform_, a=math.sqrt(5)
        )  # its fan is D here, C * n_centroids in the package
        there = functools.partial(in_columns, start)
        super().__init__(opt, opt.lr * opt.loss_softtriplet_lrmulti, start, opt.loss_softtriplet_n_centroids, there)
        self.margin_delta = opt.loss_softtriplet_margin_delta
        self.gamma = opt.loss_softtriplet_gamma
        self.scale = opt.loss_softtriplet_lambda
        self.reg_weight = opt.loss_softtriplet_reg_weight

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
