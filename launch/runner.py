"""The runs as processes on this machine, several at a time.

A `Runner` starts a `Job` for each task as a slot gets free, watches the processes, and records the outcome of each
line. Submitit's local executor (`--slurm cluster=local`) would start all jobs at once and hand out no GPUs.
"""

import collections
import contextlib
import datetime
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time

from tqdm import tqdm

from launch import torchrun
from launch.lines import masked
from utilities.console import wrapped
from utilities.errors import UserError
from utilities.files import refuse_link
from utilities.secrets import mask_urls

POLL = 0.2  # seconds between checks of the running jobs
TAIL = 16384  # bytes at the end of a run's output in which its epoch is looked for
GRACE = 60  # seconds that a run has to close its records after Ctrl-C

# The outcomes of a line.
NEW = "new"
INTERRUPTED = "interrupted"
FINISHED = "finished"
RUNNING = "running elsewhere"
FAILED = "failed"
STOPPED = "stopped"


class Job:
    """A started run: a process of its own session, so that Ctrl-C on the terminal reaches the runner alone.

    Args:
        task: a `launch.__main__.Task`.
        added: flags beside the line's own.
        slot: the number of the slot that it takes, of `Runner`'s `jobs`.
        nproc: processes of the run.
        environment: of these processes; None: that of this process.
    """

    def __init__(self, task, added: list[str], slot: int, nproc: int = 1, environment: dict | None = None):
        self.task = task
        self.slot = slot
        self.signalled = False
        self.nproc = nproc
        command = torchrun.command(nproc, [*task.program, *task.line.argv, *added])
        task.log.parent.mkdir(parents=True, exist_ok=True)
        # where this attempt's output begins
        self.offset = task.log.stat().st_size if task.log.exists() else 0
        refuse_link(task.log)
        started = f"{datetime.datetime.now():%Y-%m-%d %H:%M:%S}, {socket.gethostname()}"
        with open(task.log, "a", encoding="utf-8") as log:
            log.write(f"\n$ {shlex.join(masked(command))}    # {started}\n")
            log.flush()
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env=environment
            )

    def standing(self) -> str:
        """Its name, and the last epoch that its output reports, `3/10`; of a search the trial too."""
        with open(self.task.log, "rb") as log:
            log.seek(max(self.offset, os.fstat(log.fileno()).st_size - TAIL))
            written = log.read().decode(errors="replace")
        trials = re.findall(r"^(trial_\d+)\b", written, re.MULTILINE)
        epochs = re.findall(r"^epoch (\d+/\d+) ", written, re.MULTILINE)
        return " ".join([self.task.name, *trials[-1:], *(f"epoch {epoch}" for epoch in epochs[-1:])])

    def reason(self) -> str:
        """Why it failed: the last line of its output that looks like an error, else the last."""
        status = self.process.returncode
        with open(self.task.log, "rb") as log:
            log.seek(self.offset)
            output = log.read().decode(errors="replace").splitlines()[2:]
        if self.nproc > 1:
            output = torchrun.reasons(output)
        lines = [line.strip() for line in output if line.strip()]
        errors = [line for line in lines if re.search(r"error|exception|killed|interrupt", line, re.IGNORECASE)]
        last = (errors or lines or ["it said nothing"])[-1]
        ending = f"killed by {signal.Signals(-status).name}" if status < 0 else f"status {status}"
        return f"{mask_urls(last)} ({ending})"


