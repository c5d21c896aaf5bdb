"""The same methods on several splits of the classes: variance by source, does a ranking survive.

`find` sorts the groups into a grid of methods x splits (`Splits`). `components` divides the variance of the runs'
values into parts of methods, splits, both together and seeds. `agreement` is Kendall's tau between the rankings of two
splits, `reversals` counts how often a difference of one split turns round on another, and `optimism` is what choosing
the epoch on test adds.

A group's name holds the split's name: `Split3_Margin` with the pattern `Split\\d+_` is the method `Margin` on the split
`Split3`. Where a part of the pattern is in brackets, that part alone is the split's name.
"""

import itertools
import math
import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from results import bootstrap, inference
from results.columns import BEST_ON_TEST, ON_VALIDATION, OPTIMISM, SELECTED, Column, selected_by, selection_split
from results.groups import Group
from utilities.errors import UserError

DRAWS = 2000
COMPONENTS = ("method", "split", "method x split", "seed")


@dataclass
class Splits:
    """The groups of one data set, every method on every split.

    Attributes:
        members: the groups, `[method][split]`.
        outcomes: of the hits of R@1, `[method][split]`; None if not recorded.
    """

    dataset: str
    methods: list[str]
    splits: list[str]
    members: list[list[Group]]
    outcomes: list[list[bootstrap.Outcomes | None]]
    notes: list[str]

    def values(self, column: Column, how: str) -> list[list[np.ndarray]]:
        """The seeds' printed numbers, `[method][split]`; without those that did not record it."""
        table = []
        for row in self.members:
            values = [group.values(column, how) for group in row]
            table.append([seeds[np.isfinite(seeds)] for seeds in values])
        return table

    def has(self, column: Column, how: str = SELECTED) -> bool:
        """Whether every method has a value on every split."""
        return all(len(seeds) for row in self.values(column, how) for seeds in row)

    def means(self, column: Column, how: str) -> np.ndarray:
        """`(M, K)` means over the seeds."""
        return _means(self.values(column, how))


def find(groups_by_dataset: dict[str, list[Group]], pattern: str, read_queries) -> list[Splits]:
    """The data sets of which at least two methods were trained on at least two splits.

    Args:
        pattern: --splits, the part of a group's name that names the split.
        read_queries: `paired.of_groups`, which reads what the runs' queries found.

    Raises UserError if the pattern is no regular expression, or nothing is left.
    """
    try:
        part = re.compile(pattern)
    except re.error as error:
        raise UserError(f"--splits {pattern}: no regular expression: {error}") from error
    grids = []
    for dataset, groups in groups_by_dataset.items():
        grid = _grid(dataset, groups, part, read_queries)
        if grid:
            grids.append(grid)
    if not grids:
        raise UserError(
            f"--splits {pattern}: no data set has two methods that were trained on the same two splits, named so"
        )
    return grids


def _grid(dataset: str, groups: list[Group], part: re.Pattern, read_queries) -> Splits | None:
    """The groups of a data set as a grid; None if fewer than two methods were trained on the same two splits."""
    counted = [group for group in groups if group.counted]
    selecting = [selection_split(group.counted[0]) for group in counted]
    usual = max(selecting, key=selecting.count, default="")
    # method -> split -> group
    named = {}
    excluded = []
    for group, split in zip(counted, selecting, strict=True):
        match = part.search(group.name)
        if match and split != usual:
            excluded.append(group.name)
        elif match:
            _add_to(named, group, match)
    methods, splits = _largest(named)
    if len(methods) < 2 or len(splits) < 2:
        return None
    notes = []
    for method in named:
        if method not in methods:
            notes.append(f"{dataset}: {method} is not on all {len(splits)} splits, and not among them")
    for name in excluded:
        notes.append(f"{dataset}: {name} is not selected on {usual} as most are, and not among them")
    all_splits = set().union(*named.values())
    for split in sorted(all_splits - set(splits), key=_by_number):
        notes.append(f"{dataset}: {split} does not have all {len(methods)} methods, and is not among them")
    members = [[named[method][split] for split in splits] for method in methods]
    queries, reading_notes = read_queries(list(itertools.chain.from_iterable(members)))
    hits = {name: method.outcomes["hit"] for name, method in queries.items()}
    outcomes = [[hits.get(group.name) for group in row] for row in members]
    return Splits(dataset, methods, splits, members, outcomes, notes + reading_notes)


