"""Normalised softmax (Zhai & Wu, Classification is a Strong Baseline for Deep Metric Learning, arXiv 1811.12649)."""

import torch

from criteria._proxies import ProxyCriterion
from utilities.numbers import number

REQUIRES_BATCHMINER = False
REQUIRES_OPTIM = True
COMPARES_SAMPLES = False  # with class vectors alone
ALLOWED_MINING_OPS = None
PER_CLASS = ("temperature",)


def add_arguments(group) -> None:
    """Declare the flags of the normalised softmax."""
    group.add_argument("--loss_softmax_lr", type=number(0), default=1e-5, help="learning rate of the class weights")
    group.add_argument("--loss_softmax_temperature", type=number(1e-6), default=0.05, help="divides the similarities")


class Criterion(ProxyCriterion):
    """Cross-entropy of x . w^_c / temperature; embeddings are taken as they are, class weights at unit length."""

    def __init__(self, opt):
        super().__init__(opt, opt.loss_softmax_lr)
        self.temperature = opt.loss_softmax_temperature

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`."""
        similarities = batch @ self.unit_proxies(batch).T  # (B, C)
        self.note(similarities, labels)
        return torch.nn.functional.cross_entropy(similarities / self.per_anchor("temperature", labels, 2), labels)
