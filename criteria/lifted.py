"""Generalised lifted-structure loss (Hermans et al., In Defense of the Triplet Loss, arXiv 1703.07737)."""

import torch

from criteria._pairs import PairCriterion, log_sum_exp
from criteria._sets import mean_norm, warn_of_normalized
from criteria._tuples import active_share, mean_term
from options.flags import Flag
from utilities.numbers import number
from utilities.reference import Reference

REQUIRES_BATCHMINER = True
ALLOWED_MINING_OPS = ["lifted"]

FLAGS = {
    "neg_margin": Flag(number(), 1.0, "distance that negatives are pushed beyond"),
    "l2": Flag(number(0), 0.005, "weight of the mean norm of the embeddings"),
}


class Criterion(PairCriterion):
    """mean_a [log sum_p exp(d_ap) + log sum_n exp(neg_margin - d_an)]+ + l2 mean_i |x_i|."""

    SPACE = "euclidean"
    STATISTIC = None

    def __init__(self, opt, batchminer):
        super().__init__(opt, batchminer)
        warn_of_normalized("lifted", opt)

    def forward(self, batch: torch.Tensor, labels: torch.Tensor, reference: Reference, **kwargs) -> torch.Tensor:
        """See the base. The miner gives sets, of the anchors that have both."""
        anchors, *sets = self.mine(batch, labels, reference)
        masks = tuple(
            torch.zeros(len(batch), *mask.shape[1:], dtype=torch.bool, device=mask.device).index_copy(0, anchors, mask)
            for mask in sets
        )
        terms = self.compare(batch, labels, reference, masks)["loss"].index_select(0, anchors)
        self.stats = {"active_share": active_share(terms.detach())}
        return mean_term(terms) + self.l2 * mean_norm(batch)

    def formula(self, values, positives, negatives, labels) -> torch.Tensor:
        """See the class."""
        return torch.relu(log_sum_exp(values, positives) + log_sum_exp(self.neg_margin - values, negatives))
