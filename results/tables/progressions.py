"""A method's metric on the splits of an out-of-distribution progression, and the area under it."""

from results import inference, progression
from results.columns import SELECTED, Column
from results.formats import Cell, Table
from results.tables import notes
from results.tables.notes import head, number, text

FID_DIGITS = 1


def progressed(name: str, methods: list[progression.Method], c: Column, ddof: int) -> Table:
    """Methods x splits of one progression, the splits that all methods have, by rising FID, and the area under each method's curve."""
    splits = progression.shared_splits(methods)
    heads = [f"split {split}" for split in splits]
    table = Table(f"{name}_progression", f"{name}: {c.title} out of distribution", ["method", "seeds", f"area, {head(c)}", *heads])
    estimates = {d: [inference.estimate(progression.areas(method, splits, c), d) for method in methods] for d in {1, ddof}}
    for i, (method, place) in enumerate(zip(methods, inference.ranked(estimates[1], c.higher), strict=True)):
        members = [method.groups[split] for split in splits]
        values = [number(group.estimate(c, SELECTED, ddof), c) for group in members]
        fids = ", ".join(f"{split}: {method.fids[split]:.{FID_DIGITS}f}" for split in splits)
        remarks = [f"FID of split {fids}"] + [f"split {s}: {remark}" for s, group in zip(splits, members, strict=True) for remark in group.own_remarks]
        more = sorted(set(method.groups) - set(splits))
        remarks += [f"not all methods have split {', '.join(more)}: left out"] * bool(more)
        area = Cell(estimates[ddof][i].mean, estimates[ddof][i].deviation, place.mark, c.digits, interval=place.interval, is_small=place.is_small)
        table.add([text(method.name), text(str(estimates[1][i].count)), area, *values], remarks)
    everyone = [group for method in methods for group in method.groups.values()]
    table.notes = [
        "FID: Frechet distance of a split's training and test images in the backbone's features; the higher, the further from what was trained. Area: the mean "
        "height of the curve of the metric over the FIDs of these splits (trapezoids), one a seed that all of them have.",
        notes.RANKING.format(where="areas; other columns are not ranked"),
        f"Mean and standard deviation (ddof {ddof}) over {notes.seeds(everyone)}. Epochs: selected epoch; {notes.rules(everyone)}.",
    ]
    return table
