"""The structure of the embedding space, its correlation with the metrics, and pairs of groups.

The two of a pair differ in one thing, such as rho_distance.
"""

import itertools

from results import groups, inference
from results.columns import BEST_ON_TEST, SELECTED, Column
from results.formats import Cell, Table
from results.groups import Group
from results.tables import notes
from results.tables.notes import head, number, text

# in what the pairs of twins differ
MINERS = "in the miner alone: distance, and rho_distance, which sometimes repels a sample of the anchor's class"


def structure(dataset_groups: list[Group], table_columns: list[Column], ddof: int) -> Table:
    """The structure of the embedding space at the selected epoch: distances within and between classes, spectrum."""
    dataset = dataset_groups[0].dataset
    table = Table(
        f"{dataset}_structure",
        f"{dataset}: structure of the embedding space",
        ["group", "seeds", *map(head, table_columns)],
    )
    for group in dataset_groups:
        numbers = [number(group.estimate(c, SELECTED, ddof), c) for c in table_columns]
        table.add(
            [text(group.name), text(group.seeds_text), *numbers],
            group.remarks + notes.fewer(group, table_columns, SELECTED),
        )
    table.notes = notes.of_numbers(dataset_groups, SELECTED, ddof)
    return table


def correlation(dataset_groups: list[Group], a: Column, b: Column, how: str = SELECTED) -> inference.Correlation:
    """Correlation of two columns over the groups' means, twins with and without rho_distance counted once."""
    first = [group.estimate(a, how).mean for group in dataset_groups]
    second = [group.estimate(b, how).mean for group in dataset_groups]
    return inference.correlation(first, second, groups.units(dataset_groups))


def correlations(dataset_groups: list[Group], column: Column, quantities: list[Column]) -> Table:
    """Correlation of one metric with others over a data set's groups, at the selected epoch.

    Beside it: at the epoch chosen on test.
    """
    dataset = dataset_groups[0].dataset
    heads = ["quantity", "Pearson", "p", "Spearman", "groups"]
    double_groups = [group for group in dataset_groups if group.has_both]
    if double_groups:
        heads.append("Pearson, epoch chosen on test")
    table = Table(f"{dataset}_correlations", f"{dataset}: correlation of {column.title} with", heads)
    results = [correlation(dataset_groups, column, c) for c in quantities]
    adjusted = inference.holm([result.p for result in results])
    for c, result, p in zip(quantities, results, adjusted, strict=True):
        coefficients = [Cell(result.pearson, sign=True), _p(p, 4), Cell(result.spearman, sign=True)]
        cells = [text(c.title), *coefficients, Cell(result.count, digits=0)]
        if double_groups:
            on_test = correlation(double_groups, column, c, BEST_ON_TEST)
            cells.append(Cell(on_test.pearson, sign=True))
        table.add(cells)
    epochs, *_ = notes.of_numbers(dataset_groups, SELECTED, 1)
    table.notes = [
        f"Over the groups' means of {notes.seeds(dataset_groups)} each; a group and its twin with rho_distance count "
        f"once, by their mean. Fewer than {inference.GROUPS_TO_CORRELATE} groups have no coefficient: chance alone "
        f"gives values near 1. p: of Pearson's coefficient, Holm-corrected over the rows. {epochs}",
        *notes.shared_settings(dataset_groups),
        *notes.marked(dataset_groups, [column, *quantities]),
    ]
    return table


def _p(p: float, digits: int) -> Cell:
    least = 10.0**-digits
    if p < least:
        return Cell(float(p), text=f"<{least:.{digits}f}", digits=digits)
    return Cell(float(p), digits=digits)


def regularised(dataset_groups: list[Group], table_columns: list[Column], ddof: int) -> Table | None:
    """Each group with the miner rho_distance beside its twin with the miner distance.

    None if there is no such pair, or no column.
    """
    pairs = groups.twins(dataset_groups)
    if not pairs or not table_columns:
        return None
    return beside_twins(pairs, table_columns, ddof, ("distance", "rho_distance"), MINERS)


def beside_twins(
    pairs: list[tuple[Group, Group]], table_columns: list[Column], ddof: int, sides: tuple[str, str], difference: str
) -> Table:
    """Groups beside their twins, with the difference and its test.

    Args:
        sides: the heads of the two of a pair.
        difference: in what the two differ, for the note.
    """
    paired_groups = list(itertools.chain.from_iterable(pairs))
    dataset = paired_groups[0].dataset
    kind = sides[1]
    heads = ["method", "seeds"]
    for c in table_columns:
        heads += [f"{head(c)} {side}" for side in (*sides, "difference", "p")]
    table = Table(f"{dataset}_{kind}", f"{dataset}: with and without {kind}", heads)
    # column -> the estimates of each pair
    tests = {}
    # column -> the p of each pair
    adjusted = {}
    for c in table_columns:
        tests[c] = [(plain.estimate(c, SELECTED), twin.estimate(c, SELECTED)) for plain, twin in pairs]
        adjusted[c] = inference.holm([inference.welch(*pair) for pair in tests[c]])
    for i, (plain, twin) in enumerate(pairs):
        seeds = dict.fromkeys((plain.seeds_text, twin.seeds_text))
        cells = [text(plain.label), text(" / ".join(seeds))]
        for c in table_columns:
            cells += [number(group.estimate(c, SELECTED, ddof), c) for group in (plain, twin)]
            first, second = tests[c][i]
            interval = inference.difference(second, first)
            cells.append(Cell(second.mean - first.mean, digits=c.digits, sign=True, interval=interval))
            cells.append(_p(adjusted[c][i], 3))
        remarks = []
        for group in (plain, twin):
            of_group = group.remarks + notes.fewer(group, table_columns, SELECTED)
            remarks += [f"{group.name}: {remark}" for remark in of_group]
        table.add(cells, remarks)
    intervals = ""
    if any(cell.interval for cell in itertools.chain.from_iterable(table.rows)):
        intervals = " In brackets: its 95 % interval (Welch's t)."
    table.notes = [
        f"Pairs differ {difference}. Difference: the second minus the first.{intervals} p: two-sided Welch's t-test, "
        "Holm-corrected over the pairs; - for a single seed.",
        _all_pairs(table_columns, tests),
        *notes.of_numbers(paired_groups, SELECTED, ddof),
    ]
    return table


def _all_pairs(table_columns: list[Column], tests: dict) -> str:
    """A note on the direction of all pairs together, which may be significant where no single pair is."""
    directions = []
    for c in table_columns:
        above, below, p = inference.sign_test([second.mean - first.mean for first, second in tests[c]])
        directions.append(f"{c.title} rises in {above} and falls in {below} (p {p:.3g})")
    return f"Sign test over all pairs: {'; '.join(directions)}."
