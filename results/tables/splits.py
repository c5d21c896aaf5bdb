"""The same methods on several splits of the classes: their values, the parts of the variance, whether the ranking
survives.
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


def all_of(of: Splits, shown: list[Column]) -> list[Table]:
    """The tables of one data set, for those of its columns on test that all methods recorded on all splits."""
    shown = [c for c in shown if c.split == "test" and of.has(c)]
    chosen = chosen_on_test(of, [c for c in shown if c.higher is not None])
    return (
        [*(by_split(of, c) for c in shown), variance(of, shown), survival(of, shown), *([chosen] if chosen else [])]
        if shown
        else []
    )


def by_split(of: Splits, c: Column) -> Table:
    """Methods x splits: mean over the seeds and deviation, rank in the split; the mean over the splits and the
    deviation of their means.
    """
    metric = c.metric.replace("@", "")
    table = Table(
        f"{of.dataset}_splits_{metric}", f"{of.dataset}: {c.title} on each split", ["method", *of.splits, "all splits"]
    )
    means = of.means(c, SELECTED)
    ranks = np.stack([rank(own, c.higher) for own in means.T], axis=1) if c.higher is not None else np.zeros_like(means)
    for m, method in enumerate(of.methods):
        cells = [_cell(seeds, c) for seeds in of.values(c, SELECTED)[m]]
        for k, cell in enumerate(cells):
            cell.mark = "best" if ranks[m, k] == 1 and cell.deviation == cell.deviation else ""  # never a single seed
        table.add([text(method), *cells, _cell(means[m], c)])
    listed = "; ".join(
        f"{method} {' '.join(f'{place:g}' for place in row)}" for method, row in zip(of.methods, ranks, strict=True)
    )
    table.notes = [
        "Deviations over the seeds of a split; in the last column over the splits' means."
        + f" Bold: the best mean of a split, unless it is of one seed. Ranks: {listed}." * (c.higher is not None),
        f"Seeds: {_seeds(of)}. Epochs: {_rules(of)}.",
        *of.notes,
    ]
    return table


def variance(of: Splits, shown: list[Column]) -> Table:
    """Standard deviations of the parts of the mixed model, a column each; and what the draw of test classes leaves."""
    table = Table(f"{of.dataset}_splits_variance", f"{of.dataset}: deviation by source", ["source", *map(head, shown)])
    parts = [splits.components(of.values(c, SELECTED)) for c in shown]
    for name in splits.COMPONENTS:
        table.add([text(name), *(Cell(part[name], digits=c.digits) for part, c in zip(parts, shown, strict=True))])
    drawn = splits.of_queries(of.outcomes)
    if math.isfinite(drawn):
        table.add(
            [
                text("draw of test classes"),
                *(Cell(drawn if c.metric == "e_recall@1" else math.nan, digits=c.digits) for c in shown),
            ]
        )
    table.notes = [
        "Standard deviations in the columns' units, by a mixed model of the runs' values with random methods, splits, "
        "method x split and seeds (REML, statsmodels; where it does not converge on a balanced table, "
        "by the mean squares of the two-way analysis of variance). "
        f"{len(of.methods)} methods and {len(of.splits)} splits know their own deviations badly.",
        "Split: other training and other test classes, for all methods alike. Method x split: by how much the "
        "difference of two methods changes with the split (times the root of 2). "
        "Draw of test classes: the standard error of a single run's R@1 over classes; it is a part of split, and in "
        "differences of methods it mostly cancels.",
    ]
    return table


def survival(of: Splits, shown: list[Column]) -> Table:
    """Kendall's tau between splits, and what becomes on another split of a difference that one split shows."""
    heads = [
        "metric, intervals",
        "tau",
        "tau 95 %",
        "tau, lowest and highest",
        "tau of single seeds",
        "shown",
        "turned",
        "turned and shown",
        "predicted",
    ]
    table = Table(f"{of.dataset}_splits_survival", f"{of.dataset}: does a ranking survive another split?", heads)
    for c in shown:
        agreed = splits.agreement(of.values(c, SELECTED))
        numbers = [
            Cell(agreed.mean),
            text(_range(agreed.interval)),
            text(_range(agreed.extremes)),
            Cell(agreed.of_seeds),
        ]
        paired = c.metric == "e_recall@1" and all(one is not None for row in of.outcomes for one in row)
        for by_classes in (False, True)[: 1 + paired]:
            r = splits.reversals(of, c, by_classes)
            counts = [
                text(f"{count} of {out_of}") if out_of else Cell()
                for count, out_of in ((r.shown, r.tried), (r.turned, r.followed), (r.against, r.met))
            ]
            title = f"{c.title}, {'paired over classes and seeds' if by_classes else 'Welch, over seeds'}"
            table.add([text(title), *numbers, *counts, Cell(100 * r.predicted, digits=1)])
            numbers = [text("")] * 4
    table.notes = [
        "Tau: Kendall's, of the methods' means, mean over the pairs of splits; its interval by bootstrap over splits "
        "and over seeds inside them. "
        "Tau of single seeds: between two seeds of one split, the same classes: what noise of training alone leaves "
        "of a ranking of single runs.",
        "Shown: pairs of methods whose 95 % interval on a split excludes 0, each pair by itself. Each of these is "
        "looked up on every other split: turned, the difference has the other sign there; "
        "turned and shown, the interval there excludes 0 on the other side, out of those with an interval there.",
        (
            "Predicted: percentage of the differences on another split that lie in the first split's interval, "
            "widened for the chance in both (95 if the intervals held all that another split changes)."
        ),
    ]
    if any(len(group.seeds) == 1 for row in of.members for group in row):
        table.notes.append(
            "Where a method has one seed on a split, there is no interval over seeds, and the paired one is over "
            "its classes alone."
        )
    return table


