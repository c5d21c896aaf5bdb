"""Generalised lifted-structure loss (Hermans et al., In Defense of the Triplet Loss, arXiv 1703.07737)."""

import torch

from criteria._pairs import anchors_at_once, few_at_a_time
from criteria._sets import mean_norm, warn_of_normalized
from criteria._tuples import active_share, mean_term
from utilities.criterion import MetricCriterion
from utilities.numbers import number
from utilities.reference import Reference
from utilities.tensors import masked_logsumexp, pairwise_distances

REQUIRES_BATCHMINER = True
REQUIRES_OPTIM = False
ALLOWED_MINING_OPS = ["lifted"]


def add_arguments(group) -> None:
    """Declare the flags of the lifted loss."""
    group.add_argument("--loss_lifted_neg_margin", type=number(), default=1.0, help="distance that negatives are pushed beyond")
    group.add_argument("--loss_lifted_l2", type=number(0), default=0.005, help="weight of the mean norm of the embeddings")


class Criterion(MetricCriterion):
    """mean_a [log sum_p exp(d_ap) + log sum_n exp(neg_margin - d_an)]+ + l2 mean_i |x_i|."""

    def __init__(self, opt, batchminer):
        super().__init__(batchminer)
        self.neg_margin = opt.loss_lifted_neg_margin
        self.l2 = opt.loss_lifted_l2
        warn_of_normalized("lifted", opt)

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, reference: Reference, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`, compared with those of `reference`."""
        anchors, positives, negatives = self.mine(batch, labels, reference)
        if reference.plain:
            terms = self.terms(pairwise_distances(batch).index_select(0, anchors), positives, negatives)
        else:
            terms = self.few_at_a_time(batch.index_select(0, anchors), reference.embeddings, positives, negatives)
        self.stats = {"active_share": active_share(terms.detach())}
        return mean_term(terms) + self.l2 * mean_norm(batch)

    def few_at_a_time(self, anchors, others, positives, negatives) -> torch.Tensor:
        """The terms `(A,)` of anchors `(A, D)` against others `(M, D)`; the backward pass recomputes the distances."""

        def part(anchors, positives, negatives):
            return self.terms(pairwise_distances(anchors, others), positives, negatives)

        size = anchors_at_once(len(others))
        return torch.cat(few_at_a_time(part, zip(*(rows.split(size) for rows in (anchors, positives, negatives)), strict=True)))

    def terms(self, distances, positives, negatives) -> torch.Tensor:
        """One term per anchor, `(A,)`, from distances and masks `(A, M)`."""
        far_positives = masked_logsumexp(distances, positives)  # (A,)
        near_negatives = masked_logsumexp(self.neg_margin - distances, negatives)  # (A,)
        return torch.relu(far_positives + near_negatives)
