"""The same methods trained on several splits of the classes: where the variance lies, and whether a ranking survives
another split.

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
    """The groups of one data set: `members[method][split]`, every method on every split. `outcomes`: of the hits of
    R@1, where recorded.
    """

    dataset: str
    methods: list[str]
    splits: list[str]
    members: list[list[Group]]
    outcomes: list[list[bootstrap.Outcomes | None]]
    notes: list[str]

    def values(self, column: Column, how: str) -> list[list[np.ndarray]]:
        """The seeds' printed numbers, `[method][split]`; without those that did not record it."""
        found = [[group.values(column, how) for group in row] for row in self.members]
        return [[seeds[np.isfinite(seeds)] for seeds in row] for row in found]

    def has(self, column: Column, how: str = SELECTED) -> bool:
        """Whether every method has a value on every split."""
        return all(len(seeds) for row in self.values(column, how) for seeds in row)

    def means(self, column: Column, how: str) -> np.ndarray:
        """`(M, K)` means over the seeds."""
        return np.array([[np.mean(seeds) for seeds in row] for row in self.values(column, how)])


def find(of: dict[str, list[Group]], pattern: str, read_queries) -> list[Splits]:
    """The data sets of which at least two methods were trained on at least two splits.

    Args:
        read_queries: `paired.of_groups`, which reads what the runs' queries found.

    Raises UserError where the pattern is no regular expression, or nothing is left.
    """
    try:
        part = re.compile(pattern)
    except re.error as error:
        raise UserError(f"--splits {pattern}: no regular expression: {error}") from error
    found = []
    for dataset, groups in of.items():
        named = {}
        counted = [group for group in groups if group.counted]
        chosen_on = [selection_split(group.counted[0]) for group in counted]
        usual = max(chosen_on, key=chosen_on.count, default="")
        other = [
            group.name
            for group, split in zip(counted, chosen_on, strict=True)
            if split != usual and part.search(group.name)
        ]
        for group in (group for group in counted if group.name not in other):
            if match := part.search(group.name):
                method = group.name.replace(match[0], "", 1).strip("_-")
                split = next((one for one in match.groups() if one), match[0].strip("_-"))
                if split in named.setdefault(method, {}):
                    raise UserError(
                        f"--splits {pattern}: {group.name} and {named[method][split].name} are both {method!r} on "
                        f"{split!r}"
                    )
                named[method][split] = group
        whole, splits = _largest(named)
        left = sorted({split for own in named.values() for split in own} - {*splits}, key=_by_number)
        notes = [
            f"{dataset}: {method} is not on all {len(splits)} splits, and not among them"
            for method in named
            if method not in whole
        ]
        notes += [f"{dataset}: {name} is not selected on {usual} as most are, and not among them" for name in other]
        notes += [f"{dataset}: {split} does not have all {len(whole)} methods, and is not among them" for split in left]
        if len(whole) >= 2 and len(splits) >= 2:
            members = [[named[method][split] for split in splits] for method in whole]
            queries, why = read_queries([group for row in members for group in row])
            outcomes = [
                [queries[g.name].outcomes["hit"] if g.name in queries else None for g in row] for row in members
            ]
            found.append(Splits(dataset, whole, splits, members, outcomes, notes + why))
    if not found:
        raise UserError(
            f"--splits {pattern}: no data set has two methods that were trained on the same two splits, named so"
        )
    return found


def _largest(named: dict[str, dict[str, Group]]) -> tuple[list[str], list[str]]:
    """The methods and splits of the largest whole table within method -> split -> group: some splits may not have been
    run to their end.
    """
    common = [{*a} & {*b} for a, b in itertools.product(named.values(), repeat=2)]
    tables = [
        ([method for method, own in named.items() if splits <= {*own}], sorted(splits, key=_by_number))
        for splits in common
    ]
    return max(tables, key=lambda table: (min(2, *map(len, table)), len(table[0]) * len(table[1])), default=([], []))


def _by_number(split: str) -> list:
    """Sorts `Split10` behind `Split2`."""
    return [int(word) if word.isdigit() else word for word in re.split(r"(\d+)", split)]


