"""Supervised contrastive loss, the form with the sum outside the log (Khosla et al., arXiv 2004.11362)."""

import torch

from criteria import _streams
from criteria._pairs import PairCriterion, log_sum_exp, pair_means, pair_sums
from criteria._ranking import sums_per_anchor
from utilities.numbers import number
from utilities.reference import Reference
from utilities.tensors import masked_mean, normalize

REQUIRES_BATCHMINER = False
REQUIRES_OPTIM = False
ALLOWED_MINING_OPS = None
PER_CLASS = ("temperature",)
MINES_PAIRS = True


def add_arguments(group) -> None:
    """Declare the flags of the supervised contrastive loss."""
    group.add_argument("--loss_supcon_temperature", type=number(1e-6), default=0.1, help="divides the cosines")


class Criterion(PairCriterion):
    """Per anchor with a positive: -mean_p log(exp(s_ip/T) / sum_{j != i} exp(s_ij/T)); mean over these anchors."""

    def __init__(self, opt, batchminer=None):
        super().__init__(batchminer)
        self.temperature = opt.loss_supcon_temperature

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, reference: Reference, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`, compared with those of `reference`."""
        apart = self.streamed(labels, reference)
        if apart is None:
            (losses, n_positives), similarities = self.compared(self.terms, batch, labels, reference, normalize, keep=True)
        else:
            (losses, n_positives), similarities = self.stream(batch, labels, reference, apart)
        self.stats = pair_means("similarity", similarities)
        return masked_mean(losses, n_positives > 0)

    def terms(self, batch, labels, reference, positives, negatives) -> tuple[tuple, tuple]:
        """Each anchor's loss and number of positives; sums of the similarities."""
        similarities = batch @ reference.embeddings.T  # (B, M)
        logits = similarities / self.per_anchor("temperature", labels, 2)
        n_positives = positives.sum(1)
        mean_positive = (logits * positives).sum(1) / n_positives.clamp(min=1)  # (B,)
        losses = log_sum_exp(logits, torch.maximum(positives, negatives), reference.plain) - mean_positive
        return (losses, n_positives), pair_sums(similarities, positives, negatives)

    def stream(self, batch, labels, reference, apart) -> tuple[tuple, tuple]:
        """The result of `terms` for all pairs with a large reference."""
        unit, reference = reference.mapped(normalize, batch)
        points = unit / self.per_anchor("temperature", labels, 2)
        bound = None if isinstance(self.temperature, torch.Tensor) else 1 / self.temperature
        mass, logits, *_ = _streams.log_sum_exp(points, reference.embeddings, apart, positives=True, bound=bound)
        n_positives = sums_per_anchor(torch.ones_like(logits), apart.anchors, len(batch))
        mean_positive = sums_per_anchor(logits, apart.anchors, len(batch)) / n_positives.clamp(min=1)  # (B,)
        similarities = logits.detach() * self.per_anchor("temperature", labels[apart.anchors])
        return (mass - mean_positive, n_positives), _streams.pair_sums(unit, reference, apart, similarities)
