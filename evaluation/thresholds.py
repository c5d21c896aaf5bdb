"""Thresholds on the distance of an answer or a pair, probabilities from distances, and how well these are calibrated.

An answer is accepted if its distance is below the threshold T. T is an observed distance or infinity; of equally good
ones it is the smallest. `far`, `eer`, `f1` and `balanced` describe the images that they are chosen on and promise
nothing for new classes; promise.py does.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from metrics import fnmr
from utilities.errors import UserError

STEPS = 100  # of Newton's method; a fit takes about ten
CLOSE = 1e-10  # relative change of a fit's parameters at which it ends


def far(distances: np.ndarray, rate: float) -> float:
    """The largest T below which at most a share `rate` of distances `(U,)` lie."""
    place = fnmr.n_accepted(rate, len(distances))
    if place >= len(distances):
        return float("inf")
    return float(np.partition(distances, place)[place])


def limits(distances: np.ndarray, classes: np.ndarray, rate: float) -> np.ndarray:
    """`(C,)`: `far` of each class by itself, classes ascending."""
    numbers = np.unique(classes, return_inverse=True)[1]
    sizes = np.bincount(numbers)
    ordered = distances[np.lexsort((distances, numbers))]
    places = np.array([fnmr.n_accepted(rate, size) for size in sizes])
    starts = np.cumsum(sizes) - sizes
    return ordered[starts + np.minimum(places, sizes - 1)]


class Accepted(NamedTuple):
    """Candidates for T `(T,)`, ascending, and how many right and wrong answers each accepts, of how many."""

    thresholds: np.ndarray
    right: np.ndarray
    wrong: np.ndarray
    n_right: int
    n_wrong: int


def _accepted(distances: np.ndarray, right: np.ndarray) -> Accepted:
    thresholds = np.append(np.unique(distances[np.isfinite(distances)]), np.inf)
    n_below = [np.searchsorted(np.sort(distances[part]), thresholds, "left") for part in (right, ~right)]
    n_right = int(right.sum())
    n_wrong = len(right) - n_right
    if not n_right or not n_wrong:
        raise UserError(
            f"{n_right:,} right and {n_wrong:,} wrong ones of {len(right):,}: a threshold between them needs both"
        )
    return Accepted(thresholds, *n_below, n_right, n_wrong)


def eer(distances: np.ndarray, right: np.ndarray) -> tuple[float, float]:
    """T at which the false accept and false reject rates differ least, and their mean.

    right `(N,)`: whether an answer is right, or a pair of one class. Raises UserError if all are, or none; so do `f1`
    and `balanced`.
    """
    accepted = _accepted(distances, right)
    false_accepts = accepted.wrong / accepted.n_wrong
    false_rejects = 1 - accepted.right / accepted.n_right
    # rounded, so that equal differences are equal
    best = int(np.round(np.abs(false_accepts - false_rejects), 12).argmin())
    return float(accepted.thresholds[best]), float((false_accepts[best] + false_rejects[best]) / 2)


def f1(distances: np.ndarray, right: np.ndarray) -> tuple[float, float]:
    """T with the best harmonic mean of precision and recall of the right ones, and this mean."""
    accepted = _accepted(distances, right)
    return _best(accepted, 2 * accepted.right / (accepted.right + accepted.wrong + accepted.n_right))


def balanced(distances: np.ndarray, right: np.ndarray) -> tuple[float, float]:
    """T with the best mean of the shares of right ones accepted and wrong ones refused, and this mean."""
    accepted = _accepted(distances, right)
    return _best(accepted, (accepted.right / accepted.n_right + 1 - accepted.wrong / accepted.n_wrong) / 2)


def _best(accepted: Accepted, values: np.ndarray) -> tuple[float, float]:
    best = int(np.round(values, 12).argmax())
    return float(accepted.thresholds[best]), float(values[best])


class Decisions(NamedTuple):
    """What a threshold makes of known and unknown queries.

    baks: mean over known classes of the share named rightly; a refused query is wrong. baus: mean over unknown classes
    of the share refused. named, refused: the same shares over images. NaN without such queries.
    """

    baks: float
    baus: float
    named: float
    refused: float

    @property
    def root(self) -> float:
        """Geometric mean of `baks` and `baus`."""
        return float(np.sqrt(self.baks * self.baus))

    def normalized_accuracy(self, weight: float) -> float:
        """`weight` times the share of known images named rightly, plus the rest times the share of unknown refused."""
        return weight * self.named + (1 - weight) * self.refused


def decisions(answers, threshold: float) -> Decisions:
    """The rates at a threshold. answers: `distance`, `right`, `known`, `label`, `(Q,)` each."""
    accepted = answers.distance < threshold
    is_known = answers.known
    named, of_known = by_class((accepted & answers.right)[is_known], answers.label[is_known])
    refused, of_unknown = by_class(~accepted[~is_known], answers.label[~is_known])
    return Decisions(
        _mean(named / of_known), _mean(refused / of_unknown), _ratio(named, of_known), _ratio(refused, of_unknown)
    )


def by_class(values: np.ndarray, classes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sum of values `(N,)` and number of images of each class, `(C,)` each."""
    numbers = np.unique(classes, return_inverse=True)[1]
    return np.bincount(numbers, values), np.bincount(numbers).astype(np.float64)


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else float("nan")


def _ratio(sums: np.ndarray, sizes: np.ndarray) -> float:
    return float(sums.sum() / sizes.sum()) if len(sizes) else float("nan")


def class_weights(classes: np.ndarray) -> np.ndarray:
    """`(N,)` weights of images, with which each class has the total weight 1."""
    numbers, sizes = np.unique(classes, return_inverse=True, return_counts=True)[1:]
    return 1 / sizes[numbers]


