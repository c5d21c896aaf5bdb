"""Mean-field class-wise multi-similarity loss (Furusawa, Mean Field Theory in Deep Metric Learning, ICLR 2024, arXiv
2306.15368).
"""

import torch

from criteria._pairs import softplus
from criteria._proxies import ProxyCriterion
from options.flags import Flag
from utilities.numbers import number
from utilities.tensors import amax_at
from utilities.tuples import same_class

REQUIRES_OPTIM = True
# The loss compares samples with class vectors, not with each other.
COMPARES_SAMPLES = False

FLAGS = {
    "alpha": Flag(number(1e-6), 0.01, "exponential weight of the distances to the own field"),
    "beta": Flag(number(1e-6), 80, "exponential weight of the distances to other fields"),
    "margin": Flag(number(), 0.8, "cosine at which a term weighs one half (mrg there, lambda in the paper)"),
    "lrmulti": Flag(number(0), 2000, "learning rate of the class fields, in multiples of --lr"),
}


class Criterion(ProxyCriterion):
    """sum_c log(1 + P_c) / (alpha n) + sum_{c != k} log(1 + Q_ck + Q_kc) / (2 beta n), n the classes in the batch, c
    and k of all classes.

    P_c is the mean over the batch's images of class c of exp(alpha (margin - s_ic)), Q_ck that of exp(beta (s_ik -
    margin)), s the cosine to a class's field; both are 0 for a class that is not in the batch. The fields start
    from a unit normal, as in the authors' code, whose regulariser of the fields is off in all published commands
    and is left out.
    """

    def __init__(self, opt):
        super().__init__(opt, start=torch.nn.init.normal_)

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`."""
        cosines = self.cosines(batch)
        places = torch.arange(len(labels), device=labels.device)
        self.note(cosines, labels)
        # the first image of each one's class stands for the class
        rows = torch.where(same_class(labels), places, len(labels)).amin(1)
        is_first = (rows == places).to(cosines.dtype)
        own_fields = log_mean_exp(self.alpha * (self.margin - cosines.gather(1, labels[:, None])), rows)  # (B, 1)
        other_fields = log_mean_exp(self.beta * (cosines - self.margin), rows)  # (B, C)
        absent = torch.ones_like(other_fields[0]).index_fill(0, labels, 0)
        of_present = other_fields.index_select(1, labels)  # (B, B)
        pairs = is_first[:, None] * is_first * (1 - torch.diag(is_first))
        negative = (
            2 * (softplus(other_fields) * absent).sum()
            + (softplus(torch.logaddexp(of_present, of_present.T)) * pairs).sum()
        )
        return (softplus(own_fields).sum() / self.alpha + negative / (2 * self.beta)) / is_first.sum()


def log_mean_exp(values: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """log mean exp of the rows of `values` `(B, M)` that have the same of `rows` `(B,)`, in that row; rows without any
    are so low that exp is 0.
    """
    largest = torch.full_like(values, torch.finfo(values.dtype).min / 4)
    largest = amax_at(largest, 0, rows[:, None].expand_as(values), values)
    sums = torch.zeros_like(values).index_add(0, rows, torch.exp(values - largest.index_select(0, rows)))
    counts = torch.zeros_like(values[:, :1]).index_add(0, rows, torch.ones_like(values[:, :1])).clamp(min=1)
    return (sums / counts).clamp(min=torch.finfo(values.dtype).tiny).log() + largest
