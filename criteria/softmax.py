"""Normalised softmax (Zhai & Wu, Classification is a Strong Baseline for Deep Metric Learning, arXiv 1811.12649)."""

import torch

from criteria._shards import SoftmaxCriterion
from utilities.numbers import number
from utilities.tensors import normalize

REQUIRES_BATCHMINER = False
REQUIRES_OPTIM = True
COMPARES_SAMPLES = False  # with class vectors alone
ALLOWED_MINING_OPS = None
PER_CLASS = ("temperature",)


def add_arguments(group) -> None:
    """Declare the flags of the normalised softmax."""
    group.add_argument("--loss_softmax_lr", type=number(0), default=1e-5, help="learning rate of the class weights")
    group.add_argument("--loss_softmax_temperature", type=number(1e-6), default=0.05, help="divides the similarities")


class Criterion(SoftmaxCriterion):
    """Cross-entropy of x . w^_c / temperature; embeddings are taken as they are, class weights at unit length."""

    def __init__(self, opt):
        super().__init__(opt, opt.loss_softmax_lr)
        self.temperature = opt.loss_softmax_temperature

    def similarities(self, batch: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
        """See `ShardedCriterion`: products."""
        return batch @ normalize(vectors).T

    def logits(self, similarities, own, labels, batch) -> torch.Tensor:
        """See `SoftmaxCriterion`."""
        return similarities / self.per_anchor("temperature", labels, 2)
