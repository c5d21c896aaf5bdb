"""MAP@R and MAP@k, as A Metric Learning Reality Check defines them (arXiv 2003.08505)."""

import numpy as np

from metrics._metric import Hits, RetrievalMetric, without_lone


class Metric(RetrievalMetric):
    """map_r = 1/R sum_{i <= R} P(i) rel(i); map@k = sum_{i <= k} P(i) rel(i) / min(k, R), so that a perfect space has
    1.0.

    R = same-class samples in the reference, the query left out; P(i) = precision among the first i. Queries alone in
    their class are left out. pytorch-metric-learning divides map@k by R instead, which is the same where R <= k.
    """

    NAMES = {
        "map_r": "mean average precision over the R nearest others; 1 for a perfect space",
        "map@k": "mean average precision over the k nearest others, divided by min(k, R); 1 for a perfect space",
    }

    def depth(self, relevant, sizes):
        return self.parameter or relevant

    def score(self, hits: Hits) -> np.ndarray:
        depth = self.depth(hits.relevant, hits.sizes)
        return without_lone(hits.mean_precision(depth, np.minimum(depth, hits.relevant)), hits)
