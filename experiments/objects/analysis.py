"""The numbers of docs/evidence.md, from the rows of the runs: how often a split errs, what selection changes."""

import itertools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.objects import components
from experiments.objects.evidence import CHECKPOINTS, LOSSES, STAGES, STEPS, Stage, partner, third
from experiments.objects.training import BYTE
from results import bootstrap
from results.planning import COMPONENTS, Components
from utilities.intervals import t_quantile
from utilities.reading import read_arrays, read_records

METRICS = ("e_recall@1", "map_r")
PAIRS = tuple(itertools.combinations(range(len(LOSSES)), 2))
# with one seed, the variances of seeds and of sets cannot be told apart
FEWEST_SEEDS = 2
SOURCE = "adapters on objects"


@dataclass(frozen=True)
class Runs:
    """The runs of a stage.

    scores: `(2 metrics, losses, training sets, test sets, seeds)` in percent after the last step, NaN where missing.
    early: `(2, losses, training sets, 2, steps, seeds)` on the third set and on the partner, the last step included.
    seeds: the first so many seeds of `trained` are finished; two or more. trained: the training sets that are analysed,
    all as soon as they have two seeds. finished: number of runs.
    """

    stage: Stage
    scores: np.ndarray
    early: np.ndarray
    seeds: int
    trained: np.ndarray
    finished: int

    @property
    def expected(self) -> int:
        """Number of runs of the whole stage."""
        return len(LOSSES) * self.stage.sets * self.stage.seeds

    def differences(self, metric: int) -> list[np.ndarray]:
        """`(training sets, test sets, seeds)` of each of `PAIRS`, of the seeds that are finished."""
        scores = np.full_like(self.scores[metric, ..., : self.seeds], np.nan)
        scores[:, self.trained] = self.scores[metric][:, self.trained, :, : self.seeds]
        return [scores[first] - scores[second] for first, second in PAIRS]

    def habit(self, metric: int) -> np.ndarray:
        """`(losses, splits, seeds)`: each training set of `trained` on its partner."""
        return self.scores[metric][:, self.trained, partner(self.trained), : self.seeds]


def read(folder: Path, name: str) -> Runs:
    """The runs of a stage in the folder of rows; without any, none is finished."""
    stage = STAGES[name]
    scores = np.full((2, len(LOSSES), stage.sets, stage.sets, stage.seeds), np.nan)
    steps = [*CHECKPOINTS, STEPS]
    early = np.full((2, len(LOSSES), stage.sets, 2, len(steps), stage.seeds), np.nan)
    for number, loss in enumerate(LOSSES):
        path = folder / name / f"{loss}.csv"
        rows = read_records(path)[1] if path.exists() else []
        for row in rows:
            values = float(row["r1"]), float(row["map_r"])
            train_set, test_set, seed, step = (int(row[key]) for key in ("train_set", "test_set", "seed", "step"))
            train_set -= stage.first
            test_set -= stage.first
            if step == STEPS:
                scores[:, number, train_set, test_set, seed] = values
            for place, role in enumerate((third, partner)):
                if stage.checkpoints and test_set == role(train_set):
                    early[:, number, train_set, place, steps.index(step), seed] = values
    is_there = np.isfinite(scores[0])
    complete = is_there.sum((0, 2)) == len(LOSSES) * (stage.sets - 1)  # (training sets, seeds)
    seeds_of_set = np.cumprod(complete, axis=1).sum(1)
    seeds = max(int(seeds_of_set.min()), FEWEST_SEEDS)
    trained = np.flatnonzero(seeds_of_set >= seeds)
    return Runs(stage, scores, early, seeds, trained, int(is_there.any(2).sum()))


def by_class(folder: Path, runs: Runs) -> np.ndarray:
    """`(2, losses, training sets, seeds, classes)` in percent: what each class of the partner has."""
    stage = runs.stage
    percents = np.full((2, len(LOSSES), stage.sets, runs.seeds, stage.classes), np.nan)
    for number, loss in enumerate(LOSSES):
        arrays = read_arrays(folder / f"{loss}.npz")
        for key, values in arrays.items():
            train_set, seed, _ = key.split("_")
            if int(seed) < runs.seeds:
                tests = [test_set for test_set, _ in stage.tests(int(train_set))]
                of_partner = values[tests.index(partner(int(train_set)))]
                percents[:, number, int(train_set), int(seed)] = of_partner / np.array([[stage.images], [BYTE]]) * 100
    return percents


class Verdicts(NamedTuple):
    """What one split says of the losses' differences, all pairs on all splits.

    deviation: rms over the pairs of the deviation of a difference over the splits. error: rms of the standard error
    that its paired interval has. ratio: rms of its distance to the mean of the other draws over this error. holds:
    share of intervals with that mean in them. expected: the share if the intervals were right for one draw, and the
    mean of the others uncertain. claims: number of intervals without 0. wrong: of these, with the other sign. inflated:
    median of their differences over the others' mean. sign: share of differences whose sign is not the others', with
    all seeds. sign_of_one: with one seed. count: of intervals.
    """

    deviation: float
    error: float
    ratio: float
    holds: float
    expected: float
    claims: int
    wrong: int
    inflated: float
    sign: float
    sign_of_one: float
    count: int


