"""The study that several processes work on: where it is kept, how it samples, which of its trials lost their process.

Trials are handed out under one lock of the search folder.
"""

import contextlib
import os
import socket
import subprocess
from pathlib import Path

from search import journal
from utilities.errors import UserError

ATTEMPTS = 4  # how often a trial's process may be killed before it counts as failed: it may be the trial that kills it


def quiet() -> None:
    """Let Optuna print errors only."""
    import warnings

    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)


def open_study(plan, direction: str):
    """Open the study in --study_storage, or in a journal in the search's folder; or make it. `direction`: `maximize` or `minimize`.

    Raises UserError for a database that cannot be reached, or a study that lacks trials; nothing has been changed then.
    """
    import optuna

    name, url, left = f"{plan.opt.dataset}/{plan.opt.group}", plan.own.study_storage, journal.left_in(plan.folder)
    if url is None:
        storage = journal.open_journal(plan.folder, name, left)
    else:
        storage = _database(url, plan.own.heartbeat)
        journal.check("the study in --study_storage", journal.trials_of(storage, name), left)
    sampler = sampler_of({flag: found.distribution() for flag, found in plan.ranges.items()}, plan.opt.seed)
    return optuna.create_study(storage=storage, sampler=sampler, study_name=name, direction=direction, load_if_exists=True)


def _database(url: str, heartbeat: int):
    import optuna
    import sqlalchemy

    try:
        return optuna.storages.RDBStorage(
            url,
            heartbeat_interval=heartbeat,
            grace_period=3 * heartbeat,
            heartbeat_stale_trial_callback=lambda study, trial: put_back(study, trial),
        )
    except (sqlalchemy.exc.SQLAlchemyError, ImportError, ValueError) as error:
        raise UserError(f"--study_storage: {str(error).splitlines()[0]}") from error  # not the URL: it may hold a password


def sampler_of(space: dict, seed: int):
    """Optuna's quasi-random sampler for the first trials, then its Gaussian process, both over the current ranges.

    (Optuna by itself would no longer model a flag whose range was widened.)
    """
    import optuna

    start = max(5, len(space))

    class QuasiRandomThenGaussianProcess(optuna.samplers.GPSampler):
        """See `sampler_of`."""

        def __init__(self):
            super().__init__(seed=seed, n_startup_trials=start, warn_independent_sampling=False)
            self._quasi_random = optuna.samplers.QMCSampler(seed=seed, scramble=True, warn_independent_sampling=False)

        def infer_relative_search_space(self, study, trial):
            return space

        def sample_relative(self, study, trial, search_space):
            done = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
            if len(done) < start:
                return self._quasi_random.sample_relative(study, trial, search_space)
            return super().sample_relative(study, trial, search_space)

    return QuasiRandomThenGaussianProcess()


# ------------------------------------------------------------------------------------------------- who works on a trial
def here() -> dict:
    """What a trial records about the process that works on it."""
    return {"host": socket.gethostname(), "process": os.getpid(), "boot": _boot(), "started": _started(os.getpid())}


def lost(attributes: dict, hosts: list[str] = ()) -> bool | None:
    """Whether the process that worked on a trial is gone; None where this host cannot know.

    Args:
        attributes: the trial's user attributes.
        hosts: hosts that are known to be gone for good.
    """
    if "host" not in attributes or attributes["host"] in hosts:
        return True  # no host: its process died under the lock, which the caller holds now, before it could record itself
    if attributes["host"] != socket.gethostname():
        return None
    return (attributes.get("boot"), attributes.get("started")) != (_boot(), _started(attributes.get("process")))


def _boot() -> str:
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def _started(process: int | None) -> str:
    """When a process began, which tells it from a later one with the same number; `gone` where it has ended."""
    with contextlib.suppress(OSError):
        state, *fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return "gone" if state in "ZX" else fields[18]
    with contextlib.suppress(OSError):  # no /proc on macOS
        told = subprocess.run(["ps", "-o", "lstart=", "-p", str(process)], capture_output=True, text=True)
        return told.stdout.strip() or "gone"
    return "gone"


# ------------------------------------------------------------------------------------------------------ trials in order
def folder_name(study, trial) -> str:
    """`trial_<i>`; a continuation keeps the name of the first attempt, so that i counts trials and not attempts."""
    if "folder" in trial.user_attrs:
        return trial.user_attrs["folder"]
    continued = sum("continues" in other.user_attrs for other in study.get_trials(deepcopy=False) if other.number < trial.number)
    return f"trial_{trial.number - continued}"


def latest(study) -> list:
    """The last attempt of every trial, in the order of their first attempts."""
    trials = study.get_trials(deepcopy=False)
    superseded = {trial.user_attrs["continues"] for trial in trials if "continues" in trial.user_attrs}
    kept = [trial for trial in trials if trial.number not in superseded]
    return sorted(kept, key=lambda trial: int(folder_name(study, trial).rpartition("_")[2]))


def put_back(study, trial, killed: bool = True) -> bool:
    """End an attempt and queue the trial's continuation, with the same values in the same folder.

    Returns False where its processes were killed too often: the trial then counts as failed. A stopped one is always continued.
    """
    import optuna

    attempt = trial.user_attrs.get("attempt", 1)
    continued = any(other.user_attrs.get("continues") == trial.number for other in study.get_trials(deepcopy=False))
    again = attempt < ATTEMPTS or not killed
    if again and not continued:  # first the continuation, then the end: a kill between the two loses nothing
        reason = "its process was killed" if killed else "its process stopped"
        attributes = {"folder": folder_name(study, trial), "continues": trial.number, "attempt": attempt + killed, "reason": reason}
        study.enqueue_trial(dict(trial.params), user_attrs=attributes)
    with contextlib.suppress(ValueError, optuna.exceptions.UpdateFinishedTrialError):  # it has ended already
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
    if killed:
        print(
            f"{folder_name(study, trial)}: its process was killed; "
            + ("it is continued" if again else "for the last time: it counts as failed")
        )
    return again


def collect_lost(study, hosts: list[str]) -> list[str]:
    """Put back the trials of dead processes; call it under the lock. Returns descriptions of the trials that run elsewhere."""
    import optuna

    optuna.storages.fail_stale_trials(study)  # by the heartbeats of a database; does nothing with a journal
    elsewhere = []
    for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
        attributes = trial.user_attrs
        if lost(attributes, hosts):
            put_back(study, trial)
        else:
            elsewhere.append(f"{folder_name(study, trial)} (host {attributes['host']}, process {attributes.get('process')})")
    return elsewhere