def _add_to(named: dict[str, dict[str, Group]], group: Group, match: re.Match) -> None:
    """Put a group into method -> split -> group by its name. Raises UserError if its place is taken."""
    method = group.name.replace(match[0], "", 1).strip("_-")
    in_brackets = list(filter(None, match.groups()))
    split = in_brackets[0] if in_brackets else match[0].strip("_-")
    group_of = named.setdefault(method, {})
    if split in group_of:
        raise UserError(
            f"--splits {match.re.pattern}: {group.name} and {group_of[split].name} are both {method!r} on {split!r}"
        )
    group_of[split] = group


def _largest(named: dict[str, dict[str, Group]]) -> tuple[list[str], list[str]]:
    """The methods and splits of the largest complete table within method -> split -> group.

    Some splits may not have been run to their end.
    """
    best = ([], [])
    # a table of one method or split is smaller than any other
    best_size = (-1, -1)
    for first, second in itertools.product(named.values(), repeat=2):
        splits = set(first) & set(second)
        methods = [method for method, group_of in named.items() if splits <= set(group_of)]
        size = (min(2, len(methods), len(splits)), len(methods) * len(splits))
        if size > best_size:
            best = (methods, sorted(splits, key=_by_number))
            best_size = size
    return best


def _by_number(split: str) -> list:
    """Sorts `Split10` behind `Split2`."""
    return [int(word) if word.isdigit() else word for word in re.split(r"(\d+)", split)]


def components(values: list[list[np.ndarray]]) -> dict[str, float]:
    """Standard deviations of the parts of a mixed model with random methods, splits, their interaction and seeds.

    By REML; where that does not converge, by the mean squares of a balanced table.
    NaN for parts that the values cannot tell apart.

    Args:
        values: the seeds' numbers, `[method][split]`.
    """
    finite = [[np.asarray(seeds)[np.isfinite(seeds)] for seeds in row] for row in values]
    estimates = _by_mixed_model(finite)
    if estimates is not None:
        return estimates
    counts = set(map(len, itertools.chain.from_iterable(finite)))
    if len(counts) > 1 or 0 in counts:
        return dict.fromkeys(COMPONENTS, math.nan)
    return by_mean_squares(np.array(finite, dtype=np.float64))


def _by_mixed_model(values: list[list[np.ndarray]]) -> dict[str, float] | None:
    """The estimates of REML (statsmodels); None if it does not converge."""
    import warnings

    import pandas as pd
    import statsmodels.formula.api as formula

    rows = []
    for m, row in enumerate(values):
        for k, seeds in enumerate(row):
            rows += [(m, k, value) for value in seeds]
    frame = pd.DataFrame(rows, columns=["method", "split", "value"])
    parts = {"method": "0 + C(method)", "split": "0 + C(split)", "method x split": "0 + C(method):C(split)"}
    # the optimiser starts at variances near 1
    scale = frame["value"].std() or 1.0
    frame["value"] = (frame["value"] - frame["value"].mean()) / scale
    with warnings.catch_warnings():
        # a variance estimated as 0 is on the boundary, which statsmodels warns of
        warnings.simplefilter("ignore")
        model = formula.mixedlm("value ~ 1", frame, groups=np.ones(len(frame)), re_formula="0", vc_formula=parts)
        try:
            # the second method is tried where the first does not converge
            fitted = model.fit(reml=True, method=["bfgs", "powell"])
        except np.linalg.LinAlgError:
            return None
    variances = dict(zip(model.exog_vc.names, fitted.vcomp, strict=True)) | {"seed": fitted.scale}
    if not fitted.converged or not all(math.isfinite(variance) for variance in variances.values()):
        return None
    return {name: float(scale) * math.sqrt(max(float(variances[name]), 0.0)) for name in COMPONENTS}


def by_mean_squares(table: np.ndarray) -> dict[str, float]:
    """The estimates of the analysis of variance of a balanced table `(M, K, S)`: standard deviations.

    They are 0 if a variance comes out below 0.

    Each expected mean square is a sum of variances (Searle, Casella & McCulloch, Variance Components, 1992, section
    4.4):
    seed: s^2; method x split: s^2 + S v_mk; method: s^2 + S v_mk + K S v_m; split: s^2 + S v_mk + M S v_k.
    With one seed per cell, seed and interaction cannot be distinguished and are NaN.
    """
    methods, splits, seeds = table.shape
    cells = table.mean(2)
    grand = table.mean()
    of_methods = cells.mean(1)
    of_splits = cells.mean(0)
    residuals = cells - of_methods[:, None] - of_splits + grand
    square_method = splits * seeds * ((of_methods - grand) ** 2).sum() / (methods - 1)
    square_split = methods * seeds * ((of_splits - grand) ** 2).sum() / (splits - 1)
    square_both = seeds * (residuals**2).sum() / ((methods - 1) * (splits - 1))
    square_seed = math.nan
    if seeds > 1:
        square_seed = ((table - cells[..., None]) ** 2).sum() / (methods * splits * (seeds - 1))
    variances = {
        "method": (square_method - square_both) / (splits * seeds),
        "split": (square_split - square_both) / (methods * seeds),
        "method x split": (square_both - square_seed) / seeds,
        "seed": square_seed,
    }
    return {name: float(np.sqrt(np.maximum(variances[name], 0.0))) for name in COMPONENTS}


