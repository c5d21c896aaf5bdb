"""What the recorded seeds can show: how many a difference needs, and how often each group is first."""

import math

import numpy as np

from results import columns, groups, inference
from results.columns import SELECTED, Column
from results.formats import Cell, Table
from results.groups import Group
from results.tables import notes
from results.tables.notes import head, text
from utilities.counts import count_of

POINTS = (0.5, 1.0, 2.0)  # differences for which the needed seeds are always said, in the column's printed unit
# of the bootstrap of the seeds
DRAWS = 10_000
SEED = 0
SPLIT_WORDS = {"train": "training", "val": "validation", "test": "test"}
SPREAD_DIGITS = 2


def power(found: list[Group], c: Column, plan: float | None = None) -> Table | None:
    """How many seeds per group the differences `POINTS` and `plan` need, by the groups' deviations; None where no group
    has one.

    Args:
        c: the metric.
    """
    estimates = {group: e for group in found if (e := group.estimate(c, SELECTED)).count > 1}
    if not estimates:
        return None
    wanted = sorted({*POINTS, plan} - {None})
    heads = [
        "group",
        "seeds",
        f"deviation of {c.title}",
        "least difference shown",
        *(f"seeds for {points:g}" for points in wanted),
    ]
    table = Table(f"{found[0].dataset}_power", f"{found[0].dataset}: seeds that a difference in {c.title} needs", heads)
    for group, estimate in estimates.items():
        least = Cell(inference.least_shown(estimate, estimate), digits=SPREAD_DIGITS)
        table.add(
            [text(group.name), text(group.seeds_text), _deviation(estimate), least, *_needed(estimate, wanted)],
            group.remarks + group.fewer([(c.title, estimate)]),
        )
    common = inference.pooled(list(estimates.values()))
    table.add([text(f"all, pooled ({len(estimates)})"), text(""), _deviation(common), Cell(), *_needed(common, wanted)])
    fewest = min(estimate.count for estimate in estimates.values())
    low, high = inference.spread_of_deviation(fewest)
    table.notes = [
        f"Seeds a group: the fewest with which Welch's two-sided t-test at {inference.ALPHA:.0%} shows a true "
        "difference of this many points between two "
        f"groups of that deviation with a chance of {inference.POWER:.0%} (noncentral t). Least difference shown: by "
        "the seeds there, likewise. "
        "For one comparison: several at once need more.",
        f"Deviations have ddof 1. One of {fewest} seeds is itself uncertain: the true one lies between {low:.2f} and "
        f"{high:.2f} times it (95 %). "
        "Plan by the pooled line.",
        f"Epochs: {columns.SELECTIONS[SELECTED]}; selected: {notes.rules(found)}.",
        *notes.shared_settings(found),
    ]
    return table


def _deviation(estimate: inference.Estimate) -> Cell:
    return Cell(estimate.deviation, digits=SPREAD_DIGITS)


def _needed(estimate: inference.Estimate, wanted: list[float]) -> list[Cell]:
    """How many seeds each of the wanted differences needs."""
    needed = [inference.seeds_needed(points, estimate.deviation) for points in wanted]
    return [text(_words(None)) if seeds is None else Cell(seeds, digits=0) for seeds in needed]


def plan(found: list[Group], c: Column, points: float) -> str:
    """One sentence: how many seeds per group a difference of `points` points needs."""
    estimates = {group.name: group.estimate(c, SELECTED) for group in found}
    known = {name: e for name, e in estimates.items() if e.count > 1}
    if not known:
        return f"plan, {found[0].dataset}: no group has two seeds, so that no deviation is known"
    needed = {name: inference.seeds_needed(points, e.deviation) for name, e in known.items()}
    counts = sorted(math.inf if n is None else n for n in needed.values())
    common = inference.pooled(list(known.values()))
    return (
        f"plan, {found[0].dataset}: {_words(inference.seeds_needed(points, common.deviation))} seeds a group show a "
        f"difference of {points:g} points of {c.title} "
        f"with a chance of {inference.POWER:.0%} (deviation {common.deviation:.2f}, pooled over "
        f"{count_of(len(known), 'group')}; by their own deviations "
        f"{_words(counts[0])} to {_words(counts[-1])})"
    )


def _words(seeds: float | None) -> str:
    return f"more than {inference.MOST_SEEDS}" if seeds in (None, math.inf) else str(seeds)


