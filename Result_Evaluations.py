"""Runs -> tables, figures and a page: `python Result_Evaluations.py --runs Training_Results --out Result_Tables`.

This file holds the order of the steps: read the runs, group them by configuration, choose the columns of each data set,
make tables and figures, write the page. The steps themselves are in results/, whose `__init__.py` lists them; the flags
are in results/flags.py. `Report` holds what the steps share.
"""

import utilities.openmp  # noqa: F401  # isort: skip, before torch is imported

import argparse
import itertools
from dataclasses import dataclass, field
from pathlib import Path

import parameters
from options import derived
from results import (
    collect,
    columns,
    formats,
    groups,
    ledger,
    page,
    paired,
    planning,
    plots,
    progression,
    published,
    splits,
    tables,
)
from results.columns import SELECTED, Column
from results.flags import PROGRAM, read
from results.formats import Table
from results.groups import Group, all_runs, counted_runs
from results.progression import Method
from results.recorded import RecordedRun
from results.roles import FlagRoles
from results.splits import Splits
from runs.names import plain
from utilities.console import propose_view, say
from utilities.counts import count_of
from utilities.errors import one_line_errors
from utilities.files import make_folder

# parts of the page other than the data sets
ALL = "All data sets"
LEFT_OUT = "Runs excluded from the means"
PROGRESSION = ", out of distribution"


def _print_plan(opt: argparse.Namespace) -> None:
    """Print the plan from variance components."""
    typed = {name: getattr(opt, f"plan_{name}") for name in vars(planning.Design())}
    design = planning.Design(**{name: value for name, value in typed.items() if value is not None})
    components = planning.read(opt.plan_components, opt.metrics)
    print("\n".join(planning.sentences(components, opt.plan, design)))


@dataclass
class Report:
    """What the steps share: the groups of runs with their columns, and the tables and figures made of them.

    Attributes:
        opt: the flags of this script.
        groups: all groups.
        of_dataset: data set -> its groups.
        columns: data set -> its columns; none if no run recorded one.
        defaults: flag -> default of main.py, for flags that a run was recorded without.
        notes: warnings, printed and at the top of the page.
        progressions: name of an out-of-distribution progression -> its methods.
        grids: the data sets whose methods were trained on several splits, with --splits.
        tables: part of the page -> its tables.
        figures: part of the page -> (file name, caption).
    """

    opt: argparse.Namespace
    groups: list[Group]
    of_dataset: dict[str, list[Group]]
    columns: dict[str, list[Column]]
    defaults: dict
    notes: list[str]
    progressions: dict[str, list[Method]] = field(default_factory=dict)
    grids: list[Splits] = field(default_factory=list)
    tables: dict[str, list[Table]] = field(default_factory=dict)
    figures: dict[str, list[tuple[str, str]]] = field(default_factory=dict)

    @property
    def shows_both_selections(self) -> bool:
        """Whether the first metric has columns by both selections of the epoch: if no columns were requested."""
        return not (self.opt.metrics or self.opt.plain)


@dataclass
class Counterparts:
    """Published numbers beside our groups: source -> matches, and data set -> its groups beside the ledger."""

    matches: dict[str, list[published.Match]]
    ledgers: dict[str, ledger.Comparison]


def main(opt: argparse.Namespace, api=None) -> Path | None:
    """Read, group, write everything. Returns the page; None if only a plan from variance components was requested.

    Args:
        api: stands in for `wandb.Api()`.
    """
    if opt.plan_components is not None:
        _print_plan(opt)
        if not opt.runs and not opt.project:
            return None
    flag_roles = FlagRoles(parameters.declared_roles())
    declared = vars(parameters.get_parser().parse_args([]))
    runs, notes = collect.collect(opt.runs, opt.project, flag_roles, api)
    for run in runs:
        # older runs recorded derived flags as unset
        run.flags = derived.completed(declared, run.flags)
        run.derived = derived.followers(declared, run.flags)
    available = columns.recorded(runs)
    requested = [columns.parse(name, available) for name in opt.metrics]
    relations = [(columns.parse(x, available), columns.parse(y, available)) for x, y in opt.relation]
    report = _group(opt, runs, declared, requested, notes)
    report.notes += _without_numbers(report, requested)
    counterparts = _counterparts(report, flag_roles)
    out = make_folder(opt.out, f"--out {opt.out}")
    _make_tables(report, counterparts)
    _write_tables(report, out)
    _make_figures(report, relations, out)
    for group in report.groups:
        if group.refused:
            report.notes.append(f"{group.dataset}/{group.name} is not averaged: {group.refused}")
    _write_page(report, out)
    _print_report(report, out)
    return out / "index.html"


