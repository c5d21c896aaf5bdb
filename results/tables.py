"""Groups as tables; formats.py writes them as .tex, .md and .csv, and shows them as HTML."""

import csv
import math
from pathlib import Path

import numpy as np

from results import columns, groups, published, statistics
from results.collect import CONCATENATED, SEPARATED
from results.columns import BEST_ON_TEST, SELECTED, SELECTIONS, Column
from results.formats import MARKED_NOTE, SETTINGS_NOTE, Cell, Table
from results.groups import Group
from utilities.files import replacing

STRUCTURE_DIGITS, EPOCH_DIGITS = 3, 1


def _cell(estimate: statistics.Estimate, column: Column, mark: str = "") -> Cell:
    return Cell(estimate.mean, estimate.deviation, mark, column.digits)


def _text(text: str) -> Cell:
    return Cell(text=text)


def _notes(found: list[Group], how: str, ddof: int, ranked: bool = True, untested: list[str] = ()) -> list[str]:
    """What every table says: seeds, selection, deviation, significance, shared settings.

    Args:
        untested: titles of the columns whose best mean is of one seed.
    """
    selection = f"{SELECTIONS[how]}; selected: {_rules(found)}" if how == SELECTED else SELECTIONS[how]
    folded = any(group.folds for group in found)
    if folded and how != SELECTED:
        selection += "; - where test was not measured throughout, as in cross-validations, which measure it at the selected epoch alone"
    notes = [
        f"Epochs: {selection}.",
        f"Mean and standard deviation (ddof {ddof}) over {_seeds(found)} a group; no deviation where a number is of one seed only."
        + " A cross-validation of several folds counts as one seed." * folded,
    ]
    if ranked:
        notes += [_ranking("column"), *_untested(untested)]
    return notes + _settings(found)


def _rules(found: list[Group]) -> str:
    """How the epoch was selected, in words; where that differs between data sets, of each."""
    of = {}
    for dataset in groups.datasets(found):
        rule = groups.shared_settings([group for group in found if group.dataset == dataset]).get("selection", "")
        of.setdefault(rule, []).append(dataset)
    return next(iter(of)) if len(of) == 1 else "; ".join(f"{rule} ({', '.join(names)})" for rule, names in of.items())


def _seeds(found: list[Group]) -> str:
    """`5 seeds`, `2 to 5 seeds`."""
    counts = sorted({len(group.seeds) for group in found if group.seeds})
    number = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}" if counts else "no"
    return f"{number} seed{'' if counts == [1] else 's'}"


def _ranking(where: str) -> str:
    return (
        f"Bold: best mean of the {where}. Underlined: not significantly worse than it (two-sided Welch's t-test, Holm-corrected over its "
        f"groups, p >= {statistics.ALPHA}); a mean of one seed cannot be tested."
    )


def _untested(titles: list[str]) -> list[str]:
    """The note on columns whose best mean is of one seed: without it, all others would seem to be significantly worse."""
    return [f"{', '.join(titles)}: the best mean is of one seed, so nothing could be tested against it."] if titles else []


def _settings(found: list[Group]) -> list[str]:
    """One note a data set: the settings that its groups share."""
    of = {dataset: [group for group in found if group.dataset == dataset] for dataset in groups.datasets(found)}
    return [f"{SETTINGS_NOTE}{name}) of all groups but those marked: {groups.printed_settings(part)}." for name, part in of.items()]


def single(found: list[Group], shown: list[Column], how: str, ddof: int) -> Table:
    """The table of one data set: groups x metrics."""
    dataset = found[0].dataset
    table = Table(
        f"{dataset}_{how}", f"{dataset}: {SELECTIONS[how].partition(':')[0]}", ["group", "seeds", *(_head(c) for c in shown), "epoch"]
    )
    tested = {c: [g.estimate(c, how) for g in found] for c in shown}
    marks = {c: statistics.marks(tested[c], c.higher) for c in shown}
    for i, group in enumerate(found):
        epochs = group.epochs(how, ddof)
        numbers = [_cell(group.estimate(c, how, ddof), c, marks[c][i]) for c in shown]
        fewer = group.fewer([*((c.title, tested[c][i]) for c in shown), ("epoch", epochs)])
        cells = [_text(group.name), _text(group.seeds_text), *numbers, Cell(epochs.mean, epochs.deviation, digits=EPOCH_DIGITS)]
        table.add(cells, group.remarks + fewer)
    table.notes = _notes(found, how, ddof, untested=[c.title for c in shown if statistics.untested(tested[c], marks[c])])
    return table


