"""Average set intersection (DyML, Sun et al., CVPR 2021, arXiv 2103.11781): how much the first k have in common with
the ideal first k.
"""

import numpy as np

from metrics._metric import Hits, RetrievalMetric, up_to_each, without_lone
from metrics._truth import spans


class Metric(RetrievalMetric):
    """Mean over k <= R
    of sum_l min(samples of level l among the first k, and among the first k of the ideal order) / k.

    R samples share any level with the query; in the ideal order they come first, those that share more levels before
    the others. By one column of the labels (`asi_level0`) there are hits and others. Queries to which nothing is
    related are left out.
    """

    NAMES = {
        "asi": (
            "average set intersection with the ideal order, by levels; needs labels of two levels; 1 for a perfect "
            "space"
        )
    }
    VARIANTS = ("cosine", "level")
    column = None

    def depth(self, relevant, sizes):
        return relevant

    def score(self, hits: Hits) -> np.ndarray:
        levels, of_level = hits.by_level()
        row, k = spans(np.ones_like(hits.relevant), hits.relevant)  # (P,) each, k from 1 to R of each query
        starts = np.cumsum(hits.relevant) - hits.relevant
        near = hits.ranks <= hits.relevant[hits.queries]
        places = (starts[hits.queries] + hits.ranks - 1)[near]
        levels = levels[near]
        shared = np.zeros(len(k))
        higher = np.zeros_like(hits.relevant)
        for level in range(of_level.shape[1], 0, -1):
            hits_at_level = np.zeros(len(k), dtype=np.int64)
            hits_at_level[places[levels == level]] = 1
            ideal = np.clip(k - higher[row], 0, of_level[row, level - 1])
            shared += np.minimum(up_to_each(hits_at_level, k), ideal)
            higher = higher + of_level[:, level - 1]
        return without_lone(
            np.bincount(row, weights=shared / k, minlength=len(starts)) / np.maximum(hits.relevant, 1), hits
        )