def _make_tables(report: Report, counterparts: Counterparts) -> None:
    """All tables, and the notes that come with them."""
    opt = report.opt
    report.tables[ALL] = _shared_tables(report)
    first_on_test = {}
    for dataset, dataset_columns in report.columns.items():
        report.tables[dataset] = _tables(report, dataset, counterparts)
        first_on_test[dataset] = columns.first_on_test(dataset_columns)
    report.notes += tables.on_average(report.groups, first_on_test)
    report.progressions = progression.find(report.groups)
    for name, methods in report.progressions.items():
        report.tables[name + PROGRESSION] = []
        for c in _first_columns(report, methods):
            report.tables[name + PROGRESSION].append(tables.progressed(name, methods, c, opt.ddof))
    report.notes += paired.add(report.tables, report.of_dataset, opt.paired)
    if opt.splits:
        report.grids = splits.find(report.of_dataset, opt.splits, paired.of_groups)
    for grid in report.grids:
        report.tables[grid.dataset] += tables.of_splits(grid, report.columns[grid.dataset])
    first_columns = _together(*(dataset_columns[:3] for dataset_columns in report.columns.values()))
    left_out = tables.left_out(report.groups, first_columns)
    if left_out:
        report.tables[LEFT_OUT] = [left_out]


def _make_figures(report: Report, relations: list[tuple[Column, Column]], out: Path) -> None:
    """Draw all figures into the folder; `relations`: of --relation."""
    for dataset, members in report.of_dataset.items():
        report.figures[dataset] = _figures(members, report.columns[dataset], relations, out, report.notes)
    for grid in report.grids:
        for c in report.columns[grid.dataset]:
            if c.split == "test" and grid.has(c):
                caption = (
                    f"{c.title} on each split, less the mean of all methods there; bars: one deviation of the seeds"
                )
                report.figures[grid.dataset].append((plots.by_split(grid, c, out), caption))
    for name, methods in report.progressions.items():
        figures = []
        for c in _first_columns(report, methods):
            caption = f"{c.title} against the FID of the splits of a progression"
            figures.append((plots.progressed(name, methods, c, out), caption))
        report.figures[name + PROGRESSION] = figures


def _group(
    opt: argparse.Namespace, runs: list[RecordedRun], declared: dict, requested: list[Column], notes: list[str]
) -> Report:
    """The groups of the runs, and the columns of each data set.

    Args:
        declared: flag -> default of main.py.
        requested: the columns of --metrics.
        notes: those made so far.
    """
    unknown = dict.fromkeys(derived.derived_flags(declared), "unknown")
    defaults = {**declared, **unknown}
    all_groups = groups.build(runs, defaults)
    _name_methods(all_groups)
    of_dataset = groups.of_datasets(all_groups)
    columns_of = {dataset: _columns(members, requested) for dataset, members in of_dataset.items()}
    return Report(opt, all_groups, of_dataset, columns_of, defaults, notes)


def _name_methods(all_groups: list[Group]) -> None:
    """Set the ICML paper's names of methods on its groups, and the miner to `-` if the loss mines nothing."""
    import criteria

    names = published.methods()
    for group in all_groups:
        group.method = names.get((group.dataset, group.name), "")
        flags = group.flags
        if flags.get("loss") in criteria.REGISTRY.names() and not flags.get("mine_pairs"):
            mines = getattr(criteria.REGISTRY.module(flags["loss"]), "REQUIRES_BATCHMINER", False)
            group.miner = None if mines else "-"


def _columns(dataset_groups: list[Group], requested: list[Column]) -> list[Column]:
    """The columns of a data set: those requested that it recorded, or all that rate a space.

    There are none if all its runs failed early.
    """
    available = columns.recorded(all_runs(dataset_groups))
    if requested:
        return [c for c in requested if (c.split, c.metric) in available]
    return columns.performance(available)


def _structure(dataset_groups: list[Group]) -> list[Column]:
    return columns.structure(columns.recorded(all_runs(dataset_groups)))


def _together(*parts: list[Column]) -> list[Column]:
    """The columns of all parts, each once: --metrics may also name columns that describe the space."""
    return list(dict.fromkeys(itertools.chain.from_iterable(parts)))


