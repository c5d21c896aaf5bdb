"""Runs -> tables, figures and a page: `python Result_Evaluations.py --runs Training_Results --out Result_Tables`.

This file holds the command line and the order of things; the modules are in results/.
"""

import utilities.openmp  # noqa: F401  # isort: skip, before torch is imported

import argparse
from pathlib import Path

import parameters
from options import composition
from results import (
    collect,
    columns,
    formats,
    groups,
    ledger,
    page,
    paired,
    plots,
    progression,
    published,
    roles,
    splits,
    tables,
)
from results.columns import SELECTED
from results.recorded import RecordedRun
from runs.names import plain
from utilities.console import propose_view, say
from utilities.counts import count_of
from utilities.errors import OneLineParser, one_line_errors
from utilities.files import make_folder
from utilities.numbers import number, whole

PROGRAM = "Result_Evaluations.py"
# parts of the page beside the data sets
ALL = "All data sets"
LEFT_OUT = "Runs that are in no mean"
PROGRESSION = ", out of distribution"


def read(argv: list[str] | None = None) -> argparse.Namespace:
    """The flags of this script."""
    parser = OneLineParser(prog=PROGRAM, description=__doc__.partition("\n\n")[0], allow_abbrev=False)
    add = parser.add_argument
    add(
        "--runs",
        nargs="+",
        default=[],
        metavar="FOLDER",
        help="folders with run folders below them (without --project: Training_Results)",
    )
    add(
        "--project",
        nargs="+",
        default=[],
        metavar="ENTITY/NAME",
        help="W&B projects, those of the ICML 2020 pipeline included",
    )
    help_plain = "plain LaTeX: the .tex files hold rows, mean and deviation, the best bold, and no notes"
    add("--plain", action="store_true", help=help_plain)
    add(
        "--out",
        default="Result_Tables",
        metavar="FOLDER",
        help="where tables, figures and index.html go (default: Result_Tables)",
    )
    help_compare = (
        "published values beside ours: ICML 2020's, the Reality Check's; ledger: every published figure of the same "
        "conditions"
    )
    add("--compare_to", nargs="+", default=[], choices=published.SOURCES, help=help_compare)
    help_metrics = "columns, as e_recall@1 (on test) or train/nmi (default: all that rate a space)"
    add("--metrics", nargs="+", default=[], metavar="METRIC", help=help_metrics)
    help_relation = "also plot metric Y against X; may be given several times"
    add("--relation", nargs=2, action="append", default=[], metavar=("X", "Y"), help=help_relation)
    help_paired = (
        "compare two groups query by query, where their runs have --dump_query_results; may be given several times "
        "(default: each such group with the best)"
    )
    add("--paired", nargs=2, action="append", default=[], metavar=("GROUP_A", "GROUP_B"), help=help_paired)
    help_splits = (
        "the same methods trained on several splits of the classes: whether their ranking survives another split; the "
        "part of a group's name that names the split, as 'Split[0-9]+_'"
    )
    add("--splits", default=None, metavar="PATTERN", help=help_splits)
    help_ddof = "deviations divide by seeds - ddof, 0 or 1 (default: 1); beside published values always 0, as theirs"
    add("--ddof", type=whole(0, 1), default=1, help=help_ddof)
    help_plan = (
        "print how many seeds per group show a difference of DELTA points in the first metric, given the deviations "
        "of these runs"
    )
    add("--plan", type=number(above=0), default=None, metavar="DELTA", help=help_plan)
    opt = parser.parse_args(argv)
    opt.runs = opt.runs or ([] if opt.project else ["Training_Results"])
    return opt


