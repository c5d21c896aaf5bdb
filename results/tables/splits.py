"""The same methods on several splits of the classes: their values, the parts of the variance, whether the ranking survives."""

import math

import numpy as np

from results import splits
from results.columns import BEST_ON_TEST, SELECTED, Column
from results.formats import Cell, Table
from results.splits import Splits
from results.tables.notes import head, rules, text


def all_of(of: Splits, shown: list[Column]) -> list[Table]:
    """The tables of one data set, for its columns on test."""
    shown = [c for c in shown if c.split == "test"]
    return [*(by_split(of, c) for c in shown), variance(of, shown), survival(of, shown), chosen_on_test(of, shown)] if shown else []


def by_split(of: Splits, c: Column) -> Table:
    """Methods x splits: mean over the seeds and deviation, rank in the split; the mean over the splits and the deviation of their means."""
    metric = c.metric.replace("@", "")
    table = Table(f"{of.dataset}_splits_{metric}", f"{of.dataset}: {c.title} on each split", ["method", *of.splits, "all splits"])
    means = of.means(c, SELECTED)
    order = -means if c.higher else means
    for m, method in enumerate(of.methods):
        cells = [_cell(seeds, c) for seeds in of.values(c, SELECTED)[m]]
        for k, cell in enumerate(cells):
            cell.mark = "best" if order[m, k] == order[:, k].min() else ""
        table.add([text(method), *cells, _cell(means[m], c)])
    ranks = order.argsort(0).argsort(0) + 1
    listed = "; ".join(f"{method} {' '.join(map(str, row))}" for method, row in zip(of.methods, ranks, strict=True))
    table.notes = [
        f"Deviations over the seeds of a split; in the last column over the splits' means. Bold: the highest mean of a split. Ranks: {listed}.",
        f"Epochs: {_rules(of)}.",
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
        table.add([text("draw of test classes"), *(Cell(drawn if c.metric == "e_recall@1" else math.nan, digits=c.digits) for c in shown)])
    table.notes = [
        "Standard deviations in the columns' units, by a mixed model of the runs' values with random methods, splits, method x split and seeds (REML, statsmodels). "
        f"{len(of.methods)} methods and {len(of.splits)} splits know their own deviations badly.",
        "Split: other training and other test classes, for all methods alike. Method x split: by how much the difference of two methods changes with the split (times the root of 2). "
        "Draw of test classes: the standard error of a single run's R@1 over classes; it is a part of split, and in differences of methods it mostly cancels.",
    ]
    return table


def survival(of: Splits, shown: list[Column]) -> Table:
    """Kendall's tau between splits, and what becomes on another split of a difference that one split shows."""
    heads = ["metric, intervals", "tau", "tau 95 %", "tau, lowest and highest", "tau of single seeds", "shown", "turned", "turned and shown", "predicted"]
    table = Table(f"{of.dataset}_splits_survival", f"{of.dataset}: does a ranking survive another split?", heads)
    for c in shown:
        agreed = splits.agreement(of.values(c, SELECTED))
        numbers = [
            Cell(agreed.mean), text(_range(agreed.interval)), text(_range(agreed.extremes)), Cell(agreed.of_seeds),
        ]  # fmt: skip
        paired = c.metric == "e_recall@1" and all(one is not None for row in of.outcomes for one in row)
        for by_classes in (False, True)[: 1 + paired]:
            r = splits.reversals(of, c, by_classes)
            counts = [f"{r.shown} of {r.tried}", f"{r.turned} of {r.followed}", f"{r.against} of {r.followed}"]
            title = f"{c.title}, {'paired over classes and seeds' if by_classes else 'Welch, over seeds'}"
            table.add([text(title), *numbers, *map(text, counts), Cell(100 * r.predicted, digits=1)])
            numbers = [text("")] * 4
    table.notes = [
        "Tau: Kendall's, of the methods' means, mean over the pairs of splits; its interval by bootstrap over splits and over seeds inside them. "
        "Tau of single seeds: between two seeds of one split, the same classes: what noise of training alone leaves of a ranking of single runs.",
        "Shown: pairs of methods whose 95 % interval on a split excludes 0, each pair by itself. Each of these is looked up on every other split: turned, the difference has the other sign there; "
        "turned and shown, the interval there excludes 0 on the other side.",
        "Predicted: percentage of the differences on another split that lie in the first split's interval, widened for the chance in both (95 if the intervals held all that another split changes).",
    ]
    if any(len(group.seeds) == 1 for row in of.members for group in row):
        table.notes.append("Where a method has one seed on a split, there is no interval over seeds, and the paired one is over its classes alone.")
    return table


def chosen_on_test(of: Splits, shown: list[Column]) -> Table:
    """The optimism of choosing the epoch on test, its spread over the runs, and what it does to the order of methods."""
    heads = ["metric", "optimism", "lowest and highest", "method x split deviation", "reordered pairs"]
    table = Table(f"{of.dataset}_splits_optimism", f"{of.dataset}: choosing the epoch on test", heads)
    for c in shown:
        o = splits.optimism(of, c)
        gains = of.means(c, BEST_ON_TEST) - of.means(c, SELECTED)
        cells = [Cell(o.mean, o.deviation, digits=c.digits, sign=True), text(_range(o.extremes)), Cell(float(gains.std(ddof=1)), digits=c.digits)]
        table.add([text(c.title), *cells, text(f"{o.reordered} of {o.pairs}")])
    if len(shown) > 1:
        turned, pairs = splits.reordered(of.means(shown[0], SELECTED), of.means(shown[1], SELECTED))
        table.notes.append(f"{shown[0].title} and {shown[1].title} order {turned} of {pairs} pairs of methods (on one split) differently, epochs chosen on validation.")
    table.notes.append(
        "Optimism: the value at the epoch that test chose less that at the epoch that validation chose, both by the metric that selects epochs; mean and deviation over all runs. "
        "Method x split deviation: of its means over seeds; what is the same for all shifts no ranking. Reordered: pairs of methods on a split whose means change places.",
    )
    return table


def _rules(of: Splits) -> str:
    return rules([group for row in of.members for group in row])


def _cell(values, c: Column) -> Cell:
    values = np.asarray(values, dtype=np.float64)
    return Cell(float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else math.nan, digits=c.digits)


def _range(pair: tuple[float, float]) -> str:
    return f"[{pair[0]:+.2f}, {pair[1]:+.2f}]"
