"""Groups x metrics of one data set and of all; the runs excluded from the means; every run's values; all settings.

`single` is the main table of a data set, also used for single domains and for re-identification; `shared` has all data
sets side by side. Means of groups that may be ranked together are marked and have intervals to the best.
"""

import math
from pathlib import Path

from results import columns, groups, inference, settings, untrained
from results.columns import SELECTED, SELECTIONS, Column
from results.formats import Cell, Table
from results.groups import Group, counted_runs
from results.tables import notes
from results.tables.notes import head, number, text
from runs.names import plain
from utilities.counts import count_of
from utilities.files import write_csv

METHOD_HEADS = ("loss", "miner", "unlike others")
# head of a column: the selected epoch, as a mean over seeds; LaTeX leaves the column out
EPOCH = "epoch"
EPOCH_DIGITS = 1
REIDENTIFICATION = {"e_recall@1": "Rank-1", "e_recall@5": "Rank-5", "ap": "mAP", "inp": "mINP"}
UNTRAINED_PART = "before training"
# head of runs.csv
RUN_FIELDS = [
    *("dataset", "group", "run", "seed", "fold", "counted", "why_not"),
    *("selection", "split", "metric", "value", "selected_epoch", "where"),
]


def single(dataset_groups: list[Group], table_columns: list[Column], how: str, ddof: int) -> Table:
    """The table of one data set: groups x metrics.

    Groups that must not be ranked with each other are in separate parts.
    """
    dataset = dataset_groups[0].dataset
    heads = ["group", "seeds", *METHOD_HEADS, *map(head, table_columns), EPOCH]
    title = f"{dataset}: {SELECTIONS[how].partition(':')[0]}"
    table = Table(f"{dataset}_{how}", title, heads, page_only=set(METHOD_HEADS), not_in_latex={EPOCH})
    common = settings.shared([group.settings for group in dataset_groups])
    varied = dict(zip(dataset_groups, settings.varied(dataset_groups, common), strict=True))
    pools = groups.pools(dataset_groups, how)
    for part, members in pools.items():
        places = _places(members, table_columns, how)
        for group in members:
            epochs = group.epochs(how, ddof)
            miner = group.miner
            if miner is None:
                miner = group.flags.get("batch_mining", "")
            cells = [text(group.name), text(group.seeds_text)]
            cells += [text(str(group.flags.get("loss", ""))), text(str(miner)), text(varied[group])]
            estimates = []
            for c in table_columns:
                cells.append(number(group.estimate(c, how, ddof), c, places[group, c]))
                estimates.append((c.title, group.estimate(c, how)))
            cells.append(Cell(epochs.mean, epochs.deviation, digits=EPOCH_DIGITS))
            remarks = group.undefined(table_columns) + group.fewer([*estimates, ("epoch", epochs)])
            table.add(cells, group.remarks + remarks, part)
    for state in untrained.of_groups(dataset_groups):
        estimates = [state.estimate(c, ddof) for c in table_columns]
        count = max((e.count for e in estimates), default=0)
        if count:
            cells = list(map(text, (state.title, str(count), *[""] * len(METHOD_HEADS))))
            cells += map(number, estimates, table_columns)
            table.add([*cells, Cell(state.epoch, digits=0)], part=UNTRAINED_PART)
    ranked_within = "column" if len(pools) == 1 else "column in a part of the table"
    selection, seeds, *shared_settings = notes.of_numbers(dataset_groups, how, ddof)
    table.notes = [selection, seeds, *notes.ranking(table, ranked_within), *shared_settings]
    notes.mark_noise(table, dataset_groups, {head(c): c for c in table_columns})
    if table_columns:
        table.notes += notes.least_marked(max(pools.values(), key=len), table_columns[0], how)
    return table


def _places(members: list[Group], table_columns: list[Column], how: str) -> dict[tuple[Group, Column], inference.Place]:
    """(group, column) -> the group's place among the members in this column."""
    places = {}
    for c in table_columns:
        ranked = inference.ranked([group.estimate(c, how) for group in members], c.higher)
        for group, place in zip(members, ranked, strict=True):
            places[group, c] = place
    return places


