"""Execute a file of runs, on one machine or many: `python Run_Script.py Revisit_Runs.sh --filter CUB_Margin --jobs 2 --gpus 0 1`.

The file is plain shell: `name=value` lines, comments, and one `python main.py …` a line. What is finished is skipped, what was
interrupted goes on (--resume), and what fails is reported at the end, with its last error and its log, while the others run.
Several runners may work on one file, on several machines with a common disk too: a lock beside each run folder keeps them apart.
"""

import argparse
import collections
import contextlib
import datetime
import fcntl
import io
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

import parameters
from utilities import checkpoint, reports
from utilities.errors import UserError
from utilities.run import run_folder

MAIN = Path(__file__).resolve().parent / "main.py"
POLL = 0.2  # seconds between looks at the running jobs
HEARTBEAT = 30  # seconds after which a held lock is touched
SILENT_FOR = 900  # seconds without a touch after which a lock of another machine counts as left behind
GRACE = 60  # seconds that a run has to close its records after Ctrl-C

# What can become of a line.
NEW, INTERRUPTED, FINISHED, RUNNING, FAILED, STOPPED = "new", "interrupted", "finished", "running elsewhere", "failed", "stopped"


# ------------------------------------------------------------------------------------------------------ the file of runs
class Line(NamedTuple):
    """One run of a file: its line number, and the flags of main.py."""

    number: int
    argv: list[str]

    @property
    def command(self) -> str:
        """The command as a shell takes it."""
        return shlex.join(["python", "main.py", *self.argv])


