"""Execute a file of runs, on one machine or many: `python Run_Script.py Revisit_Runs.sh --filter CUB_Margin --jobs 2 --gpus 0 1`.

The file is plain shell: `name=value` lines, comments, and one `python main.py …` or `python Bayesian_Optimization.py …` a line. What
is finished is skipped, what was interrupted goes on, and what fails is reported at the end, with its last error and its log, while
the others run. Several runners may work on one file, on several machines with a common disk too: a lock beside each run folder keeps
them apart. This file says how far a line's run has come, and holds the command line; the rooms are in launch/.
"""

import argparse
import contextlib
import io
import re
import signal
import sys
import tempfile
from pathlib import Path

from tqdm import tqdm

import datasets
import parameters
from launch import slurm
from launch.lines import Line, SearchLine, read_lines, select_lines
from launch.locks import Lock
from launch.runner import FAILED, FINISHED, INTERRUPTED, NEW, RUNNING, Runner
from runs.folder import RunFolder, run_folder
from runs.folds import CrossValidation
from utilities.errors import OneLineParser, UserError, one_line_errors

ROOT = Path(__file__).resolve().parent


# ------------------------------------------------------------------------------------------------------ how far a line is
class Task:
    """A line with its options resolved: where its run lies, and how far it is. Raises UserError for flags that its program refuses.

    Attributes:
        program: the script that executes the line.
        folder: where the run lies, before a number is added for an existing folder.
        shared: other lines and processes may work in the folder too.
        progress: how far the run has come, in words; set by `standing`.
        epoch: the last trained one of a run that is no cross-validation; set by `standing`.
    """

    TOLD_APART_BY, SAME_FOR_EVERY_SEED = "--group or --seed", "leave out --savename"

    def __init__(self, line: Line):
        self.line, self.program = line, ROOT / line.program
        self.opt, self.folder, self.folds = self._resolve()
        self.shared = self.folds is not None
        name = self.folder.name + (f".folds_{'_'.join(map(str, sorted(self.folds)))}" if self.shared else "")
        self.name = f"{self.opt.dataset}/{name}"
        self.log = self.folder.with_name(f"{name}.log")
        self.lock = Lock(self.folder.with_name(f"{name}.lock"))
        self.epoch, self.progress = 0, ""

    def _resolve(self) -> tuple[argparse.Namespace, Path, set[int] | None]:
        """The flags, the folder, and the folds where `--folds` names some."""
        opt = _quietly(parameters.read, self.line.argv)
        return opt, run_folder(opt), None if opt.folds is None else set(opt.folds)

    def collides(self, other: "Task") -> bool:
        """Whether a line of the same folder would write to the same place in it: other folds of a cross-validation do not."""
        return not (self.shared and other.shared) or bool(self.folds & other.folds)

    def standing(self) -> str:
        """NEW, INTERRUPTED or FINISHED, by the run folder.

        Raises UserError where the folder holds something else, or a run whose flags differ from the line's.
        """
        if not (self.folder / "parameters.yaml").exists():
            if self.folder.is_dir() and any(not path.name.startswith(".") for path in self.folder.iterdir()):
                raise UserError(f"{self.folder} holds no run (parameters.yaml is missing): move it away")
            return NEW
        opt = _quietly(parameters.read, [*self.line.argv, "--resume"])  # refuses flags that differ from the saved ones
        opt = [opt, *opt.later][-1]  # a reproduction is finished with its last stage
        return FINISHED if (self._folds_are_finished if opt.is_cross_validation else self._run_is_finished)(opt) else INTERRUPTED

    def _run_is_finished(self, opt) -> bool:
        run = RunFolder(self.folder, opt)
        self.epoch, finished = run.progress.epochs, run.finished
        self.progress = f"{self.epoch} epochs" if finished else f"after epoch {self.epoch}"
        return finished and not run.needs_test

    def _folds_are_finished(self, opt) -> bool:
        """A cross-validation is finished when the folds that the line asks for are, and, once all there are, the meta results of all."""
        cross = CrossValidation(opt, datasets.n_folds(opt))
        done = len(set(cross.asked) & set(cross.done()))
        finished = cross.settled
        self.progress = f"{done} folds" if finished else f"after {done} of {len(cross.asked)} folds"
        return finished

    def outcome(self) -> tuple[str, str]:
        """What became of the line when its process ended with status 0, in a word and in words."""
        return FINISHED, "now"


