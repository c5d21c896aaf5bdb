"""The same methods on several splits of the classes: values, parts of the variance, rankings.

`all_of` makes the tables of one data set's grid of methods x splits (results/splits.py computes their numbers):
`by_split`, `variance`, `survival` of rankings, `differences`, and the effect of selecting the epoch on test.
"""

import itertools
import math

import numpy as np

from results import inference, splits
from results.columns import SELECTED, Column
from results.formats import Cell, Table
from results.splits import Splits
from results.tables.notes import head, rules, text
from results.tables.seeds import rank

SURVIVAL_HEADS = ["metric", "tau", "tau 95 %", "tau, lowest and highest", "tau of single seeds"]
DIFFERENCE_HEADS = ["metric", "intervals", "significant", "reversed", "significantly reversed", "predicted"]
OPTIMISM_HEADS = ["metric", "optimism", "lowest and highest", "method x split deviation", "reordered pairs"]


def all_of(grid: Splits, table_columns: list[Column]) -> list[Table]:
    """The tables of one data set, for those of its columns on test that all methods recorded on all splits."""
    table_columns = [c for c in table_columns if c.split == "test" and grid.has(c)]
    if not table_columns:
        return []
    tables = [by_split(grid, c) for c in table_columns]
    tables += [variance(grid, table_columns), survival(grid, table_columns), differences(grid, table_columns)]
    chosen_table = chosen_on_test(grid, [c for c in table_columns if c.higher is not None])
    if chosen_table:
        tables.append(chosen_table)
    return tables


def by_split(grid: Splits, c: Column) -> Table:
    """Methods x splits: mean over the seeds and deviation, rank in the split.

    The last column has the mean over the splits and the deviation of their means.
    """
    metric = c.metric.replace("@", "")
    heads = ["method", *grid.splits, "all splits"]
    table = Table(f"{grid.dataset}_splits_{metric}", f"{grid.dataset}: {c.title} on each split", heads)
    means = grid.means(c, SELECTED)
    ranks = np.zeros_like(means)
    if c.higher is not None:
        ranks = np.stack([rank(split_means, c.higher) for split_means in means.T], axis=1)
    for m, method in enumerate(grid.methods):
        cells = [_cell(seeds, c) for seeds in grid.values(c, SELECTED)[m]]
        for k, cell in enumerate(cells):
            # a single seed has no deviation and is never marked
            if ranks[m, k] == 1 and not math.isnan(cell.deviation):
                cell.mark = "best"
        table.add([text(method), *cells, _cell(means[m], c)])
    deviations = "Deviations: over the seeds of a split; in the last column over the means of the splits."
    if c.higher is not None:
        listed = []
        for method, places in zip(grid.methods, ranks, strict=True):
            listed.append(" ".join([method, *(f"{place:g}" for place in places)]))
        deviations += f" Bold: best mean of a split, never of a single seed. Ranks: {'; '.join(listed)}."
    table.notes = [deviations, f"Seeds: {_seeds(grid)}. Epochs: {_rules(grid)}.", *grid.notes]
    return table


def variance(grid: Splits, table_columns: list[Column]) -> Table:
    """Standard deviations of the parts of the mixed model and of the draw of test classes; a column per metric."""
    heads = ["source", *map(head, table_columns)]
    table = Table(f"{grid.dataset}_splits_variance", f"{grid.dataset}: deviation by source", heads)
    parts = [splits.components(grid.values(c, SELECTED)) for c in table_columns]
    for name in splits.COMPONENTS:
        numbers = [Cell(part[name], digits=c.digits) for part, c in zip(parts, table_columns, strict=True)]
        table.add([text(name), *numbers])
    class_error = splits.of_queries(grid.outcomes)
    if math.isfinite(class_error):
        cells = [text("draw of test classes")]
        for c in table_columns:
            error = class_error if c.metric == "e_recall@1" else math.nan
            cells.append(Cell(error, digits=c.digits))
        table.add(cells)
    table.notes = [
        "Standard deviations by a mixed model with random methods, splits, method x split and seeds (REML; if it does "
        "not converge on a balanced table, mean squares of the two-way analysis of variance). With "
        f"{len(grid.methods)} methods and {len(grid.splits)} splits they are imprecise.",
        "Split: effect of other classes on all methods. Method x split: multiplied by the root of 2, how much the "
        "difference of two methods varies with the split. Draw of test classes: standard error of a single run's R@1 "
        "over classes; it is a part of split and mostly cancels in differences of methods.",
    ]
    return table


