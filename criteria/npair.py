"""N-pair loss (Sohn, Improved Deep Metric Learning with Multi-class N-pair Loss Objective, NIPS 2016).

All samples of other classes are negatives of an anchor, not one per class as in the paper.
"""

import torch

from criteria._sets import mean_norm, npair_excesses, npair_terms, outweighed_share, triplet_terms, warn_of_normalized
from criteria._tuples import mean_term
from options.flags import Flag
from utilities.criterion import MetricCriterion
from utilities.numbers import number
from utilities.reference import Reference
from utilities.tuples import Triplets

REQUIRES_BATCHMINER = True
ALLOWED_MINING_OPS = ["npair"]
TAKES_TRIPLETS = True

FLAGS = {
    "l2": Flag(number(0), 0.005, "weight of the mean norm of the embeddings"),
}


class Criterion(MetricCriterion):
    """mean_a log(1 + sum_n exp(s_an - s_ap)) + l2 mean_i |x_i|."""

    several_labels = True

    def __init__(self, opt, batchminer):
        super().__init__(opt, batchminer)
        warn_of_normalized("npair", opt)

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, reference: Reference, **kwargs) -> torch.Tensor:
        """Scalar loss of embeddings `batch` `(B, D)` with `labels` `(B,)`, compared with those of `reference`."""
        mined = self.mine(batch, labels, reference)
        if isinstance(mined, Triplets):
            terms = self.of_triplets(batch, reference, mined)
        else:
            terms = npair_terms(batch, reference, *mined)
        self.stats = {"outweighed_share": outweighed_share(terms)}
        return mean_term(terms) + self.l2 * mean_norm(batch)

    def of_triplets(
        self, batch: torch.Tensor, reference: Reference, triplets: Triplets, opposite: bool = False
    ) -> torch.Tensor:
        """The terms `(T,)` of triplets, or their opposites; see `criteria._sets.triplet_terms`."""
        return triplet_terms(npair_excesses(batch, reference, triplets), opposite)
