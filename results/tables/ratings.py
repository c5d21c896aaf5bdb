"""Groups x metrics of one data set and of all; the runs that are in no mean; every run's values; all settings."""

import math
from pathlib import Path

from results import columns, groups, inference, settings
from results.columns import SELECTED, SELECTIONS, Column
from results.formats import Cell, Table
from results.groups import Group
from results.tables import notes
from results.tables.notes import head, number, text
from runs.names import plain
from utilities.counts import count_of
from utilities.files import write_csv

EPOCH = "epoch"
EPOCH_DIGITS = 1
REIDENTIFICATION = {"e_recall@1": "Rank-1", "e_recall@5": "Rank-5", "ap": "mAP", "inp": "mINP"}
UNTRAINED_PART = "before training"


def single(found: list[Group], shown: list[Column], how: str, ddof: int) -> Table:
    """The table of one data set: groups x metrics. Groups that must not be ranked with each other are in parts of their
    own.
    """
    dataset = found[0].dataset
    own = ["loss", "miner", "unlike others"]
    heads = ["group", "seeds", *own, *map(head, shown), EPOCH]
    table = Table(
        f"{dataset}_{how}", f"{dataset}: {SELECTIONS[how].partition(':')[0]}", heads, apart=set(own), aside={EPOCH}
    )
    flags = {group.name: group.flags for group in found}
    common = settings.shared([group.settings for group in found])
    apart = settings.varied(
        list(flags.values()), [group.settings for group in found], common, [group.derived for group in found]
    )
    varied = dict(zip(flags, apart, strict=True))
    for part, members in groups.pools(found, how).items():
        places = {c: inference.ranked([g.estimate(c, how) for g in members], c.higher) for c in shown}
        for i, group in enumerate(members):
            epochs = group.epochs(how, ddof)
            miner = flags[group.name].get("batch_mining", "") if group.miner is None else group.miner
            method = [text(str(flags[group.name].get("loss", ""))), text(str(miner))]
            numbers = [number(group.estimate(c, how, ddof), c, places[c][i]) for c in shown]
            fewer = group.undefined(shown) + group.fewer(
                [*((c.title, group.estimate(c, how)) for c in shown), ("epoch", epochs)]
            )
            last = Cell(epochs.mean, epochs.deviation, digits=EPOCH_DIGITS)
            cells = [text(group.name), text(group.seeds_text), *method, text(varied[group.name]), *numbers, last]
            table.add(cells, group.remarks + fewer, part)
    for state in groups.untrained(found):
        estimates = [state.estimate(c, ddof) for c in shown]
        if count := max((e.count for e in estimates), default=0):
            numbers = [number(e, c) for e, c in zip(estimates, shown, strict=True)]
            table.add(
                [text(state.title), text(str(count)), *[text("")] * 3, *numbers, Cell(state.epoch, digits=0)],
                part=UNTRAINED_PART,
            )
    where = "column" if len(groups.pools(found, how)) == 1 else "column in a part of the table"
    selection, seeds, *of_settings = notes.about(found, how, ddof)
    table.notes = [selection, seeds, *notes.ranking(table, where), *of_settings]
    notes.mark_noise(table, found, {head(c): c for c in shown})
    ranked = max(groups.pools(found, how).values(), key=len)
    table.notes += [note for c in shown[:1] for note in notes.least_marked(ranked, c, how)]
    return table


def reidentification(found: list[Group], ddof: int) -> Table | None:
    """Rank-1, Rank-5, mAP and mINP of one data set, as re-identification publishes them; None where no run recorded all
    four.
    """
    available = columns.recorded([run for group in found for run in group.counted])
    split = next((s for s in ("test", "val") if all((s, metric) in available for metric in REIDENTIFICATION)), None)
    if split is None:
        return None
    shown = [columns.column(split, metric) for metric in REIDENTIFICATION]
    table = single(found, shown, SELECTED, ddof)
    table.name = f"{found[0].dataset}_reidentification"
    table.title = f"{found[0].dataset}: re-identification, values of the selected epoch"
    renamed = {head(c): f"{REIDENTIFICATION[c.metric]}{c.place} [%]" for c in shown}
    table.head = [renamed.get(name, name) for name in table.head]
    skips = {bool(run.flags.get("eval_skip_unmatched")) for group in found for run in group.counted}
    counted = (
        "are left out"
        if skips == {True}
        else "count as 0 in Rank-k"
        if skips == {False}
        else "are left out of some groups, see eval_skip_unmatched"
    )
    table.notes.insert(
        0,
        (
            f"Rank-k is e_recall@k, mAP ap, mINP inp. Queries without a match {counted}; their number is given under "
            "roles."
        ),
    )
    return table


def by_domain(found: list[Group], ddof: int, requested: list[Column] = ()) -> list[Table]:
    """A table for each domain of a data set of several; their means are in that of the data set.

    Args:
        requested: the columns of the data set, if not all: a domain's are of the same metrics.
    """
    made = []
    wanted = [plain(c.metric) for c in requested]
    for domain, shown in columns.by_domain(columns.recorded([run for group in found for run in group.counted])).items():
        if wanted:
            shown = sorted((c for c in shown if plain(c.metric) in wanted), key=lambda c: wanted.index(plain(c.metric)))
        if not shown:
            continue
        table = single(found, shown, SELECTED, ddof)
        table.name = f"{found[0].dataset}_{domain}"
        table.title = f"{found[0].dataset}, {domain}: values of the selected epoch"
        made.append(table)
    return made