def cross_validation(found: list[Group], shown: list[Column]) -> Table | None:
    """The results over folds, separated and concatenated, with 95 % intervals; None where no group is a cross-validation.

    Separated: the folds' embeddings, each measured by itself, and the mean of that. Concatenated: as one embedding.
    """
    everyone, found = found, [group for group in found if group.folds]
    if not found:
        return None
    chosen = [columns.column(columns.selection_split(run), columns.selection_metric(run)) for run in (g.counted[0] for g in found)]
    wanted = [*dict.fromkeys(c for c in chosen if c not in shown), *shown]  # by what it was selected, too
    shown = [c for c in wanted if any(np.isfinite(_over_folds(g, kind, c)).any() for g in found for kind in (SEPARATED, CONCATENATED))]
    head = ["group", "embeddings", "cross-validations", "folds", *map(_head, shown), "interval over"]
    table = Table(f"{found[0].dataset}_cross_validation", f"{found[0].dataset}: cross-validations", head, spread="95 % interval")
    marks, untested = {}, []
    for c in shown:
        for kind in (SEPARATED, CONCATENATED):
            # Of several cross-validations the mean of some is not printed (`_interval`), and so not the best either.
            printed = [values if np.isfinite(values).all() else [] for values in (_over_folds(g, kind, c) for g in found)]
            estimates = [statistics.estimate(values) for values in printed]
            marked = statistics.marks(estimates, c.higher)
            marks |= {(g.name, kind, c): mark for g, mark in zip(found, marked, strict=True)}
            untested += [f"{c.title} ({kind})"] * statistics.untested(estimates, marked)
    for group in found:
        count, folds = len(group.seeds), _text(" ".join(map(str, group.folds)))
        for kind in (SEPARATED, CONCATENATED):
            numbers = [_interval(group, kind, c, marks[group.name, kind, c]) for c in shown]
            there = any(math.isfinite(cell.value) for cell in numbers)
            width = (group.counted[0].flags.get("embed_dim") or 0) * (group.n_folds if kind == CONCATENATED else 1)
            what = f"{kind}, {width} dimensions" if width and there else kind
            over = f"{count} cross-validations" if count > 1 else f"{len(group.folds)} folds" if kind == SEPARATED else "-"
            remarks = group.own_remarks if kind == SEPARATED else [*group.about_meta, *_not_measured(group, shown)]
            table.add([_text(group.name), _text(what), Cell(count, digits=0), folds, *numbers, _text(over if there else "-")], remarks)
    table.notes = [
        f"Epochs: {SELECTIONS[SELECTED]} of each fold; selected: {_rules(found)}.",
        "Separated: mean of the folds, each measured by itself. Concatenated: their embeddings of test, each at unit length, side by side "
        "as one. A cross-validation has one seed; - where it was not measured.",
        f"± half of the 95 % interval (Student's t, ddof 1), over {_seeds(found)} a group where there are several, else over the folds. "
        "Folds share training data, so that over them it is likely too narrow.",
        _ranking("column and kind of embeddings"),
        *_untested(untested),
        *_settings(everyone),
    ]
    return table


def _interval(group: Group, kind: str, column: Column, mark: str) -> Cell:
    """Mean and half the 95 % interval over the cross-validations, of a single one over its folds; empty where one was not measured."""
    from runs.meta import statistics as over

    values = _over_folds(group, kind, column)
    if len(values) == 1 and kind == SEPARATED:
        values = np.array([columns.value(run, column, SELECTED) * column.scale for run in group.counted])
    if not np.isfinite(values).all():
        return Cell()
    result = over(values)
    return Cell(result["mean"], result["interval_95"] and result["interval_95"][1] - result["mean"], mark, column.digits)


