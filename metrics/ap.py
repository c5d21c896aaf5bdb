"""Average precision over the whole ranking, its mean the mAP of retrieval and re-identification (Market-1501, ICCV 2015)."""

import numpy as np

from metrics._metric import Hits, RetrievalMetric, without_lone


class Metric(RetrievalMetric):
    """1/R sum_i P(i) rel(i) over all others in the reference, so that a perfect space has 1.0.

    R = same-class samples in the reference, the query left out; P(i) = precision among the first i. Queries alone in their class are left
    out. The ICML pipeline's `mAP` divides by the class's size, the query counted in; `map_r` stops after R neighbours.
    """

    NAMES = {"ap": "average precision over all others, its mean over queries the mAP of re-identification; 1 for a perfect space"}

    def depth(self, relevant, sizes):
        return np.inf

    def score(self, hits: Hits) -> np.ndarray:
        return without_lone(hits.mean_precision(np.inf, hits.relevant), hits)
