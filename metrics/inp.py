"""Inverse negative penalty, its mean the mINP of re-identification: how far a query's last match is (Ye et al., arXiv
2001.04193).
"""

import numpy as np

from metrics._metric import Hits, RetrievalMetric, without_lone


class Metric(RetrievalMetric):
    """R / rank of the last of the R same-class samples; 1 where they are the first R.
    Queries alone in their class are left out.
    """

    NAMES = {
        "inp": (
            "same-class samples / rank of the last of them, its mean over queries the mINP of re-identification; 1 "
            "for a perfect space"
        )
    }

    def depth(self, relevant, sizes):
        return np.inf

    def score(self, hits: Hits) -> np.ndarray:
        last = hits.sum(np.where(hits.orders == hits.relevant[hits.queries], hits.ranks, 0))
        return without_lone(hits.relevant / np.maximum(last, 1), hits)