def _not_measured(group: Group, shown: list[Column]) -> list[str]:
    """Of which cross-validations the concatenated embeddings were not measured, and what does it."""
    lacking = np.isnan([group.joined(c) for c in shown]).all(0)
    names = [runs[0].whole for runs, lacks in zip(group.seeds.values(), lacking, strict=True) if lacks]
    if not names:
        return []
    online = "://" in group.counted[0].where
    return [f"not measured in {', '.join(names)}: " + ("W&B does not hold it" if online else "main.py --evaluate_ensemble does it")]


def _over_folds(group: Group, kind: str, column: Column) -> np.ndarray:
    """One number a cross-validation."""
    return group.values(column, SELECTED) if kind == SEPARATED else group.joined(column)


def regularised(found: list[Group], shown: list[Column], ddof: int) -> Table | None:
    """Each group with the miner rho_distance beside its twin with the miner distance; None where there is no such pair, or no column."""
    pairs = groups.twins(found) if shown else []
    if not pairs:
        return None
    dataset = found[0].dataset
    heads = [f"{_head(c)} {what}" for c in shown for what in ("distance", "rho_distance", "difference", "p")]
    table = Table(f"{dataset}_rho_distance", f"{dataset}: with and without rho_distance", ["method", "seeds", *heads])
    tests = {c: [[g.estimate(c, SELECTED) for g in pair] for pair in pairs] for c in shown}
    adjusted = {c: statistics.holm([statistics.welch(*pair) for pair in tests[c]]) for c in shown}
    for i, (plain, with_rho) in enumerate(pairs):
        cells = []
        for c in shown:
            one, other = tests[c][i]
            p = float(adjusted[c][i])
            cells += [
                *(_cell(group.estimate(c, SELECTED, ddof), c) for group in pairs[i]), Cell(other.mean - one.mean, digits=c.digits, sign=True),
                Cell(p, text="<0.001" if p < 1e-3 else None, digits=3),
            ]  # fmt: skip
        seeds = dict.fromkeys((plain.seeds_text, with_rho.seeds_text))
        remarks = [f"{group.name}: {remark}" for group in (plain, with_rho) for remark in group.remarks + _fewer(group, shown, SELECTED)]
        table.add([_text(plain.label), _text(" / ".join(seeds)), *cells], remarks)
    table.notes = [
        "The two of a pair differ in the miner alone: distance, and rho_distance, which at times pushes a sample of the anchor's own class away. "
        "p: two-sided Welch's t-test of the two, Holm-corrected over the column's pairs; - of one seed.",
        *_notes(found, SELECTED, ddof, ranked=False),
    ]
    return table


def structure(found: list[Group], shown: list[Column], ddof: int) -> Table:
    """The structure of the embedding space at the selected epoch: distances within and between classes, spectrum."""
    dataset = found[0].dataset
    table = Table(f"{dataset}_structure", f"{dataset}: structure of the embedding space", ["group", "seeds", *(_head(c) for c in shown)])
    for group in found:
        numbers = [_cell(group.estimate(c, SELECTED, ddof), c) for c in shown]
        table.add([_text(group.name), _text(group.seeds_text), *numbers], group.remarks + _fewer(group, shown, SELECTED))
    table.notes = _notes(found, SELECTED, ddof, ranked=False)
    return table


def shared(found: list[Group], shown: dict[str, list[Column]], how: str, ddof: int) -> Table:
    """The table over all data sets: methods x (data set, metric).

    Args:
        shown: data set -> its columns.
    """
    names = groups.datasets(found)
    labels = groups.label_alike(found)
    heads = [f"{dataset} {_head(c)}" for dataset in names for c in shown[dataset]]
    table = Table(f"shared_{how}", f"All data sets: {SELECTIONS[how].partition(':')[0]}", ["method", "seeds", *heads])
    of = {dataset: [group for group in found if group.dataset == dataset] for dataset in names}
    marks, untested = {}, []
    for dataset in names:
        for c in shown[dataset]:
            estimates = [g.estimate(c, how) for g in of[dataset]]
            marked = statistics.marks(estimates, c.higher)
            marks[dataset, c] = dict(zip((g.name for g in of[dataset]), marked, strict=True))
            untested += [f"{dataset} {c.title}"] * statistics.untested(estimates, marked)
    rows = {}
    for group in found:
        rows.setdefault(labels[group.dataset, group.name], {})[group.dataset] = group
    for label in sorted(rows, key=lambda name: (name.startswith("R-"), name.lower())):
        here = rows[label]
        cells = []
        for dataset in names:
            group = here.get(dataset)
            cells += [
                _cell(group.estimate(c, how, ddof), c, marks[dataset, c][group.name]) if group else Cell() for c in shown[dataset]
            ]  # fmt: skip
        seeds = list(dict.fromkeys(group.seeds_text for group in here.values()))
        remarks = [
            f"{dataset}: {remark}" for dataset, group in here.items() for remark in group.remarks + _fewer(group, shown[dataset], how)
        ]
        table.add([_text(label), _text(" / ".join(seeds)), *cells], remarks)
    table.notes = _notes(found, how, ddof, untested=untested)
    return table


