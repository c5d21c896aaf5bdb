"""Execute a file of runs, on one machine or many.

    python -m launch Revisit_Runs.sh --filter CUB_Margin --jobs 2 --gpus 0 1

The file is plain shell: `name=value` lines, comments, and one `python main.py …` or `python -m search …` a line.
Finished runs are skipped and interrupted ones resumed. A failed run does not stop the others: it is reported at the
end, with its last error and its log. Several runners may work on one file, on several machines too if their shared disk
supports locks (NFS 4 does): logs and locks lie beside the run folders, in run_script/. On a disk without locks give
each machine its own lines, by --lines or --filter.
"""

import argparse
import contextlib
import glob
import re
import signal
import sys
from pathlib import Path

from tqdm import tqdm

import datasets
import parameters
from launch import slurm
from launch.lines import Line, SearchLine, masked, read_lines, select_lines
from launch.runner import FAILED, FINISHED, INTERRUPTED, NEW, RUNNING, STOPPED, Runner
from runs.folder import RunFolder, is_leftover, run_folder
from runs.folds import CrossValidation
from search import __main__ as searching
from search import report, settings
from search.__main__ import secret_options
from utilities.console import propose, without_flags, wrapped
from utilities.counts import count_of
from utilities.errors import OneLineParser, UserError, one_line_errors
from utilities.locks import Lock
from utilities.numbers import whole
from utilities.programs import as_typed, program_words
from utilities.secrets import mask_urls

PROGRAM = "python -m launch"
# the folder of logs and locks, beside the run folders
LOGS = "run_script"


# ------------------------------------------------------------------------------------------------ progress of a line
def how_far(folder: Path, opt) -> tuple[bool, str]:
    """(finished, progress as text) of a run or cross-validation with these flags, read with --resume_or_start."""
    if opt.is_cross_validation:
        cross = CrossValidation(opt, datasets.n_folds(opt))
        done = len(set(cross.requested) & set(cross.done()))
        if cross.settled:
            return True, count_of(done, "fold")
        return False, f"after {done} of {len(cross.requested)} folds"
    if opt.evaluate_only:
        # a line whose first process was killed has its result in a numbered folder
        numbered = folder.parent.glob(f"{glob.escape(folder.name)}_[0-9]*")
        return any((path / "evaluation.json").exists() for path in (folder, *numbered)), "measured"
    run = RunFolder(folder, opt)
    if not run.finished:
        return False, f"after epoch {run.progress.epochs}"
    return not run.needs_test, count_of(run.progress.epochs, "epoch")


