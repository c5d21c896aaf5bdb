"""The answer of each query: the nearest gallery image, its distance, and whether it is of the query's class.

A query is known if the gallery holds an image that is relevant to it, else unknown. `Answers` and the functions of
open_set.py and certainty.py are of arrays alone, so that other answers (a class mean, a vote) are measured alike.
"""

from typing import NamedTuple

import numpy as np

from metrics._metric import Metric


class Answers(NamedTuple):
    """What Q queries are told: distance `(Q,)` of the answer, infinite if there is none; right `(Q,)`, whether its
    class is that of the query; known `(Q,)`, whether anything is relevant to the query; label `(Q,)` its class.
    """

    distance: np.ndarray
    right: np.ndarray
    known: np.ndarray
    label: np.ndarray


class AnswerMetric(Metric):
    """A metric of `answers(space)`: it searches, but is not a mean over queries."""

    SEARCHES = True
    CLASS_WISE = False
    TAKES_RERANKED = False
    UNDEFINED = "it needs queries with and without a relevant item in the gallery"
    VARIANTS = ("cosine",)

    def n_nearest(self, space) -> int:
        """How many nearest neighbours of each query it reads."""
        return 0 if space.classless.any() else 1


def answers(space) -> Answers:
    """The nearest gallery image of each query of an `EmbeddingSpace`; gallery images of no class are left out."""
    return space.remember("answers", lambda: _nearest(space))


def _nearest(space) -> Answers:
    distance = np.full(space.size, np.inf)
    right = np.zeros(space.size, dtype=bool)
    answers = Answers(distance, right, space.relevant > 0, space.labels)
    classless = space.classless
    if classless.any():
        if space.ranks.writes:
            size = len(classless)
            print(f"open set: {int(classless.sum()):,} of {size:,} gallery images have no class and are left out")
        if classless.all():
            return answers
        space = space.within(np.flatnonzero(~classless))
    columns = space.neighbours(1)[:, 0]
    rows = np.flatnonzero(columns >= 0)
    distance[rows] = np.sqrt(space.squared_distances(rows, columns[rows]))
    right[rows] = space.are_relevant(rows, columns[rows, None])[:, 0]
    return answers


def exceedance(low: np.ndarray, high: np.ndarray, weights: np.ndarray | None = None) -> float:
    """P(low < high) + half of P(low = high) for independent draws of `low` `(A,)` and `high` `(B,)`; NaN if either is
    empty. weights `(A,)`, from 0 to 1: each pair counts by that of its `low`.
    """
    if not len(low) or not len(high):
        return float("nan")
    high = np.sort(high)
    # twice the number of pairs that count: whole, so that no rounding gathers
    halves = 2 * len(high) - np.searchsorted(high, low, "left") - np.searchsorted(high, low, "right")
    if weights is not None:
        halves = halves * weights
    return float(halves.sum() / (2 * len(low) * len(high)))


def average_precision(distance: np.ndarray, positive: np.ndarray) -> float:
    """Average precision of the `positive` `(P,)` by ascending distance, equal ones in one step (as scikit-learn); NaN
    if none is positive, or all are.
    """
    if positive.all() or not positive.any():
        return float("nan")
    steps = np.unique(distance, return_inverse=True)[1].reshape(-1)
    hits = np.bincount(steps, weights=positive)
    precision = np.cumsum(hits) / np.cumsum(np.bincount(steps))
    return float((hits * precision).sum() / hits.sum())


def precision_at_right(distance: np.ndarray, right: np.ndarray) -> float:
    """Sum of the precision at the right ones of `(P,)` answers, by ascending distance; wrong ones first in ties."""
    n_wrong = np.searchsorted(np.sort(distance[~right]), np.sort(distance[right]), "right")
    n_right = np.arange(1, len(n_wrong) + 1)
    return float((n_right / (n_right + n_wrong)).sum())