def _without_numbers(report: Report, requested: list[Column]) -> list[str]:
    """A note on the data sets that have no column, and one on those where no run counts."""
    empty = []
    failed = []
    for dataset, dataset_columns in report.columns.items():
        if not dataset_columns:
            empty.append(dataset)
        elif not counted_runs(report.of_dataset[dataset]):
            failed.append(dataset)
    expectation = " ".join(c.metric for c in requested)
    if not expectation:
        expectation = "a metric that rates an embedding space"
        if columns.recorded(_runs_on(report, empty)):
            expectation += " (name what to show with --metrics)"
    notes = []
    for datasets, reason in ((empty, f"recorded {expectation}"), (failed, "counts")):
        if datasets:
            count = len(_runs_on(report, datasets))
            notes.append(f"no numbers on {', '.join(datasets)}: none of the runs there ({count}) {reason}")
    return notes


def _runs_on(report: Report, datasets: list[str]) -> list[RecordedRun]:
    """The runs on some data sets."""
    runs = []
    for dataset in datasets:
        runs += all_runs(report.of_dataset[dataset])
    return runs


def _counterparts(report: Report, flag_roles: FlagRoles) -> Counterparts:
    """The published numbers that --compare_to requests; a note on each source without a counterpart."""
    sources = report.opt.compare_to
    matches, notes = published.matches(report.groups, sources, parameters.unchecked)
    report.notes += notes
    ledgers = {}
    if published.LEDGER in sources:
        ledgers, notes = published.from_ledger(report.of_dataset, flag_roles, report.defaults, parameters.unchecked)
        report.notes += notes
    return Counterparts(matches, ledgers)


def _shared_tables(report: Report) -> list[Table]:
    """The tables over all data sets, one for each selection rule."""
    shared = []
    for how in columns.SELECTIONS:
        columns_of = {}
        for dataset, members in report.of_dataset.items():
            columns_of[dataset] = _by_both(report, _two(report.columns[dataset]), members, how)
        shared.append(tables.shared(report.groups, columns_of, how, report.opt.ddof))
    return shared


def _two(table_columns: list[Column]) -> list[Column]:
    """The columns of the shared table: the first metric, and NMI as in the paper, else the second."""
    nmi = [c for c in table_columns[1:] if plain(c.metric) == "nmi"]
    return table_columns[:1] + (nmi or table_columns[1:2])[:1]


def _by_both(report: Report, table_columns: list[Column], dataset_groups: list[Group], how: str) -> list[Column]:
    """The columns, the first also by the other selection if the report shows both and the runs have it."""
    if not report.shows_both_selections:
        return table_columns
    return columns.with_both(table_columns, counted_runs(dataset_groups), how)


def _twin_columns(table_columns: list[Column], dataset_groups: list[Group], quantities: list[Column]) -> list[Column]:
    """The columns with and without rho_distance: the first metric (by both selections if available), MAP@R, rho."""
    by_both = columns.with_both(table_columns[:1], counted_runs(dataset_groups), SELECTED)
    first = [c for c in by_both if c.higher is not None]
    map_r = [c for c in table_columns[1:] if plain(c.metric) == "map_r"]
    rho = [c for c in quantities if c.metric == "rho_spectrum@2"]
    return _together(first, map_r, rho)


def _tables(report: Report, dataset: str, counterparts: Counterparts) -> list[Table]:
    """All tables of one data set."""
    opt = report.opt
    members = report.of_dataset[dataset]
    dataset_columns = report.columns[dataset]
    quantities = _structure(members)
    dataset_tables = []
    for how in columns.SELECTIONS:
        dataset_tables.append(tables.single(members, _by_both(report, dataset_columns, members, how), how, opt.ddof))
    if opt.metrics:
        dataset_tables += tables.by_domain(members, opt.ddof, dataset_columns)
    else:
        dataset_tables += tables.by_domain(members, opt.ddof)
        dataset_tables.append(tables.reidentification(members, opt.ddof))
    dataset_tables.append(tables.optimism(members, dataset_columns, opt.ddof))
    if dataset_columns:
        dataset_tables += [
            tables.power(members, dataset_columns[0], opt.plan),
            tables.ranks(members, dataset_columns[0]),
        ]
    dataset_tables.append(tables.cross_validation(members, dataset_columns))
    for source, matches in counterparts.matches.items():
        of_dataset = [match for match in matches if match.group.dataset == dataset]
        if of_dataset:
            dataset_tables.append(tables.comparison(of_dataset, source, members))
    if dataset in counterparts.ledgers:
        dataset_tables.append(tables.from_ledger(counterparts.ledgers[dataset], members))
    dataset_tables.append(tables.regularised(members, _twin_columns(dataset_columns, members, quantities), opt.ddof))
    if quantities:
        dataset_tables.append(tables.structure(members, quantities, opt.ddof))
    if quantities and dataset_columns:
        dataset_tables.append(
            tables.correlations(
                members, dataset_columns[0], _together(columns.principal(quantities), dataset_columns[1:])
            )
        )
    dataset_tables.append(tables.settings(members, report.defaults))
    return [table for table in dataset_tables if table]


