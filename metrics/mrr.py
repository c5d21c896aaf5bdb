"""Mean reciprocal rank of the first sample of the query's class (Voorhees 1999)."""

import numpy as np

from metrics._metric import Hits, RetrievalMetric, without_lone


class Metric(RetrievalMetric):
    """Mean over queries of 1 / rank of the nearest same-class sample. Queries alone in their class are left out."""

    NAMES = {"mrr": "mean of 1 / rank of the first same-class sample; queries alone in their class left out"}
    FIRST_HIT_ONLY = True

    def depth(self, relevant, sizes):
        return np.inf

    def score(self, hits: Hits) -> np.ndarray:
        return without_lone(hits.sum(np.where(hits.orders == 1, 1.0 / hits.ranks, 0.0)), hits)