def reidentification(dataset_groups: list[Group], ddof: int) -> Table | None:
    """Rank-1, Rank-5, mAP and mINP of one data set; None if no run recorded all four."""
    runs = counted_runs(dataset_groups)
    available = columns.recorded(runs)
    for split in ("test", "val"):
        if all((split, metric) in available for metric in REIDENTIFICATION):
            break
    else:
        return None
    table_columns = [columns.column(split, metric) for metric in REIDENTIFICATION]
    table = single(dataset_groups, table_columns, SELECTED, ddof)
    table.name = f"{dataset_groups[0].dataset}_reidentification"
    table.title = f"{dataset_groups[0].dataset}: re-identification, values of the selected epoch"
    renamed = {head(c): f"{REIDENTIFICATION[c.metric]}{c.place} [%]" for c in table_columns}
    table.head = [renamed.get(name, name) for name in table.head]
    skips = {bool(run.flags.get("eval_skip_unmatched")) for run in runs}
    if len(skips) > 1:
        unmatched = "are left out of some groups, see eval_skip_unmatched"
    elif skips == {True}:
        unmatched = "are left out"
    else:
        unmatched = "count as 0 in Rank-k"
    note = (
        f"Rank-k is e_recall@k, mAP is ap, mINP is inp. Queries without a match {unmatched}; see roles for their "
        "number."
    )
    table.notes.insert(0, note)
    return table


def by_domain(dataset_groups: list[Group], ddof: int, requested: list[Column] = ()) -> list[Table]:
    """A table for each domain of a data set of several; their means are in that of the data set.

    Args:
        requested: the columns of the data set, if not all: a domain's are of the same metrics.
    """
    domain_tables = []
    metric_names = [plain(c.metric) for c in requested]
    available = columns.recorded(counted_runs(dataset_groups))
    for domain, table_columns in columns.by_domain(available).items():
        if metric_names:
            table_columns = [c for c in table_columns if plain(c.metric) in metric_names]
            table_columns.sort(key=lambda c: metric_names.index(plain(c.metric)))
        if not table_columns:
            continue
        table = single(dataset_groups, table_columns, SELECTED, ddof)
        table.name = f"{dataset_groups[0].dataset}_{domain}"
        table.title = f"{dataset_groups[0].dataset}, {domain}: values of the selected epoch"
        domain_tables.append(table)
    return domain_tables


def shared(all_groups: list[Group], columns_by_dataset: dict[str, list[Column]], how: str, ddof: int) -> Table:
    """The table over all data sets: methods x (data set, metric), each data set ranked by itself.

    Args:
        columns_by_dataset: data set -> its columns.
    """
    groups_by_dataset = groups.of_datasets(all_groups)
    labels = groups.label_alike(all_groups)
    heads = {}
    for dataset in groups_by_dataset:
        for c in columns_by_dataset[dataset]:
            heads[f"{dataset} {head(c)}"] = c
    table = Table(f"shared_{how}", f"All data sets: {SELECTIONS[how].partition(':')[0]}", ["method", "seeds", *heads])
    places = {}
    # group -> remark
    unranked = {}
    for dataset, dataset_groups in groups_by_dataset.items():
        (_, largest), *other_pools = groups.pools(dataset_groups, how).items()
        for title, members in other_pools:
            unranked |= dict.fromkeys(members, f"{dataset}: not ranked with the others ({title})")
        places |= _places(largest, columns_by_dataset[dataset], how)
    # label -> data set -> group
    rows = {}
    for group in all_groups:
        rows.setdefault(labels[group.dataset, group.name], {})[group.dataset] = group
    for label in sorted(rows, key=lambda name: (name.startswith("R-"), name.lower())):
        group_of = rows[label]
        cells = []
        for dataset in groups_by_dataset:
            group = group_of.get(dataset)
            cells += _number_cells(group, columns_by_dataset[dataset], how, ddof, places)
        remarks = []
        for dataset, group in group_of.items():
            of_group = group.remarks + notes.fewer(group, columns_by_dataset[dataset], how)
            remarks += [f"{dataset}: {remark}" for remark in of_group]
            if group in unranked:
                remarks.append(unranked[group])
        seeds = dict.fromkeys(group.seeds_text for group in group_of.values())
        table.add([text(label), text(" / ".join(seeds)), *cells], remarks)
    selection, seeds, *shared_settings = notes.of_numbers(all_groups, how, ddof)
    table.notes = [selection, seeds, *notes.ranking(table, "column"), *shared_settings]
    notes.mark_noise(table, all_groups, heads)
    return table