class Task:
    """A line with its flags resolved: the folder of its run, and how far it is.

    Raises UserError for flags that its program refuses.

    Attributes:
        program: what Python is called with to execute the line, before its flags.
        folder: of the run, before a number is added for an existing folder.
        folds: the folds that the line names; lines of other folds share the folder. None: the whole folder.
        log: file of the output of its processes. lock: keeps other runners away from the line.
        progress: how far the run has come, as text; set by `standing`.
    """

    TOLD_APART_BY = "--group or --seed"
    SAME_FOR_EVERY_SEED = "leave out --savename"

    def __init__(self, line: Line):
        self.line = line
        self.progress = ""
        self.program = program_words(line.program)
        self.opt, self.folder, self.folds = self._resolve()
        name = self.folder.name
        if self.folds is not None:
            name += f".folds_{'_'.join(map(str, sorted(self.folds)))}"
        self.name = f"{self.opt.dataset}/{name}"
        self.log, lock = (self.folder.parent / LOGS / f"{name}.{kind}" for kind in ("log", "lock"))
        self.lock = Lock(lock)

    def _resolve(self) -> tuple[argparse.Namespace, Path, set[int] | None]:
        """The flags, the folder, and the folds where `--folds` names some."""
        opt = self._flags()
        if opt.job not in ("train", "evaluate_only"):
            raise UserError(
                f"--{opt.job} measures a run that another line makes, and leaves nothing by which it is finished: "
                "call main.py with it by hand"
            )
        folds = None if opt.folds is None else set(opt.folds)
        return opt, run_folder(opt), folds

    def _flags(self) -> argparse.Namespace:
        """The flags of the line. A run that has begun may be older than the rules that refuse some of them."""
        try:
            return parameters.resolve(self.line.argv)
        except UserError as error:
            try:
                return parameters.resolve([*self.line.argv, "--resume_or_start"])
            except UserError:
                raise error from None

    def collides(self, task: "Task") -> bool:
        """Whether a line of the same folder would write to the same files in it, not to other folds."""
        return self.folds is None or task.folds is None or bool(self.folds & task.folds)

    def at_work(self) -> str | None:
        """The other process that works on the line, as text.

        It is a runner, or a run that was started by hand or has outlived its runner.
        """
        for lock in (self.lock, *self._run_locks()):
            holder = lock.holder()
            if holder:
                return holder
        return None

    def _run_locks(self) -> list[Lock]:
        if self.folds is None:
            folds = self.folder.glob("fold_*")
        else:
            folds = [self.folder / f"fold_{fold}" for fold in self.folds]
        return [Lock(folder / ".lock") for folder in (self.folder, *folds)]

    def standing(self) -> str:
        """NEW, INTERRUPTED, FINISHED, or RUNNING in another process, by the run folder.

        Raises UserError where the folder holds something else, or a run whose flags differ from the line's.
        """
        if any(lock.holder() for lock in self._run_locks()):
            return RUNNING
        if not (self.folder / "parameters.yaml").exists():
            foreign = [path.name for path in self.folder.glob("*") if not is_leftover(path)]
            if foreign:
                raise UserError(
                    f"{self.folder} holds no run (parameters.yaml is missing), but {min(foreign)}: move it away"
                )
            return NEW
        # refuses flags that differ from the saved ones
        opt = parameters.resolve([*self.line.argv, "--resume_or_start"])
        # a reproduction is finished with its last stage
        opt = [opt, *opt.later][-1]
        finished, self.progress = how_far(self.folder, opt)
        return FINISHED if finished else INTERRUPTED

    def epochs_done(self) -> str:
        """How far the run is, as text, while another process works on it; empty if its folder is not readable."""
        with contextlib.suppress(UserError):
            opt = parameters.resolve([*self.line.argv, "--resume"])
            return how_far(self.folder, [opt, *opt.later][-1])[1]
        return ""

    def outcome(self) -> tuple[str, str]:
        """(outcome, details as text) of the line when its process ended with status 0."""
        return FINISHED, "in this call"


class SearchTask(Task):
    """A line that searches: finished with all trials, the best parameters and the reproductions of the best."""

    TOLD_APART_BY = "--group"
    SAME_FOR_EVERY_SEED = "give --seeds one at a time"

    def _resolve(self) -> tuple[argparse.Namespace, Path, None]:
        self.plan = searching.plan(self.line.argv)
        return self.plan.opt, self.plan.folder, None

    def _run_locks(self) -> list[Lock]:
        # several processes may work on one search
        return []

    def standing(self) -> str:
        """See `Task.standing`. Raises UserError where flags or ranges are not those of the search in the folder."""
        if not self.folder.is_dir() or not any(self.folder.iterdir()):
            return NEW
        settings.changes(self.plan)
        finished, self.progress = report.how_far(self.folder, self.plan.trials, self.plan.reproductions)
        return FINISHED if finished else INTERRUPTED

    def epochs_done(self) -> str:
        """See `Task.epochs_done`: the trials."""
        return report.how_far(self.folder, self.plan.trials, self.plan.reproductions)[1]

    def outcome(self) -> tuple[str, str]:
        """See `Task.outcome`. A search also ends with status 0 while other processes still work on its last trials."""
        if self.standing() == FINISHED:
            return FINISHED, "in this call"
        return RUNNING, f"{self.progress}: another process is running the other trials"


TASKS = {Line.program: Task, SearchLine.program: SearchTask}


