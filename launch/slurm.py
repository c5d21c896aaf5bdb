"""The runs as jobs of Slurm, by submitit."""

import time
from pathlib import Path

from tqdm import tqdm

from launch.runner import FAILED


def submit(
    commands: list[tuple[str, list[str]]], settings: dict[str, str], title: str, at_once: int | None, nproc: int = 1
) -> bool:
    """Submit every run, (name, command), to Slurm as a job, and wait. Returns whether nothing failed.

    `settings`: of submitit, and `folder`, for the logs; `title`: name of the jobs; `at_once`: how many run at a time,
    None: all; `nproc`: processes that a job's command starts itself, each on a GPU of the job's one node.
    """
    import submitit.helpers

    folder = Path(settings.get("folder", "slurm_logs")).absolute()
    executor = submitit.AutoExecutor(folder=folder, cluster=settings.get("cluster"))
    values = {"name": title}
    if executor.cluster == "slurm":
        values |= {"gpus_per_node": nproc, "slurm_array_parallelism": at_once or len(commands)}
        if nproc > 1:
            values |= {"tasks_per_node": 1, "cpus_per_task": nproc}
    executor.update_parameters(**(values | _typed(settings)))
    with executor.batch():
        jobs = [executor.submit(submitit.helpers.CommandFunction(command)) for _, command in commands]
    print(f"{len(jobs)} jobs submitted, their logs in {folder}")
    if executor.cluster == "slurm":
        print(f"Ctrl-C ends the waiting, not the jobs; scancel {jobs[0].job_id.partition('_')[0]} ends those")
    waiting = {job: name for job, (name, _) in zip(jobs, commands, strict=True)}
    interval = 30 if executor.cluster == "slurm" else 0.5
    failures = []
    with tqdm(total=len(jobs), desc="jobs", unit="job", disable=None) as bar:
        while waiting:
            done = [job for job in waiting if job.done()]
            for job in done:
                name = waiting.pop(job)
                outcome = "done"
                if job.exception() is not None:
                    outcome = FAILED
                    failures.append(f"{_reason(job, name)}\n            job: {job.paths.stdout}")
                tqdm.write(f"{outcome:9} {name}")
                bar.update()
            if waiting:
                time.sleep(interval)
    print(f"{len(jobs) - len(failures)} done, {len(failures)} failed")
    for text in failures:
        print(f"  failed: {text}")
    return not failures


def _typed(settings: dict[str, str]) -> dict:
    """The settings of jobs; numbers as numbers."""
    values = {}
    for name, text in settings.items():
        if name not in ("folder", "cluster"):
            values[name] = int(text) if text.isdecimal() else text
    return values


def _reason(job, name: str) -> str:
    """Why a job failed: the last reason that its output gives."""
    reason = f"{name}: the job ended early"
    for line in (job.stdout() or "").splitlines():
        if line.strip().startswith("failed: "):
            reason = line.strip().removeprefix("failed: ")
    return reason