def _first_columns(report: Report, methods: list[Method]) -> list[Column]:
    """The first column of a progression's data sets; none if they have none."""
    group = next(iter(methods[0].groups.values()))
    return report.columns[group.dataset][:1]


def _figures(
    dataset_groups: list[Group],
    dataset_columns: list[Column],
    relations: list[tuple[Column, Column]],
    out: Path,
    notes=None,
) -> list[tuple[str, str]]:
    """All figures of one data set: (name, caption).

    Appends to `notes` which of the requested `relations` cannot be drawn.

    Args:
        dataset_columns: the columns of the data set.
    """
    quantities = columns.principal(_structure(dataset_groups))
    figures = []  # (name, caption); without a name it was not drawn
    if dataset_columns:
        first = dataset_columns[0]
        figures = [
            (
                plots.relations(dataset_groups, first, quantities, out),
                f"{first.title} against the structure of the embedding space; one point per group, bars: one deviation",
            ),
            (plots.rho(dataset_groups, first, quantities, out), f"{first.title} against rho"),
            (
                plots.matrix(dataset_groups, _together(dataset_columns, quantities), out),
                "Correlation of the metrics over the groups",
            ),
            (plots.ranked(dataset_groups, first, out), f"Groups ranked by {first.title}"),
        ]
        if first.split == "test":
            name = plots.optimism(dataset_groups, first, out)
            figures.append((name, f"{first.title} on test, the epoch chosen on validation and on test"))
    for x, y in relations:
        name = plots.relation(dataset_groups, x, y, out)
        caption = f"{y.title} against {x.title}"
        figures.append((name, caption))
        if name is None and notes is not None:
            notes.append(f"{dataset_groups[0].dataset}: {caption} is not drawn: fewer than two groups have both")
    absent = [group.name for group in dataset_groups if not group.counted]
    addition = ""
    if absent:
        addition = f"; without a run that counts, and so not here: {', '.join(absent)}"
    return [(name, caption + addition) for name, caption in figures if name]


def _write_tables(report: Report, out: Path) -> None:
    """Write all tables, and runs.csv."""
    for part_tables in report.tables.values():
        for table in part_tables:
            table.write(out, report.opt.plain)
    all_columns = {}
    for dataset, members in report.of_dataset.items():
        all_columns[dataset] = _together(report.columns[dataset], _structure(members))
    tables.values(report.groups, all_columns, out)


def _write_page(report: Report, out: Path) -> None:
    parts = dict(report.tables)
    if len(report.of_dataset) == 1:
        # it would be shown twice
        del parts[ALL]
    curves = {dataset: dataset_columns[0] for dataset, dataset_columns in report.columns.items() if dataset_columns}
    page.write(out / "index.html", parts, report.figures, report.groups, curves, report.notes)


def _print_report(report: Report, out: Path) -> None:
    """Print what was made, and what a reader must know before trusting it."""
    for dataset in report.of_dataset:
        print(formats.to_text(report.tables[dataset][0]))
    n_left_out = sum(len(group.left_out) for group in report.groups)
    n_runs = sum(len(group.runs) for group in report.groups)
    counts = f"{count_of(n_runs, 'run')} in {count_of(len(report.groups), 'group')}; {page.in_no_mean(n_left_out)}"
    if n_left_out:
        counts += f" ({out / 'left_out.md'})"
    say(counts)
    for note in report.notes:
        say(f"note: {note}")
    print(f"tables (.md, .tex, .csv), figures and the page: {out / 'index.html'}")
    if report.opt.plan is not None:
        sentences = []
        for dataset, dataset_columns in report.columns.items():
            if dataset_columns:
                sentences.append(tables.plan(report.of_dataset[dataset], dataset_columns[0], report.opt.plan))
        print("\n".join(sentences))


if __name__ == "__main__":
    with one_line_errors(PROGRAM):
        page_file = main(read())
        if page_file:
            propose_view(page_file)
