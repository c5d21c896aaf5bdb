"""The structure of the embedding space, its correlation with the metrics; groups beside twins that differ in one thing,
such as rho_distance.
"""

from results import groups, inference
from results.columns import BEST_ON_TEST, SELECTED, Column
from results.formats import Cell, Table
from results.groups import Group
from results.tables import notes
from results.tables.notes import head, number, text


def structure(found: list[Group], shown: list[Column], ddof: int) -> Table:
    """The structure of the embedding space at the selected epoch: distances within and between classes, spectrum."""
    dataset = found[0].dataset
    table = Table(
        f"{dataset}_structure", f"{dataset}: structure of the embedding space", ["group", "seeds", *map(head, shown)]
    )
    for group in found:
        numbers = [number(group.estimate(c, SELECTED, ddof), c) for c in shown]
        table.add(
            [text(group.name), text(group.seeds_text), *numbers], group.remarks + notes.fewer(group, shown, SELECTED)
        )
    table.notes = notes.about(found, SELECTED, ddof)
    return table


def correlation(found: list[Group], a: Column, b: Column, how: str = SELECTED) -> inference.Correlation:
    """Correlation of two columns over the groups' means, twins with and without rho_distance counted once."""
    means = [[group.estimate(c, how).mean for group in found] for c in (a, b)]
    return inference.correlation(*means, groups.units(found))


def correlations(found: list[Group], of: Column, with_: list[Column]) -> Table:
    """Correlation of one metric with others over a data set's groups, at the selected epoch and beside it at the epoch
    chosen on test.
    """
    dataset = found[0].dataset
    titles = ["quantity", "Pearson", "p", "Spearman", "groups"]
    both = [group for group in found if group.has_both]
    table = Table(
        f"{dataset}_correlations",
        f"{dataset}: correlation of {of.title} with",
        titles + (["Pearson, epoch chosen on test"] if both else []),
    )
    results = [correlation(found, of, c) for c in with_]
    for c, result, p in zip(with_, results, inference.holm([result.p for result in results]), strict=True):
        coefficients = [Cell(result.pearson, sign=True), _p(p, 4), Cell(result.spearman, sign=True)]
        on_test = [Cell(correlation(both, of, c, BEST_ON_TEST).pearson, sign=True)] if both else []
        table.add([text(c.title), *coefficients, Cell(result.count, digits=0), *on_test])
    epochs, *_ = notes.about(found, SELECTED, 1)
    table.notes = [
        f"Over the groups' means, each over {notes.seeds(found)}; a group and its twin with rho_distance count once, "
        "with their mean. "
        f"No coefficient with fewer than {inference.GROUPS_TO_CORRELATE} groups: chance alone gives values near 1. "
        f"p: of Pearson's coefficient, Holm-corrected over the table's rows. {epochs}",
        *notes.shared_settings(found),
        *notes.marked(found, [of, *with_]),
    ]
    return table


def _p(p: float, digits: int) -> Cell:
    least = 10.0**-digits
    return Cell(float(p), text=f"<{least:.{digits}f}" if p < least else None, digits=digits)


def regularised(found: list[Group], shown: list[Column], ddof: int) -> Table | None:
    """Each group with the miner rho_distance beside its twin with the miner distance; None where there is no such pair,
    or no column.
    """
    pairs = groups.twins(found) if shown else []
    about = (
        "in the miner alone: distance, and rho_distance, which at times pushes a sample of the anchor's own class away"
    )
    return beside_twins(pairs, shown, ddof, ("distance", "rho_distance"), about) if pairs else None


def beside_twins(
    pairs: list[tuple[Group, Group]], shown: list[Column], ddof: int, sides: tuple[str, str], about: str
) -> Table:
    """Groups beside their twins, with the difference and its test.

    Args:
        sides: the heads of the two of a pair. about: what the two differ in, for the note.
    """
    found = [group for pair in pairs for group in pair]
    dataset = found[0].dataset
    kind = sides[1]
    heads = [f"{head(c)} {what}" for c in shown for what in (*sides, "difference", "p")]
    table = Table(f"{dataset}_{kind}", f"{dataset}: with and without {kind}", ["method", "seeds", *heads])
    tests = {c: [[g.estimate(c, SELECTED) for g in pair] for pair in pairs] for c in shown}
    adjusted = {c: inference.holm([inference.welch(*pair) for pair in tests[c]]) for c in shown}
    for i, (plain, twin) in enumerate(pairs):
        cells = []
        for c in shown:
            one, other = tests[c][i]
            cells += [number(group.estimate(c, SELECTED, ddof), c) for group in pairs[i]]
            interval = inference.difference(other, one)
            cells += [Cell(other.mean - one.mean, digits=c.digits, sign=True, interval=interval), _p(adjusted[c][i], 3)]
        seeds = dict.fromkeys((plain.seeds_text, twin.seeds_text))
        remarks = [
            f"{g.name}: {remark}" for g in (plain, twin) for remark in g.remarks + notes.fewer(g, shown, SELECTED)
        ]
        table.add([text(plain.label), text(" / ".join(seeds)), *cells], remarks)
    has_intervals = any(cell.interval for row in table.rows for cell in row)
    intervals = " In brackets: 95 % interval of the difference (Welch's t)." if has_intervals else ""
    table.notes = [
        (
            f"The two of a pair differ {about}.{intervals} p: two-sided Welch's t-test of the two, Holm-corrected "
            "over the column's pairs; - of one seed."
        ),
        *_all_pairs(shown, tests),
        *notes.about(found, SELECTED, ddof),
    ]
    return table


def _all_pairs(shown: list[Column], tests: dict) -> list[str]:
    """One note on the direction of all pairs together, which may be significant where no single pair is."""
    directions = []
    for c in shown:
        above, below, p = inference.sign_test([other.mean - one.mean for one, other in tests[c]])
        directions.append(f"{c.title} rises in {above} and falls in {below} (p {p:.3g})")
    return [f"Over all pairs, by the sign test: {'; '.join(directions)}."]
