"""Search over any flags of main.py: `python Bayesian_Optimization.py --loss triplet --loss_triplet_margin~BAYESIAN~ [0,1] --use_tv_split …`.

A range stands behind the flag's suffix, on the command line or in a --config file (`loss_triplet_margin~BAYESIAN~: [0, 1]`):
  ~BAYESIAN~ [low,high]      a number        ~LOG_BAYESIAN~ [low,high]   a number, on a logarithmic scale
  ~INT_BAYESIAN~ [low,high]  whole numbers   ~CHOICE~ [a,b,c]            one of several values
`low,high` without brackets is the same. Everything else goes to main.py's parser. The value of a trial is the best validation
value of the first of --storage_metrics, mean over folds; a search without validation data is refused.

All of it lies in <save_path>/<dataset>/<group>_search/: the study, a run folder `trial_<i>` a trial, trials.csv,
best_parameters.yaml (usable with --config), plots/, and the best trial's reproductions with other seeds. The same command
started again, or on several machines that share the folder, works on the same search: finished trials stay, killed ones are
continued, bounds may have been widened.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import main
import metrics
import parameters
from runs.run import named
from search import report, settings, space
from search import study as studies
from search.trials import TrialLoop
from utilities.errors import OneLineParser, UserError, one_line_errors
from utilities.locks import Lock

PROGRAM = "Bayesian_Optimization.py"
FULL, REPRODUCTIONS = 20, 10  # trials from which a search is one to report, and then the default of --reproductions


def get_parser() -> argparse.ArgumentParser:
    """The search's own flags; all others are main.py's."""
    parser = OneLineParser(
        prog=PROGRAM, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
        usage=f"python {PROGRAM} [main.py's flags] --<flag>~BAYESIAN~ [low,high] …",
    )  # fmt: skip
    add = parser.add_argument
    add("--bayesian_optimization_n_iter", type=int, default=50, metavar="N", help="trials in all, failed ones included (default: 50)")
    help_text = (
        f"runs of the best trial with seeds seed+1 … seed+N (default: {REPRODUCTIONS} where there are {FULL} trials or more, else 0)"
    )
    add("--reproductions", type=int, default=None, metavar="N", help=help_text)
    add("--study_storage", default=None, metavar="URL", help="database of the study, as SQLAlchemy names it (default: a journal file)")
    add("--heartbeat", type=int, default=60, metavar="SECONDS", help="time between signs of life in a database (default: 60)")
    add("--lost_hosts", nargs="+", default=[], metavar="HOST", help="machines that are gone: trials that they ran are continued here")
    add("--resume", nargs="?", help="a search always continues: accepted, and without effect")
    return parser


def check(own, opt) -> None:
    """Refuse what cannot be searched. Raises UserError."""
    if own.bayesian_optimization_n_iter < 1:
        raise UserError(f"--bayesian_optimization_n_iter {own.bayesian_optimization_n_iter} must be at least 1")
    if (own.reproductions or 0) < 0 or own.heartbeat < 1:
        raise UserError("--reproductions must be at least 0 and --heartbeat at least 1")
    for name in ("evaluate", "evaluate_ensemble", "aggregate_only", "resume_from", "list", "print_config"):
        if getattr(opt, name):
            raise UserError(f"--{name} is main.py's alone: a search continues when the same command is started again")
    if opt.final_test:
        raise UserError("--final_test: no trial may see the test set; the reproductions are measured on it. Leave it out")
    if opt.n_epochs < 1:
        raise UserError("--n_epochs 0 trains nothing: there is nothing to search")
    if "val" not in opt.splits_to_eval:
        raise UserError(
            "a search chooses by validation data, else it would fit the test set: add --use_tv_split, or a --split_scheme of folds"
        )


class Plan(NamedTuple):
    """A search's command line, resolved: the search's own flags, the ranges, the reader of trials' flags, one trial's, and what all share."""

    own: argparse.Namespace
    command: space.Command
    flags: space.Flags
    opt: argparse.Namespace
    fixed: dict

    @property
    def trials(self) -> int:
        """How many trials are asked for."""
        return self.own.bayesian_optimization_n_iter

    @property
    def reproductions(self) -> int:
        """How many reproductions of the best one are."""
        return (REPRODUCTIONS if self.trials >= FULL else 0) if self.own.reproductions is None else self.own.reproductions

    @property
    def savename(self) -> str:
        """Name of the search folder as a run's name."""
        return f"{self.opt.group}_search"

    @property
    def folder(self) -> Path:
        """Where the search lies."""
        return Path(self.opt.save_path) / self.opt.dataset / self.savename


def plan(argv: list[str], files: Path) -> Plan:
    """Read and check a search's command line. Raises UserError for what cannot be searched.

    Args:
        files: a folder for files that live as long as the plan.
    """
    parser = get_parser()
    parser.exits = False
    own, rest = parser.parse_known_args(argv)
    command = space.parse(rest, parameters.get_parser())
    flags = space.Flags(command, parameters.resolve, files)
    opt, fixed = flags.check()
    check(own, opt)
    return Plan(own, command, flags, opt, fixed)


def search(argv: list[str]) -> Path | None:
    """Set up, run trials, report. Returns the search folder; None after --dry_run."""
    studies.quiet()
    with tempfile.TemporaryDirectory() as files:
        asked = plan(argv, Path(files))
        own, command, flags, opt, fixed = asked
        savename, folder = asked.savename, asked.folder
        metric = named(opt.evaltypes[0], opt.storage_metrics[0], opt.evaltypes)
        print(f"searching {', '.join(found.text for found in command.ranges.values())}\nfor {metric} on validation, in {folder}")
        if opt.dry_run:
            main.main(opt)
            return None
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot make the search folder {folder}: {error.strerror}. Choose another --save_path") from error
        direction = "maximize" if metrics.higher_is_better(opt.storage_metrics[0]) else "minimize"
        with Lock(folder / ".study.lock"):
            settings.changes(folder, command.ranges, fixed, opt.resume_allow_changes)  # first: a study of other flags is not damaged
            name = f"{opt.dataset}/{opt.group}"
            study = studies.open_study(folder, name, own.study_storage, command.ranges, direction, opt.seed, own.heartbeat)
            settings.settle(folder, command.ranges, fixed, opt.resume_allow_changes, len(studies.latest(study)))

        def tables():
            report.write_tables(study, folder, flags, command.given, metric)

        chosen = "splits_to_eval" in command.given
        trial_flags = [f"--group={savename}", *([] if chosen else ["--splits_to_eval", "val"])]
        loop = TrialLoop(study, folder, flags, main.main, savename, metric, asked.trials, trial_flags, own.lost_hosts)
        elsewhere = loop.run(tables)
        tables()
        if elsewhere:
            print(f"\nother processes still run {', '.join(elsewhere)}: the last one to end writes the report")
            print("(a machine that is gone for good: --lost_hosts HOST continues its trials here)")
            return folder
        report.draw(study, folder, metric)
        if report.best_of(study) is None:
            raise UserError(f"no trial of {folder} succeeded: trials.csv holds the reasons")
        again = None
        if own.reproductions is None:
            print(f"\n{asked.reproductions} reproductions of the best of {asked.trials} trials, as --reproductions says nothing else")
        if asked.reproductions:
            final_flags = ["--final_test", *([] if chosen else ["--splits_to_eval", "val"])]
            again = report.reproduce(study, folder, flags, main.main, savename, opt.group, asked.reproductions, final_flags)
        report.tell(study, folder, metric, again)
        return folder


if __name__ == "__main__":
    with one_line_errors(PROGRAM):
        search(sys.argv[1:])