def of_queries(outcomes: list[list[bootstrap.Outcomes | None]]) -> float:
    """Standard error in points of a run's R@1 that the draw of its test classes leaves; NaN if unknown.

    Root mean square over the runs.
    """
    variances = []
    for outcome in itertools.chain.from_iterable(outcomes):
        if outcome is not None:
            n = len(outcome.sizes)
            residuals = (outcome.sums - outcome.means[:, None] * outcome.sizes) / outcome.sizes.sum()
            variances += list((residuals**2).sum(1) * n / (n - 1))
    if not variances:
        return math.nan
    return 100 * math.sqrt(np.mean(variances))


class Agreement(NamedTuple):
    """Kendall's tau: mean over pairs of splits with its 95 % interval, lowest and highest.

    `of_seeds`: over pairs of seeds of one split.
    """

    mean: float
    interval: tuple[float, float]
    extremes: tuple[float, float]
    of_seeds: float


def agreement(values: list[list[np.ndarray]]) -> Agreement:
    """How similarly the splits rank the methods.

    The interval is a percentile bootstrap over splits (pairs of a split with itself do not count) and over seeds
    inside them. `of_seeds` ranks by single seeds: of the methods on one split, whose seeds have nothing in common
    but the split.
    """
    rng = np.random.default_rng(0)
    count = len(values[0])
    measured = _above(taus(_means(values)))
    means = []
    for _ in range(DRAWS):
        resampled = [[seeds[rng.integers(0, len(seeds), len(seeds))] for seeds in row] for row in values]
        splits = rng.integers(0, count, count)
        drawn_taus = taus(_means(resampled))[splits][:, splits]
        of_two_splits = drawn_taus[splits[:, None] < splits]
        if len(of_two_splits):
            means.append(float(of_two_splits.mean()))
    fewest = min(map(len, itertools.chain.from_iterable(values)))
    single = np.array([[seeds[:fewest] for seeds in row] for row in values])  # (M, K, S)
    of_seeds = np.array([math.nan])
    if fewest > 1:
        of_seeds = np.concatenate([_above(taus(single[:, k])) for k in range(count)])
    low, high = np.nanquantile(means, [0.025, 0.975])
    return Agreement(
        float(measured.mean()),
        (float(low), float(high)),
        (float(measured.min()), float(measured.max())),
        float(of_seeds.mean()),
    )


def _means(values: list[list[np.ndarray]]) -> np.ndarray:
    """`(M, K)` means of the seeds' numbers, `[method][split]`."""
    return np.array([[seeds.mean() for seeds in row] for row in values])


def taus(values: np.ndarray) -> np.ndarray:
    """Kendall's tau-b between all columns `(K, K)` of `values` `(M, K)`; NaN if all values of a column are equal.

    The same as `scipy.stats.kendalltau` of each pair, which takes 250 times as long: 16 s for the bootstrap above.
    """
    first, second = np.triu_indices(len(values), 1)
    signs = np.sign(values[first] - values[second])
    untied = np.abs(signs).sum(0)
    with np.errstate(invalid="ignore"):
        return signs.T @ signs / np.sqrt(untied[:, None] * untied)


def _above(table: np.ndarray) -> np.ndarray:
    """The entries above the diagonal."""
    return table[np.triu_indices(len(table), 1)]


class Reversals(NamedTuple):
    """Over ordered pairs (a pair of methods on one split, another split).

    Attributes:
        tried: pairs x splits with an interval.
        significant: those of them whose interval excludes 0.
        followed: those x each other split.
        turned: those of them with the other sign there.
        met: those of `followed` with an interval on the other split.
        against: those of them whose interval excludes 0 on the other side.
        predicted: share of the differences with an interval on both splits that lie within the first's, widened by the
            other's for the chance in both; NaN without any.
    """

    tried: int
    significant: int
    followed: int
    turned: int
    met: int
    against: int
    predicted: float


