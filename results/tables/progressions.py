"""A method's metric on the splits of an out-of-distribution progression, and the area under it."""

import numpy as np

from results import columns, groups, inference, progression
from results.columns import SELECTED, Column
from results.formats import Table
from results.progression import Method
from results.tables import notes
from results.tables.notes import head, number, text

FID_DIGITS = 1


def progressed(name: str, methods: list[Method], c: Column, ddof: int) -> Table:
    """Methods x splits of one progression, and the area under each method's curve.

    The splits are those that all methods have, by rising FID.
    """
    splits = progression.shared_splits(methods)
    runs = []
    for method in methods:
        runs += groups.counted_runs([method.groups[split] for split in splits])
    area_columns = columns.with_both([c], runs, SELECTED)
    areas = {column: [progression.areas(method, splits, column) for method in methods] for column in area_columns}
    parts = _parts(methods, splits)
    places = {}  # (column, number of the method) -> place in its part
    for column in area_columns:
        for members in parts.values():
            ranked = inference.ranked([inference.estimate(areas[column][i]) for i in members], column.higher)
            for i, place in zip(members, ranked, strict=True):
                places[column, i] = place
    heads = ["method", "seeds", *(f"area, {head(column)}" for column in area_columns)]
    heads += [f"split {split}" for split in splits]
    table = Table(f"{name}_progression", f"{name}: {c.title} out of distribution", heads)
    for part, members in parts.items():
        for i in members:
            method = methods[i]
            cells = [text(method.name), text(str(np.isfinite(areas[c][i]).sum()))]
            for column in area_columns:
                cells.append(number(inference.estimate(areas[column][i], ddof), column, places[column, i]))
            cells += [number(method.groups[split].estimate(c, SELECTED, ddof), c) for split in splits]
            table.add(cells, _remarks(method, splits), part)
    all_groups = []
    for method in methods:
        all_groups += method.groups.values()
    ranked_within = "areas; other columns are not ranked"
    if len(parts) > 1:
        ranked_within = "areas in a part of the table; other columns are not ranked"
    table.notes = [
        "FID: Frechet distance of a split's training and test classes, by their means in the backbone's features; "
        "higher is further from training. Area: mean height of the metric's curve over the FIDs (trapezoids), one per "
        "seed common to these splits.",
        *notes.ranking(table, ranked_within),
        f"Mean and standard deviation (ddof {ddof}) over {notes.seeds(all_groups)}. Epochs: selected epoch; "
        f"{notes.rules(all_groups)}.",
        *notes.shared_settings(all_groups),
    ]
    return table


def _parts(methods: list[Method], splits: list[str]) -> dict[str, list[int]]:
    """Title of a part -> the numbers of the methods that may be ranked with each other."""
    # a group of each method -> the method's number
    number_of = {}
    for i, method in enumerate(methods):
        split = splits[0] if splits else next(iter(method.groups))
        number_of[method.groups[split]] = i
    pools = groups.pools(list(number_of), SELECTED)
    return {part: [number_of[group] for group in members] for part, members in pools.items()}


def _remarks(method: Method, splits: list[str]) -> list[str]:
    fids = ", ".join(f"{split}: {method.fids[split]:.{FID_DIGITS}f}" for split in splits)
    remarks = [f"FID of split {fids}"]
    for split in splits:
        remarks += [f"split {split}: {remark}" for remark in method.groups[split].own_remarks]
    missing = sorted(set(method.groups) - set(splits))
    if missing:
        remarks.append(f"not all methods have split {', '.join(missing)}: left out")
    return remarks
