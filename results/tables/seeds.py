"""What the recorded seeds can show: how many a difference needs, and how often each group is first.

`power` and `plan` compute the seeds per group that a difference needs, from the deviations of the groups. `ranks` shows
how stable their order is: over single seeds, over a bootstrap of seeds, and from validation to test.
"""

import math

import numpy as np

from results import columns, groups, inference
from results.columns import SELECTED, Column
from results.formats import Cell, Table
from results.groups import Group
from results.tables import notes
from results.tables.notes import head, text
from utilities.counts import count_of
from utilities.splits import WORDS

# differences for which the needed seeds are always printed, in the column's printed unit
POINTS = (0.5, 1.0, 2.0)
# of the bootstrap of the seeds
DRAWS = 10_000
SEED = 0
SPREAD_DIGITS = 2


def power(dataset_groups: list[Group], c: Column, plan: float | None = None) -> Table | None:
    """How many seeds per group the differences `POINTS` and `plan` need, by the groups' deviations.

    None if no group has one.

    Args:
        c: the metric.
    """
    estimates = {}
    for group in dataset_groups:
        estimate = group.estimate(c, SELECTED)
        if estimate.count > 1:
            estimates[group] = estimate
    if not estimates:
        return None
    dataset = dataset_groups[0].dataset
    differences = sorted({*POINTS, plan} - {None})
    heads = ["group", "seeds", f"deviation of {c.title}", "least difference shown"]
    heads += [f"seeds for {points:g}" for points in differences]
    table = Table(f"{dataset}_power", f"{dataset}: seeds that a difference in {c.title} needs", heads)
    for group, estimate in estimates.items():
        least = Cell(inference.least_shown(estimate, estimate), digits=SPREAD_DIGITS)
        cells = [text(group.name), text(group.seeds_text), _deviation(estimate), least]
        remarks = group.remarks + group.fewer([(c.title, estimate)])
        table.add([*cells, *_needed(estimate, differences)], remarks)
    pooled = inference.pooled(list(estimates.values()))
    cells = [text(f"all, pooled ({len(estimates)})"), text(""), _deviation(pooled), Cell()]
    table.add([*cells, *_needed(pooled, differences)])
    fewest = min(estimate.count for estimate in estimates.values())
    low, high = inference.spread_of_deviation(fewest)
    table.notes = [
        "Seeds per group with which a true difference of that many points between two groups of this deviation is "
        f"detected with {inference.POWER:.0%} power (two-sided Welch's t-test at {inference.ALPHA:.0%}); least "
        "difference shown: the same for the recorded seeds. For one comparison; several at once need more.",
        f"A deviation (ddof 1) of {fewest} seeds is uncertain: the true one lies between {low:.2f} and {high:.2f} "
        "times it (95 %). Plan by the pooled line.",
        f"Epochs: {columns.SELECTIONS[SELECTED]}; selected: {notes.rules(dataset_groups)}.",
        *notes.shared_settings(dataset_groups),
    ]
    return table


def _deviation(estimate: inference.Estimate) -> Cell:
    return Cell(estimate.deviation, digits=SPREAD_DIGITS)


def _needed(estimate: inference.Estimate, differences: list[float]) -> list[Cell]:
    """How many seeds each of the differences needs."""
    cells = []
    for points in differences:
        seeds = inference.seeds_needed(points, estimate.deviation)
        if seeds is None:
            cells.append(text(_words(None)))
        else:
            cells.append(Cell(seeds, digits=0))
    return cells


def plan(dataset_groups: list[Group], c: Column, points: float) -> str:
    """One sentence: how many seeds per group a difference of `points` points needs."""
    dataset = dataset_groups[0].dataset
    estimates = [group.estimate(c, SELECTED) for group in dataset_groups]
    estimates = [estimate for estimate in estimates if estimate.count > 1]
    if not estimates:
        return f"plan, {dataset}: no group has two seeds, so that no deviation is known"
    needed = [inference.seeds_needed(points, estimate.deviation) for estimate in estimates]
    counts = sorted(seeds or math.inf for seeds in needed)
    pooled = inference.pooled(estimates)
    by_pooled = _words(inference.seeds_needed(points, pooled.deviation))
    return (
        f"plan, {dataset}: {by_pooled} seeds per group detect a difference of {points:g} points in {c.title} "
        f"with {inference.POWER:.0%} power (deviation {pooled.deviation:.2f}, pooled over "
        f"{count_of(len(estimates), 'group')}; by their own deviations {_words(counts[0])} to {_words(counts[-1])})"
    )


def _words(seeds: float | None) -> str:
    if seeds in (None, math.inf):
        return f"more than {inference.MOST_SEEDS}"
    return str(seeds)