def comparison(matches: list[published.Match], source: str, found: list[Group] | None = None) -> Table:
    """Groups beside their published counterparts.

    Args:
        found: all groups of the data set, whose shared settings the table prints; unset: those of the matches.
    """
    found = found or [match.group for match in matches]
    dataset = found[0].dataset
    values = [(v.column, v.how) for v in max((m.published.values for m in matches), key=len)]
    with_rho = any(math.isfinite(m.published.rho) for m in matches)
    heads = [f"{c.title} {what}" for c, _ in values for what in ("ours [%]", "published [%]", "difference", "z")]
    table = Table(
        f"{dataset}_{source}",
        f"{dataset}: beside the published values",
        ["group", "method", "seeds", *heads, *(["rho ours", "rho published"] * with_rho)],
    )
    assumed = False
    for m in matches:
        cells, estimates, separated = [], [], False
        theirs = {v.column: v for v in m.published.values}
        for c, _ in values:
            value = theirs.get(c)
            if value is None:
                cells += [Cell()] * 4
                continue
            ours, against = published.compare(m.group, value)
            estimates.append((c.title, ours))
            assumed |= against.assumed
            separated |= value.joined and bool(m.group.folds) and not published.joined(m.group, value)
            cells += [
                _cell(ours, c), Cell(value.mean, value.deviation, digits=c.digits), Cell(against.difference, digits=c.digits, sign=True),
                Cell(against.z, digits=2, sign=True),
            ]  # fmt: skip
        if with_rho:
            rho = published.our_rho(m.group)
            estimates.append(("rho", rho))
            cells += [Cell(rho.mean, digits=STRUCTURE_DIGITS), Cell(m.published.rho, digits=STRUCTURE_DIGITS)]
        remarks = m.group.remarks + m.group.fewer(estimates) + [f"unlike the published run: {d}" for d in m.differences]
        remarks += ["ours on test: separated, concatenated was not measured"] * separated
        table.add(
            [_text(m.group.name), _text(m.published.method), _text(m.group.seeds_text), *cells],
            remarks + [m.published.note] * bool(m.published.note),
        )
    table.notes = [
        published.ABOUT[source] + ".",
        "z = difference / sqrt(s1^2/n1 + s2^2/n2), with the deviations as ddof 1"
        + (", of one seed with the published deviation" if assumed else "")
        + "; - where no deviation is published.",
        *["Where a row's note says that the published code differed, z compares two different losses."] * (source == "published"),
        *["rho published: of D - 1 singular values (D dimensions); rho ours: of all D."] * with_rho,
        *_notes(found, BEST_ON_TEST if source == "published" else SELECTED, 0, ranked=False),
    ]
    return table