def components(values: list[list[np.ndarray]]) -> dict[str, float]:
    """Standard deviations of the parts of a mixed model with random methods, splits, their interaction and seeds.

    By REML; where that does not converge, by the mean squares of a balanced table. NaN for parts that the values cannot
    tell apart.

    Args:
        values: the seeds' numbers, `[method][split]`.
    """
    finite = [[np.asarray(seeds)[np.isfinite(seeds)] for seeds in row] for row in values]
    found = _by_mixed_model(finite)
    if found is not None:
        return found
    counts = {len(seeds) for row in finite for seeds in row}
    if len(counts) > 1 or 0 in counts:
        return dict.fromkeys(COMPONENTS, math.nan)
    return by_mean_squares(np.array(finite, dtype=np.float64))


def _by_mixed_model(values: list[list[np.ndarray]]) -> dict[str, float] | None:
    """The estimates of REML (statsmodels); None where it does not converge."""
    import warnings

    import pandas as pd
    import statsmodels.formula.api as formula

    rows = [(m, k, value) for m, row in enumerate(values) for k, seeds in enumerate(row) for value in seeds]
    frame = pd.DataFrame(rows, columns=["method", "split", "value"])
    parts = {"method": "0 + C(method)", "split": "0 + C(split)", "method x split": "0 + C(method):C(split)"}
    scale = frame["value"].std() or 1.0  # the optimiser starts at variances near 1
    frame["value"] = (frame["value"] - frame["value"].mean()) / scale
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a variance estimated as 0 is on the boundary, which statsmodels warns of
        model = formula.mixedlm("value ~ 1", frame, groups=np.ones(len(frame)), re_formula="0", vc_formula=parts)
        try:
            fitted = model.fit(reml=True, method=["bfgs", "powell"])  # the second where the first does not converge
        except np.linalg.LinAlgError:
            return None
    variances = dict(zip(model.exog_vc.names, fitted.vcomp, strict=True)) | {"seed": fitted.scale}
    if not fitted.converged or not all(math.isfinite(variance) for variance in variances.values()):
        return None
    return {name: float(scale) * math.sqrt(max(float(variances[name]), 0.0)) for name in COMPONENTS}


