"""Does the certainty of an answer tell right from wrong ones? By the file's `certainty`, else by the distance."""

import numpy as np

from metrics import _answers
from metrics._answers import AnswerMetric


def r_auroc(certainty: np.ndarray, right: np.ndarray) -> float:
    """Chance that a query with a right answer is more certain than one with a wrong answer, + half the ties."""
    return _answers.exceedance(-certainty[right], -certainty[~right])


def aurc(certainty: np.ndarray, right: np.ndarray) -> float:
    """Area under the risk-coverage curve (Geifman et al., arXiv 1805.08206): mean over i of the share of wrong answers
    `(Q,)` among the i most certain ones. Equally certain ones share their errors evenly.
    """
    if not len(right):
        return float("nan")
    blocks = np.unique(-certainty, return_inverse=True)[1].reshape(-1)
    sizes = np.bincount(blocks)
    errors = np.repeat(np.bincount(blocks, weights=~right) / sizes, sizes)
    return float((np.cumsum(errors) / np.arange(1, len(errors) + 1)).mean())


def e_aurc(certainty: np.ndarray, right: np.ndarray) -> float:
    """`aurc` less that of the ideal order, the right answers first."""
    return max(aurc(certainty, right) - aurc(right.astype(float), right), 0.0) if len(right) else float("nan")


OF_ANSWERS = {"r_auroc": r_auroc, "aurc": aurc, "e_aurc": e_aurc}


class Metric(AnswerMetric):
    """A query's certainty is its entry in `certainty`, else the negative distance of its nearest image.

    `r_auroc` leaves out queries without a relevant item (URL, Kirchhof et al., arXiv 2307.03810); to the others their
    answers are wrong, unless such queries are skipped in all metrics (`skip_unmatched`, lists).
    """

    NAMES = {
        "r_auroc": "chance that a query whose nearest image is right is more certain than one whose is wrong",
        "aurc": "mean share of wrong answers among the most certain queries, over all coverages",
        "e_aurc": "aurc less that of the ideal order, the right answers first",
    }
    UNDEFINED = "it needs queries whose nearest image is right and, for r_auroc, wrong"

    @property
    def higher_is_better(self) -> bool:
        return self.name == "r_auroc"

    def value(self, space) -> float:
        answers = _answers.answers(space)
        certainty = -answers.distance if space.certainty is None else space.certainty
        counted = np.ones(space.size, dtype=bool)
        if self.name == "r_auroc" or space.skip_unmatched:
            counted = answers.known
        return OF_ANSWERS[self.name](certainty[counted], answers.right[counted])