def main(opt: argparse.Namespace, api=None) -> Path:
    """Read, group, write everything. Returns the page.

    Args:
        api: stands in for `wandb.Api()`.
    """
    roles.use(parameters.declared_roles())
    runs, notes = collect.collect(opt.runs, opt.project, api)
    declared = vars(parameters.get_parser().parse_args([]))
    for run in runs:
        run.flags = composition.completed(declared, run.flags)  # older runs recorded derived flags as unset
        run.derived = composition.followers(declared, run.flags)
    available = columns.recorded(runs)
    asked = [columns.parse(name, available) for name in opt.metrics]
    pairs = [(columns.parse(x, available), columns.parse(y, available)) for x, y in opt.relation]
    defaults = {
        **declared,
        **dict.fromkeys(composition.derived_flags(declared), "unknown"),
    }  # of flags that a run was recorded without
    found = groups.build(runs, defaults)
    _name_methods(found)
    of = groups.of_datasets(found)
    names = list(of)
    shown = {dataset: _shown(of[dataset], asked) for dataset in names}
    notes += _without_numbers(of, shown, asked)
    compared = _compared(found, of, opt.compare_to, defaults, notes)
    out = make_folder(opt.out, f"--out {opt.out}")

    # Columns of both selections beside the first metric, where no columns were requested.
    both = not (opt.metrics or opt.plain)
    parts = {ALL: _shared(found, {d: _two(of[d], shown[d]) for d in names}, both, opt.ddof)}
    parts |= {dataset: _tables(of[dataset], shown[dataset], compared, opt, defaults) for dataset in names}
    notes += tables.on_average(found, {dataset: columns.first_on_test(own) for dataset, own in shown.items()})
    progressions = {f"{name}{PROGRESSION}": (name, methods) for name, methods in progression.find(found).items()}
    firsts = {
        name: shown[next(iter(methods[0].groups.values())).dataset][:1] for name, methods in progressions.values()
    }
    parts |= {
        part: [tables.progressed(*own, c, opt.ddof) for c in firsts[own[0]]] for part, own in progressions.items()
    }
    notes += paired.add(parts, of, opt.paired)
    over_splits = splits.find(of, opt.splits, paired.of_groups) if opt.splits else []
    for one in over_splits:
        parts[one.dataset] += tables.of_splits(one, shown[one.dataset])
    left_out = tables.left_out(found, _together(*(shown[dataset][:3] for dataset in names)))
    parts |= {LEFT_OUT: [left_out]} if left_out else {}
    for table in (table for part in parts.values() for table in part):
        table.write(out, opt.plain)
    tables.values(found, {dataset: _together(shown[dataset], _structure(of[dataset])) for dataset in names}, out)
    figures = {dataset: _figures(of[dataset], shown[dataset], pairs, out, notes) for dataset in names}
    for one in over_splits:
        title = "{} on each split, less the mean of all methods there; bars: one deviation of the seeds"
        figures[one.dataset] += [
            (plots.by_split(one, c, out), title.format(c.title))
            for c in shown[one.dataset]
            if c.split == "test" and one.has(c)
        ]
    caption = "{} against the FID of the splits of a progression"
    figures |= {
        part: [(plots.progressed(*own, c, out), caption.format(c.title)) for c in firsts[own[0]]]
        for part, own in progressions.items()
    }
    notes += [f"{group.dataset}/{group.name} is not averaged: {group.refused}" for group in found if group.refused]
    on_page = {
        part: made for part, made in parts.items() if part != ALL or len(names) > 1
    }  # with one data set it would be shown twice
    curves = {dataset: own[0] for dataset, own in shown.items() if own}
    page.write(out / "index.html", on_page, figures, found, curves, notes)
    _report(found, parts, notes, out)
    if opt.plan is not None:
        print("\n".join(tables.plan(of[dataset], own[0], opt.plan) for dataset, own in shown.items() if own))
    return out / "index.html"


def program() -> ledger.Program:
    """The functions of the plug-ins (networks, data sets) that the ledger needs."""
    import architectures
    import datasets

    return ledger.Program(architectures.published_weights, architectures.without_traits, datasets.sizes)


def _compared(found, of, sources, defaults, notes) -> tuple[dict, dict]:
    """Source -> matches with published runs, and data set -> its groups beside the ledger; appends to `notes` what has
    no counterpart.
    """
    matches, without = published.matches(found, sources, parameters.read)
    ledgers, absent = (
        published.from_ledger(of, program(), defaults, parameters.read) if published.LEDGER in sources else ({}, [])
    )
    notes += without + absent
    return matches, ledgers


def _shown(of, asked) -> list[columns.Column]:
    """The columns of a data set: those asked for that it recorded, or all that rate a space; none where all its runs
    failed early.
    """
    available = columns.recorded(_runs(of))
    return [c for c in asked if (c.split, c.metric) in available] if asked else columns.performance(available)


def _without_numbers(of, shown, asked) -> list[str]:
    """A note on the data sets that have no column, and one on the others where no run counts."""
    bare = [dataset for dataset in shown if not shown[dataset]]
    failed = [dataset for dataset in shown if shown[dataset] and not _counted(of[dataset])]
    way_out = " (name what to show with --metrics)" * any(columns.recorded(_runs(of[dataset])) for dataset in bare)
    what = " ".join(c.metric for c in asked) or f"a metric that rates an embedding space{way_out}"
    return [
        (
            f"no numbers on {', '.join(those)}: none of the runs there "
            f"({sum(len(_runs(of[dataset])) for dataset in those)}) {does}"
        )
        for those, does in ((bare, f"recorded {what}"), (failed, "counts"))
        if those
    ]


def _runs(of) -> list[RecordedRun]:
    return [run for group in of for run in group.runs]


def _structure(of) -> list[columns.Column]:
    return columns.structure(columns.recorded(_runs(of)))


def _together(*parts) -> list[columns.Column]:
    """The columns of all parts, each once: --metrics may also name columns that describe the space."""
    return list(dict.fromkeys(c for part in parts for c in part))


def _shared(found, shown, both: bool, ddof: int) -> list[formats.Table]:
    """The tables over all data sets, one for each selection rule; `shown`: data set -> its columns."""
    made = []
    for how in columns.SELECTIONS:
        pairs = zip(shown.items(), groups.of_datasets(found).values(), strict=True)
        of_rule = {dataset: _by_both(requested, members, how, both) for (dataset, requested), members in pairs}
        made.append(tables.shared(found, of_rule, how, ddof))
    return made


