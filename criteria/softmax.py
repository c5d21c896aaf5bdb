"""Normalised softmax (Zhai & Wu, Classification is a Strong Baseline for Deep Metric Learning, arXiv 1811.12649)."""

import torch

from criteria._shards import SoftmaxCriterion, requested
from options.flags import Flag
from utilities.numbers import number
from utilities.tensors import normalize

REQUIRES_OPTIM = True
# The loss compares samples with class vectors, not with each other.
COMPARES_SAMPLES = False
PER_CLASS = ("temperature",)

FLAGS = {
    "lr": Flag(number(0), 1e-5, "learning rate of the class weights"),
    "temperature": Flag(number(1e-6), 0.05, "divides the similarities"),
}


class Criterion(SoftmaxCriterion):
    """Cross-entropy of x . w^_c / temperature; embeddings are taken as they are, class weights at unit length.

    Where images have several labels, the target of one with n of them is 1 / n each.
    """

    def __init__(self, opt):
        super().__init__(opt)
        self.several_labels = not requested(opt)

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, **kwargs) -> torch.Tensor:
        """See `ShardedCriterion`; the labels `(B, C)` of images that have several are those of the `reference`."""
        relevance = kwargs["reference"].anchor_relevance
        if relevance is None:
            return super().forward(batch, labels, **kwargs)
        similarities = self.similarities(batch, self.proxies.to(batch))  # (B, C)
        self.note(similarities, labels)
        targets = relevance.to(batch) / relevance.sum(1, keepdim=True).clamp(min=1)
        return torch.nn.functional.cross_entropy(self.logits(similarities, labels, labels, batch), targets)

    def similarities(self, batch: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
        """See `ShardedCriterion`: products."""
        return batch @ normalize(vectors).T

    def logits(self, similarities, class_columns, labels, batch) -> torch.Tensor:
        """See `SoftmaxCriterion`."""
        return similarities / self.per_anchor("temperature", labels, 2)
