"""Logistic triplet loss: mean of log(1 + exp(d_ap - d_an)) over the mined triplets."""

from torch.nn.functional import softplus

from utilities.criterion import MetricCriterion
from utilities.tensors import pair_distances

REQUIRES_BATCHMINER, REQUIRES_OPTIM, ALLOWED_MINING_OPS = True, False, None


class Criterion(MetricCriterion):
    def __init__(self, opt, batchminer):
        super().__init__(batchminer)

    def forward(self, batch, labels, **kwargs):
        a, p, n = self.triplets(batch, labels)
        terms = softplus(pair_distances(batch, a, p) - pair_distances(batch, a, n))
        return terms.sum() / max(len(terms), 1)
