"""Search over any flags of main.py.

    python -m search --loss triplet --loss_triplet_margin~BAYESIAN~ [0,1] --use_tv_split …

A range stands behind the flag's suffix, on the command line or in a --config file
(`loss_triplet_margin~BAYESIAN~: [0, 1]`):
  ~BAYESIAN~ [low,high]      a number        ~LOG_BAYESIAN~ [low,high]   a number, on a logarithmic scale
  ~INT_BAYESIAN~ [low,high]  whole numbers   ~CHOICE~ [a,b,c]            one of several values
`low,high` without brackets is the same. Everything else goes to main.py's parser. The value of a trial is the best
validation value of the first of --storage_metrics, mean over folds; a search without validation data is refused.

All of it lies in <save_path>/<dataset>/<group>_search/: the study, a run folder `trial_<i>` a trial, trials.csv,
best_parameters.yaml (usable with --config), plots/, and the best trial's reproductions with other seeds. The same
command started again, or on several machines that share the folder, works on the same search: finished trials stay,
killed ones are continued, bounds may have been widened.
"""

import argparse
import functools
import shlex
import sys
from pathlib import Path

import main
import metrics
import parameters
from engine import ranks
from options.flags import roles
from search import report, settings, space
from search import study as studies
from search.plan import FULL, REPRODUCTIONS, Plan
from search.together import Together
from search.trials import TrialLoop
from utilities import plug_in_folders, secrets
from utilities.counts import count_of
from utilities.errors import OneLineParser, UserError
from utilities.locks import Lock
from utilities.numbers import whole

PROGRAM = "python -m search"


def get_parser() -> argparse.ArgumentParser:
    """The search's own flags; all others are main.py's."""
    parser = OneLineParser(
        prog=PROGRAM,
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        usage="python -m search [main.py's flags] --<flag>~BAYESIAN~ [low,high] …",
    )
    add = parser.add_argument
    add(
        "--bayesian_optimization_n_iter",
        type=whole(1, 10**6),
        default=50,
        metavar="N",
        help="trials in all, failed ones included (default: 50)",
    )
    help_text = (
        f"runs of the best trial with seeds seed+1 … seed+N (default: {REPRODUCTIONS} where there are {FULL} trials "
        "or more, else 0)"
    )
    add("--reproductions", type=whole(0, 10**6), default=None, metavar="N", help=help_text)
    help_text = "database of the study, as SQLAlchemy names it (default: study.db, SQLite, in the search's folder)"
    add("--study_storage", default=None, metavar="URL", help=help_text).role = roles.SECRET
    add(
        "--heartbeat",
        type=whole(1, 10**6),
        default=60,
        metavar="SECONDS",
        help=(
            "time between heartbeats: after three without one a process on another machine counts as killed "
            "(default: 60)"
        ),
    )
    help_text = "a search always continues: accepted, and without effect"
    add("--resume", "--resume_training", nargs="?", help=help_text)
    add("--resume_or_start", action="store_true", help=help_text)
    return parser


# Flags of main.py that have no meaning in a search.
OF_MAIN_ALONE = (
    "evaluate evaluate_only evaluate_ensemble aggregate_only resume_from list find print_config explain check_data "
    "profile_steps"
).split()


def check(opt) -> None:
    """Raise UserError for flags with which no search is possible."""
    for name in OF_MAIN_ALONE:
        if getattr(opt, name) not in (None, False, 0):
            raise UserError(f"--{name} is main.py's alone: a search continues when the same command is started again")
    if opt.final_test:
        raise UserError(
            "--final_test: no trial may see the test set; the reproductions are measured on it. Leave it out"
        )
    if opt.n_epochs < 1:
        raise UserError("--n_epochs 0 trains nothing: there is nothing to search")
    if "val" not in opt.splits_to_eval:
        raise UserError(
            "a search chooses by validation data, else it would fit the test set: add --use_tv_split, or a "
            "--split_scheme of folds"
        )


def plan(argv: list[str]) -> Plan:
    """Read and check a search's command line. Raises UserError for what cannot be searched."""
    plug_in_folders.use(argv)
    parser = get_parser()
    parser.exits = False
    options, arguments = parser.parse_known_args(argv)
    command = space.parse(arguments, parameters.get_parser())
    flags = space.Flags(command, parameters.resolve)
    opt, fixed = flags.check()
    check(opt)
    return Plan(options, command.ranges, command.named, flags, opt, fixed, shown_command(argv))


@functools.cache
def secret_options() -> frozenset[str]:
    """The flags of main.py and of a search whose values no log may hold."""
    return frozenset(secrets.secret_options(parameters.get_parser(), get_parser()))


def shown_command(argv: list[str]) -> str:
    """The command of a search as a shell takes it, its secrets masked."""
    return shlex.join([*ranks.starter(), "-m", "search", *secrets.mask_words(argv, secret_options())])


def search(argv: list[str]) -> Path | None:
    """Set up, run trials, report. Returns the search folder.

    None after --dry_run, and in all processes of torchrun but the first.
    """
    studies.quiet()
    search_plan = plan(argv)
    ranges = ", ".join(searched.text for searched in search_plan.ranges.values())
    print(f"searching {ranges}\nfor {search_plan.metric} on validation, in {search_plan.folder}")
    if search_plan.opt.dry_run:
        main.main(search_plan.opt)
        return None
    try:
        with Together(main.main).led() as train:
            return None if train is None else trials_and_report(search_plan, train)
    except KeyboardInterrupt:
        # between runs: a run that is interrupted prints the command itself
        print(f"\ncontinue with: {search_plan.command}")
        raise


def trials_and_report(search_plan: Plan, train) -> Path:
    """Run the requested number of trials, and report. Returns the search folder.

    `train`: a function that does one run, of given options.
    """
    with studies.database_errors(studies.study_name(search_plan)):
        return _trials_and_report(search_plan, train)


def _trials_and_report(search_plan: Plan, train) -> Path:
    folder = search_plan.folder
    direction = "maximize" if metrics.higher_is_better(search_plan.opt.storage_metrics[0]) else "minimize"
    with Lock(folder / ".study.lock"):
        # first: `open_study` would call the study of another search damaged
        settings.changes(search_plan)
        study = studies.open_study(search_plan, direction)
        settings.settle(search_plan, len(studies.latest(study)))
    elsewhere = TrialLoop(study, search_plan, train).run()
    if elsewhere:
        print(f"\nother processes still run {', '.join(elsewhere)}: the last one to end writes the report")
        print(
            f"(a process that was killed on another machine counts as running for {3 * search_plan.options.heartbeat} "
            "s: start this again then)"
        )
        return folder
    report.draw(study, folder, search_plan.metric)
    if report.best_of(study) is None:
        raise UserError(f"no trial of {folder} succeeded: trials.csv holds the reasons")
    reproductions = report.reproduce(study, search_plan, train) if search_plan.reproductions else None
    report.print_results(study, search_plan, reproductions)
    if search_plan.options.reproductions is None:
        print(
            f"{search_plan.reproductions} reproductions, the default for {count_of(search_plan.trials, 'trial')}: "
            "--reproductions N makes more"
        )
    return folder


if __name__ == "__main__":
    with ranks.one_run(PROGRAM):
        search_folder = search(sys.argv[1:])
        if search_folder is not None:
            report.propose_next(search_folder, roles.declared(parameters.get_parser()).having(code=True))
