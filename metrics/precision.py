"""Precision at k and R-precision (Manning et al. 2008; A Metric Learning Reality Check, arXiv 2003.08505)."""

import numpy as np

from metrics._metric import Hits, RetrievalMetric, without_lone


class Metric(RetrievalMetric):
    """Share of the first k neighbours that are of the query's class; k = R, the samples to be found, for `r_precision`.

    Queries alone in their class are left out.
    """

    NAMES = {
        "precision@k": "share of the k nearest others that are of the query's class; queries alone in their class left out",
        "r_precision": "share of the R nearest others that are of the query's class, R = how many there are",
    }

    def depth(self, relevant, sizes):
        return self.parameter or relevant

    def score(self, hits: Hits) -> np.ndarray:
        depth = np.broadcast_to(self.depth(hits.relevant, hits.sizes), hits.relevant.shape)
        return without_lone(hits.sum(hits.ranks <= depth[hits.queries]) / np.maximum(depth, 1), hits)