@dataclass(frozen=True)
class Logistic:
    """Probability sigmoid(slope x distance + intercept). odds: right to wrong answers, where it was fitted."""

    slope: float
    intercept: float
    odds: float

    @property
    def is_decreasing(self) -> bool:
        """Whether no farther answer is more probable."""
        return self.slope <= 0

    def __call__(self, distances: np.ndarray) -> np.ndarray:
        """Probabilities `(N,)` at distances `(N,)`."""
        from scipy.special import expit

        return expit(self.slope * distances + self.intercept)


@dataclass(frozen=True)
class Isotonic:
    """Probabilities `(K,)` at the distances `(K,)`, straight lines between, constant outside. odds: see `Logistic`."""

    distances: np.ndarray
    probabilities: np.ndarray
    odds: float

    is_decreasing = True

    def __call__(self, distances: np.ndarray) -> np.ndarray:
        """Probabilities `(N,)` at distances `(N,)`."""
        return np.interp(distances, self.distances, self.probabilities)


def fitted(kind: str, distances: np.ndarray, right: np.ndarray, weights: np.ndarray) -> Logistic | Isotonic:
    """The calibration `kind`, `logistic` or `isotonic`, of answers with distances, whether they are right, and weights,
    `(N,)` each. Answers at infinity are left out. Raises UserError if all are right, or none.
    """
    chosen = np.isfinite(distances)
    distances = distances[chosen]
    right = right[chosen]
    weights = weights[chosen]
    n_right = float(weights[right].sum())
    n_wrong = float(weights[~right].sum())
    if not n_right or not n_wrong:
        raise UserError(
            f"--calibrate {kind}: {int(right.sum()):,} of {len(right):,} are right: probabilities need right and wrong "
            "ones, at least one of each"
        )
    odds = n_right / n_wrong
    if kind == "logistic":
        return Logistic(*logistic(distances, platt_targets(right, weights), weights), odds)
    from sklearn.isotonic import IsotonicRegression

    regression = IsotonicRegression(increasing=False).fit(distances, right.astype(np.float64), weights)
    return Isotonic(regression.X_thresholds_, regression.y_thresholds_, odds)


def platt_targets(right: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Targets `(N,)` a little within 0 and 1 (Platt 1999), with which separable answers have a finite slope."""
    n_right = weights[right].sum()
    n_wrong = weights[~right].sum()
    return np.where(right, (n_right + 1) / (n_right + 2), 1 / (n_wrong + 2))


def logistic(distances: np.ndarray, targets: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """Slope and intercept with the greatest likelihood of targets from 0 to 1, without a penalty, by Newton's method.
    Equal distances have the slope 0.
    """
    from scipy.special import expit, log_expit, logit

    centre = float(np.average(distances, weights=weights))
    spread = float(np.sqrt(np.average((distances - centre) ** 2, weights=weights)))
    share = float(np.average(targets, weights=weights))
    if spread <= 1e-12 * max(abs(centre), 1e-300):
        return 0.0, float(logit(share))
    inputs = np.stack([(distances - centre) / spread, np.ones(len(distances))])

    def likelihood(parameters):
        logits = parameters @ inputs
        return float(weights @ (targets * log_expit(logits) + (1 - targets) * log_expit(-logits)))

    parameters = np.array([0.0, float(logit(share))])
    for _ in range(STEPS):
        probabilities = expit(parameters @ inputs)
        gradient = inputs @ (weights * (targets - probabilities))
        curvature = (inputs * (weights * probabilities * (1 - probabilities))) @ inputs.T
        step = np.linalg.solve(curvature + 1e-14 * np.trace(curvature) * np.eye(2), gradient)
        before = likelihood(parameters)
        while likelihood(parameters + step) < before and np.abs(step).max() > CLOSE:
            step = step / 2
        parameters = parameters + step
        if np.abs(step).max() <= CLOSE * max(1.0, np.abs(parameters).max()):
            break
    slope = float(parameters[0]) / spread
    return slope, float(parameters[1]) - slope * centre


def with_prior(probabilities: np.ndarray, odds: float, prior: float | None) -> np.ndarray:
    """Probabilities for a use in which a share `prior` of answers is right; None: as they are.

    By Bayes: their odds x [prior / (1 - prior)] / `odds`, which are those of the data.
    """
    if prior is None:
        return probabilities
    factor = prior / (1 - prior) / odds
    return factor * probabilities / (factor * probabilities + (1 - probabilities))


def bin_numbers(probabilities: np.ndarray, bins: int, adaptive: bool = False) -> np.ndarray:
    """`(N,)` bins from 0: (a, b] of equal width, 0 in the first; adaptive: of equal counts."""
    if not adaptive:
        return np.searchsorted(np.arange(1, bins) / bins, probabilities, "left")
    numbers = np.empty(len(probabilities), dtype=np.int64)
    for number, rows in enumerate(np.array_split(np.argsort(probabilities, kind="stable"), bins)):
        numbers[rows] = number
    return numbers


def ece(probabilities: np.ndarray, right: np.ndarray, weights: np.ndarray, bins: int = 15, adaptive: bool = False):
    """Expected calibration error: sum over bins of n_b / N x abs(mean probability - share of right ones).

    With the weights `(N,)` of the fit: a fit in which each class has the weight 1 is not to blame for large classes.
    """
    numbers = bin_numbers(probabilities, bins, adaptive)
    return float(np.abs(np.bincount(numbers, weights * (probabilities - right))).sum() / weights.sum())


def fused(probabilities: list[np.ndarray]) -> np.ndarray:
    """Mean of the calibrated probabilities of several networks (WildFusion, arXiv 2408.12934); 1 less it is a
    distance.
    """
    return np.mean(probabilities, axis=0)
