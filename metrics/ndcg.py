"""Normalised discounted cumulative gain (Jarvelin & Kekalainen, 2002),
its gains those of the levels that are shared.
"""

import numpy as np

from metrics._metric import Hits, RetrievalMetric, without_lone


class Metric(RetrievalMetric):
    """sum_k (2^{l_k} - 1) / log2(1 + k) over the whole list, divided by that of the ideal order; l_k = levels that the
    k-th sample shares.

    Queries to which nothing is related are left out.
    """

    NAMES = {
        "ndcg": (
            "normalised discounted cumulative gain of 2^(levels shared) - 1 over all others; needs labels of two "
            "levels; 1 for a perfect space"
        )
    }
    VARIANTS = ("cosine", "level")
    column = None

    def depth(self, relevant, sizes):
        return np.inf

    def score(self, hits: Hits) -> np.ndarray:
        levels, of_level = hits.by_level()
        discounts = np.log2(1 + np.arange(1, hits.relevant.max(initial=0) + 1))
        sums = np.concatenate([[0.0], np.cumsum(1 / discounts)])  # (R + 1,) over the first ranks
        # (Q, L) samples that share l levels or more; each level adds 2^(l - 1) to their gains
        at_least = of_level[:, ::-1].cumsum(1)[:, ::-1]
        ideal = (sums[at_least] * 2.0 ** np.arange(of_level.shape[1])).sum(1)
        gains = hits.sum((2.0**levels - 1) / np.log2(1 + hits.ranks))
        return without_lone(np.minimum(gains / np.where(ideal > 0, ideal, 1), 1), hits)
