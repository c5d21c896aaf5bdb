"""The study that several processes work on: where it is kept, how it samples, which of its trials lost their process.

Trials are handed out under one lock of the search folder. The process that works on a trial holds that trial's lock,
which the system releases however it ends: on its own machine a killed process is known at once, on others by its
heartbeat in the database.
"""

import contextlib
import math
import os
import re
import socket
import sqlite3
from pathlib import Path

from search.files import TABLE, read_table
from utilities import secrets
from utilities.errors import UserError
from utilities.files import refuse_link
from utilities.locks import Lock
from utilities.reading import Locked, Unreadable, check_sqlite, is_locked, reason_of

DATABASE = "study.db"
ATTEMPTS = 4  # how often a trial's process may be killed before it counts as failed: it may be the trial that kills it
PATIENCE = 60  # seconds that a lock of SQLite is waited for
TRIAL = re.compile(r"trial_[0-9]{1,9}")  # folders of trials


def quiet() -> None:
    """Let Optuna print errors only."""
    import warnings

    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)


def open_study(plan, direction: str):
    """Open the study in --study_storage, or in study.db in the search's folder; or make it. `direction`: `maximize` or
    `minimize`.

    Call it under the search's lock. Raises UserError for a database that cannot be read, or a study that lacks trials;
    nothing has been changed then.
    """
    import optuna

    name = f"{plan.opt.dataset}/{plan.opt.group}"
    url = plan.own.study_storage
    left = left_in(plan.folder)
    file = plan.folder / DATABASE
    if url is None and (plan.folder / "journal.log").exists() and not file.exists():
        raise UserError(
            f"{plan.folder} is a search of an earlier version, which kept it in journal.log: go on there, or "
            "choose another --group"
        )
    where = place_of(plan)
    if url is None:
        if file.exists() and file.stat().st_size > 1:  # SQLite takes a file of one byte for an empty one
            _check_file(file)
        else:
            _check(where, [], left)
    sampler = sampler_of({flag: found.distribution() for flag, found in plan.ranges.items()}, plan.opt.seed)
    with answering(where):
        storage = _database(url, file, plan.own.heartbeat)
        _check(where, _attempts(storage, name), left)
        arguments = {"storage": storage, "study_name": name, "load_if_exists": True}
        study = optuna.create_study(sampler=sampler, direction=direction, **arguments)
    before = study.direction.name.lower()
    if before != direction:
        raise UserError(
            f"{where} holds a search that is to {before} its value, and {plan.opt.storage_metrics[0]} is to "
            f"{direction}: its trials cannot be compared with new ones. Nothing was changed: give the "
            "--storage_metrics that it had, or choose another --group"
        )
    return study


def place_of(plan):
    """Where the study of a search is kept, for messages; not the URL: it may hold a password."""
    return plan.folder / DATABASE if plan.own.study_storage is None else "the study in --study_storage"


def _check_file(file: Path) -> None:
    """Raise UserError where a SQLite database is damaged, also behind its first pages, or locked."""
    try:
        check_sqlite(file, PATIENCE)
    except Unreadable as error:
        raise _damaged(file, error.reason) from error
    except Locked as error:
        raise _locked(file) from error


