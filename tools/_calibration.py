"""Probabilities of `decide`: fitted on the answers of set-aside classes, and their error on classes held out."""

from typing import NamedTuple

import numpy as np

from datasets import _schemes
from evaluation import naming, thresholds
from metrics._answers import Answers
from results import bootstrap
from tools._queries import Queries
from utilities.errors import UserError
from utilities.intervals import CONFIDENCE

FOLDS = 5


class HeldOut(NamedTuple):
    """Probabilities of answers of held-out classes, whether the answers are right, and their units, `(N,)` each.
    Each unit has the weight 1.
    """

    probabilities: np.ndarray
    right: np.ndarray
    units: np.ndarray


class Error(NamedTuple):
    """An expected calibration error and its 95 % interval over classes."""

    value: float
    low: float
    high: float


def answers_of_each(queries: Queries) -> list[Answers]:
    """The answers of each network by itself."""
    if len(queries.spaces) == 1:
        return [queries.answers]
    listed = []
    for space in queries.spaces:
        answers = naming.answers(space)
        listed.append(Answers(*(array[queries.rows] for array in answers)))
    return listed


def fitted(kind: str, listed: list[Answers], units: np.ndarray, chosen=slice(None)) -> list:
    """A calibration for each network, from the `chosen` of its answers."""
    weights = thresholds.class_weights(units[chosen])
    calibrations = []
    for answers in listed:
        calibrations.append(thresholds.fitted(kind, answers.distance[chosen], answers.right[chosen], weights))
    return calibrations


def held_out(kind: str, queries: Queries, listed: list[Answers]) -> HeldOut:
    """Probabilities of the answers, each from the classes of the other `FOLDS` folds. Raises UserError for fewer units
    than folds, and for folds without right or wrong answers.
    """
    units = queries.images.units
    names = np.unique(units)
    if len(names) < FOLDS:
        raise UserError(
            f"a calibration error by {FOLDS} folds over classes needs {FOLDS} of them, and {len(names)} are set aside"
        )
    places = np.empty(len(names), dtype=np.int64)
    places[_schemes.mixed(names.tolist(), 0)] = np.arange(len(names))
    folds = places[np.searchsorted(names, units)] % FOLDS
    probabilities = np.empty(len(units))
    right = np.empty(len(units), dtype=bool)
    for fold in range(FOLDS):
        inside = folds == fold
        calibrations = fitted(kind, listed, units, ~inside)
        if len(listed) == 1:
            probabilities[inside] = calibrations[0](listed[0].distance[inside])
            right[inside] = listed[0].right[inside]
        else:
            answers = naming.fused(queries.spaces, calibrations, queries.rows[inside])
            probabilities[inside] = 1 - answers.distance
            right[inside] = answers.right
    return HeldOut(probabilities, right, units)


def error_of(of_classes: HeldOut, bins: int, adaptive: bool) -> Error:
    """The expected calibration error, and quantiles of its values on drawn classes."""
    probabilities, right, units = of_classes
    weights = thresholds.class_weights(units)
    value = thresholds.ece(probabilities, right, weights, bins, adaptive)
    numbers = thresholds.bin_numbers(probabilities, bins, adaptive)
    names, classes = np.unique(units, return_inverse=True)
    excess = np.zeros((bins, len(names)))
    np.add.at(excess, (numbers, classes), weights * (probabilities - right))
    means = bootstrap.drawn_means([bootstrap.Outcomes(excess, np.ones(len(names)))])[0]
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(np.abs(means).sum(1), [tail, 1 - tail])
    return Error(value, float(low), float(high))