def make_tasks(lines: list[Line]) -> tuple[list[Task], list[tuple[Line, str]]]:
    """The tasks of the lines, and the lines that their program refuses, with the reason.

    Raises UserError where two lines would write to one run folder.
    """
    tasks = []
    refused = []
    by_folder = {}
    for line in tqdm(lines, desc="reading", unit="line", leave=False, disable=None):
        try:
            task = TASKS[line.program](line)
        except UserError as error:
            refused.append((line, mask_urls(str(error))))
            continue
        folder_tasks = by_folder.setdefault(task.folder.absolute(), [])
        for earlier in folder_tasks:
            if task.collides(earlier):
                if earlier.line.number == line.number:
                    raise UserError(
                        f"line {line.number} writes to {task.folder} with every seed: {task.SAME_FOR_EVERY_SEED}"
                    )
                raise UserError(
                    f"lines {earlier.line.number} and {line.number} both write to {task.folder}: give them "
                    f"different {task.TOLD_APART_BY}"
                )
        folder_tasks.append(task)
        tasks.append(task)
    return tasks, refused


def listing(tasks: list[Task]) -> str:
    """One line a run: how it stands, its name, its command."""
    rows = []
    for task in tasks:
        try:
            worker = task.at_work()
            if worker:
                standing = RUNNING
                details = ", ".join(text for text in (worker, task.epochs_done()) if text)
            else:
                standing = task.standing()
                details = task.progress
        except UserError as error:
            standing = FAILED
            details = mask_urls(str(error))
        rows.append(f"{standing:18}{task.name:40}{details}\n    {as_typed(task.line.command)}")
    return "\n".join(rows)


# --------------------------------------------------------------------------------------------------- command line
def job_command(task: Task, options) -> list[str]:
    """The command by which this program runs one task: what a job of --slurm executes."""
    command = [sys.executable, *program_words(("-m", "launch")), options.script]
    command += f"--lines {task.line.number} --seeds {task.opt.seed}".split()
    if options.datapath is not None:
        command += ["--datapath", options.datapath]
    if options.nproc > 1:
        command += ["--nproc", str(options.nproc)]
    if options.dry_run:
        command.append("--dry_run")
    return [*command, "--", *options.added]


def refuse_secrets(options) -> None:
    """Raise UserError where a key or password stands behind `--`: submitit writes the command of a job to its log."""
    for word in options.added:
        flag = word.partition("=")[0]
        if flag in secret_options():
            raise UserError(
                f"--slurm … -- {flag}: the command of a job is written to its log: write the flag in {options.script} "
                "itself, which the job reads, or export WANDB_API_KEY or COMET_API_KEY"
            )


def get_parser() -> argparse.ArgumentParser:
    """The flags of this script; those after `--` are added to every run."""
    parser = OneLineParser(
        prog=PROGRAM,
        allow_abbrev=False,
        description="Execute a file of runs: skip the finished, resume the interrupted, report the failed.",
        epilog=(
            "Flags after -- are added to every run: python -m launch Revisit_Runs.sh -- --log_online --save_path "
            "/data/runs"
        ),
    )
    add = parser.add_argument
    values = {"nargs": "+", "default": []}
    add("script", help="file of runs, such as Revisit_Runs.sh")
    add("--filter", metavar="TEXT", **values, help="only runs whose command holds one of these (regular expressions)")
    add("--lines", type=whole(1), metavar="N", **values, help="only the runs on these lines of the file")
    help_seeds = "run each line with each of these seeds instead of its own"
    add("--seeds", type=whole(0), metavar="N", **values, help=help_seeds)
    add("--datapath", help="value of $datapath, instead of the file's own")
    add("--jobs", type=whole(1, 1000), help="runs at a time (default: as many as --gpus has GPUs for, else 1)")
    help_gpus = "GPUs for the jobs in turn (default: the lines' own --gpu)"
    add("--gpus", type=whole(0, 1000), metavar="N", **values, help=help_gpus)
    help_nproc = (
        "processes of each run, started by torchrun on this machine, each on a GPU of its own: of --gpus N a job "
        "(default: one process)"
    )
    add("--nproc", type=whole(1, 1000), metavar="N", default=1, help=help_nproc)
    add("--list", action="store_true", help="print the state of each run, and stop")
    add(
        "--dry_run",
        action="store_true",
        help="check each run by its program's --dry_run: data, network, one batch; nothing is trained",
    )
    help_slurm = (
        "submit each run as a Slurm job by submitit; its settings, such as slurm_partition=gpu timeout_min=1440 "
        "(folder=…: of the logs)"
    )
    add("--slurm", nargs="*", metavar="KEY=VALUE", help=help_slurm)
    return parser