class SearchTask(Task):
    """A line that searches: finished with as many trials as asked, their best parameters, and the reproductions of the best."""

    TOLD_APART_BY, SAME_FOR_EVERY_SEED = "--group", "give --seeds one at a time"

    def _resolve(self) -> tuple[argparse.Namespace, Path, None]:
        import Bayesian_Optimization

        with tempfile.TemporaryDirectory() as files:
            self.plan = _quietly(lambda argv: Bayesian_Optimization.plan(argv, Path(files)), self.line.argv)
        return self.plan.opt, self.plan.folder, None

    def standing(self) -> str:
        """As that of a run. Raises UserError where flags or ranges are not those of the search in the folder."""
        from search import report, settings

        if not self.folder.is_dir() or not any(self.folder.iterdir()):
            return NEW
        own = self.plan.own
        settings.changes(self.folder, self.plan.command.ranges, self.plan.fixed, self.opt.resume_allow_changes)
        trials, reproductions = report.progress(self.folder)
        finished = trials >= own.bayesian_optimization_n_iter and reproductions >= own.reproductions
        finished = finished and (self.folder / "best_parameters.yaml").exists()
        self.progress = f"{trials} trials" if finished else f"after {trials} of {own.bayesian_optimization_n_iter} trials"
        if own.reproductions and trials >= own.bayesian_optimization_n_iter:
            self.progress += f" and {reproductions} of {own.reproductions} reproductions"
        return FINISHED if finished else INTERRUPTED

    def outcome(self) -> tuple[str, str]:
        """As that of a run: a search ends well too where others still work on its last trials."""
        standing = self.standing()
        return (FINISHED, "now") if standing == FINISHED else (RUNNING, f"{self.progress}: another process works on the rest")


TASKS = {Line.program: Task, SearchLine.program: SearchTask}


def _quietly(read, argv: list[str]):
    """`parameters.read`, whose refusal becomes a UserError."""
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            return read(argv)
    except SystemExit as error:
        raise UserError(told.getvalue().strip() or f"refused with status {error.code}") from error


def make_tasks(lines: list[Line]) -> tuple[list[Task], list[tuple[Line, str]]]:
    """The tasks of the lines, and the lines that their program refuses, with the reason.

    Raises UserError where two lines would write to one run folder.
    """
    tasks, refused, places = [], [], {}
    for line in tqdm(lines, desc="reading", unit="line", leave=False, disable=None):
        try:
            task = TASKS[line.program](line)
        except UserError as error:
            refused.append((line, str(error)))
            continue
        for other in places.setdefault(task.folder.absolute(), []):
            if task.collides(other):
                if other.line.number == line.number:
                    raise UserError(f"line {line.number} writes to {task.folder} with every seed: {task.SAME_FOR_EVERY_SEED}")
                raise UserError(
                    f"lines {other.line.number} and {line.number} both write to {task.folder}: give them different {task.TOLD_APART_BY}"
                )
        places[task.folder.absolute()].append(task)
        tasks.append(task)
    return tasks, refused


def listing(tasks: list[Task]) -> str:
    """One line a run: how it stands, its name, its command."""
    rows = []
    for task in tasks:
        holder = task.lock.holder()
        try:
            standing = RUNNING if holder is not None else task.standing()
            more = {RUNNING: holder, INTERRUPTED: task.progress, FINISHED: task.progress}.get(standing, "")
        except UserError as error:
            standing, more = FAILED, str(error)
        rows.append(f"{standing:18}{task.name:40}{more}\n    {task.line.command}")
    return "\n".join(rows)


# ---------------------------------------------------------------------------------------------------------- command line
def own_command(task: Task, options) -> list[str]:
    """The command by which this script runs one task: what a job of --slurm executes."""
    command = [
        sys.executable,
        str(Path(__file__).resolve()),
        options.script,
        "--lines",
        str(task.line.number),
        "--seeds",
        str(task.opt.seed),
    ]
    command += ["--datapath", options.datapath] if options.datapath is not None else []
    command += ["--dry_run"] if options.dry_run else []
    return [*command, "--", *options.added]


