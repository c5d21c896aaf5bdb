"""Normalised softmax (Zhai & Wu, Classification is a Strong Baseline for Deep Metric Learning, arXiv 1811.12649)."""

import torch

from criteria._shards import SoftmaxCriterion
from options.flags import Flag
from utilities.numbers import number
from utilities.tensors import normalize

REQUIRES_OPTIM = True
COMPARES_SAMPLES = False  # with class vectors alone
PER_CLASS = ("temperature",)

FLAGS = {
    "lr": Flag(number(0), 1e-5, "learning rate of the class weights"),
    "temperature": Flag(number(1e-6), 0.05, "divides the similarities"),
}


class Criterion(SoftmaxCriterion):
    """Cross-entropy of x . w^_c / temperature; embeddings are taken as they are, class weights at unit length."""

    def similarities(self, batch: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
        """See `ShardedCriterion`: products."""
        return batch @ normalize(vectors).T

    def logits(self, similarities, class_columns, labels, batch) -> torch.Tensor:
        """See `SoftmaxCriterion`."""
        return similarities / self.per_anchor("temperature", labels, 2)
