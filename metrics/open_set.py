"""Open-set identification: is a query one of the gallery's classes at all, and at which distance may one say so?

A query is known if the gallery holds an image of its class (other than itself and its sequence), else unknown; its
answer is the nearest image. An answer is accepted if its distance is below a threshold, strictly, as in fnmr.
"""

import numpy as np

from metrics import _answers, fnmr
from metrics._answers import AnswerMetric, Answers

NAN = float("nan")


def known_auroc(answers: Answers) -> float:
    """P(distance of a known < of an unknown query) + half the ties."""
    return _answers.exceedance(answers.distance[answers.known], answers.distance[~answers.known])


def known_aupr(answers: Answers) -> float:
    """Average precision of the known queries, the nearest first."""
    return _answers.average_precision(answers.distance, answers.known)


def unknown_aupr(answers: Answers) -> float:
    """Average precision of the unknown queries, the farthest first."""
    return _answers.average_precision(-answers.distance, ~answers.known)


def fpr(answers: Answers, share: float) -> float:
    """Share of the unknown queries within the smallest distance that at least a `share` of the known ones reach."""
    near = np.sort(answers.distance[answers.known])
    far = answers.distance[~answers.known]
    if not len(near) or not len(far):
        return NAN
    # safe from rounding, so that .28 of 25 is 7
    count = max(int(np.ceil(share * len(near) * (1 - 1e-12))), 1)
    return float((far <= near[count - 1]).mean())


def oscr(answers: Answers) -> float:
    """Open-set classification rate (Dhamija et al., arXiv 1811.04110): area under the share of known queries that are
    rightly named within t against the share of unknown ones within t; `known_auroc` if all are rightly named.
    """
    near = answers.distance[answers.known]
    return _answers.exceedance(near, answers.distance[~answers.known], answers.right[answers.known])


def dir_at(answers: Answers, far: float) -> float:
    """Detection and identification rate (ISO/IEC 19795-1): share of the known queries that are rightly named nearer
    than the threshold below which floor(far U) of the U unknown ones lie, or fewer if some tie.
    """
    strangers = np.sort(answers.distance[~answers.known])
    if not len(strangers) or not answers.known.any():
        return NAN
    rank = fnmr.n_accepted(far, len(strangers))
    threshold = strangers[rank] if rank < len(strangers) else np.inf
    accepted = answers.right & answers.known & (answers.distance < threshold)
    return float(accepted.sum() / answers.known.sum())


def gap(answers: Answers) -> float:
    """Global average precision (GAP, or micro-AP, of recognition): sum of the precision at the right answers by
    ascending distance over all queries, divided by the known ones. Equal distances: wrong ones first.
    """
    if not answers.known.any():
        return NAN
    return _answers.precision_at_right(answers.distance, answers.right) / int(answers.known.sum())


def micro_ap(space, k: int) -> float:
    """AP over all pairs of a query and one of its `k` nearest images, by distance, wrong ones first in ties, divided by
    the number of relevant pairs (isc2021, DISC21).
    """
    columns = space.neighbours(k)
    rows, slots = np.nonzero(columns >= 0)
    total = int(space.relevant.sum())
    if not total:
        return NAN
    distance = np.sqrt(space.squared_distances(rows, columns[rows, slots]))
    right = space.are_relevant(rows, columns[rows, slots][:, None])[:, 0]
    return _answers.precision_at_right(distance, right) / total


OF_ANSWERS = {"known_auroc": known_auroc, "known_aupr": known_aupr, "unknown_aupr": unknown_aupr, "oscr": oscr}
OF_ANSWERS |= {"gap": gap}
AT_PARAMETER = {"fpr@p": fpr, "dir@far": dir_at}


class Metric(AnswerMetric):
    """Of the nearest image of each query; queries without anything to find are unknown, never left out.

    NaN without a known query, and for all but `gap` and `micro_ap@k` without an unknown one. Without roles (queries and
    gallery are the same images) only classes of one image are unknown.
    """

    NAMES = {
        "known_auroc": "chance that a query of a known class is nearer to the gallery than one of an unknown class",
        "known_aupr": "average precision of known queries, the nearest first; equal distances are one step",
        "unknown_aupr": "average precision of unknown queries, the farthest first; equal distances are one step",
        "fpr@p": "share of unknown queries within the distance that a share p of the known ones is within",
        "oscr": "area of rightly named known queries against accepted unknown ones, over all thresholds",
        "dir@far": "share of known queries named rightly and accepted where at most a share far of unknown ones is",
        "gap": "precision at the right answers of all queries by distance, over the known queries (GAP, micro-AP)",
        "micro_ap@k": "average precision of all pairs of a query and its k nearest images, by distance (uAP)",
    }

    @property
    def needs_unknown(self) -> bool:
        return self.name not in ("gap", "micro_ap@k")

    @property
    def higher_is_better(self) -> bool:
        return self.name != "fpr@p"

    def n_nearest(self, space) -> int:
        if self.name == "micro_ap@k":
            return min(self.parameter, space.reference_size)
        return super().n_nearest(space)

    def value(self, space) -> float:
        if self.name == "micro_ap@k":
            return micro_ap(space, self.n_nearest(space))
        answers = _answers.answers(space)
        if self.name in OF_ANSWERS:
            return OF_ANSWERS[self.name](answers)
        return AT_PARAMETER[self.name](answers, self.parameter)