class Runner:
    """Runs a list of tasks, `jobs` at a time.

    Args:
        tasks: the lines of the file, as `launch.__main__.Task`.
        gpus: their numbers, given to the `jobs` slots in turn; empty: the lines' own --gpu.
        dry: check each line by its program's --dry_run instead of running it.
        nproc: processes of each run, started by torchrun, each with a GPU of its own.
    """

    def __init__(self, tasks: list, jobs: int, gpus: list[int], dry: bool = False, nproc: int = 1):
        self.waiting = collections.deque(tasks)
        self.gpus = torchrun.groups(gpus, nproc)
        self.dry = dry
        self.jobs = jobs
        self.nproc = nproc
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
                    self.end_finished()
                    self.bar.set_postfix_str(", ".join(job.standing() for job in self.active), refresh=False)
                    self.bar.refresh()
                    if self.active:
                        time.sleep(POLL)
            except BaseException:
                self.stop()
                raise

    def start(self, task) -> None:
        """Start a task, unless it is finished, another process works on it, or its folder is not in order."""
        job = None
        try:
            standing = self.standing(task)
            if standing == RUNNING:
                self.note(RUNNING, task.name, task.at_work() or "just now ended")
            elif standing == FINISHED:
                self.note(FINISHED, task.name, f"before, {task.progress}")
            else:
                if standing == NEW and not self.dry and task.folds is None and task.folder.is_dir():
                    # its run was killed before it wrote its flags: `standing` allows no other files
                    for path in task.folder.iterdir():
                        path.unlink()
                    task.folder.rmdir()
                job = Job(task, self.added(standing), self.free[-1], self.nproc, self.environment())
                self.free.pop()
                self.active.append(job)
                progress = f", {task.progress}" if standing == INTERRUPTED else ""
                self.say(f"started   {task.name}{progress}")
        except (UserError, OSError) as error:
            self.note(FAILED, task.name, str(error))
        if job is None:
            task.lock.release()

    def standing(self, task) -> str:
        """How a task stands; its lock is then this runner's, unless it runs elsewhere or is only checked."""
        if self.dry:
            return NEW
        if not task.lock.acquire(wait=False):
            return RUNNING
        return task.standing()

    def added(self, standing: str) -> list[str]:
        """Flags beside the line's own."""
        flags = []
        if self.gpus and self.nproc == 1:
            flags += ["--gpu", str(self._next_gpus()[0])]
        if self.dry:
            flags.append("--dry_run")
        elif standing == INTERRUPTED:
            flags.append("--resume_or_start")
        return flags

    def environment(self) -> dict | None:
        """The environment of the next run; None: that of this process."""
        if self.nproc == 1:
            return None
        return torchrun.environment(self.nproc, self._next_gpus(), self.jobs)

    def _next_gpus(self) -> list[int]:
        """The GPUs of the slot that is taken next."""
        if not self.gpus:
            return []
        return self.gpus[self.free[-1] % len(self.gpus)]

    def end(self, job: Job) -> None:
        """Record the outcome of a run that ended, and free its slot."""
        self.active.remove(job)
        self.free.append(job.slot)
        outcome = FAILED
        details = f"{job.reason()}\n            log: {job.task.log}"
        if job.process.returncode == 0 and self.dry:
            outcome = FINISHED
            details = "it would start"
        elif job.process.returncode == 0:
            try:
                outcome, details = job.task.outcome()
            except (UserError, OSError) as error:
                details = str(error)
        elif job.signalled:
            outcome = STOPPED
            details = "the same command goes on with it"
        self.note(outcome, job.task.name, details)
        job.task.lock.release()

    def end_finished(self) -> None:
        """Record the outcomes of the runs that have ended."""
        ended = [job for job in self.active if job.process.poll() is not None]
        for job in ended:
            self.end(job)

    def stop(self) -> None:
        """Ask the runs to end as Ctrl-C would, then insist."""
        for sign, patience in ((signal.SIGINT, GRACE), (signal.SIGTERM, 5), (signal.SIGKILL, 5)):
            for job in self.active:
                job.signalled = True
                with contextlib.suppress(ProcessLookupError):
                    if sign == signal.SIGKILL:
                        os.killpg(job.process.pid, sign)
                    else:
                        job.process.send_signal(sign)
            try:
                end = time.monotonic() + patience
                while any(job.process.poll() is None for job in self.active) and time.monotonic() < end:
                    time.sleep(POLL / 2)
            except KeyboardInterrupt:
                # interrupted again: no more patience, the next signal follows at once
                pass
            self.end_finished()

    def note(self, outcome: str, name: str, details: str) -> None:
        """Record the outcome of a line, and print it."""
        self.outcomes[outcome].append(f"{name}: {details}")
        if self.bar is not None:
            self.bar.update()
        self.say(f"{outcome:9} {name}: {details}")

    def say(self, text: str) -> None:
        """Print a line above the progress bar."""
        tqdm.write(wrapped(text, indent=12))
        sys.stdout.flush()

    def summary(self) -> str:
        """How many lines had each outcome; the failures with their reasons."""
        counts = [f"{len(names)} {outcome}" for outcome, names in self.outcomes.items() if names]
        if self.waiting:
            counts.append(f"{len(self.waiting)} not started")
        failures = [f"  failed: {text}" for text in self.outcomes[FAILED]]
        return "\n".join([", ".join(counts) or "no runs", *failures])
