"""The command: configuration files, resume, folds, trials, and flags that print and exit."""

import argparse

from options import help as help_pages
from utilities.numbers import whole

LISTS = ("losses", "miners", "samplers", "architectures", "datasets", "trainers", "metrics")


def configuration(group) -> None:
    """Flags from files."""
    group.add_argument(
        "--config",
        nargs="+",
        default=[],
        metavar="FILE",
        help=(
            "YAML files of `flag: value`, later ones win, a saved run wins over them (--resume, --evaluate) and the "
            "command line over all; a bare name is looked up in configs/"
        ),
    )
    group.add_argument(
        "--plugins",
        nargs="+",
        default=[],
        metavar="FOLDER",
        help="folders with plug-ins of yours: FOLDER/criteria/mine.py is --loss mine. They are code, which only the "
        "command line names",
    )
    group.add_argument("--print_config", action="store_true", help="print the resolved flags as such a file and exit")


def resume(group) -> None:
    """Runs that go on, or are made again."""
    group.add_argument(
        "--resume",
        "--resume_training",
        nargs="?",
        const="latest",
        choices=["latest", "best"],
        help="continue the run of this --savename (or --group and --seed) from its last, or its best, checkpoint",
    )
    group.add_argument(
        "--resume_or_start",
        action="store_true",
        help="as --resume if the run exists, else start it: for scripts and schedulers that repeat one command",
    )
    group.add_argument("--resume_from", metavar="FOLDER", help="continue the run in this folder")
    group.add_argument(
        "--resume_allow_changes", action="store_true", help="continue although flags differ from the saved ones"
    )
    group.add_argument(
        "--reproduce_results",
        metavar="FOLDER",
        help=(
            "start a new run with the flags of the run in FOLDER; changes that were allowed on resume are made again "
            "at the same epochs"
        ),
    )


def folds(group) -> None:
    """Folds of a cross-validation."""
    group.add_argument(
        "--folds",
        type=whole(0),
        nargs="+",
        metavar="N",
        help="train only these folds of --split_scheme, from 0 (unset: all)",
    )
    group.add_argument(
        "--aggregate_only", action="store_true", help="do not train: compute the results over the finished folds"
    )


def rehearsals(group) -> None:
    """Checks of data, flags and speed, without a training."""
    group.add_argument(
        "--dry_run",
        action="store_true",
        help=(
            "build everything, take the first batch of each split, one through a step, draw its images as the network "
            "sees them (<savename>_batch.png), and stop; --check_data examines all images"
        ),
    )
    group.add_argument(
        "--profile_steps",
        type=whole(0, 10**4),
        default=0,
        metavar="N",
        help="time N steps, then run as many (20 at most) in torch's profiler, print the time by part with the flag "
        "that would help first, write the trace next to the run's folder (<savename>_trace.json, for chrome://tracing "
        "or ui.perfetto.dev), and stop",
    )
    group.add_argument(
        "--check_data",
        action="store_true",
        help=(
            "decode every image of --dataset, print every error in its files, and stop; the exit status is 0 if there "
            "is none"
        ),
    )


def information(group) -> None:
    """What is printed in place of a run."""
    group.add_argument(
        "-h",
        "--help",
        action=help_pages.Help,
        nargs=argparse.REMAINDER,
        default=argparse.SUPPRESS,
        metavar="WORD",
        help=(
            "print the most used flags and exit; with WORD those of a group, of a plug-in (loss margin), one flag, or "
            "all"
        ),
    )
    group.add_argument("--find", metavar="WORD", help="print the flags whose name or text holds WORD and exit")
    group.add_argument(
        "--explain",
        action="store_true",
        help="print every flag that differs from its default, with the place where it was set, and exit",
    )
    group.add_argument("--list", choices=LISTS, help="print the plug-ins of one kind with their captions and exit")
