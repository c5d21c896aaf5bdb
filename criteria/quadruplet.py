"""Quadruplet loss (Chen et al., Beyond Triplet Loss, arXiv 1704.01719).

The fourth sample is of neither the anchor's nor the negative's class, as in the paper; the code of the published runs
excluded only the negative itself. Distances are not squared, as in that code.
"""

import torch

from criteria._reductions import Reduction
from criteria._tuples import active_share, tuple_distances
from options.flags import Flag
from utilities.criterion import MetricCriterion
from utilities.numbers import number
from utilities.reference import Reference
from utilities.tensors import masked_mean, pair_distances, safe_sqrt
from utilities.tuples import Classes, Triplets

REQUIRES_BATCHMINER = True
PER_CLASS = ("margin_alpha_1", "margin_alpha_2")
REDUCES = True

FLAGS = {
    "margin_alpha_1": Flag(number(), 0.2, "margin of positive against negative"),
    "margin_alpha_2": Flag(number(), 0.2, "margin of positive against two negatives"),
}


class Criterion(MetricCriterion):
    """mean_T [d_ap - d_an + alpha_1]+ + mean_T [d_ap - d_nm + alpha_2]+, m a random sample of a third class.

    m is a sample of the reference, as p and n are.
    Triplets for which it holds no third class are left out of the second mean.
    """

    def __init__(self, opt, batchminer):
        super().__init__(opt, batchminer)
        self.reduction = Reduction(opt)

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, reference: Reference, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`, compared with those of `reference`.

        Draws m from torch's global generator.
        """
        anchors, positives, negatives = self.triplets(batch, labels, reference)
        strangers, exist = Classes(labels, reference).draw_strangers(anchors, negatives)  # (T,) each
        d_ap, d_an, d_nm = self.distances(batch, reference, anchors, positives, negatives, strangers)
        of_anchors = labels[anchors]
        with_negative = torch.relu(d_ap - d_an + self.per_anchor("margin_alpha_1", of_anchors))
        with_stranger = torch.relu(d_ap - d_nm + self.per_anchor("margin_alpha_2", of_anchors))
        self.stats = {
            "active_share": active_share(with_negative.detach()),
            "active_strangers": masked_mean((with_stranger > 0).float(), exist),
        }
        if self.reduction.is_own:
            of_strangers = masked_mean(with_stranger, exist)
        else:
            with_strangers = exist.nonzero().squeeze(1)
            of_strangers = self.reduction(
                with_stranger.index_select(0, with_strangers), anchors.index_select(0, with_strangers), labels
            )
        return self.reduction(with_negative, anchors, labels) + of_strangers

    def distances(
        self, batch, reference: Reference, anchors, positives, negatives, strangers
    ) -> tuple[torch.Tensor, ...]:
        """d_ap, d_an and d_nm, `(T,)` each. Within a reference d_nm comes from differences of embeddings, without an
        `(M, M)` matrix.
        """
        if reference.plain:
            rows = torch.cat([anchors, anchors, negatives])
            columns = torch.cat([positives, negatives, strangers])
            return pair_distances(batch, rows, columns).view(3, -1).unbind()
        d_ap, d_an = tuple_distances(batch, reference, Triplets(anchors, positives, negatives))
        # (T, D)
        between = reference.embeddings.index_select(0, negatives) - reference.embeddings.index_select(0, strangers)
        return d_ap, d_an, safe_sqrt(between.square().sum(1))