def survival(grid: Splits, table_columns: list[Column]) -> Table:
    """How much two splits agree on the ranking of the methods: Kendall's tau of their means."""
    name = f"{grid.dataset}_splits_survival"
    table = Table(name, f"{grid.dataset}: does a ranking survive another split?", SURVIVAL_HEADS)
    for c in table_columns:
        agreed = splits.agreement(grid.values(c, SELECTED))
        cells = [
            text(c.title),
            Cell(agreed.mean),
            text(_range(agreed.interval)),
            text(_range(agreed.extremes)),
            Cell(agreed.of_seeds),
        ]
        table.add(cells)
    table.notes = [
        "Tau: Kendall's tau of the methods' means, averaged over the pairs of splits; its interval by bootstrap over "
        "splits and their seeds. Tau of single seeds: between two seeds of one split, which have the same classes and "
        "differ only in the training.",
    ]
    return table


def differences(grid: Splits, table_columns: list[Column]) -> Table:
    """How many differences of two methods are significant on a split, and whether they change sign on another."""
    name = f"{grid.dataset}_splits_differences"
    table = Table(name, f"{grid.dataset}: does a difference survive another split?", DIFFERENCE_HEADS)
    for c in table_columns:
        cells = _reversal_cells(grid, c, by_classes=False)
        table.add([text(c.title), text("Welch, over seeds"), *cells])
        has_queries = all(outcomes is not None for row in grid.outcomes for outcomes in row)
        if c.metric == "e_recall@1" and has_queries:
            cells = _reversal_cells(grid, c, by_classes=True)
            table.add([text(c.title), text("paired, over classes and seeds"), *cells])
    table.notes = [
        "Significant: pairs of methods whose 95 % interval on a split excludes 0, not corrected for their number. Each "
        "of them is compared with every other split. Reversed: the difference has the opposite sign there. "
        "Significantly reversed: it has an interval there, which excludes 0.",
        "Predicted: percentage of the differences on another split that lie in the first split's interval, widened for "
        "the chance in both (95 if the intervals covered everything that another split changes).",
    ]
    if any(len(group.seeds) == 1 for group in itertools.chain.from_iterable(grid.members)):
        table.notes.append(
            "With a single seed on a split there is no interval over seeds, and the paired one covers classes only."
        )
    return table


def _reversal_cells(grid: Splits, c: Column, by_classes: bool) -> list[Cell]:
    """The cells of `splits.reversals`."""
    result = splits.reversals(grid, c, by_classes)
    cells = []
    for count, total in (
        (result.significant, result.tried),
        (result.turned, result.followed),
        (result.against, result.met),
    ):
        cell = text(f"{count} of {total}") if total else Cell()
        cells.append(cell)
    return [*cells, Cell(100 * result.predicted, digits=1)]


def chosen_on_test(grid: Splits, table_columns: list[Column]) -> Table | None:
    """The optimism of selecting the epoch on test, its spread over the runs, and its effect on the order of methods.

    None unless every method has an epoch selected on validation and test values at every evaluation.
    """
    table = Table(f"{grid.dataset}_splits_optimism", f"{grid.dataset}: selecting the epoch on test", OPTIMISM_HEADS)
    for c in table_columns:
        optimism = splits.optimism(grid, c)
        if optimism:
            cells = [
                text(c.title),
                Cell(optimism.mean, optimism.deviation, digits=c.digits, sign=True),
                text(_range(optimism.extremes)),
                Cell(optimism.of_means, digits=c.digits),
                text(f"{optimism.reordered} of {optimism.pairs}"),
            ]
            table.add(cells)
    if not table.rows:
        return None
    if len(table_columns) > 1:
        first, second = table_columns[:2]
        orders = [grid.means(c, SELECTED) if c.higher else -grid.means(c, SELECTED) for c in (first, second)]
        turned, pairs = splits.reordered(*orders)
        table.notes.append(
            f"{first.title} and {second.title} order {turned} of {pairs} pairs of methods on one split differently "
            "(epochs selected on validation)."
        )
    table.notes.append(
        "Optimism: the value at the metric's best epoch on test minus the value at the epoch selected on validation; "
        "mean and deviation over all runs. Method x split deviation: deviation of its means over seeds; an equal shift "
        "of all methods changes no ranking. Reordered: pairs of methods on a split whose order changes.",
    )
    return table


def _rules(grid: Splits) -> str:
    return rules(list(itertools.chain.from_iterable(grid.members)))


def _seeds(grid: Splits) -> str:
    counts = np.array([[len(group.seeds) for group in row] for row in grid.members])
    if len(np.unique(counts)) == 1:
        return f"{counts[0, 0]} of each method on each split"
    texts = []
    for split, of_methods in zip(grid.splits, counts.T, strict=True):
        texts.append(f"{split} {'/'.join(map(str, np.unique(of_methods)))}")
    return ", ".join(texts)


def _cell(values, c: Column) -> Cell:
    estimate = inference.estimate(values)
    return Cell(estimate.mean, estimate.deviation, digits=c.digits)


def _range(pair: tuple[float, float]) -> str:
    return f"[{pair[0]:+.2f}, {pair[1]:+.2f}]"
