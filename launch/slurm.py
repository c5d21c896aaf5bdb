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

    settings = dict(settings)
    folder = Path(settings.pop("folder", "slurm_logs")).absolute()
    executor = submitit.AutoExecutor(folder=folder, cluster=settings.pop("cluster", None))
    settings = {name: int(value) if value.isdecimal() else value for name, value in settings.items()}
    if executor.cluster == "slurm":
        several = {"tasks_per_node": 1, "cpus_per_task": nproc} if nproc > 1 else {}
        settings = {"gpus_per_node": nproc, **several, "slurm_array_parallelism": at_once or len(commands), **settings}
    executor.update_parameters(**{"name": title, **settings})
    with executor.batch():
        jobs = [executor.submit(submitit.helpers.CommandFunction(command)) for _, command in commands]
    print(f"{len(jobs)} jobs submitted, their logs in {folder}")
    if executor.cluster == "slurm":
        print(f"Ctrl-C ends the waiting, not the jobs; scancel {jobs[0].job_id.partition('_')[0]} ends those")
    waiting = dict(zip(jobs, (name for name, _ in commands), strict=True))
    failed = []
    with tqdm(total=len(jobs), desc="jobs", unit="job", disable=None) as bar:
        while waiting:
            for job in [job for job in waiting if job.done()]:
                name = waiting.pop(job)
                if job.exception() is not None:
                    said = [line.strip() for line in (job.stdout() or "").splitlines()]
                    reasons = [line.removeprefix("failed: ") for line in said if line.startswith("failed: ")]
                    failed.append(
                        f"{(reasons or [f'{name}: the job ended early'])[-1]}\n            job: {job.paths.stdout}"
                    )
                tqdm.write(f"{'done' if job.exception() is None else FAILED:9} {name}")
                bar.update()
            if waiting:
                time.sleep(30 if executor.cluster == "slurm" else 0.5)
    print(f"{len(jobs) - len(failed)} done, {len(failed)} failed" + "".join(f"\n  failed: {text}" for text in failed))
    return not failed