def of_split(percents: np.ndarray, pair: tuple[int, int], train_set: int) -> tuple[float, float, float]:
    """The difference of a pair of losses on a training set's partner, with its paired interval."""
    sizes = np.ones(percents.shape[-1])
    outcomes = [bootstrap.Outcomes(percents[loss, train_set], sizes) for loss in pair]
    difference = bootstrap.difference(*outcomes, bootstrap.drawn_means(outcomes))
    return difference.value, difference.low, difference.high


def verdicts(runs: Runs, metric: int, percents: np.ndarray) -> Verdicts:
    """`percents`: of `by_class`, of this metric."""
    sizes = np.ones(percents.shape[-1])
    differences = runs.differences(metric)
    rows = []
    signs_of_one = []
    for train_set in runs.trained:
        outcomes = [bootstrap.Outcomes(of_loss[train_set], sizes) for of_loss in percents]
        class_draws = bootstrap.drawn_means(outcomes)
        remaining = np.setdiff1d(np.arange(runs.stage.sets), [train_set, partner(train_set)])
        for pair, (first, second) in enumerate(PAIRS):
            of_split = bootstrap.difference(
                outcomes[first], outcomes[second], (class_draws[first], class_draws[second])
            )
            truth = float(np.nanmean(differences[pair][np.ix_(remaining, remaining)]))
            rows.append((of_split.value, of_split.low, of_split.high, of_split.error, truth))
            of_seeds = differences[pair][train_set, partner(train_set)]
            signs_of_one.append(np.mean(np.sign(of_seeds) != np.sign(truth)))
    value, low, high, error, truth = np.array(rows).T
    is_claim = (low > 0) | (high < 0)
    same_sign = np.sign(value) == np.sign(truth)
    right_claims = np.abs(value / truth)[is_claim & same_sign]
    inflated = float(np.median(right_claims)) if len(right_claims) else math.nan
    uncertainty = _variance_of_others(components.mean_estimate(differences), runs)
    likely = [math.erf(t_quantile(math.inf) / math.sqrt(2 * (1 + uncertainty / of_one**2))) for of_one in error]
    spreads = value.reshape(len(runs.trained), len(PAIRS)).std(0, ddof=1)
    return Verdicts(
        deviation=float(np.sqrt(np.mean(spreads**2))),
        error=float(np.sqrt(np.mean(error**2))),
        ratio=float(np.sqrt(np.mean(((value - truth) / error) ** 2))),
        holds=float(np.mean((low <= truth) & (truth <= high))),
        expected=float(np.mean(likely)),
        claims=int(is_claim.sum()),
        wrong=int((is_claim & ~same_sign).sum()),
        inflated=inflated,
        sign=float(np.mean(~same_sign)),
        sign_of_one=float(np.mean(signs_of_one)),
        count=len(value),
    )


def _variance_of_others(variances: dict[str, float], runs: Runs) -> float:
    """The variance of the mean difference over the draws that share no set with a split."""
    n_training = len(runs.trained) - 2
    n_tests = runs.stage.sets - 2
    by_training = (variances["T"] + variances["S"] / runs.seeds) / n_training
    by_cell = (variances["TE"] + variances["r"] / runs.seeds) / (n_training * n_tests)
    return max(by_training + variances["E"] / n_tests + by_cell, 0.0)


def planned(variances: dict[str, float], metric: int, classes: int) -> Components:
    """The components as a plan takes them: negative estimates are 0."""
    floored = {name: max(variances[name], 0.0) for name in COMPONENTS}
    return Components(METRICS[metric], floored, dict.fromkeys(COMPONENTS, classes), SOURCE)


class Change(NamedTuple):
    """Points by which another selection changes something, with its 95 % interval over the splits."""

    value: float
    low: float
    high: float


def _mean_change(values: np.ndarray, confidence: float = 0.95) -> Change:
    """Of `(splits,)`."""
    half = t_quantile(len(values) - 1, confidence) * values.std(ddof=1) / math.sqrt(len(values))
    return Change(float(values.mean()), float(values.mean() - half), float(values.mean() + half))


class Selection(NamedTuple):
    """What selecting the best of eight checkpoints by R@1 changes in a metric on the test set.

    by_validation: selected on a third set less the last step, per loss. by_test: selected on test less on the third
    set, per loss. of_difference: by_test of the first loss of a pair less that of the second, per pair; its intervals
    hold together.
    """

    by_validation: list[Change]
    by_test: list[Change]
    of_difference: list[Change]


def selection(runs: Runs, metric: int) -> Selection:
    """Of the finished seeds."""
    early = runs.early[:, :, runs.trained][..., : runs.seeds]
    on_third = early[0, :, :, 0].argmax(2)[:, :, None]  # (losses, splits, 1, seeds)
    on_test = early[0, :, :, 1].argmax(2)[:, :, None]
    tested = early[metric, :, :, 1]  # (losses, splits, steps, seeds)
    last = tested[:, :, -1].mean(2)
    by_third = np.take_along_axis(tested, on_third, 2).mean((2, 3))
    by_test = np.take_along_axis(tested, on_test, 2).mean((2, 3))
    gain = by_test - by_third  # (losses, splits)
    together = 1 - 0.05 / len(PAIRS)
    return Selection(
        [_mean_change(of_loss) for of_loss in by_third - last],
        [_mean_change(of_loss) for of_loss in gain],
        [_mean_change(gain[first] - gain[second], together) for first, second in PAIRS],
    )
