"""The gain of choosing the epoch on the test set: both selections of every metric, and their difference, the
optimism.
"""

import math

import numpy as np

from results import columns, groups, inference
from results.columns import BEST_ON_TEST, ON_VALIDATION, OPTIMISM, SELECTED, Column
from results.formats import Cell, Table
from results.groups import Group
from results.tables import notes
from results.tables.notes import number, text
from utilities.counts import count_of
from utilities.intervals import t_interval

EPOCH_DIGITS = 1


def optimism(found: list[Group], shown: list[Column], ddof: int) -> Table | None:
    """The test values at the epochs chosen on validation and on test, one part of the table per metric.

    None where no group has both.
    """
    found = [group for group in found if group.has_both]
    shown = [c for c in shown if c.split == "test" and c.higher is not None]
    if not found or not shown:
        return None
    dataset = found[0].dataset
    heads = [
        "group",
        "seeds",
        "chosen on validation",
        "chosen on test",
        "optimism",
        "epoch (validation)",
        "epoch (test)",
    ]
    table = Table(f"{dataset}_optimism", f"{dataset}: the test values of both selections", heads)
    for c in shown:
        for group in found:
            rules = [columns.selected_by(c, how) for how in (ON_VALIDATION, BEST_ON_TEST, OPTIMISM)]
            numbers = [number(group.estimate(rule, SELECTED, ddof), rule) for rule in rules]
            epochs = [Cell(group.epochs(how, ddof, c).mean, digits=EPOCH_DIGITS) for how in (SELECTED, BEST_ON_TEST)]
            table.add([text(group.name), text(group.seeds_text), *numbers, *epochs], group.remarks, notes.head(c))
        average = inference.estimate(gaps(found, c), ddof)
        mean = Cell(average.mean, average.deviation, digits=c.digits, sign=True)
        table.add(
            [text(f"mean of {count_of(average.count, 'group')}"), text(""), Cell(), Cell(), mean, Cell(), Cell()],
            part=notes.head(c),
        )
    table.notes = [
        "Chosen on validation: the value of test at the epoch that validation selects. Chosen on test: at each "
        "metric's own best epoch on the test set, "
        "the field's habit. Optimism: by how much the second is the better one, paired by seed.",
        f"Mean and standard deviation (ddof {ddof}), in a group over {notes.seeds(found)}, in the last line of a part "
        "over the groups. "
        f"Epochs: means; {notes.rules(found)}.",
        *notes.shared_settings(found),
    ]
    return table


def gaps(found: list[Group], c: Column) -> np.ndarray:
    """The optimism of each group that has both selections, `(n,)`."""
    means = np.array(
        [group.estimate(columns.selected_by(c, OPTIMISM), SELECTED).mean for group in found if group.has_both]
    )
    return means[np.isfinite(means)]


def on_average(found: list[Group], first: dict[str, Column | None]) -> list[str]:
    """One sentence: the mean of the optimism over all groups of all data sets, each data set in its first metric.

    Args:
        first: data set -> that metric, None where it has none on test.
    """
    each = {
        dataset: gaps(there, first[dataset]) for dataset, there in groups.of_datasets(found).items() if first[dataset]
    }
    everything = np.concatenate([[], *each.values()])
    if not len(everything):
        return []
    titles = ", ".join(dict.fromkeys(first[dataset].title for dataset, values in each.items() if len(values)))
    result = t_interval(everything)
    low, high = result["interval_95"] or (math.nan, math.nan)
    interval = f" (95 % interval over the groups {low:+.2f} to {high:+.2f})" if math.isfinite(low) else ""
    return [
        (
            f"optimism: choosing the epoch on test in place of validation makes {titles} on test better by "
            f"{result['mean']:.2f} points, the mean of {count_of(len(everything), 'group')}{interval}"
        )
    ]
