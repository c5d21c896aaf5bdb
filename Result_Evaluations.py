"""Runs -> tables, figures and a page: `python Result_Evaluations.py --runs Training_Results --out Result_Tables`.

This file holds the command line and the order of things; the rooms are in results/.
"""

import argparse
import os
import sys
from pathlib import Path

from results import collect, columns, groups, page, plots, published, tables
from results.columns import BEST_ON_TEST, LAST, SELECTED
from utilities.errors import UserError
from utilities.reports import one_line_errors

PROGRAM = "Result_Evaluations.py"


class _Parser(argparse.ArgumentParser):
    """Mistakes in one line, with exit status 2."""

    def error(self, message):
        self.exit(2, f"{self.prog}: error: {message}\n")


def read(argv: list[str] | None = None) -> argparse.Namespace:
    """The flags of this script."""
    parser = _Parser(
        prog=PROGRAM, description=__doc__.partition("\n")[0], allow_abbrev=False, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument(
        "--runs", nargs="+", default=[], metavar="FOLDER", help="folders with run folders below them; without --project: Training_Results"
    )
    parser.add_argument(
        "--project", nargs="+", default=[], metavar="ENTITY/NAME", help="W&B projects, those of the ICML 2020 pipeline included"
    )
    parser.add_argument("--out", default="Result_Tables", metavar="FOLDER", help="where tables, figures and index.html go")
    parser.add_argument(
        "--compare_to",
        nargs="+",
        default=[],
        choices=published.SOURCES,
        help="published values beside ours: ICML 2020's (published), the Reality Check's (mlrc)",
    )
    parser.add_argument(
        "--metrics",
        nargs="+",
        default=[],
        metavar="METRIC",
        help="columns, as `e_recall@1` (on test) or `train/nmi`; unset: all that rate a space",
    )
    parser.add_argument(
        "--relation",
        nargs=2,
        action="append",
        default=[],
        metavar=("X", "Y"),
        help="also plot metric Y against X; may be given several times",
    )
    parser.add_argument(
        "--ddof",
        type=int,
        choices=[0, 1],
        default=1,
        help="standard deviations divide by seeds - ddof; comparisons with published values always take theirs, 0",
    )
    opt = parser.parse_args(argv)
    opt.runs = opt.runs or ([] if opt.project else ["Training_Results"])
    return opt


def main(opt: argparse.Namespace, api=None) -> Path:
    """Read, group, write everything. Returns the page.

    Args:
        api: stands in for `wandb.Api()`.
    """
    runs, notes = collect.collect(opt.runs, opt.project, api)
    available = columns.recorded(runs)
    shown = [columns.parse(name, available) for name in opt.metrics] or columns.performance(available)
    pairs = [(columns.parse(x, available), columns.parse(y, available)) for x, y in opt.relation]
    if not shown:
        raise UserError(
            f"nothing in common: none of the {len(runs)} runs recorded a metric that rates an embedding space. Name what to show with --metrics"
        )
    found = groups.build(runs, _defaults())
    _name_methods(found)
    matches = {source: published.match(found, published.load(source), _resolved) for source in opt.compare_to}
    out = Path(opt.out)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {out}: cannot be made: {error.strerror}") from error

    parts, figures = {}, {}
    for dataset in groups.datasets(found):
        of = [group for group in found if group.dataset == dataset]
        parts[dataset] = _tables(of, shown, available, [m for some in matches.items() for m in _matches(some, dataset)], opt.ddof)
        figures[dataset] = _figures(of, shown, available, pairs, out)
    main_columns = {dataset: _two(shown) for dataset in parts}
    parts = {"All data sets": [tables.shared(found, main_columns, how, opt.ddof) for how in (SELECTED, LAST, BEST_ON_TEST)], **parts}
    parts["Runs that are in no mean"] = [table for table in (tables.left_out(found, shown[:3], opt.ddof),) if table]
    for table in (table for part in parts.values() for table in part):
        table.write(out)
    tables.values(found, [*shown, *columns.structure(available)], out)
    notes += [f"{g.dataset}/{g.name} is not averaged: {g.refused}" for g in found if g.refused]
    if len(figures) == 1:  # the page says it once
        del parts["All data sets"]
    page.write(out / "index.html", parts, figures, found, shown[0], notes)
    _report(found, parts, notes, out)
    return out / "index.html"


def _tables(of, shown, available, matches, ddof) -> list[tables.Table]:
    """All tables of one data set."""
    made = [tables.single(of, shown, how, ddof) for how in (SELECTED, LAST, BEST_ON_TEST)]
    made += [tables.comparison(found, source) for source, found in matches]
    quantities = columns.structure(available)
    if quantities:
        made += [tables.structure(of, quantities, ddof), tables.correlations(of, shown[0], [*quantities, *shown[1:]])]
    return [*made, tables.settings(of)]


def _matches(some, dataset):
    source, found = some
    here = [match for match in found if match.group.dataset == dataset]
    return [(source, here)] if here else []


def _figures(of, shown, available, pairs, out) -> list[tuple[str, str]]:
    """All figures of one data set: (name, caption)."""
    quantities, first = columns.structure(available), shown[0]
    made = [
        (
            plots.relations(of, first, quantities, out),
            f"{first.title} against the structure of the embedding space; one point a group, bars: one deviation",
        ),
        (plots.rho(of, first, available, out), f"{first.title} against rho"),
        (plots.matrix(of, [*shown, *quantities], out), "Correlation of the metrics over the groups"),
        (plots.ranked(of, first, out), f"Groups ranked by {first.title}"),
        *((plots.relation(of, x, y, out), f"{y.title} against {x.title}") for x, y in pairs),
    ]
    return [(name, caption) for name, caption in made if name]


def _two(shown):
    """The columns of the shared table: the first metric and NMI, as in the paper, else the first two."""
    nmi = [c for c in shown[1:] if c.metric.rpartition("/")[2] == "nmi"]
    return shown[:1] + (nmi or shown[1:2])[:1]


def _name_methods(found) -> None:
    """Give the groups of the ICML paper's runs its names of methods."""
    names = published.methods()
    for group in found:
        group.method = names.get((group.dataset, group.name), "")


def _defaults() -> dict:
    """Flag -> default of main.py."""
    import parameters

    return vars(parameters.get_parser().parse_args([]))


def _resolved(words: list[str]) -> argparse.Namespace:
    """The flags of a command line of main.py, as main.py resolves them."""
    import parameters

    return parameters.read(words)


def _report(found, parts, notes, out) -> None:
    """What was made, and what a reader must know before trusting it, on the console."""
    for dataset in groups.datasets(found):
        print(tables.to_markdown(parts[dataset][0]))
    left_out = [run for group in found for run, _ in group.left_out]
    print(
        f"{sum(len(g.runs) for g in found)} runs in {len(found)} groups; {len(left_out)} runs are in no mean"
        + (f" ({out / 'left_out.md'})" if left_out else "")
    )
    print("".join(f"note: {note}\n" for note in notes) + f"tables, figures and the page: {out / 'index.html'}")


if __name__ == "__main__":
    with one_line_errors(PROGRAM):
        main(read())
    sys.stdout.flush()
    os._exit(0)  # the ordinary end unloads torch's CUDA libraries, for which memory grows by 150 MB beyond all that was needed before
