"""Angular loss, joined with the N-pair loss (Wang et al., Deep Metric Learning with Angular Loss, arXiv 1708.01682).

Normalised embeddings in the angular term, raw ones in the N-pair term.
"""

import math

import torch

from criteria._pairs import anchors_at_once, few_at_a_time
from criteria._sets import (
    choice_terms,
    mean_norm,
    npair_excesses,
    npair_terms,
    outweighed_share,
    triplet_terms,
    warn_of_normalized,
)
from criteria._tuples import mean_term
from options.flags import Flag
from utilities.criterion import MetricCriterion
from utilities.numbers import number
from utilities.reference import Reference
from utilities.tensors import normalize
from utilities.tuples import Triplets

REQUIRES_BATCHMINER = True
ALLOWED_MINING_OPS = ["npair"]
TAKES_TRIPLETS = True

FLAGS = {
    "alpha": Flag(number(above=0, below=90), 45.0, "degrees that the angle at the negative should not exceed"),
    "npair_ang_weight": Flag(number(0), 2.0, "weight of the angular term, which is added to the N-pair term"),
    "npair_l2": Flag(number(0), 0.005, "weight of the mean norm of the embeddings"),
}


class Criterion(MetricCriterion):
    """N-pair term + weight mean_a log(1 + sum_n exp(4 t (x^_a + x^_p).x^_n - 2 (1 + t) x^_a.x^_p)) + l2 mean_i |x_i|, t
    = tan^2 alpha.
    """

    several_labels = True

    # as `PairCriterion.entries`
    entries: int | None = None

    def __init__(self, opt, batchminer):
        super().__init__(opt, batchminer)
        warn_of_normalized("angular", opt)

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, reference: Reference, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`, compared with those of `reference`."""
        mined = self.mine(batch, labels, reference)
        if isinstance(mined, Triplets):
            return mean_term(self.of_triplets(batch, reference, mined)) + self.npair_l2 * mean_norm(batch)
        anchors, positives, negatives = mined
        squared_tangent = _squared_tangent(self.alpha)
        directions, compared = reference.mapped(normalize, batch)

        def terms(anchors, positives, negatives):
            npair = npair_terms(batch, reference, anchors, positives, negatives)  # (A,)
            # (A, D)
            of_anchors = directions.index_select(0, anchors)
            of_positives = compared.embeddings.index_select(0, positives)
            towards_negatives = (4 * squared_tangent * (of_anchors + of_positives)) @ compared.embeddings.T  # (A, M)
            towards_positive = 2 * (1 + squared_tangent) * (of_anchors * of_positives).sum(1, keepdim=True)  # (A, 1)
            towards = towards_negatives.scatter(1, positives[:, None], towards_positive)
            return npair, choice_terms(towards, positives, negatives)

        size = anchors_at_once(len(reference), self.entries)
        if reference.plain or size >= len(anchors):
            npair, angular = terms(anchors, positives, negatives)
        else:
            parts = few_at_a_time(
                terms, zip(*(rows.split(size) for rows in (anchors, positives, negatives)), strict=True)
            )
            npair, angular = (torch.cat(column) for column in zip(*parts, strict=True))
        self.stats = {"outweighed_share": outweighed_share(npair), "wide_angle_share": outweighed_share(angular)}
        return mean_term(npair + self.npair_ang_weight * angular) + self.npair_l2 * mean_norm(batch)

    def of_triplets(
        self, batch: torch.Tensor, reference: Reference, triplets: Triplets, opposite: bool = False
    ) -> torch.Tensor:
        """The terms `(T,)` of triplets, or their opposites; see `criteria._sets.triplet_terms`."""
        squared_tangent = _squared_tangent(self.alpha)
        directions, compared = reference.mapped(normalize, batch)
        anchors = directions.index_select(0, triplets.anchors)  # (T, D)
        positives = compared.embeddings.index_select(0, triplets.positives)
        negatives = compared.embeddings.index_select(0, triplets.negatives)
        towards_negatives = 4 * squared_tangent * ((anchors + positives) * negatives).sum(1)  # (T,)
        towards_positives = 2 * (1 + squared_tangent) * (anchors * positives).sum(1)
        angular = triplet_terms(towards_negatives - towards_positives, opposite)
        npair = triplet_terms(npair_excesses(batch, reference, triplets), opposite)
        return npair + self.npair_ang_weight * angular


def _squared_tangent(alpha):
    """tan^2 of an angle in degrees: a number, or a scalar tensor where it is learned."""
    if isinstance(alpha, torch.Tensor):
        return torch.tan(torch.deg2rad(alpha)) ** 2
    return math.tan(math.radians(alpha)) ** 2
