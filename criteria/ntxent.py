"""NT-Xent / InfoNCE with labels (Sohn, NeurIPS 2016; Chen et al., SimCLR, arXiv 2002.05709)."""

import torch

from criteria import _streams
from criteria._pairs import PairCriterion, log_sum_exp, pair_means, pair_sums, positive_pairs, softplus
from utilities.numbers import number
from utilities.reference import Reference
from utilities.tensors import normalize, take_pairs

REQUIRES_BATCHMINER = False
REQUIRES_OPTIM = False
ALLOWED_MINING_OPS = None
PER_CLASS = ("temperature",)
MINES_PAIRS = True


def add_arguments(group) -> None:
    """Declare the flags of NT-Xent."""
    group.add_argument("--loss_ntxent_temperature", type=number(1e-6), default=0.07, help="divides the cosines")


class Criterion(PairCriterion):
    """Mean over positive pairs (i, p) of -log(exp(s_ip/T) / (exp(s_ip/T) + sum over negatives n of i of exp(s_in/T)))."""

    def __init__(self, opt, batchminer=None):
        super().__init__(batchminer)
        self.temperature = opt.loss_ntxent_temperature

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, reference: Reference, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`, compared with those of `reference`."""
        apart = self.streamed(labels, reference)
        if apart is None:
            (losses,), similarities = self.compared(self.terms, batch, labels, reference, normalize, keep=True)
        else:
            losses, similarities = self.stream(batch, labels, reference, apart)
        self.stats = pair_means("similarity", similarities)
        return losses.sum() / max(len(losses), 1)

    def terms(self, batch, labels, reference, positives, negatives) -> tuple[tuple, tuple]:
        """The loss of each positive pair; sums of the similarities."""
        similarities = batch @ reference.embeddings.T  # (B, M)
        logits = similarities / self.per_anchor("temperature", labels, 2)
        negative_mass = log_sum_exp(logits, negatives, reference.plain)  # (B,), once per anchor, not per positive pair
        anchors, others = positive_pairs(positives)  # (P,) each
        losses = softplus(negative_mass.index_select(0, anchors) - take_pairs(logits, anchors, others))  # (P,)
        return (losses,), pair_sums(similarities, positives, negatives)

    def stream(self, batch, labels, reference, apart) -> tuple[torch.Tensor, tuple]:
        """The result of `terms` for all pairs with a large reference."""
        unit, reference = reference.mapped(normalize, batch)
        points = unit / self.per_anchor("temperature", labels, 2)
        bound = None if isinstance(self.temperature, torch.Tensor) else 1 / self.temperature
        negative_mass, logits, *_ = _streams.log_sum_exp(points, reference.embeddings, apart, bound=bound)
        losses = softplus(negative_mass.index_select(0, apart.anchors) - logits)  # (P,)
        similarities = logits.detach() * self.per_anchor("temperature", labels[apart.anchors])
        return losses, _streams.pair_sums(unit, reference, apart, similarities)