def left_out(found: list[Group], shown: list[Column]) -> Table | None:
    """Runs that no mean holds, one by one, with what they recorded; None where there are none."""
    rows = [(group, run, reason) for group in found for run, reason in group.left_out]
    if not rows:
        return None
    table = Table("left_out", "Runs that are in no mean", ["run", "group", "data set", "seed", "why", "epochs", *(_head(c) for c in shown)])
    for group, run, reason in rows:
        last = str(run.series.epochs[-1]) if len(run.series.epochs) else "0"
        numbers = [Cell(columns.value(run, c, SELECTED) * c.scale, digits=c.digits) for c in shown]
        cells = [_text(run.name), _text(group.name), _text(run.dataset), _text(str(run.seed)), _text(reason), _text(last), *numbers]
        cells[0].link = run.where
        table.add(cells, run.notes)
    refused = [f"{group.dataset}/{group.name}: {group.refused}." for group in found if group.refused]
    epochs, *_ = _notes(found, SELECTED, 1, ranked=False)
    table.notes = ["Each line is one run with its selected epoch; nothing here is averaged."] + refused
    table.notes += [epochs, *_settings(found)]
    return table


def settings(found: list[Group]) -> Table:
    """All settings of a data set's groups: the value most share, and the groups that differ."""
    dataset = found[0].dataset
    table = Table(f"{dataset}_settings", f"{dataset}: settings", ["setting", "value", "groups that differ"])
    for name, value in groups.shared_settings(found).items():
        others = {}
        for group in found:
            others.setdefault(groups.setting(group, name, value), []).append(group.name)
        others.pop(value, None)
        differing = "; ".join(f"{other}: {', '.join(names)}" for other, names in others.items())
        table.add([_text(name), _text(value), _text(differing or "none")])
    table.notes = [f"Shared by {len(found)} group{'s' * (len(found) != 1)} but those named."]
    return table


def correlations(found: list[Group], of: Column, with_: list[Column]) -> Table:
    """Correlation over a data set's groups of one metric with others, at the selected epoch."""
    dataset = found[0].dataset
    table = Table(
        f"{dataset}_correlations", f"{dataset}: correlation of {of.title} with", ["quantity", "Pearson", "p", "Spearman", "groups"]
    )
    for c in with_:
        result = correlation(found, of, c)
        table.add(
            [
                _text(c.title),
                Cell(result.pearson, sign=True),
                Cell(result.p, text="<0.0001" if result.p < 1e-4 else None, digits=4),
                Cell(result.spearman, sign=True),
                Cell(result.count, digits=0),
            ]
        )
    epochs, *_ = _notes(found, SELECTED, 1, ranked=False)
    table.notes = [f"Over the groups' means, each over {_seeds(found)}. {epochs}", *_settings(found), *_marked(found, [of, *with_])]
    return table


def _fewer(group: Group, shown: list[Column], how: str) -> list[str]:
    return group.fewer([(c.title, group.estimate(c, how)) for c in shown])


def _marked(found: list[Group], shown: list[Column]) -> list[str]:
    """The remarks of groups that have no row of their own, one note a remark."""
    holders = {}
    for group in found:
        for remark in group.remarks + _fewer(group, shown, SELECTED):
            holders.setdefault(remark, []).append(group.name)
    return [f"{MARKED_NOTE}{', '.join(names)}: {remark}." for remark, names in holders.items()]


def correlation(found: list[Group], a: Column, b: Column) -> statistics.Correlation:
    """Correlation of two columns over the groups' means at the selected epoch."""
    return statistics.correlation([g.estimate(a, SELECTED).mean for g in found], [g.estimate(b, SELECTED).mean for g in found])


def values(found: list[Group], shown: dict[str, list[Column]], folder: Path) -> None:
    """Write runs.csv: every run, every selection, every column of its data set, as recorded (0 to 1), in full precision."""
    with replacing(folder / "runs.csv") as file:
        writer = csv.writer(file, lineterminator="\n")
        head = "dataset group run seed fold counted why_not selection split metric value selected_epoch where"
        writer.writerow(head.split())
        for group in found:
            reasons = {id(run): reason for run, reason in group.left_out}
            for run in group.runs:
                for how in SELECTIONS:
                    for c in shown[group.dataset]:
                        value = columns.value(run, c, how)
                        if math.isnan(value):
                            continue
                        reason = reasons.get(id(run), "")
                        writer.writerow([
                            group.dataset, group.name, run.name, run.seed, "" if run.fold is None else run.fold, not reason, reason, how, c.split, c.metric,
                            repr(value), f"{columns.epoch(run, how):g}", run.where,
                        ])  # fmt: skip


def _head(column: Column) -> str:
    return f"{column.title} [%]" if column.percent else column.title
