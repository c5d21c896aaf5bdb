"""NT-Xent / InfoNCE with labels (Sohn, NeurIPS 2016; Chen et al., SimCLR, arXiv 2002.05709)."""

import torch

from criteria._pairs import PairCriterion, cosines, log_sum_exp, pair_means, positive_pairs, softplus
from utilities.numbers import number
from utilities.tensors import take_pairs

REQUIRES_BATCHMINER = False
REQUIRES_OPTIM = False
ALLOWED_MINING_OPS = None
MINES_PAIRS = True


def add_arguments(group) -> None:
    """Declare the flags of NT-Xent."""
    group.add_argument("--loss_ntxent_temperature", type=number(1e-6), default=0.07, help="divides the cosines")


class Criterion(PairCriterion):
    """Mean over positive pairs (i, p) of -log(exp(s_ip/T) / (exp(s_ip/T) + sum over negatives n of i of exp(s_in/T)))."""

    def __init__(self, opt, batchminer=None):
        super().__init__(batchminer)
        self.temperature = opt.loss_ntxent_temperature

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`."""
        similarities = cosines(batch)  # (B, B)
        positives, negatives = self.pair_weights(batch, labels)
        logits = similarities / self.temperature
        negative_mass = log_sum_exp(logits, negatives)  # (B,), once an anchor, whatever its number of positives
        anchors, others = positive_pairs(positives)  # (P,) each
        losses = softplus(negative_mass.index_select(0, anchors) - take_pairs(logits, anchors, others))  # (P,)
        self.stats = pair_means("similarity", similarities, positives, negatives)
        return losses.sum() / max(len(losses), 1)
