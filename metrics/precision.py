"""Precision at k and its kin: R-precision (A Metric Learning Reality Check, arXiv 2003.08505), mP@k of Oxford and
Paris, mMP@k of UnED.
"""

import numpy as np

from metrics._metric import Hits, RetrievalMetric, without_lone


class Metric(RetrievalMetric):
    """Share of the first K neighbours that are of the query's class; queries alone in their class are left out.

    R is the number of samples to be found. K = k; R for `r_precision`; min(k, R) for `mmp@k` (UnED, Ypsilantis et al.,
    arXiv 2309.01858); min(k, rank of the last sample to be found) for `mp@k` (Radenovic et al., Revisiting Oxford and
    Paris, arXiv 1803.11285). `oracle@k` is the share of the R samples that are among the first k, what a perfect order
    of these k would find (ILIAS, arXiv 2502.11748).
    """

    NAMES = {
        "precision@k": (
            "share of the k nearest others that are of the query's class; queries alone in their class left out"
        ),
        "mp@k": (
            "as precision@k, the lists cut at the last sample of the query's class where that comes before k (Oxford "
            "and Paris)"
        ),
        "mmp@k": "as precision@k, k at most the number of samples to be found (UnED); 1 for a perfect space",
        "oracle@k": (
            "share of the samples to be found that are among the k nearest others (ILIAS); queries alone in their "
            "class left out"
        ),
        "r_precision": "share of the R nearest others that are of the query's class, R = how many there are",
    }

    def depth(self, relevant, sizes):
        if self.name == "mmp@k":
            return np.minimum(self.parameter, relevant)
        return self.parameter or relevant

    def score(self, hits: Hits) -> np.ndarray:
        if self.name == "oracle@k":
            return without_lone(hits.sum(hits.ranks <= self.parameter) / np.maximum(hits.relevant, 1), hits)
        depth = np.broadcast_to(self.depth(hits.relevant, hits.sizes), hits.relevant.shape)
        if self.name == "mp@k":
            # 0 where it lies beyond the search
            last = hits.sum(np.where(hits.orders == hits.relevant[hits.queries], hits.ranks, 0))
            depth = np.where(last > 0, np.minimum(last, depth), depth)
        return without_lone(hits.sum(hits.ranks <= depth[hits.queries]) / np.maximum(depth, 1), hits)