def _number_cells(group: Group | None, table_columns: list[Column], how: str, ddof: int, places: dict) -> list[Cell]:
    """The numbers of a group, marked by their places; empty cells without a group."""
    if group is None:
        return [Cell() for _ in table_columns]
    cells = []
    for c in table_columns:
        cells.append(number(group.estimate(c, how, ddof), c, places.get((group, c), notes.UNPLACED)))
    return cells


def left_out(all_groups: list[Group], table_columns: list[Column]) -> Table | None:
    """The runs excluded from the means, one by one, with what they recorded; None if there are none."""
    if not any(group.left_out for group in all_groups):
        return None
    heads = ["run", "group", "data set", "seed", "why", "epochs", *map(head, table_columns)]
    table = Table("left_out", "Runs excluded from the means", heads)
    refused = []
    for group in all_groups:
        for run, reason in group.left_out:
            last = 0
            if len(run.series.epochs):
                last = run.series.epochs[-1]
            texts = [run.name, group.name, run.dataset, str(run.seed), reason, str(last)]
            numbers = [Cell(columns.value(run, c, SELECTED) * c.scale, digits=c.digits) for c in table_columns]
            cells = [*map(text, texts), *numbers]
            cells[0].link = run.location
            table.add(cells, run.notes)
        if group.refused:
            refused.append(f"{group.dataset}/{group.name}: {group.refused}.")
    epochs, *_ = notes.of_numbers(all_groups, SELECTED, 1)
    introduction = "One run per line, at its selected epoch; nothing is averaged."
    table.notes = [introduction, *refused, epochs, *notes.shared_settings(all_groups)]
    return table


def values(all_groups: list[Group], columns_by_dataset: dict[str, list[Column]], folder: Path) -> None:
    """Write runs.csv: every run, selection and column, as recorded (0 to 1), in full precision."""
    rows = []
    for group in all_groups:
        for run in group.runs:
            reason = group.reason(run)
            fold = "" if run.fold is None else run.fold
            run_fields = [group.dataset, group.name, run.name, run.seed, fold, not reason, reason]
            for how in SELECTIONS:
                for c in columns_by_dataset[group.dataset]:
                    value = columns.value(run, c, how)
                    if not math.isnan(value):
                        epoch = f"{columns.epoch(run, how, c):g}"
                        rows.append([*run_fields, how, c.split, c.metric, repr(value), epoch, run.location])
    write_csv(folder / "runs.csv", RUN_FIELDS, rows)


def conditions(dataset_groups: list[Group], defaults: dict | None = None) -> Table:
    """All settings: the value most groups share, and the groups that differ.

    Those that vary come first; those that nobody set are folded.

    Args:
        defaults: flag -> default of main.py; without them nothing is folded.
    """
    dataset = dataset_groups[0].dataset
    group_settings = [group.settings for group in dataset_groups]
    table = Table(f"{dataset}_settings", f"{dataset}: settings", ["setting", "value", "groups that differ"])
    unset = settings.left_alone(group_settings, defaults or {})
    rows = []
    for name, value in settings.shared(group_settings).items():
        holders = {}
        for group in dataset_groups:
            if name not in group.derived:
                holders.setdefault(settings.value_of(group.settings, name, value), []).append(group.name)
        holders.pop(value, None)
        differing = "; ".join(f"{other_value}: {', '.join(names)}" for other_value, names in holders.items())
        rows.append((name, value, differing))
    rows.sort(key=lambda row: (not row[2], row[0] in unset))
    for i, (name, value, differing) in enumerate(rows):
        # LaTeX has no room for a whole transform
        in_latex = "see the .md" if name.startswith(settings.TRANSFORMS) else None
        cells = [text(name), Cell(text=value, tex=in_latex), text("none")]
        if not value:
            cells[1] = Cell(text="", tex="none")
        if differing:
            cells[2] = Cell(text=differing, tex=in_latex)
        elif name in unset:
            table.folded.append(i)
        table.add(cells)
    table.folded_title = "Left at their defaults by all groups"
    table.notes = [
        f"Shared by {count_of(len(dataset_groups), 'group')} except those named; the settings that differ come first."
    ]
    return table