def reversals(grid: Splits, column: Column, by_classes: bool) -> Reversals:
    """How often a difference that one split shows turns round on another.

    Args:
        by_classes: intervals by paired draws of classes and of seeds (`bootstrap`), of the hits of R@1; else Welch's,
            of seeds alone.
    """
    if by_classes:
        by_split = [_intervals_by_classes([row[k] for row in grid.outcomes]) for k in range(len(grid.splits))]
    else:
        values = grid.values(column, SELECTED)
        by_split = [_welch_intervals([row[k] for row in values]) for k in range(len(grid.splits))]
    value, low, high = np.moveaxis(np.array(by_split), -1, 0)  # (K, pairs) each
    sign = np.where(low > 0, 1, np.where(high < 0, -1, 0))
    has_interval = np.isfinite(low)
    followed = turned = met = against = within = compared = 0
    for a, b in itertools.permutations(range(len(grid.splits)), 2):
        is_shown = sign[a] != 0
        followed += int(is_shown.sum())
        turned += int((is_shown & (value[b] * sign[a] < 0)).sum())
        met += int((is_shown & has_interval[b]).sum())
        against += int((is_shown & (sign[b] == -sign[a])).sum())
        down = np.hypot(value[a] - low[a], high[b] - value[b])
        up = np.hypot(high[a] - value[a], value[b] - low[b])
        in_both = has_interval[a] & has_interval[b]
        compared += int(in_both.sum())
        within += int((in_both & (value[b] >= value[a] - down) & (value[b] <= value[a] + up)).sum())
    predicted = within / compared if compared else math.nan
    return Reversals(int(has_interval.sum()), int((sign != 0).sum()), followed, turned, met, against, predicted)


def _intervals_by_classes(outcomes: list[bootstrap.Outcomes]) -> list[tuple[float, float, float]]:
    """(difference, low, high) in points of all pairs of methods on one split, by paired draws of classes and seeds."""
    means = bootstrap.drawn_means(outcomes, DRAWS)
    intervals = []
    for a, b in itertools.combinations(range(len(outcomes)), 2):
        difference = bootstrap.difference(outcomes[a], outcomes[b], (means[a], means[b]))
        intervals.append((100 * difference.value, 100 * difference.low, 100 * difference.high))
    return intervals


def _welch_intervals(values: list[np.ndarray]) -> list[tuple[float, float, float]]:
    """(difference, low, high) of all pairs of methods on one split, by Welch's t; infinite bounds for a single seed."""
    estimates = [inference.estimate(seeds) for seeds in values]
    intervals = []
    for first, second in itertools.combinations(estimates, 2):
        low, high = inference.difference(first, second) or (-math.inf, math.inf)
        intervals.append((first.mean - second.mean, low, high))
    return intervals


class Optimism(NamedTuple):
    """Choosing the epoch on test: the gain in points.

    Attributes:
        mean, deviation, extremes: over all runs.
        of_means: the deviation of its means over seeds, methods x splits.
        reordered: how many pairs of methods on a split it reorders, of `pairs`.
    """

    mean: float
    deviation: float
    extremes: tuple[float, float]
    of_means: float
    reordered: int
    pairs: int


def optimism(grid: Splits, column: Column) -> Optimism | None:
    """By how much the epoch chosen on test is better than the one chosen on validation.

    None if runs do not have both.
    """
    gain = selected_by(column, OPTIMISM)
    if not grid.has(gain):
        return None
    gains = np.concatenate(list(itertools.chain.from_iterable(grid.values(gain, SELECTED))))
    on_validation = grid.means(selected_by(column, ON_VALIDATION), SELECTED)
    on_test = grid.means(selected_by(column, BEST_ON_TEST), SELECTED)
    n_reordered, pairs = reordered(on_validation, on_test)
    return Optimism(
        float(gains.mean()),
        float(gains.std(ddof=1)),
        (float(gains.min()), float(gains.max())),
        float(grid.means(gain, SELECTED).std(ddof=1)),
        n_reordered,
        pairs,
    )


def reordered(first: np.ndarray, second: np.ndarray) -> tuple[int, int]:
    """Pairs of rows (methods) that two tables `(M, K)` order differently in a column, of how many."""
    pairs = list(itertools.combinations(range(len(first)), 2))
    turned = sum(int(((first[a] - first[b]) * (second[a] - second[b]) < 0).sum()) for a, b in pairs)
    return turned, len(pairs) * first.shape[1]