def read_lines(path: Path, variables: dict[str, str]) -> list[Line]:
    """The runs of a file.

    Args:
        variables: name -> value; these stand above the assignments in the file, the environment below.

    Raises:
        UserError: no such file, or a line that is neither a comment, an assignment nor a run of main.py.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: no file of runs ({getattr(error, 'strerror', None) or 'not text'})") from error
    lines, known = [], {**os.environ, **variables}
    number, pending = 0, ""
    for number, part in enumerate(text.splitlines(), start=1):
        if part.endswith("\\"):
            pending += part[:-1] + " "
            continue
        line, pending = pending + part, ""
        words = _words(line, path, number)
        if words[:1] == ["export"]:
            words = words[1:]
        if not words:
            continue
        if all(re.fullmatch(r"[A-Za-z_]\w*=.*", word) for word in words):
            for word in words:
                name, _, value = word.partition("=")
                if name not in variables:
                    known[name] = _expand(value, known, path, number)
        elif len(words) > 1 and re.fullmatch(r"python[\d.]*", Path(words[0]).name) and Path(words[1]).name == "main.py":
            lines.append(Line(number, [_expand(word, known, path, number) for word in words[2:]]))
        else:
            raise UserError(f"{path}, line {number}: expected a comment, name=value, or python main.py …, not {line.strip()[:60]!r}")
    if pending:
        raise UserError(f"{path}, line {number}: the file ends in the middle of a command (a backslash at the end of the line)")
    return lines


def _words(line: str, path: Path, number: int) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError as error:
        raise UserError(f"{path}, line {number}: {error}") from error


def _expand(word: str, known: dict[str, str], path: Path, number: int) -> str:
    """The word with `$name`, `${name}` and `${name:-default}` replaced."""

    def value(match) -> str:
        name, default = match["plain"] or match["braced"], match["default"]
        if default is not None and not known.get(name):
            return default
        if name not in known:
            raise UserError(f"{path}, line {number}: ${name} has no value: set it in the file, or --datapath for $datapath")
        return known[name]

    return re.sub(r"\$(?:(?P<plain>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*)(?::-(?P<default>[^}]*))?\})", value, word)


def select_lines(lines: list[Line], options) -> list[Line]:
    """The lines of --lines and --filter, once for each of --seeds, with the added flags; equal commands once."""
    chosen = {}
    for line in lines:
        if options.lines and line.number not in options.lines:
            continue
        if options.filter and not any(re.search(pattern, line.command) for pattern in options.filter):
            continue
        for seed in options.seeds or [None]:
            argv = [*_without(line.argv, "--seed"), "--seed", str(seed)] if seed is not None else list(line.argv)
            argv += options.added
            chosen.setdefault(tuple(argv), Line(line.number, argv))
    return list(chosen.values())


def _without(argv: list[str], flag: str) -> list[str]:
    """The flags without `flag` and its value."""
    places = {place + step for place, word in enumerate(argv) if word == flag for step in (0, 1)}
    return [word for place, word in enumerate(argv) if place not in places and not word.startswith(f"{flag}=")]


# --------------------------------------------------------------------------------------------------------------- one run
class Task:
    """A line with its options resolved: where its run lies, and how far it is. Raises UserError for flags that main.py refuses."""

    def __init__(self, line: Line):
        self.line = line
        self.opt = _quietly(parameters.read, line.argv)
        self.folder = run_folder(self.opt)
        self.name = f"{self.opt.dataset}/{self.folder.name}"
        self.log = self.folder.with_name(f"{self.folder.name}.log")
        self.lock = Lock(self.folder.with_name(f"{self.folder.name}.lock"))
        self.epoch = 0

    def standing(self) -> str:
        """NEW, INTERRUPTED or FINISHED, by the run folder; `epoch` is then the last trained one.

        Raises UserError where the folder holds something else, or a run whose flags differ from the line's.
        """
        if not (self.folder / "parameters.yaml").exists():
            if self.folder.is_dir() and any(self.folder.iterdir()):
                raise UserError(f"{self.folder} holds no run (parameters.yaml is missing): move it away")
            return NEW
        opt = _quietly(parameters.read, [*self.line.argv, "--resume"])  # refuses flags that differ from the saved ones
        if not (self.folder / checkpoint.LAST).exists():
            return INTERRUPTED
        content = checkpoint.read(self.folder / checkpoint.LAST, lazily=True)
        self.epoch = content["epoch"]
        return FINISHED if self.epoch >= opt.n_epochs or content["run"]["stopped"] else INTERRUPTED


def _quietly(read, argv: list[str]):
    """`parameters.read`, whose refusal becomes a UserError."""
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            return read(argv)
    except SystemExit as error:
        raise UserError(told.getvalue().strip() or f"refused with status {error.code}") from error


class Lock:
    """A file beside a run folder that says which processes work on it: pids and host.

    It counts as left behind when its processes have ended on this machine, or when another machine has not touched it for
    `SILENT_FOR` seconds. The holder is the runner and the run that it started: a run that outlives its runner keeps the lock.
    """

    def __init__(self, path: Path):
        self.path = path
        self._touched = 0.0

    def take(self) -> bool:
        """Take the lock. False where somebody else has it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            with open(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666), "r+", encoding="utf-8") as file:
                fcntl.flock(file, fcntl.LOCK_EX)  # for the moment of reading and writing: two takers at once see each other's entry
                if not self._is_current(file):
                    continue  # its holder has removed it meanwhile: begin anew
                if self._holder(file) is not None:
                    return False
                self._write(file, [os.getpid()])
                return True

    def add(self, pid: int) -> None:
        """Let a started process hold the lock too."""
        with open(self.path, "r+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self._write(file, [os.getpid(), pid])

    def touch(self) -> None:
        """Show, now and then, that the holder lives."""
        if time.monotonic() - self._touched > HEARTBEAT:
            self._touched = time.monotonic()
            with contextlib.suppress(OSError):
                os.utime(self.path)

    def release(self) -> None:
        """Give the lock back."""
        self.path.unlink(missing_ok=True)

    def holder(self) -> str | None:
        """Who holds it, in words; None where nobody does."""
        try:
            with open(self.path, encoding="utf-8") as file:
                return self._holder(file)
        except FileNotFoundError:
            return None

    def _is_current(self, file) -> bool:
        try:
            return os.fstat(file.fileno()).st_ino == os.stat(self.path).st_ino
        except FileNotFoundError:
            return False

    def _write(self, file, pids: list[int]) -> None:
        file.seek(0)
        file.truncate()
        json.dump({"host": socket.gethostname(), "processes": [[pid, _started(pid)] for pid in pids]}, file)
        file.flush()
        os.fsync(file.fileno())
        self._touched = time.monotonic()

    def _holder(self, file) -> str | None:
        try:
            entry = json.load(file)
            host, processes = entry["host"], entry["processes"]
        except (ValueError, KeyError, TypeError):
            return None  # just made, or broken off while it was written
        if host == socket.gethostname():
            living = [pid for pid, started in processes if _started(pid) == started is not None]
            return f"process {living[-1]}" if living else None
        silent = _now_on_disk(self.path.parent) - os.fstat(file.fileno()).st_mtime  # clocks of machines differ, the disk has one
        return f"process {processes[-1][0]} on {host}" if silent < SILENT_FOR else None


def _started(pid: int) -> str | None:
    """When a process started, so that a number that the system gave out again is told apart; None where there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] == "Z" else fields[19]
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return None
    except (OSError, IndexError):
        return None
    try:  # no /proc, as on macOS
        os.kill(pid, 0)
        return ""
    except ProcessLookupError:
        return None
    except PermissionError:
        return ""


def _now_on_disk(folder: Path) -> float:
    """The time by the clock that stamps the files of `folder`."""
    import tempfile

    with tempfile.NamedTemporaryFile(dir=folder, prefix=".clock.") as file:
        return os.fstat(file.fileno()).st_mtime


class Job:
    """A started run: a process of its own session, so that Ctrl-C on the terminal reaches the runner alone."""

    def __init__(self, task: Task, added: list[str], slot: int):
        self.task, self.slot, self.signalled = task, slot, False
        command = [sys.executable, str(MAIN), *task.line.argv, *added]
        task.log.parent.mkdir(parents=True, exist_ok=True)
        self.offset = task.log.stat().st_size if task.log.exists() else 0  # what this attempt says stands after it
        with open(task.log, "a", encoding="utf-8") as log:
            log.write(f"\n$ {shlex.join(command)}    # {datetime.datetime.now():%Y-%m-%d %H:%M:%S}, {socket.gethostname()}\n")
            log.flush()
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def reason(self) -> str:
        """Why it failed: the last line of its output that looks like an error, else the last."""
        status = self.process.returncode
        with open(self.task.log, "rb") as log:
            log.seek(self.offset)
            said = log.read().decode(errors="replace").splitlines()[2:]
        lines = [line.strip() for line in said if line.strip()]
        errors = [line for line in lines if re.search(r"error|exception|killed|interrupt", line, re.IGNORECASE)]
        last = (errors or lines or ["it said nothing"])[-1]
        how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"status {status}"
        return f"{last} ({how})"


# ---------------------------------------------------------------------------------------------------------- many of them
class Runner:
    """Works a list of tasks off, `jobs` at a time.

    Args:
        tasks: the lines of the file.
        gpus: their numbers, given to the places of work in turn; empty: the lines' own --gpu.
        dry: check each line by main.py's --dry_run instead of running it.
    """

    def __init__(self, tasks: list[Task], jobs: int, gpus: list[int], dry: bool = False):
        self.waiting = collections.deque(tasks)
        self.gpus, self.dry = gpus, dry
        self.free = list(range(jobs))[::-1]
        self.active: list[Job] = []
        self.outcomes: dict[str, list[str]] = collections.defaultdict(list)
        self.bar = None

    def run(self) -> None:
        """Run everything; on Ctrl-C stop the runs and raise KeyboardInterrupt again."""
        with tqdm(total=len(self.waiting), desc="runs", unit="run", disable=None) as self.bar:
            try:
                while self.waiting or self.active:
                    while self.waiting and self.free:
                        self.start(self.waiting.popleft())
                    for job in [job for job in self.active if job.process.poll() is not None]:
                        self.end(job)
                    for job in self.active:
                        if not self.dry:
                            job.task.lock.touch()
                    self.bar.set_postfix_str(", ".join(job.task.name for job in self.active), refresh=False)
                    self.bar.refresh()
                    if self.active:
                        time.sleep(POLL)
            except BaseException:
                self.stop()
                raise

    def start(self, task: Task) -> None:
        """Start a task, unless it is finished, somebody else works on it, or its folder is not in order."""
        if not self.dry and not task.lock.take():
            self.note(RUNNING, task.name, task.lock.holder() or "just now ended")
            return
        job = None
        try:
            standing = NEW if self.dry else task.standing()
            if standing == FINISHED:
                self.note(FINISHED, task.name, f"before, {task.epoch} epochs")
                return
            if standing == NEW and not self.dry and task.folder.is_dir():
                task.folder.rmdir()  # empty: its run was killed before its first file
            job = Job(task, self.added(standing), self.free[-1])
            if not self.dry:
                task.lock.add(job.process.pid)
            self.active.append(job)
            self.free.pop()
            self.say(f"started   {task.name}" + (f", after epoch {task.epoch}" if standing == INTERRUPTED else ""))
        except (UserError, OSError) as error:
            self.note(FAILED, task.name, str(error))
        finally:
            if job is None and not self.dry:
                task.lock.release()

    def added(self, standing: str) -> list[str]:
        """Flags beside the line's own."""
        flags = ["--gpu", str(self.gpus[self.free[-1] % len(self.gpus)])] if self.gpus else []
        if self.dry:
            return [*flags, "--dry_run"]
        return [*flags, "--resume"] if standing == INTERRUPTED else flags

    def end(self, job: Job) -> None:
        """Take note of a run that ended, and free its place."""
        self.active.remove(job)
        self.free.append(job.slot)
        if job.process.returncode == 0:
            self.note(FINISHED, job.task.name, "it would start" if self.dry else "now")
        elif job.signalled:
            self.note(STOPPED, job.task.name, "the same command goes on with it")
        else:
            self.note(FAILED, job.task.name, f"{job.reason()}\n            log: {job.task.log}")
        if not self.dry:
            job.task.lock.release()

    def stop(self) -> None:
        """Ask the runs to end as Ctrl-C would, then insist."""
        for sign, patience in ((signal.SIGINT, GRACE), (signal.SIGTERM, 5), (signal.SIGKILL, 5)):
            for job in self.active:
                job.signalled = True
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(job.process.pid, sign) if sign == signal.SIGKILL else job.process.send_signal(sign)
            try:
                until = time.monotonic() + patience
                while any(job.process.poll() is None for job in self.active) and time.monotonic() < until:
                    time.sleep(POLL / 2)
            except KeyboardInterrupt:  # again: no more patience
                pass
            for job in [job for job in self.active if job.process.poll() is not None]:
                self.end(job)

    def note(self, outcome: str, name: str, more: str) -> None:
        """Record what became of a line, and say it."""
        self.outcomes[outcome].append(f"{name}: {more}")
        if self.bar is not None:
            self.bar.update()
        self.say(f"{outcome:9} {name}: {more}")

    def say(self, text: str) -> None:
        """A line above the progress bar."""
        tqdm.write(text)
        sys.stdout.flush()

    def summary(self) -> str:
        """How many lines came to what; the failures with their reasons."""
        counts = [f"{len(names)} {outcome}" for outcome, names in self.outcomes.items() if names]
        if self.waiting:
            counts.append(f"{len(self.waiting)} not started")
        lines = [", ".join(counts) or "no runs"]
        return "\n".join(lines + [f"  failed: {text}" for text in self.outcomes[FAILED]])


def make_tasks(lines: list[Line]) -> tuple[list[Task], list[tuple[Line, str]]]:
    """The tasks of the lines, and the lines that main.py refuses, with the reason.

    Raises UserError where two lines would write to one run folder.
    """
    tasks, refused, places = [], [], {}
    for line in tqdm(lines, desc="reading", unit="line", leave=False, disable=None):
        try:
            task = Task(line)
        except UserError as error:
            refused.append((line, str(error)))
            continue
        other = places.setdefault(task.folder.absolute(), line)
        if other is not line:
            raise UserError(f"lines {other.number} and {line.number} both write to {task.folder}: give them different --group or --seed")
        tasks.append(task)
    return tasks, refused


def listing(tasks: list[Task]) -> str:
    """One line a run: how it stands, its name, its command."""
    rows = []
    for task in tasks:
        holder = task.lock.holder()
        try:
            standing = RUNNING if holder is not None else task.standing()
            more = {RUNNING: holder, INTERRUPTED: f"after epoch {task.epoch}", FINISHED: f"{task.epoch} epochs"}.get(standing, "")
        except UserError as error:
            standing, more = FAILED, str(error)
        rows.append(f"{standing:18}{task.name:40}{more}\n    {task.line.command}")
    return "\n".join(rows)


# ----------------------------------------------------------------------------------------------------------------- Slurm
def submit(tasks: list[Task], options) -> bool:
    """Give every task to Slurm, as a run of this script on its line, and wait. Returns whether nothing failed."""
    try:
        import submitit.helpers
    except ImportError as error:
        raise UserError("--slurm needs the package submitit: pip install submitit") from error
    settings = dict(setting.split("=", 1) for setting in options.slurm)
    folder = Path(settings.pop("folder", "slurm_logs")).absolute()
    executor = submitit.AutoExecutor(folder=folder, cluster=settings.pop("cluster", None))
    settings = {name: int(value) if value.isdecimal() else value for name, value in settings.items()}
    if executor.cluster == "slurm":
        settings = {"gpus_per_node": 1, "slurm_array_parallelism": options.jobs or len(tasks), **settings}
    executor.update_parameters(**{"name": Path(options.script).stem, **settings})
    with executor.batch():
        jobs = [executor.submit(submitit.helpers.CommandFunction(own_command(task, options))) for task in tasks]
    print(f"{len(jobs)} jobs submitted, their logs in {folder}")
    if executor.cluster == "slurm":
        print(f"Ctrl-C ends the waiting, not the jobs; scancel {jobs[0].job_id.partition('_')[0]} ends those")
    waiting, failed = dict(zip(jobs, tasks, strict=True)), []
    with tqdm(total=len(jobs), desc="jobs", unit="job", disable=None) as bar:
        while waiting:
            for job in [job for job in waiting if job.done()]:
                task = waiting.pop(job)
                if job.exception() is not None:
                    said = [line.strip() for line in (job.stdout() or "").splitlines()]
                    reasons = [line.removeprefix("failed: ") for line in said if line.startswith("failed: ")]
                    failed.append(f"{(reasons or [f'{task.name}: the job ended early'])[-1]}\n            job: {job.paths.stdout}")
                tqdm.write(f"{'done' if job.exception() is None else FAILED:9} {task.name}")
                bar.update()
            if waiting:
                time.sleep(30 if executor.cluster == "slurm" else 0.5)
    print(f"{len(jobs) - len(failed)} done, {len(failed)} failed" + "".join(f"\n  failed: {text}" for text in failed))
    return not failed


def own_command(task: Task, options) -> list[str]:
    """The command by which this script runs one task: what a job of --slurm executes."""
    command = [sys.executable, str(Path(__file__).resolve()), options.script, "--lines", str(task.line.number), "--seeds", str(task.opt.seed)]
    command += ["--datapath", options.datapath] if options.datapath is not None else []
    command += ["--dry_run"] if options.dry_run else []
    return [*command, "--", *options.added]


# ------------------------------------------------------------------------------------------------------------------ main
def get_parser() -> argparse.ArgumentParser:
    """The flags of this script; those after `--` are added to every run."""
    parser = argparse.ArgumentParser(
        prog="Run_Script.py", allow_abbrev=False, description="Execute a file of runs: skip the finished, resume the interrupted, report the failed.",
        epilog="Flags after -- are added to every run: python Run_Script.py Revisit_Runs.sh -- --log_online --save_path /data/runs",
    )  # fmt: skip
    parser.add_argument("script", help="file of runs, such as Revisit_Runs.sh")
    parser.add_argument("--filter", nargs="+", default=[], metavar="TEXT", help="only runs whose command holds one of these (regular expressions)")
    parser.add_argument("--lines", nargs="+", type=int, default=[], metavar="N", help="only the runs on these lines of the file")
    parser.add_argument("--seeds", nargs="+", type=int, default=[], metavar="N", help="run each line with each of these seeds instead of its own")
    parser.add_argument("--datapath", default=None, help="value of $datapath, instead of the file's own")
    parser.add_argument("--jobs", type=int, default=None, help="runs at a time (default: one a GPU of --gpus, else 1)")
    parser.add_argument("--gpus", nargs="+", type=int, default=[], metavar="N", help="GPUs for the jobs in turn (default: the lines' own --gpu)")
    parser.add_argument("--list", action="store_true", help="say how each run stands, and stop")
    parser.add_argument("--dry_run", action="store_true", help="check each run by main.py's --dry_run: data, network, one batch; nothing is trained")
    parser.add_argument("--slurm", nargs="*", default=None, metavar="KEY=VALUE", help="submit each run as a Slurm job by submitit; its settings, such as slurm_partition=gpu timeout_min=1440 (folder=…: of the logs)")
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
        return 0 if submit(tasks, options) and not refused else 1
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
    with reports.one_line_errors("Run_Script.py"):
        sys.exit(main())
