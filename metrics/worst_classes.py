"""Recall at k in the tenth of the classes where it is lowest: what a mean over all queries hides."""

import numpy as np

from metrics._metric import mean, part_means
from metrics.e_recall import Metric as Recall

SHARE = 0.1


class Metric(Recall):
    """Mean recall of the tenth of the queries' classes where it is lowest (ceil(C / 10) of C classes, at least one).

    A class's recall is the mean over its queries; a query alone in its class counts as 0, as it does in `e_recall@k`.
    """

    NAMES = {"e_recall@k_worst10": "mean recall at k of the tenth of the classes where it is lowest"}
    VARIANTS = ("cosine",)
    CLASS_WISE = True

    def value(self, space) -> float:
        scores, labels = self.counted(space, space.labels)
        if not len(scores):
            return float("nan")
        recalls = np.sort(part_means(scores, labels))
        return mean(recalls[: -(-len(recalls) // round(1 / SHARE))])
