"""The ICML 2020 pipeline's mAP_c, mAP_1000, mAP_lim and mAP (arXiv 2002.08473), kept so that published tables compare.

They divide by the size of the class with the query counted in, so that a perfect space has (n_c - 1)/n_c, .5 where
classes have two samples, and not 1. For new work take `map_r`.
"""

import numpy as np

from metrics._metric import Hits, RetrievalMetric

# 1023: what the published code's GPU search could return
DEPTHS = {"mAP_1000": 1000, "mAP_lim": 1023, "mAP": np.inf}


class Metric(RetrievalMetric):
    """sum_{i <= depth} P(i) rel(i) / n_c, depth = n_c for `mAP_c`; n_c = samples of the query's class in the reference.

    The highest value is (n_c - 1)/n_c where the query is one of the reference; a query alone in its class has 0. The
    mean over queries is published as mAP; despite its name, it is not a mean over classes. See `map_r` for a metric
    that reaches 1.
    """

    NAMES = {
        "mAP_c": "ICML 2020: average precision over the n_c nearest others / n_c; at most (n_c - 1)/n_c; see map_r",
        "mAP_1000": "ICML 2020: average precision over the 1000 nearest others / n_c; at most (n_c - 1)/n_c; see map_r",
        "mAP_lim": "ICML 2020: average precision over the 1023 nearest others / n_c; at most (n_c - 1)/n_c; see map_r",
        "mAP": "ICML 2020: average precision over all others / n_c; at most (n_c - 1)/n_c; see map_r",
    }

    @property
    def counts_query(self) -> bool:
        return True

    def depth(self, relevant, sizes):
        return DEPTHS.get(self.name, sizes)

    def score(self, hits: Hits) -> np.ndarray:
        return hits.mean_precision(self.depth(hits.relevant, hits.sizes), hits.sizes)
