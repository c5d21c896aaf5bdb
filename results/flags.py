"""The command line of Result_Evaluations.py."""

import argparse

from results import planning, published
from utilities.errors import OneLineParser
from utilities.numbers import number, whole

PROGRAM = "Result_Evaluations.py"


def read(argv: list[str] | None = None) -> argparse.Namespace:
    """The flags of the command line `argv`; None: that of the process."""
    parser = OneLineParser(
        prog=PROGRAM,
        description="Tables over seeds, figures and one page, of runs on disk and of W&B.",
        allow_abbrev=False,
    )
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
        "compare with published values: ICML 2020's, the Reality Check's; ledger: every published figure of the same "
        "conditions"
    )
    add("--compare_to", nargs="+", default=[], choices=published.SOURCES, help=help_compare)
    help_metrics = "columns, such as e_recall@1 (on test) or train/nmi (default: all that rate a space)"
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
        "part of a group's name that names the split, such as 'Split[0-9]+_'"
    )
    add("--splits", default=None, metavar="PATTERN", help=help_splits)
    help_ddof = (
        "deviations divide by seeds - ddof, 0 or 1 (default: 1); in comparisons with published values always 0, as "
        "theirs"
    )
    add("--ddof", type=whole(0, 1), default=1, help=help_ddof)
    help_plan = (
        "print how many seeds per group show a difference of DELTA points in the first metric, given the deviations "
        "of these runs"
    )
    add("--plan", type=number(above=0), default=None, metavar="DELTA", help=help_plan)
    _add_components(parser)
    opt = parser.parse_args(argv)
    _refuse_idle_plan(parser, opt)
    if not (opt.runs or opt.project or opt.plan_components):
        opt.runs = ["Training_Results"]
    return opt


def _add_components(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of a plan from variance components."""
    add = parser.add_argument
    help_components = (
        "with --plan: print the draws of classes that DELTA needs, from the variance components of a CSV file "
        f"({', '.join(planning.HEAD)}); {planning.SHIPPED}: those of docs/evidence.md. Without --runs and --project "
        "no runs are read"
    )
    add("--plan_components", default=None, metavar="FILE", help=help_components)
    of_plan = planning.Design()
    for name, title in (
        ("classes", "test classes"),
        ("seeds", "seeds per method"),
        ("draws", "draws of training and test classes"),
    ):
        help_design = f"with --plan_components: number of {title} (default: {getattr(of_plan, name)})"
        add(f"--plan_{name}", type=whole(1), default=None, metavar="N", help=help_design)


def _refuse_idle_plan(parser: argparse.ArgumentParser, opt: argparse.Namespace) -> None:
    """End the program for a flag of a plan that has no effect."""
    if opt.plan_components is not None and opt.plan is None:
        parser.error("--plan_components needs --plan DELTA, the difference in points")
    for name in vars(planning.Design()):
        if getattr(opt, f"plan_{name}") is not None and opt.plan_components is None:
            parser.error(f"--plan_{name} needs --plan DELTA --plan_components FILE")
