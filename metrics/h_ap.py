"""Hierarchical average precision (HAPPIER, Ramzi et al., ECCV 2022, arXiv 2207.04873): what shares more levels with the
query comes first.
"""

import numpy as np

from metrics._metric import Hits, RetrievalMetric, up_to_each


class Metric(RetrievalMetric):
    """H-AP = sum_k [sum_{j <= k} min(rel_j, rel_k)] / k / sum_k rel_k over the ranks k
    of what shares any level with the query.

    Of L levels, what shares l has the relevance rel = (l / L) / c_l, where c_l is how many share exactly l: all levels
    have the same share but for l / L. In `h_ap`, as in the authors' code, c_L counts the query itself in where it is in
    the reference; in `h_ap_others`, as in the paper, it does not. Their function counts twice where two levels have the
    same relevance, and can exceed 1; this is the definition. Queries to which nothing is related are left out.
    """

    NAMES = {
        "h_ap": (
            "hierarchical average precision, the query counted into its class's size as in HAPPIER's code; needs "
            "labels of two levels"
        ),
        "h_ap_others": "the same by the sizes of classes without the query, as in HAPPIER's paper",
    }
    VARIANTS = ("cosine",)
    column = None

    @property
    def counts_query(self) -> bool:
        return self.name == "h_ap"

    def depth(self, relevant, sizes):
        return np.inf

    def score(self, hits: Hits) -> np.ndarray:
        counts = hits.of_level.astype(np.float64)  # (Q, L)
        counts[:, -1] += (hits.sizes - hits.relevant) * (self.name == "h_ap")
        relevances = np.arange(1, counts.shape[1] + 1) / np.maximum(counts, 1)
        of_hits = relevances[hits.queries, hits.levels - 1]  # (H,)
        shared = np.zeros(len(hits.queries))
        for level in range(1, counts.shape[1] + 1):
            of_level = relevances[hits.queries, level - 1]
            shared += up_to_each(hits.levels == level, hits.orders) * np.minimum(of_level, of_hits)
        total = (relevances * hits.of_level).sum(1)
        return np.divide(hits.sum(shared / hits.ranks), total, out=np.full(len(total), np.nan), where=total > 0)
