"""The gain of choosing the epoch on the test set: both selections of every metric, and the optimism."""

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
HEADS = ["group", "seeds", "chosen on validation", "chosen on test", "optimism", "epoch (validation)", "epoch (test)"]


def optimism(dataset_groups: list[Group], table_columns: list[Column], ddof: int) -> Table | None:
    """The test values at the epochs chosen on validation and on test, one part of the table per metric.

    None if no group has both.
    """
    double_groups = [group for group in dataset_groups if group.has_both]
    table_columns = [c for c in table_columns if c.split == "test" and c.higher is not None]
    if not double_groups or not table_columns:
        return None
    dataset = double_groups[0].dataset
    table = Table(f"{dataset}_optimism", f"{dataset}: the test values of both selections", HEADS)
    for c in table_columns:
        rules = [columns.selected_by(c, how) for how in (ON_VALIDATION, BEST_ON_TEST, OPTIMISM)]
        for group in double_groups:
            numbers = [number(group.estimate(rule, SELECTED, ddof), rule) for rule in rules]
            epochs = [Cell(group.epochs(how, ddof, c).mean, digits=EPOCH_DIGITS) for how in (SELECTED, BEST_ON_TEST)]
            table.add([text(group.name), text(group.seeds_text), *numbers, *epochs], group.remarks, notes.head(c))
        average = inference.estimate(gaps(double_groups, c), ddof)
        mean = Cell(average.mean, average.deviation, digits=c.digits, sign=True)
        title = text(f"mean of {count_of(average.count, 'group')}")
        table.add([title, text(""), Cell(), Cell(), mean, Cell(), Cell()], part=notes.head(c))
    table.notes = [
        "Test values at the epoch chosen on validation, and at each metric's own best epoch on test (the field's "
        "habit). Optimism: by how much the latter are better, paired by seed.",
        f"Mean and standard deviation (ddof {ddof}) over {notes.seeds(double_groups)}; in the last line of a part over "
        f"the groups. Epochs: means; {notes.rules(double_groups)}.",
        *notes.shared_settings(double_groups),
    ]
    return table


def gaps(dataset_groups: list[Group], c: Column) -> np.ndarray:
    """The optimism of each group that has both selections, `(n,)`."""
    gap = columns.selected_by(c, OPTIMISM)
    means = np.array([group.estimate(gap, SELECTED).mean for group in dataset_groups if group.has_both])
    return means[np.isfinite(means)]


def on_average(all_groups: list[Group], first_columns: dict[str, Column | None]) -> list[str]:
    """One sentence: the mean of the optimism over all groups of all data sets, each data set in its first metric.

    Args:
        first_columns: data set -> that metric, None if it has none on test.
    """
    gaps_of_all = [np.empty(0)]
    titles = {}
    for dataset, dataset_groups in groups.of_datasets(all_groups).items():
        first = first_columns[dataset]
        if first:
            values = gaps(dataset_groups, first)
            gaps_of_all.append(values)
            if len(values):
                titles[first.title] = None
    values = np.concatenate(gaps_of_all)
    if not len(values):
        return []
    result = t_interval(values)
    interval = ""
    if result["interval_95"]:
        low, high = result["interval_95"]
        interval = f"; 95 % interval over the groups {low:+.2f} to {high:+.2f}"
    return [
        f"optimism: choosing the epoch on test instead of on validation improves {', '.join(titles)} on test by "
        f"{result['mean']:.2f} points (mean of {count_of(len(values), 'group')}{interval})"
    ]