def ranks(dataset_groups: list[Group], c: Column) -> Table | None:
    """How often each group is first, over seeds and in a bootstrap, and its ranks on validation and test.

    None unless two groups have two seeds, and if neither direction of the metric is better.
    """
    if c.higher is None:
        return None
    dataset = dataset_groups[0].dataset
    splits = [WORDS[c.split]]
    if c.split != "val":
        splits.append("validation")
    heads = ["group", "seeds", head(c), "first over seeds [%]", "first in the bootstrap [%]"]
    heads += [f"rank on {split}" for split in splits]
    table = Table(f"{dataset}_ranks", f"{dataset}: how stable the order by {c.title} is", heads)
    agreements = []
    # whether the groups of a part have no seeds in common
    has_other_seeds = False
    for part, members in groups.pools(dataset_groups, SELECTED).items():
        members = [group for group in members if np.isfinite(group.values(c, SELECTED)).sum() > 1]
        if len(members) < 2:
            continue
        means = np.array([group.estimate(c, SELECTED).mean for group in members])
        validated = np.array([group.estimate(columns.column("val", c.metric), SELECTED).mean for group in members])
        over_seeds = first_over_seeds(members, c)
        if over_seeds is None:
            has_other_seeds = True
            over_seeds = np.full(len(members), math.nan)
        by_bootstrap = first_in_bootstrap(members, c)
        places = [rank(means, c.higher), rank(validated, c.higher)][: len(splits)]
        for i in np.argsort(places[0], kind="stable"):
            group = members[i]
            cells = [text(group.name), text(group.seeds_text), Cell(means[i], digits=c.digits)]
            cells += [Cell(100 * over_seeds[i], digits=1), Cell(100 * by_bootstrap[i], digits=1)]
            cells += [Cell(place[i], digits=0) for place in places]
            table.add(cells, group.remarks, part)
        if c.split == "test":
            agreements += agreement(validated, means, part)
    if not table.rows:
        return None
    over_seeds = "First over seeds: share of the common seeds at which the group is the best (ties share)"
    if has_other_seeds:
        over_seeds += "; - without common seeds"
    table.notes = [
        f"{over_seeds}. First in the bootstrap: share of {DRAWS:,} draws of each group's seeds, with replacement, in "
        "which its mean is the best.",
        *agreements,
        f"Groups of two seeds or more. Epochs: {columns.SELECTIONS[SELECTED]}; selected: "
        f"{notes.rules(dataset_groups)}.",
        *notes.shared_settings(dataset_groups),
    ]
    return table


def rank(values: np.ndarray, higher: bool) -> np.ndarray:
    """1 for the best, NaN for a missing value; ties share the better rank."""
    is_better = np.greater if higher else np.less
    better = is_better(values[None], values[:, None])
    return np.where(np.isfinite(values), 1.0 + better.sum(1), np.nan)


def first_over_seeds(ranked_groups: list[Group], c: Column) -> np.ndarray | None:
    """`(n,)`: the share of the common seeds at which each group is the best; None without common seeds."""
    # of each group: seed -> value
    value_of = []
    for group in ranked_groups:
        values = zip(group.seeds, group.values(c, SELECTED), strict=True)
        value_of.append({seed: value for seed, value in values if np.isfinite(value)})
    common = sorted(set.intersection(*map(set, value_of)), key=str)
    if not common:
        return None
    return _shares(np.array([[values[seed] for values in value_of] for seed in common]), c.higher)


def first_in_bootstrap(ranked_groups: list[Group], c: Column) -> np.ndarray:
    """`(n,)`: the share of the draws of seeds, with replacement, in which each group's mean is the best."""
    rng = np.random.default_rng(SEED)
    means = []
    for group in ranked_groups:
        values = group.values(c, SELECTED)
        values = values[np.isfinite(values)]
        means.append(values[rng.integers(len(values), size=(DRAWS, len(values)))].mean(1))
    return _shares(np.stack(means, axis=1), c.higher)


def _shares(values: np.ndarray, higher: bool) -> np.ndarray:
    """The share of the rows of `values` `(m, n)` in which each column is the best; ties share a row."""
    best = values.max(1) if higher else values.min(1)
    is_best = values == best[:, None]
    return (is_best / is_best.sum(1, keepdims=True)).mean(0)


def agreement(validated: np.ndarray, tested: np.ndarray, part: str = "") -> list[str]:
    """A note on Kendall's tau of the order on validation and on test; none for fewer than three groups."""
    in_both = np.isfinite(validated) & np.isfinite(tested)
    if in_both.sum() < 3:
        return []
    from scipy.stats import kendalltau

    tau, p = kendalltau(validated[in_both], tested[in_both])
    if math.isnan(tau):
        return []
    of_part = f" ({part})" if part else ""
    return [
        f"Kendall's tau of the order on validation and on test over {in_both.sum()} groups{of_part}: {tau:+.2f} "
        f"(p {p:.3g})."
    ]