def read_options(argv: list[str]) -> argparse.Namespace:
    """Parse the command line. Raises UserError for values that it cannot take."""
    place = argv.index("--") if "--" in argv else len(argv)
    parser = get_parser()
    parser.exits = False
    options = parser.parse_args(argv[:place])
    options.added = argv[place + 1 :]
    for pattern in options.filter:
        try:
            re.compile(pattern)
        except re.error as error:
            raise UserError(f"--filter {pattern}: not a regular expression ({error})") from error
    for setting in options.slurm or []:
        if "=" not in setting:
            raise UserError(f"--slurm {setting}: expected KEY=VALUE")
    return options


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0, 1 where a run failed, 130 after Ctrl-C."""
    if argv is None:
        argv = sys.argv[1:]
    options = read_options(argv)
    variables = {}
    if options.datapath is not None:
        variables["datapath"] = options.datapath
    lines = read_lines(Path(options.script), variables)
    chosen = select_lines(lines, options)
    if not chosen:
        raise UserError(
            f"none of the {len(lines)} runs of {options.script} is chosen by --filter and --lines; --list shows them"
        )
    tasks, refused = make_tasks(chosen)
    if options.list:
        # `| head` may close the pipe early
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        print(listing(tasks))
        print_refusals(refused)
        return int(bool(refused))
    if options.slurm is not None:
        succeeded = submit(tasks, options)
        print_refusals(refused)
        return int(not succeeded or bool(refused))
    jobs = options.jobs or len(options.gpus) // options.nproc or 1
    runner = Runner(tasks, jobs, options.gpus, options.dry_run, options.nproc)
    for line, reason in refused:
        runner.note(FAILED, f"line {line.number}", reason)
    try:
        runner.run()
    except KeyboardInterrupt:
        print(f"\ninterrupted: {runner.summary()}")
        return 130
    print(wrapped(runner.summary(), indent=12))
    _propose_next(runner, options, tasks, argv)
    return int(bool(runner.outcomes[FAILED]))


def print_refusals(refused: list[tuple[Line, str]]) -> None:
    """Print the lines that their program refuses, with the reason."""
    for line, reason in refused:
        print(f"{FAILED:18}line {line.number}: {reason}")


def submit(tasks: list[Task], options) -> bool:
    """Submit the tasks as jobs of Slurm, and wait. Returns whether none failed."""
    if options.gpus:
        raise UserError(
            f"--slurm --gpus {' '.join(map(str, options.gpus))}: Slurm assigns GPUs: leave out --gpus and "
            "request them from Slurm, such as slurm_gpus_per_node=1"
        )
    refuse_secrets(options)
    settings = dict(setting.split("=", 1) for setting in options.slurm)
    commands = [(task.name, job_command(task, options)) for task in tasks]
    if not commands:
        return True
    return slurm.submit(commands, settings, Path(options.script).stem, options.jobs, options.nproc)


def _propose_next(runner: Runner, options, tasks: list[Task], argv: list[str]) -> None:
    """Print the next command: this one again if runs failed or were only checked, else the one that makes tables."""
    words = ["python", "-m", "launch", *masked(argv)]
    if options.dry_run:
        propose(*without_flags(words, {"--dry_run": 0}))
    elif any(runner.outcomes.get(outcome) for outcome in (FAILED, STOPPED)):
        propose(*words)
    else:
        propose("python", "Result_Evaluations.py", "--runs", *dict.fromkeys(task.folder.parent for task in tasks))


if __name__ == "__main__":
    # a shell starts background programs with SIGINT ignored
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with one_line_errors(PROGRAM):
        sys.exit(main())
