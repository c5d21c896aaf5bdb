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


def cross_validation(found: list[Group], shown: list[Column]) -> Table | None:
    """The results over folds, separated and concatenated, with 95 % intervals; None where no group is a
    cross-validation.

    Separated: each fold's embeddings are measured by themselves, and the results averaged. Concatenated: measured as
    one embedding.
    """
    everyone = found
    found = [group for group in found if group.folds]
    if not found:
        return None
    chosen = [
        columns.column(columns.selection_split(run), columns.selection_metric(run))
        for run in (g.counted[0] for g in found)
    ]
    wanted = [*dict.fromkeys(c for c in chosen if c not in shown), *shown]  # also the metrics that selected the epochs
    shown = [c for c in wanted if any(np.isfinite(_over_folds(g, kind, c)).any() for g in found for kind in KINDS)]
    titles = ["group", "embeddings", "cross-validations", "folds", *map(head, shown), "interval over"]
    table = Table(
        f"{found[0].dataset}_cross_validation", f"{found[0].dataset}: cross-validations", titles, spread="95 % interval"
    )
    parts = groups.pools(found, SELECTED)
    for part, members in parts.items():
        places = {(kind, c): _places(members, kind, c) for kind in KINDS for c in shown}
        for i, group in enumerate(members):
            for kind in KINDS:
                numbers = [_interval(group, kind, c, places[kind, c][i]) for c in shown]
                remarks = group.own_remarks if kind == SEPARATED else [*group.about_meta, *_not_measured(group, shown)]
                begin, end = _about(group, kind, any(math.isfinite(cell.value) for cell in numbers))
                table.add([text(group.name), *begin, *numbers, end], remarks, part)
    table.notes = [
        f"Epochs: {SELECTIONS[SELECTED]} of each fold; selected: {notes.rules(found)}.",
        "Separated: mean of the folds, each measured by itself. Concatenated: their embeddings of test, each at unit "
        "length, side by side "
        "as one. A cross-validation has one seed; - where it was not measured.",
        f"± half of the 95 % interval (Student's t, ddof 1), over {notes.seeds(found)} per group where there are "
        "several, else over the folds. "
        "Folds share training data, so that over them it is likely too narrow.",
        *notes.ranking(table, "column and kind of embeddings" + " in a part of the table" * (len(parts) > 1)),
        *notes.shared_settings(everyone),
    ]
    notes.mark_noise(table, found, {head(c): c for c in shown})
    return table


def _about(group: Group, kind: str, is_there: bool) -> tuple[list[Cell], Cell]:
    """The cells before a row's numbers (embeddings, cross-validations, folds), and the one after them (what the
    interval is over).
    """
    count = len(group.seeds)
    width = (group.counted[0].flags.get("embed_dim") or 0) * (group.n_folds if kind == CONCATENATED else 1)
    what = f"{kind}, {width} dimensions" if width and is_there else kind
    over = (
        f"{count} cross-validations" if count > 1 else count_of(len(group.folds), "fold") if kind == SEPARATED else "-"
    )
    return [text(what), Cell(count, digits=0), text(" ".join(map(str, group.folds)))], text(over if is_there else "-")


def _places(members: list[Group], kind: str, column: Column) -> list[inference.Place]:
    """Ranks. A group that lacks the number of some cross-validations has no mean (`_interval`), and so no rank."""
    printed = [
        values if np.isfinite(values).all() else [] for values in (_over_folds(g, kind, column) for g in members)
    ]
    return inference.ranked([inference.estimate(values) for values in printed], column.higher)


def _interval(group: Group, kind: str, column: Column, place: inference.Place) -> Cell:
    """Mean and half the 95 % interval over the cross-validations, for a single one over its folds; empty where one was
    not measured.
    """
    values = _over_folds(group, kind, column)
    if len(values) == 1 and kind == SEPARATED:
        values = np.array([columns.value(run, column, SELECTED) * column.scale for run in group.counted])
    if not np.isfinite(values).all():
        return Cell()
    result = t_interval(values)
    half = result["interval_95"] and result["interval_95"][1] - result["mean"]
    return Cell(result["mean"], half, place.mark, column.digits, interval=place.interval)


def _not_measured(group: Group, shown: list[Column]) -> list[str]:
    """A remark on the cross-validations whose concatenated embeddings were not measured, and how to measure them."""
    lacking = np.isnan([group.joined(c) for c in shown]).all(0)
    names = [runs[0].whole for runs, lacks in zip(group.seeds.values(), lacking, strict=True) if lacks]
    if not names:
        return []
    online = "://" in group.counted[0].where
    return [
        f"not measured in {', '.join(names)}: "
        + ("W&B does not hold it" if online else "main.py --evaluate_ensemble does it")
    ]


def _over_folds(group: Group, kind: str, column: Column) -> np.ndarray:
    """One number per cross-validation."""
    return group.values(column, SELECTED) if kind == SEPARATED else group.joined(column)