def by_mean_squares(table: np.ndarray) -> dict[str, float]:
    """The estimates of the analysis of variance of a balanced table `(M, K, S)`: standard deviations, 0 where a
    variance comes out below 0.

    Each expected mean square is a sum of variances (Searle, Casella & McCulloch, Variance Components, 1992, section
    4.4):
    seed: s^2; method x split: s^2 + S v_mk; method: s^2 + S v_mk + K S v_m; split: s^2 + S v_mk + M S v_k.
    With one seed per cell, seed and interaction cannot be told apart and are NaN.
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
    """Standard error in points of a run's R@1 that the draw of its test classes leaves, root mean square over the runs;
    NaN if unknown.
    """
    found = []
    for one in (one for row in outcomes for one in row if one is not None):
        total = one.sizes.sum()
        n = len(one.sizes)
        residuals = (one.sums - one.means[:, None] * one.sizes) / total
        found += list((residuals**2).sum(1) * n / (n - 1))
    return 100 * math.sqrt(np.mean(found)) if found else math.nan


class Agreement(NamedTuple):
    """Kendall's tau: mean over pairs of splits with its 95 % interval, lowest and highest; and over pairs of seeds of
    one split.
    """

    mean: float
    interval: tuple[float, float]
    extremes: tuple[float, float]
    of_seeds: float


def agreement(values: list[list[np.ndarray]]) -> Agreement:
    """How alike the splits rank the methods.

    The interval is a percentile bootstrap over splits (pairs of a split with itself do not count) and over seeds inside
    them. `of_seeds` ranks by single seeds: of the methods on one split where the seeds have nothing in common but the
    split.
    """
    rng = np.random.default_rng(0)
    count = len(values[0])
    measured = taus(np.array([[seeds.mean() for seeds in row] for row in values]))
    drawn = []
    for _ in range(DRAWS):
        again = np.array([[seeds[rng.integers(0, len(seeds), len(seeds))].mean() for seeds in row] for row in values])
        splits = rng.integers(0, count, count)
        drawn.append(taus(again)[splits][:, splits][splits[:, None] < splits])
    means = [float(own.mean()) for own in drawn if len(own)]
    fewest = min(len(seeds) for row in values for seeds in row)
    single = np.array([[seeds[:fewest] for seeds in row] for row in values])  # (M, K, S)
    of_seeds = np.concatenate([_above(taus(single[:, k])) for k in range(count)])
    low, high = (float(bound) for bound in np.nanquantile(means, [0.025, 0.975]))
    pairs = _above(measured)
    return Agreement(
        float(pairs.mean()),
        (low, high),
        (float(pairs.min()), float(pairs.max())),
        float(of_seeds.mean()) if fewest > 1 else math.nan,
    )


def taus(values: np.ndarray) -> np.ndarray:
    """Kendall's tau-b between all columns `(K, K)` of `values` `(M, K)`; NaN where a column has one value alone."""
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

    `shown`: pairs x splits whose interval excludes 0, out of `tried`, those with an interval. Of those on each other
    split: `turned`, with the other sign, out of `followed`; `against`, with an interval that excludes 0 on the other
    side, out of `met`, those with an interval there. `predicted`: share of the differences with an interval on both
    splits that lie within the first's, widened by the other's for the chance in both; NaN without any.
    """

    tried: int
    shown: int
    followed: int
    turned: int
    met: int
    against: int
    predicted: float


def reversals(of: Splits, column: Column, by_classes: bool) -> Reversals:
    """How often a difference that one split shows turns round on another.

    Args:
        by_classes: intervals by paired draws of classes and of seeds (`bootstrap`), of the hits of R@1; else Welch's,
        of seeds alone.
    """
    count = len(of.splits)
    intervals = []
    for k in range(count):
        here = (
            [row[k] for row in of.outcomes]
            if by_classes
            else [inference.estimate(row[k]) for row in of.values(column, SELECTED)]
        )
        drawn = bootstrap.drawn_means(here, DRAWS) if by_classes else None
        own = []
        for a, b in itertools.combinations(range(len(of.methods)), 2):
            if by_classes:
                found = bootstrap.difference(here[a], here[b], (drawn[a], drawn[b]))
                own.append((100 * found.value, 100 * found.low, 100 * found.high))
            else:
                own.append(
                    (here[a].mean - here[b].mean, *(inference.difference(here[a], here[b]) or (-math.inf, math.inf)))
                )
        intervals.append(own)
    each = np.array(intervals)  # (K, pairs, 3)
    value = each[..., 0]
    low = each[..., 1]
    high = each[..., 2]
    # of single seeds there is no interval over seeds
    sign = np.where(low > 0, 1, np.where(high < 0, -1, 0))
    known = np.isfinite(low)
    followed = turned = met = against = within = compared = 0
    for a, b in itertools.permutations(range(count), 2):
        said = sign[a] != 0
        followed += int(said.sum())
        turned += int((said & (value[b] * sign[a] < 0)).sum())
        met += int((said & known[b]).sum())
        against += int((said & (sign[b] == -sign[a])).sum())
        down = np.hypot(value[a] - low[a], high[b] - value[b])
        up = np.hypot(high[a] - value[a], value[b] - low[b])
        both = known[a] & known[b]
        compared += int(both.sum())
        within += int((both & (value[b] >= value[a] - down) & (value[b] <= value[a] + up)).sum())
    return Reversals(
        int(known.sum()),
        int((sign != 0).sum()),
        followed,
        turned,
        met,
        against,
        within / compared if compared else math.nan,
    )


class Optimism(NamedTuple):
    """Choosing the epoch on test: the gain in points over all runs, mean, deviation, range; the deviation of its means
    over seeds, methods x

    splits; pairs of methods on a split that it reorders.
    """

    mean: float
    deviation: float
    extremes: tuple[float, float]
    of_means: float
    reordered: int
    pairs: int


def optimism(of: Splits, column: Column) -> Optimism | None:
    """By how much the metric's own best epoch on test is better than the epoch that validation chose; None where runs
    have not both.
    """
    honest, best, gain = (selected_by(column, how) for how in (ON_VALIDATION, BEST_ON_TEST, OPTIMISM))
    if not of.has(gain):
        return None
    gains = np.concatenate([seeds for row in of.values(gain, SELECTED) for seeds in row])
    return Optimism(
        float(gains.mean()),
        float(gains.std(ddof=1)),
        (float(gains.min()), float(gains.max())),
        float(of.means(gain, SELECTED).std(ddof=1)),
        *reordered(of.means(honest, SELECTED), of.means(best, SELECTED)),
    )


def reordered(first: np.ndarray, second: np.ndarray) -> tuple[int, int]:
    """Pairs of rows (methods) that two tables `(M, K)` order differently in a column, and how many pairs there are in
    all columns.
    """
    pairs = list(itertools.combinations(range(len(first)), 2))
    turned = sum(int(((first[a] - first[b]) * (second[a] - second[b]) < 0).sum()) for a, b in pairs)
    return turned, len(pairs) * first.shape[1]