def _two(of, shown) -> list[columns.Column]:
    """The columns of the shared table: the first metric, and NMI as in the paper, else the second."""
    nmi = [c for c in shown[1:] if plain(c.metric) == "nmi"]
    return shown[:1] + (nmi or shown[1:2])[:1]


def _by_both(shown, of, how: str, both: bool) -> list[columns.Column]:
    """The columns; if `both`, the first also by the other selection, where the runs have it."""
    return columns.with_both(shown, _counted(of), how) if both else shown


def _counted(of) -> list[RecordedRun]:
    return [run for group in of for run in group.counted]


def _of_pairs(of, shown, quantities) -> list[columns.Column]:
    """The columns of the table with and without rho_distance: the first metric, by both selections where available,
    MAP@R and rho.
    """
    map_r = [c for c in shown[1:] if plain(c.metric) == "map_r"]
    first = [c for c in columns.with_both(shown[:1], _counted(of), SELECTED) if c.higher is not None]
    return _together(first, map_r, [c for c in quantities if c.metric == "rho_spectrum@2"])


def _tables(of, shown, compared, opt, defaults) -> list[formats.Table]:
    """All tables of one data set."""
    quantities, (matches, ledgers) = _structure(of), compared
    both = not (opt.metrics or opt.plain)
    made = [tables.single(of, _by_both(shown, of, how, both), how, opt.ddof) for how in columns.SELECTIONS]
    made += [*tables.by_domain(of, opt.ddof, shown if opt.metrics else ())]
    made += [] if opt.metrics else [tables.reidentification(of, opt.ddof)]
    made += [tables.optimism(of, shown, opt.ddof)]
    made += [tables.power(of, shown[0], opt.plan), tables.ranks(of, shown[0])] if shown else []
    made += [tables.cross_validation(of, shown)]
    for source, found in matches.items():
        here = [match for match in found if match.group.dataset == of[0].dataset]
        made += [tables.comparison(here, source, of)] if here else []
    made += [tables.from_ledger(ledgers[of[0].dataset], of)] if of[0].dataset in ledgers else []
    made += [tables.regularised(of, _of_pairs(of, shown, quantities), opt.ddof)]
    if quantities:
        made += [tables.structure(of, quantities, opt.ddof)]
    if quantities and shown:
        made += [tables.correlations(of, shown[0], _together(columns.principal(quantities), shown[1:]))]
    return [table for table in [*made, tables.settings(of, defaults)] if table]


def _figures(of, shown, pairs, out, notes=None) -> list[tuple[str, str]]:
    """All figures of one data set: (name, caption). Appends to `notes` which of the requested `pairs` cannot be
    drawn.
    """
    quantities = columns.principal(_structure(of))
    made = []
    if shown:
        first = shown[0]
        legend = "one point a group, bars: one deviation"
        made += [
            (
                plots.relations(of, first, quantities, out),
                f"{first.title} against the structure of the embedding space; {legend}",
            ),
            (plots.rho(of, first, quantities, out), f"{first.title} against rho"),
            (plots.matrix(of, _together(shown, quantities), out), "Correlation of the metrics over the groups"),
            (plots.ranked(of, first, out), f"Groups ranked by {first.title}"),
            (
                plots.optimism(of, first, out) if first.split == "test" else None,
                f"{first.title} on test, the epoch chosen on validation and on test",
            ),
        ]
    for x, y in pairs:
        name = plots.relation(of, x, y, out)
        made.append((name, f"{y.title} against {x.title}"))
        if name is None and notes is not None:
            notes.append(f"{of[0].dataset}: {y.title} against {x.title} is not drawn: fewer than two groups have both")
    absent = [group.name for group in of if not group.counted]
    beside = f"; without a run that counts, and so not here: {', '.join(absent)}" if absent else ""
    return [(name, caption + beside) for name, caption in made if name]


def _name_methods(found) -> None:
    """Set the ICML paper's names of methods on the groups of its runs, and the miner to `-` where the loss mines
    nothing.
    """
    import criteria

    names = published.methods()
    for group in found:
        group.method = names.get((group.dataset, group.name), "")
        flags = group.flags
        if flags.get("loss") in criteria.REGISTRY.names() and not flags.get("mine_pairs"):
            mines = getattr(criteria.REGISTRY.module(flags["loss"]), "REQUIRES_BATCHMINER", False)
            group.miner = None if mines else "-"


def _report(found, parts, notes, out) -> None:
    """Print what was made, and what a reader must know before trusting it."""
    for dataset in groups.of_datasets(found):
        print(formats.to_text(parts[dataset][0]))
    left_out = [run for group in found for run, _ in group.left_out]
    counts = f"{count_of(sum(len(group.runs) for group in found), 'run')} in {count_of(len(found), 'group')}"
    where = f" ({out / 'left_out.md'})" if left_out else ""
    say(f"{counts}; {page.in_no_mean(len(left_out))}{where}")
    for note in notes:
        say(f"note: {note}")
    print(f"tables (.md, .tex, .csv), figures and the page: {out / 'index.html'}")


if __name__ == "__main__":
    with one_line_errors(PROGRAM):
        propose_view(main(read()))