def chosen_on_test(of: Splits, shown: list[Column]) -> Table | None:
    """The optimism of choosing the epoch on test, its spread over the runs, and what it does to the order of methods.

    None where not every method has an epoch chosen on validation and test values throughout.
    """
    heads = ["metric", "optimism", "lowest and highest", "method x split deviation", "reordered pairs"]
    table = Table(f"{of.dataset}_splits_optimism", f"{of.dataset}: choosing the epoch on test", heads)
    for c in shown:
        if o := splits.optimism(of, c):
            cells = [
                Cell(o.mean, o.deviation, digits=c.digits, sign=True),
                text(_range(o.extremes)),
                Cell(o.of_means, digits=c.digits),
            ]
            table.add([text(c.title), *cells, text(f"{o.reordered} of {o.pairs}")])
    if not table.rows:
        return None
    if len(shown) > 1:
        turned, pairs = splits.reordered(*((1 if c.higher else -1) * of.means(c, SELECTED) for c in shown[:2]))
        table.notes.append(
            f"{shown[0].title} and {shown[1].title} order {turned} of {pairs} pairs of methods (on one split) "
            "differently, epochs chosen on validation."
        )
    table.notes.append(
        "Optimism: by how much the value at the metric's own best epoch on test is better than that at the epoch that "
        "validation chose; mean and deviation over all runs. "
        "Method x split deviation: of its means over seeds; what is the same for all shifts no ranking. Reordered: "
        "pairs of methods on a split whose means change places.",
    )
    return table


def _rules(of: Splits) -> str:
    return rules([group for row in of.members for group in row])


def _seeds(of: Splits) -> str:
    counts = [[len(group.seeds) for group in row] for row in of.members]
    if len({*itertools.chain(*counts)}) == 1:
        return f"{counts[0][0]} of each method on each split"
    of_splits = ["/".join(map(str, sorted({*column}))) for column in zip(*counts, strict=True)]
    return ", ".join(f"{split} {n}" for split, n in zip(of.splits, of_splits, strict=True))


def _cell(values, c: Column) -> Cell:
    found = inference.estimate(values)
    return Cell(found.mean, found.deviation, digits=c.digits)


def _range(pair: tuple[float, float]) -> str:
    return f"[{pair[0]:+.2f}, {pair[1]:+.2f}]"