@contextlib.contextmanager
def answering(where):
    """Context in which a study is used: an error of its database becomes a UserError that names it, `where`."""
    import optuna
    import sqlalchemy

    try:
        yield
    except (sqlite3.Error, sqlalchemy.exc.SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
        cause = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        raise (_locked(where) if is_locked(error) else _damaged(where, reason_of(cause))) from error


def _locked(where) -> UserError:
    return UserError(
        f"{where} is locked by another program for more than {PATIENCE} seconds. Nothing is damaged: end that program, "
        "such as a database browser, "
        "and start the same command again"
    )


def _database(url: str | None, file: Path, heartbeat: int):
    """The storage at `url`, or in the SQLite database `file`."""
    import optuna
    import sqlalchemy

    refuse_link(file)

    def opened():
        return sqlite3.connect(file, timeout=PATIENCE, check_same_thread=False)

    try:
        return optuna.storages.RDBStorage(
            url or f"sqlite:///{DATABASE}",
            engine_kwargs=None if url else {"creator": opened},  # a path may hold what an URL gives a meaning
            heartbeat_interval=heartbeat,
            grace_period=3 * heartbeat,
            heartbeat_stale_trial_callback=lambda study, trial: put_back(study, trial),
        )
    except (sqlalchemy.exc.SQLAlchemyError, ImportError, ValueError, RuntimeError) as error:
        if is_locked(error):
            raise _locked("the study in --study_storage" if url else file) from error
        said = str(error).splitlines()[0]
        if url is None:
            raise _damaged(file, said) from error
        if isinstance(error, ValueError):  # it quotes a part of the URL, perhaps of the password
            said = "this is no URL of a database; in a password write %40 for @, %3A for : and %2F for /"
        said = secrets.mask_urls(said.replace(url, secrets.mask_value(url)))
        raise UserError(f"--study_storage {secrets.mask_value(url)}: {said}") from error


# --------------------------------------------------------------------------------- what the folder knows of its trials
def left_in(folder: Path) -> dict[str, float | None]:
    """Trial -> value (None: not known to be finished) of a search's folder. Read it before the study: processes write
    there first.
    """
    found = dict.fromkeys(path.name for path in folder.glob("trial_*") if path.name.removeprefix("trial_").isdigit())
    return found | {
        row["trial"]: float(row["value"]) if row["state"] == "complete" else None for row in read_table(folder)
    }


def _attempts(storage, name: str) -> list:
    """All attempts of a study in their order, none where there is no such study."""
    try:
        return storage.get_all_trials(storage.get_study_id_from_name(name))
    except KeyError:
        return []


def _check(where, attempts: list, left: dict) -> None:
    """Refuse a study whose `attempts` lack a trial of `left` (`left_in`), or the value of a finished one; `where` names
    it in the message.
    """
    values = {
        f"trial_{number}": [] for number in range(sum("continues" not in attempt.user_attrs for attempt in attempts))
    }
    for attempt in attempts:
        if attempt.value is not None:
            values.get(attempt.user_attrs.get("folder"), []).append(attempt.value)
    for name, value in left.items():
        if name not in values:
            raise _damaged(where, f"it does not know {name}, which has a folder or a row in {TABLE}")
        if value is not None and not any(math.isclose(value, known, rel_tol=1e-6) for known in values[name]):
            raise _damaged(where, f"it does not know the value of {name} in {TABLE}")


def _damaged(where, what: str) -> UserError:
    return UserError(
        f"{where} is damaged, or of another search: {what}. Nothing was changed: put a copy of it back (or give the "
        "--study_storage that "
        "the search had), or start anew with another --group"
    )


def sampler_of(space: dict, seed: int):
    """Optuna's quasi-random sampler for the first trials, then its Gaussian process, both over the current ranges.

    (Optuna by itself would no longer model a flag whose range was widened.)
    """
    import optuna

    # of NumPy's generators
    start = max(5, len(space))
    seed = seed % 2**32

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
            known = _with_failures(study, space)
            known.ask()  # in place of `trial`
            return super().sample_relative(known, known.get_trials(deepcopy=False)[-1], search_space)

    return QuasiRandomThenGaussianProcess()


def _with_failures(study, space: dict):
    """The trials of a study with values for all flags of `space`, in memory; failed ones have the worst value that was
    found.

    The Gaussian process learns from values alone: without one it would propose what failed again and again.
    """
    import optuna

    states = optuna.trial.TrialState
    trials = [
        trial
        for trial in latest(study)
        if trial.state in (states.COMPLETE, states.FAIL, states.RUNNING) and space.keys() <= trial.params.keys()
    ]
    values = [trial.value for trial in trials if trial.value is not None]
    worst = min(values) if study.direction == optuna.study.StudyDirection.MAXIMIZE else max(values)
    known = optuna.create_study(direction=study.direction)
    for trial in trials:
        ended = (
            {"state": trial.state}
            if trial.state == states.RUNNING
            else {"value": worst if trial.value is None else trial.value}
        )
        known.add_trial(optuna.trial.create_trial(params=trial.params, distributions=trial.distributions, **ended))
    return known


# ------------------------------------------------------------------------------------------------- who works on a trial
def here() -> dict:
    """What a trial records about the process that works on it; `host` last."""
    return {"process": os.getpid(), "host": socket.gethostname()}


def lock_of(folder: Path, name: str) -> Lock:
    """The lock that the process of the trial `name` holds."""
    return Lock(folder / f".{name}.lock")


def _lost(study, trial, folder: Path) -> bool:
    """Whether the process of a running trial is known to be gone; of one on another machine only its heartbeat
    tells.
    """
    host = trial.user_attrs.get("host")
    if host is None:  # it died under the search's lock, which the caller holds now
        return True
    return host == socket.gethostname() and lock_of(folder, folder_name(study, trial)).holder() is None


# ------------------------------------------------------------------------------------------------------ trials in order
def folder_name(study, trial) -> str:
    """`trial_<i>`; a continuation keeps the name of the first attempt, so that i counts trials and not attempts."""
    if "folder" in trial.user_attrs:
        return _checked_name(trial.user_attrs["folder"])
    continued = sum(
        "continues" in other.user_attrs for other in study.get_trials(deepcopy=False) if other.number < trial.number
    )
    return f"trial_{trial.number - continued}"


def _checked_name(name) -> str:
    """The folder that a study names for a trial: it is written to, so that it must lie in the search's.

    Raises UserError.
    """
    if not isinstance(name, str) or not TRIAL.fullmatch(name):
        raise _damaged("the study", f"it names the folder {name!r} for a trial, expected trial_<number>")
    return name


def latest(study) -> list:
    """The last attempt of every trial, in the order of their first attempts."""
    trials = study.get_trials(deepcopy=False)
    superseded = {trial.user_attrs["continues"] for trial in trials if "continues" in trial.user_attrs}
    kept = [trial for trial in trials if trial.number not in superseded]
    return sorted(kept, key=lambda trial: int(folder_name(study, trial).rpartition("_")[2]))


def put_back(study, trial, killed: bool = True) -> bool:
    """End an attempt and queue the trial's continuation, with the same values in the same folder.

    Returns False where its processes were killed too often: the trial then counts as failed. A stopped one is always
    continued.
    """
    import optuna

    attempt = trial.user_attrs.get("attempt", 1)
    continued = any(other.user_attrs.get("continues") == trial.number for other in study.get_trials(deepcopy=False))
    again = attempt < ATTEMPTS or not killed
    if again and not continued:  # first the continuation, then the end: a kill between the two loses nothing
        reason = "its process was killed" if killed else "its process stopped"
        attributes = {
            "folder": folder_name(study, trial),
            "continues": trial.number,
            "attempt": attempt + killed,
            "reason": reason,
        }
        study.enqueue_trial(dict(trial.params), user_attrs=attributes)
    with contextlib.suppress(ValueError, optuna.exceptions.UpdateFinishedTrialError):  # it has ended already
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
    if killed:
        print(
            f"{folder_name(study, trial)}: its process was killed; "
            + ("it is continued" if again else "for the last time: it counts as failed")
        )
    return again


def collect_lost(study, folder: Path) -> list[str]:
    """Put back the trials of dead processes; call it under the search's lock. Returns descriptions of the trials that
    run elsewhere.
    """
    import optuna

    optuna.storages.fail_stale_trials(study)  # their heartbeats stopped
    elsewhere = []
    for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
        if _lost(study, trial, folder):
            put_back(study, trial)
        else:
            elsewhere.append(
                f"{folder_name(study, trial)} (host {trial.user_attrs['host']}, process {trial.user_attrs['process']})"
            )
    return elsewhere