def shared(found: list[Group], shown: dict[str, list[Column]], how: str, ddof: int) -> Table:
    """The table over all data sets: methods x (data set, metric), each data set ranked by itself.

    Args:
        shown: data set -> its columns.
    """
    of = groups.of_datasets(found)
    labels = groups.label_alike(found)
    heads = {f"{dataset} {head(c)}": c for dataset in of for c in shown[dataset]}
    table = Table(f"shared_{how}", f"All data sets: {SELECTIONS[how].partition(':')[0]}", ["method", "seeds", *heads])
    places = {}
    apart = {}
    for dataset, there in of.items():
        (_, first), *others = groups.pools(there, how).items()
        apart |= {
            group: f"{dataset}: not ranked with the others ({title})" for title, members in others for group in members
        }
        for c in shown[dataset]:
            ranked = inference.ranked([g.estimate(c, how) for g in first], c.higher)
            places |= {(group, c): place for group, place in zip(first, ranked, strict=True)}
    rows = {}
    for group in found:
        rows.setdefault(labels[group.dataset, group.name], {})[group.dataset] = group
    for label in sorted(rows, key=lambda name: (name.startswith("R-"), name.lower())):
        here = rows[label]
        cells = []
        remarks = []
        for dataset in of:
            group = here.get(dataset)
            none = inference.Place()
            cells += [
                number(group.estimate(c, how, ddof), c, places.get((group, c), none)) if group else Cell()
                for c in shown[dataset]
            ]
        for dataset, group in here.items():
            remarks += [f"{dataset}: {remark}" for remark in group.remarks + notes.fewer(group, shown[dataset], how)]
            remarks += [apart[group]] if group in apart else []
        seeds = list(dict.fromkeys(group.seeds_text for group in here.values()))
        table.add([text(label), text(" / ".join(seeds)), *cells], remarks)
    selection, seeds, *of_settings = notes.about(found, how, ddof)
    table.notes = [selection, seeds, *notes.ranking(table, "column"), *of_settings]
    notes.mark_noise(table, found, heads)
    return table


def left_out(found: list[Group], shown: list[Column]) -> Table | None:
    """The runs that are in no mean, one by one, with what they recorded; None where there are none."""
    rows = [(group, run, reason) for group in found for run, reason in group.left_out]
    if not rows:
        return None
    table = Table(
        "left_out", "Runs that are in no mean", ["run", "group", "data set", "seed", "why", "epochs", *map(head, shown)]
    )
    for group, run, reason in rows:
        last = str(run.series.epochs[-1]) if len(run.series.epochs) else "0"
        numbers = [Cell(columns.value(run, c, SELECTED) * c.scale, digits=c.digits) for c in shown]
        cells = [
            text(run.name),
            text(group.name),
            text(run.dataset),
            text(str(run.seed)),
            text(reason),
            text(last),
            *numbers,
        ]
        cells[0].link = run.where
        table.add(cells, run.notes)
    refused = [f"{group.dataset}/{group.name}: {group.refused}." for group in found if group.refused]
    epochs, *_ = notes.about(found, SELECTED, 1)
    first = "Each line is one run with its selected epoch; nothing here is averaged."
    table.notes = [first, *refused, epochs, *notes.shared_settings(found)]
    return table


def values(found: list[Group], shown: dict[str, list[Column]], folder: Path) -> None:
    """Write runs.csv: every run, every selection, every column of its data set, as recorded (0 to 1), in full
    precision.
    """
    head = [
        "dataset",
        "group",
        "run",
        "seed",
        "fold",
        "counted",
        "why_not",
        "selection",
        "split",
        "metric",
        "value",
        "selected_epoch",
        "where",
    ]
    rows = []
    for group in found:
        reasons = {id(run): reason for run, reason in group.left_out}
        for run in group.runs:
            reason = reasons.get(id(run), "")
            about = [
                group.dataset,
                group.name,
                run.name,
                run.seed,
                "" if run.fold is None else run.fold,
                not reason,
                reason,
            ]
            for how in SELECTIONS:
                for c in shown[group.dataset]:
                    value = columns.value(run, c, how)
                    if not math.isnan(value):
                        rows.append(
                            [*about, how, c.split, c.metric, repr(value), f"{columns.epoch(run, how, c):g}", run.where]
                        )
    write_csv(folder / "runs.csv", head, rows)


def conditions(found: list[Group], defaults: dict | None = None) -> Table:
    """All settings: the value most groups share, and the groups that differ. Those that vary come first; those that
    nobody set are folded.

    Args:
        defaults: flag -> default of main.py; without them nothing is folded.
    """
    dataset = found[0].dataset
    those = [group.settings for group in found]
    table = Table(f"{dataset}_settings", f"{dataset}: settings", ["setting", "value", "groups that differ"])
    rows = []
    for name, value in settings.shared(those).items():
        others = {}
        for group in found:
            if name not in group.derived:
                others.setdefault(settings.value_of(group.settings, name, value), []).append(group.name)
        others.pop(value, None)
        rows.append((name, value, "; ".join(f"{other}: {', '.join(names)}" for other, names in others.items())))
    unset = settings.left_alone(those, defaults or {})
    rows.sort(key=lambda row: (not row[2], row[0] in unset))
    for name, value, differing in rows:
        in_latex = "see the .md" if name.startswith(settings.TRANSFORMS) else None
        table.add(
            [text(name), Cell(text=value, tex=in_latex), Cell(text=differing or "none", tex=differing and in_latex)]
        )
    table.folded = [i for i, (name, _, differing) in enumerate(rows) if name in unset and not differing]
    table.folded_title = "Left at their defaults by all groups"
    table.notes = [
        f"Shared by {count_of(len(found), 'group')} except those named; the settings that differ come first."
    ]
    return table
