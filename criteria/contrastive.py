"""Contrastive loss (Hadsell et al., Dimensionality Reduction by Learning an Invariant Mapping, CVPR 2006)."""

import torch

from criteria import _forms, _streams
from criteria._reductions import Reduction
from criteria._tuples import active_share, tuple_distances
from utilities.criterion import MetricCriterion
from utilities.numbers import number
from utilities.reference import Reference
from utilities.tensors import safe_sqrt

REQUIRES_BATCHMINER = True
REQUIRES_OPTIM = False
ALLOWED_MINING_OPS = None  # any miner that yields triplets or pairs
PER_CLASS = ("pos_margin", "neg_margin")
REDUCES = True


def add_arguments(group) -> None:
    """Declare the flags of the contrastive loss."""
    group.add_argument("--loss_contrastive_pos_margin", type=number(), default=0.0, help="positives nearer than this cost nothing")
    group.add_argument("--loss_contrastive_neg_margin", type=number(), default=1.0, help="negatives farther than this cost nothing")
    group.add_argument("--loss_contrastive_reduction", default="mean", choices=["mean", "nonzero"], help="over all pairs or active ones")


class Criterion(MetricCriterion):
    """mean [d_ap - pos_margin]+ over positive pairs + mean [neg_margin - d_an]+ over negative pairs; distances are not squared."""

    def __init__(self, opt, batchminer):
        super().__init__(batchminer)
        self.pos_margin = opt.loss_contrastive_pos_margin
        self.neg_margin = opt.loss_contrastive_neg_margin
        self.reduction = Reduction(opt, opt.loss_contrastive_reduction)

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, reference: Reference, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`, compared with those of `reference`."""
        apart = self.streamed(labels, reference)
        if apart is not None:
            return self.stream(batch, labels, reference, apart)
        pairs = self.pairs(batch, labels, reference)
        positive_distances, negative_distances = tuple_distances(batch, reference, pairs)
        far_positives = torch.relu(positive_distances - self.per_anchor("pos_margin", labels[pairs.anchors_p]))  # (P,)
        near_negatives = torch.relu(self.per_anchor("neg_margin", labels[pairs.anchors_n]) - negative_distances)  # (N,)
        self.stats = {"active_positives": active_share(far_positives.detach()), "active_negatives": active_share(near_negatives.detach())}
        positive_part = self.reduction(far_positives, pairs.anchors_p, labels)
        return positive_part + self.reduction(near_negatives, pairs.anchors_n, labels)

    def streamed(self, labels, reference) -> _streams.Apart | None:
        """The pairs that are not negatives, for a sum over all pairs with a large reference by `_streams`.

        None where `_streams` does not serve: the reference is the batch, the miner does not take every pair, a margin is learned, the
        reduction is neither "mean" nor "nonzero", or the listed pairs would be many.
        """
        every = getattr(self.batchminer, "EVERY_PAIR", False) and not reference.plain and self.reduction.how in ("mean", "nonzero")
        learned = isinstance(self.pos_margin, torch.Tensor) or isinstance(self.neg_margin, torch.Tensor)
        return _streams.apart(labels, reference) if every and not learned else None

    def stream(self, batch, labels, reference, apart) -> torch.Tensor:
        """The loss over all pairs with a large reference."""
        distances = safe_sqrt(_streams.positive_distances(batch, reference.embeddings, apart))  # (P,)
        far_positives = torch.relu(distances - self.pos_margin)
        points, others = _forms.squared(batch, reference.embeddings)
        form, units = _forms.near(self.neg_margin, points, others)
        total, n_active = _streams.sums(points, others, apart, form)
        total, n_active = (total * units).sum(), n_active.sum()
        n_negatives = max(len(batch) * len(reference) - len(apart.rows), 1)
        self.stats = {"active_positives": active_share(far_positives.detach()), "active_negatives": n_active / n_negatives}
        negative_part = total / (n_active.clamp(min=1) if self.reduction.how == "nonzero" else n_negatives)
        return self.reduction(far_positives, apart.anchors, labels) + negative_part
