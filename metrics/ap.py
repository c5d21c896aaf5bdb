"""Average precision over the whole ranking, its mean the mAP of retrieval and re-identification
(Market-1501, ICCV 2015).
"""

import numpy as np

from metrics._metric import Hits, RetrievalMetric, without_lone


class Metric(RetrievalMetric):
    """1/R sum_i P(i) rel(i) over all others in the reference, so that a perfect space has 1.0.

    R = same-class samples in the reference, the query left out; P(i) = precision among the first i. Queries alone in
    their class are left out. The ICML pipeline's `mAP` divides by the class's size, the query counted in; `map_r` stops
    after R neighbours. `ap_trapezoid` takes the mean of the precisions before and after each hit, as Oxford and Paris
    do (Radenovic et al., arXiv 1803.11285) and the first code of Market-1501: 1/R sum_j (j / p_j + (j + 1) / (p_j + 1))
    / 2 over hits j = 0, 1, ... at the ranks p_j, counted from 0; j / p_j is 1 for p_j = 0.
    """

    NAMES = {
        "ap": (
            "average precision over all others, its mean over queries the mAP of re-identification; 1 for a perfect "
            "space"
        ),
        "ap_trapezoid": "average precision by trapezoids, its mean the mAP of Oxford and Paris; 1 for a perfect space",
    }

    def depth(self, relevant, sizes):
        return np.inf

    def score(self, hits: Hits) -> np.ndarray:
        if self.name == "ap":
            return without_lone(hits.mean_precision(np.inf, hits.relevant), hits)
        before = np.where(hits.ranks > 1, (hits.orders - 1) / np.maximum(hits.ranks - 1, 1), 1.0)
        return without_lone(hits.sum((before + hits.orders / hits.ranks) / 2) / np.maximum(hits.relevant, 1), hits)
