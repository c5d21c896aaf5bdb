"""Recall at k: does the query find its class among its k nearest neighbours? (Jegou et al. 2011; Song et al., arXiv
1511.06452).
"""

import numpy as np

from metrics._metric import Hits, RetrievalMetric


class Metric(RetrievalMetric):
    """Share of queries with a sample of their class among the k nearest others. A query alone in its class counts as
    0.
    """

    NAMES = {"e_recall@k": "share of queries with a same-class sample among the k nearest others"}
    FIRST_HIT_ONLY = True

    def depth(self, relevant, sizes):
        return self.parameter

    def score(self, hits: Hits) -> np.ndarray:
        return (hits.sum((hits.orders == 1) & (hits.ranks <= self.parameter)) > 0).astype(np.float64)
