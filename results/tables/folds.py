"""Cross-validations: the results over folds, separated and concatenated."""

import math

import numpy as np

from results import columns, groups, inference
from results.columns import SELECTED, SELECTIONS, Column
from results.formats import Cell, Table
from results.groups import Group
from results.tables import notes
from results.tables.notes import head, text
from runs.meta import CONCATENATED, SEPARATED
from utilities.counts import count_of
from utilities.intervals import t_interval

KINDS = (SEPARATED, CONCATENATED)


def cross_validation(dataset_groups: list[Group], table_columns: list[Column]) -> Table | None:
    """The results over folds, separated and concatenated, with 95 % intervals.

    None if no group is a cross-validation.

    Separated: each fold's embeddings are measured by themselves, and the results averaged.
    Concatenated: measured as one embedding.
    """
    fold_groups = [group for group in dataset_groups if group.folds]
    if not fold_groups:
        return None
    dataset = fold_groups[0].dataset
    table_columns = _measured_columns(fold_groups, table_columns)
    titles = ["group", "embeddings", "cross-validations", "folds", *map(head, table_columns), "interval over"]
    table = Table(f"{dataset}_cross_validation", f"{dataset}: cross-validations", titles, spread="95 % interval")
    parts = groups.pools(fold_groups, SELECTED)
    for part, members in parts.items():
        places = {}
        for kind in KINDS:
            for c in table_columns:
                places[kind, c] = _places(members, kind, c)
        for i, group in enumerate(members):
            for kind in KINDS:
                numbers = [_interval(group, kind, c, places[kind, c][i]) for c in table_columns]
                if kind == SEPARATED:
                    remarks = group.own_remarks
                else:
                    remarks = [*group.about_meta, *_not_measured(group, table_columns)]
                is_measured = any(math.isfinite(cell.value) for cell in numbers)
                before, after = _text_cells(group, kind, is_measured)
                table.add([text(group.name), *before, *numbers, after], remarks, part)
    ranked_within = "column and kind of embeddings"
    if len(parts) > 1:
        ranked_within += " in a part of the table"
    table.notes = [
        f"Epochs: {SELECTIONS[SELECTED]} of each fold; selected: {notes.rules(fold_groups)}.",
        "Separated: mean of the folds, each measured separately. Concatenated: the folds' test embeddings, each of "
        "unit length, joined to one; - if not measured. A cross-validation counts as one seed.",
        f"±: half of the 95 % interval (Student's t, ddof 1) over {notes.seeds(fold_groups)} per group; of a single "
        "seed over its folds, which share training data, so that it is probably too narrow.",
        *notes.ranking(table, ranked_within),
        *notes.shared_settings(dataset_groups),
    ]
    notes.mark_noise(table, fold_groups, {head(c): c for c in table_columns})
    return table


def _measured_columns(fold_groups: list[Group], table_columns: list[Column]) -> list[Column]:
    """The columns that some group has a number of; before them the metrics that selected the epochs."""
    candidates = []
    for group in fold_groups:
        run = group.counted[0]
        selecting = columns.column(columns.selection_split(run), columns.selection_metric(run))
        if selecting not in table_columns and selecting not in candidates:
            candidates.append(selecting)
    return [c for c in [*candidates, *table_columns] if _is_measured(fold_groups, c)]


def _is_measured(fold_groups: list[Group], column: Column) -> bool:
    """Whether any cross-validation has a number in a column, separated or concatenated."""
    for group in fold_groups:
        for kind in KINDS:
            if np.isfinite(_over_folds(group, kind, column)).any():
                return True
    return False


def _text_cells(group: Group, kind: str, is_measured: bool) -> tuple[list[Cell], Cell]:
    """The cells before a row's numbers, and the one after them.

    Before: embeddings, cross-validations, folds. After: what the interval is over.
    """
    count = len(group.seeds)
    width = group.counted[0].flags.get("embed_dim") or 0
    if kind == CONCATENATED:
        width *= group.n_folds
    embeddings = kind
    if width and is_measured:
        embeddings += f", {width} dimensions"
    interval_over = "-"
    if is_measured and count > 1:
        interval_over = f"{count} cross-validations"
    elif is_measured and kind == SEPARATED:
        interval_over = count_of(len(group.folds), "fold")
    before = [text(embeddings), Cell(count, digits=0), text(" ".join(map(str, group.folds)))]
    return before, text(interval_over)


def _places(members: list[Group], kind: str, column: Column) -> list[inference.Place]:
    """Ranks. A group that lacks the number of some cross-validations has no mean (`_interval`), and so no rank."""
    estimates = []
    for group in members:
        values = _over_folds(group, kind, column)
        if not np.isfinite(values).all():
            values = []
        estimates.append(inference.estimate(values))
    return inference.ranked(estimates, column.higher)


def _interval(group: Group, kind: str, column: Column, place: inference.Place) -> Cell:
    """Mean and half the 95 % interval over the cross-validations, for a single one over its folds.

    Empty if one was not measured.
    """
    values = _over_folds(group, kind, column)
    if len(values) == 1 and kind == SEPARATED:
        values = np.array([columns.value(run, column, SELECTED) * column.scale for run in group.counted])
    if not np.isfinite(values).all():
        return Cell()
    result = t_interval(values)
    half = result["interval_95"] and result["interval_95"][1] - result["mean"]
    return Cell(result["mean"], half, place.mark, column.digits, interval=place.interval)


def _not_measured(group: Group, table_columns: list[Column]) -> list[str]:
    """A remark on the cross-validations whose concatenated embeddings were not measured, and how to measure them."""
    lacking = np.isnan([group.joined(c) for c in table_columns]).all(0)
    names = [runs[0].cross_validation for runs, lacks in zip(group.seeds.values(), lacking, strict=True) if lacks]
    if not names:
        return []
    is_online = "://" in group.counted[0].location
    advice = "W&B does not hold it" if is_online else "main.py --evaluate_ensemble does it"
    return [f"not measured in {', '.join(names)}: {advice}"]


def _over_folds(group: Group, kind: str, column: Column) -> np.ndarray:
    """One number per cross-validation."""
    if kind == SEPARATED:
        return group.values(column, SELECTED)
    return group.joined(column)