def get_parser() -> argparse.ArgumentParser:
    """The flags of this script; those after `--` are added to every run."""
    parser = OneLineParser(
        prog="Run_Script.py", allow_abbrev=False, description="Execute a file of runs: skip the finished, resume the interrupted, report the failed.",
        epilog="Flags after -- are added to every run: python Run_Script.py Revisit_Runs.sh -- --log_online --save_path /data/runs",
    )  # fmt: skip
    parser.add_argument("script", help="file of runs, such as Revisit_Runs.sh")
    parser.add_argument(
        "--filter", nargs="+", default=[], metavar="TEXT", help="only runs whose command holds one of these (regular expressions)"
    )
    parser.add_argument("--lines", nargs="+", type=int, default=[], metavar="N", help="only the runs on these lines of the file")
    parser.add_argument(
        "--seeds", nargs="+", type=int, default=[], metavar="N", help="run each line with each of these seeds instead of its own"
    )
    parser.add_argument("--datapath", default=None, help="value of $datapath, instead of the file's own")
    parser.add_argument("--jobs", type=int, default=None, help="runs at a time (default: one a GPU of --gpus, else 1)")
    parser.add_argument(
        "--gpus", nargs="+", type=int, default=[], metavar="N", help="GPUs for the jobs in turn (default: the lines' own --gpu)"
    )
    parser.add_argument("--list", action="store_true", help="say how each run stands, and stop")
    parser.add_argument(
        "--dry_run", action="store_true", help="check each run by its program's --dry_run: data, network, one batch; nothing is trained"
    )
    parser.add_argument(
        "--slurm",
        nargs="*",
        default=None,
        metavar="KEY=VALUE",
        help="submit each run as a Slurm job by submitit; its settings, such as slurm_partition=gpu timeout_min=1440 (folder=…: of the logs)",
    )
    return parser


def read_options(argv: list[str]) -> argparse.Namespace:
    """Parse the command line. Raises UserError for what cannot be."""
    place = argv.index("--") if "--" in argv else len(argv)
    options = get_parser().parse_args(argv[:place])
    options.added = argv[place + 1 :]
    if options.jobs is not None and options.jobs < 1:
        raise UserError(f"--jobs {options.jobs}: at least 1 run at a time")
    if any(gpu < 0 for gpu in options.gpus):
        raise UserError(f"--gpus {' '.join(map(str, options.gpus))}: a GPU's number is 0 or more")
    for pattern in options.filter:
        try:
            re.compile(pattern)
        except re.error as error:
            raise UserError(f"--filter {pattern}: not a regular expression ({error})") from error
    for setting in options.slurm or []:
        if "=" not in setting:
            raise UserError(f"--slurm {setting}: expected KEY=VALUE")
    return options


def _interrupt(*_) -> None:
    raise KeyboardInterrupt


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0, 1 where a run failed, 130 after Ctrl-C."""
    options = read_options(sys.argv[1:] if argv is None else argv)
    lines = read_lines(Path(options.script), {} if options.datapath is None else {"datapath": options.datapath})
    chosen = select_lines(lines, options)
    if not chosen:
        raise UserError(f"none of the {len(lines)} runs of {options.script} is chosen by --filter and --lines; --list shows them")
    tasks, refused = make_tasks(chosen)
    if options.list:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # so that it may be cut by `head`
        print(listing(tasks))
        print("\n".join(f"{FAILED:18}line {line.number}: {reason}" for line, reason in refused), end="\n" if refused else "")
        return 1 if refused else 0
    if options.slurm is not None:
        settings = dict(setting.split("=", 1) for setting in options.slurm)
        commands = [(task.name, own_command(task, options)) for task in tasks]
        return 0 if slurm.submit(commands, settings, Path(options.script).stem, options.jobs) and not refused else 1
    runner = Runner(tasks, options.jobs or len(options.gpus) or 1, options.gpus, options.dry_run)
    for line, reason in refused:
        runner.note(FAILED, f"line {line.number}", reason)
    try:
        runner.run()
    except KeyboardInterrupt:
        print(f"\ninterrupted: {runner.summary()}")
        return 130
    print(runner.summary())
    return 1 if runner.outcomes[FAILED] else 0


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that starts this in the background has it ignored
    signal.signal(signal.SIGTERM, _interrupt)
    with one_line_errors("Run_Script.py"):
        sys.exit(main())