def ranks(found: list[Group], c: Column) -> Table | None:
    """How often each group is first, over its seeds and over a bootstrap of them, and its ranks on validation and on
    test.

    None unless two groups have two seeds, and where neither direction of the metric is better.
    """
    if c.higher is None:
        return None
    places_on = [SPLIT_WORDS[c.split], *["validation"] * (c.split != "val")]
    table = Table(
        f"{found[0].dataset}_ranks",
        f"{found[0].dataset}: how stable the order by {c.title} is",
        [
            "group",
            "seeds",
            head(c),
            "first over seeds [%]",
            "first in the bootstrap [%]",
            *(f"rank on {where}" for where in places_on),
        ],
    )
    said = []
    own_seeds = False
    for part, members in groups.pools(found, SELECTED).items():
        members = [group for group in members if np.isfinite(group.values(c, SELECTED)).sum() > 1]
        if len(members) < 2:
            continue
        means = np.array([group.estimate(c, SELECTED).mean for group in members])
        validated = np.array([group.estimate(columns.column("val", c.metric), SELECTED).mean for group in members])
        over_seeds = first_over_seeds(members, c)
        by_bootstrap = first_in_bootstrap(members, c)
        own_seeds |= over_seeds is None
        places = [rank(means, c.higher), rank(validated, c.higher)][: len(places_on)]
        for i in np.argsort(places[0], kind="stable"):
            group = members[i]
            share = math.nan if over_seeds is None else 100 * over_seeds[i]
            numbers = [Cell(means[i], digits=c.digits), Cell(share, digits=1), Cell(100 * by_bootstrap[i], digits=1)]
            table.add(
                [text(group.name), text(group.seeds_text), *numbers, *(Cell(place[i], digits=0) for place in places)],
                group.remarks,
                part,
            )
        said += agreement(validated, means, part) if c.split == "test" else []
    if not table.rows:
        return None
    unlike = " - where the groups have no seeds in common." * own_seeds
    table.notes = [
        "First over seeds: of the seeds that all groups have, the share at which a group is the best; ties "
        f"share.{unlike} First in the bootstrap: the "
        f"share of {DRAWS:,} draws, each of as many seeds of every group as it has, with replacement, in which its "
        "mean is the best.",
        *said,
        f"Groups of two seeds or more. Epochs: {columns.SELECTIONS[SELECTED]}; selected: {notes.rules(found)}.",
        *notes.shared_settings(found),
    ]
    return table


def rank(values: np.ndarray, higher: bool) -> np.ndarray:
    """1 for the best, NaN for a missing value; ties share the better rank."""
    better = values[None] > values[:, None] if higher else values[None] < values[:, None]
    return np.where(np.isfinite(values), 1.0 + better.sum(1), np.nan)


def first_over_seeds(found: list[Group], c: Column) -> np.ndarray | None:
    """`(n,)`: the share of the seeds common to all groups at which each group is the best; None where they have none in
    common.
    """
    each = [dict(zip(group.seeds, group.values(c, SELECTED), strict=True)) for group in found]
    common = set.intersection(*({seed for seed, value in values.items() if np.isfinite(value)} for values in each))
    return (
        _shares(np.array([[values[seed] for values in each] for seed in sorted(common, key=str)]), c.higher)
        if common
        else None
    )


def first_in_bootstrap(found: list[Group], c: Column) -> np.ndarray:
    """`(n,)`: the share of the draws of seeds, with replacement, in which each group's mean is the best."""
    rng = np.random.default_rng(SEED)
    means = []
    for group in found:
        values = group.values(c, SELECTED)
        values = values[np.isfinite(values)]
        means.append(values[rng.integers(len(values), size=(DRAWS, len(values)))].mean(1))
    return _shares(np.stack(means, axis=1), c.higher)


def _shares(values: np.ndarray, higher: bool) -> np.ndarray:
    """The share of the rows of `values` `(m, n)` in which each column is the best; ties share a row."""
    best = values == (values.max(1) if higher else values.min(1))[:, None]
    return (best / best.sum(1, keepdims=True)).mean(0)


def agreement(validated: np.ndarray, tested: np.ndarray, part: str = "") -> list[str]:
    """Kendall's tau of the order on validation and on test, in words; nothing for fewer than three groups."""
    both = np.isfinite(validated) & np.isfinite(tested)
    if both.sum() < 3:
        return []
    from scipy.stats import kendalltau

    tau, p = kendalltau(validated[both], tested[both])
    if math.isnan(tau):
        return []
    where = f" ({part})" if part else ""
    return [
        f"Kendall's tau of the order on validation and on test over {both.sum()} groups{where}: {tau:+.2f} (p {p:.3g})."
    ]
