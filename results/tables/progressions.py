"""A method's metric on the splits of an out-of-distribution progression, and the area under it."""

import itertools

import numpy as np

from results import columns, groups, inference, progression
from results.columns import SELECTED, Column
from results.formats import Table
from results.tables import notes
from results.tables.notes import head, number, text

FID_DIGITS = 1


def progressed(name: str, methods: list[progression.Method], c: Column, ddof: int) -> Table:
    """Methods x splits of one progression (those that all methods have, by rising FID), and the area under each
    method's curve.
    """
    splits = progression.shared_splits(methods)
    shown = columns.with_both(
        [c], [run for method in methods for split in splits for run in method.groups[split].counted], SELECTED
    )
    areas = {one: [progression.areas(method, splits, one) for method in methods] for one in shown}
    first = {
        method.groups[splits[0]] if splits else next(iter(method.groups.values())): i
        for i, method in enumerate(methods)
    }
    parts = {part: [first[group] for group in members] for part, members in groups.pools(list(first), SELECTED).items()}
    places = {}
    for one, members in itertools.product(shown, parts.values()):
        ranked = inference.ranked([inference.estimate(areas[one][i]) for i in members], one.higher)
        places |= {(one, i): place for i, place in zip(members, ranked, strict=True)}
    heads = [*(f"area, {head(one)}" for one in shown), *(f"split {split}" for split in splits)]
    table = Table(f"{name}_progression", f"{name}: {c.title} out of distribution", ["method", "seeds", *heads])
    for part, i in [(part, i) for part, members in parts.items() for i in members]:
        method = methods[i]
        members = [method.groups[split] for split in splits]
        numbers = [number(inference.estimate(areas[one][i], ddof), one, places[one, i]) for one in shown]
        values = [number(group.estimate(c, SELECTED, ddof), c) for group in members]
        fids = ", ".join(f"{split}: {method.fids[split]:.{FID_DIGITS}f}" for split in splits)
        remarks = [f"FID of split {fids}"] + [
            f"split {s}: {remark}" for s, group in zip(splits, members, strict=True) for remark in group.own_remarks
        ]
        more = sorted(set(method.groups) - set(splits))
        remarks += [f"not all methods have split {', '.join(more)}: left out"] if more else []
        table.add([text(method.name), text(str(np.isfinite(areas[c][i]).sum())), *numbers, *values], remarks, part)
    everyone = [group for method in methods for group in method.groups.values()]
    table.notes = [
        "FID: Frechet distance of a split's training and test classes, by their means in the backbone's features; the "
        "higher, the further from what was trained. Area: the mean "
        "height of the curve of the metric over the FIDs of these splits (trapezoids), one a seed that all of them "
        "have.",
        *notes.ranking(table, f"areas{' in a part of the table' * (len(parts) > 1)}; other columns are not ranked"),
        (
            f"Mean and standard deviation (ddof {ddof}) over {notes.seeds(everyone)}. Epochs: selected epoch; "
            f"{notes.rules(everyone)}."
        ),
        *notes.shared_settings(everyone),
    ]
    return table
