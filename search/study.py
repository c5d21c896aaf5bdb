"""The study that several processes work on: its database, its sampler, and trials whose process is gone.

A study is Optuna's. A killed trial is continued as a new trial of Optuna, an attempt, which names the one that it
continues: a trial of the search is such a chain of attempts, and has one folder.

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
    """Open the study in --study_storage, or in study.db in the search's folder; or make it.

    `direction`: `maximize` or `minimize`. Call it under the search's lock. Raises UserError for a database that cannot
    be read, or a study that lacks trials; nothing has been changed then.
    """
    import optuna

    name = f"{plan.opt.dataset}/{plan.opt.group}"
    url = plan.options.study_storage
    folder_values = values_in_folder(plan.folder)
    file = plan.folder / DATABASE
    if url is None and (plan.folder / "journal.log").exists() and not file.exists():
        raise UserError(
            f"{plan.folder} is a search of an earlier version, which kept it in journal.log: go on there, or "
            "choose another --group"
        )
    source = study_name(plan)
    if url is None:
        # SQLite takes a file of one byte for an empty one
        if file.exists() and file.stat().st_size > 1:
            _check_file(file)
        else:
            _check(source, [], folder_values)
    sampler = sampler_of({flag: searched.distribution() for flag, searched in plan.ranges.items()}, plan.opt.seed)
    with database_errors(source):
        storage = _database(url, file, plan.options.heartbeat)
        _check(source, _attempts(storage, name), folder_values)
        arguments = {"storage": storage, "study_name": name, "load_if_exists": True}
        study = optuna.create_study(sampler=sampler, direction=direction, **arguments)
    before = study.direction.name.lower()
    if before != direction:
        raise UserError(
            f"{source} holds a search that is to {before} its value, and {plan.opt.storage_metrics[0]} is to "
            f"{direction}: its trials cannot be compared with new ones. Nothing was changed: give the "
            "--storage_metrics that it had, or choose another --group"
        )
    return study


def study_name(plan) -> Path | str:
    """The study of a search in messages; not its URL, which may hold a password."""
    return plan.folder / DATABASE if plan.options.study_storage is None else "the study in --study_storage"


def _check_file(file: Path) -> None:
    """Raise UserError where a SQLite database is damaged, also behind its first pages, or locked."""
    try:
        check_sqlite(file, PATIENCE)
    except Unreadable as error:
        raise _damaged(file, error.reason) from error
    except Locked as error:
        raise _locked(file) from error


@contextlib.contextmanager
def database_errors(source):
    """Context in which a study is used: an error of its database becomes a UserError that names the study, `source`."""
    import optuna
    import sqlalchemy

    try:
        yield
    except (sqlite3.Error, sqlalchemy.exc.SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
        cause = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        if is_locked(error):
            raise _locked(source) from error
        raise _damaged(source, reason_of(cause)) from error


def _locked(source) -> UserError:
    return UserError(
        f"{source} is locked by another program for more than {PATIENCE} seconds. Nothing is damaged: end that "
        "program, such as a database browser, and start the same command again"
    )


def _database(url: str | None, file: Path, heartbeat: int):
    """The storage at `url`, or in the SQLite database `file`."""
    import optuna
    import sqlalchemy

    refuse_link(file)

    def connect():
        return sqlite3.connect(file, timeout=PATIENCE, check_same_thread=False)

    # a file is opened by `connect`: its path may hold characters that have a meaning in a URL
    engine = None if url else {"creator": connect}
    try:
        return optuna.storages.RDBStorage(
            url or f"sqlite:///{DATABASE}",
            engine_kwargs=engine,
            heartbeat_interval=heartbeat,
            grace_period=3 * heartbeat,
            heartbeat_stale_trial_callback=lambda study, trial: put_back(study, trial),
        )
    except (sqlalchemy.exc.SQLAlchemyError, ImportError, ValueError, RuntimeError) as error:
        if is_locked(error):
            source = "the study in --study_storage" if url else file
            raise _locked(source) from error
        message = str(error).splitlines()[0]
        if url is None:
            raise _damaged(file, message) from error
        # the error's message quotes a part of the URL, perhaps of the password
        if isinstance(error, ValueError):
            message = "this is no URL of a database; in a password write %40 for @, %3A for : and %2F for /"
        message = secrets.mask_urls(message.replace(url, secrets.mask_value(url)))
        raise UserError(f"--study_storage {secrets.mask_value(url)}: {message}") from error


# ---------------------------------------------------------------------------------- trials by the folder of the search
def values_in_folder(folder: Path) -> dict[str, float | None]:
    """Trial -> value (None: not known to be finished) by a search's folder.

    Read it before the study: processes write to the study first.
    """
    values = dict.fromkeys(path.name for path in folder.glob("trial_*") if path.name.removeprefix("trial_").isdigit())
    for row in read_table(folder):
        values[row["trial"]] = float(row["value"]) if row["state"] == "complete" else None
    return values


def _attempts(storage, name: str) -> list:
    """All attempts of a study in their order, none if there is no such study."""
    try:
        return storage.get_all_trials(storage.get_study_id_from_name(name))
    except KeyError:
        return []


def _check(source, attempts: list, folder_values: dict) -> None:
    """Refuse a study whose `attempts` lack a trial of `values_in_folder`, or the value of a finished one.

    `source` names the study in the message.
    """
    n_trials = sum("continues" not in attempt.user_attrs for attempt in attempts)
    study_values = {f"trial_{number}": [] for number in range(n_trials)}
    for attempt in attempts:
        if attempt.value is not None:
            study_values.get(attempt.user_attrs.get("folder"), []).append(attempt.value)
    for name, value in folder_values.items():
        if name not in study_values:
            raise _damaged(source, f"it does not know {name}, which has a folder or a row in {TABLE}")
        if value is not None and not any(
            math.isclose(value, recorded, rel_tol=1e-6) for recorded in study_values[name]
        ):
            raise _damaged(source, f"it does not know the value of {name} in {TABLE}")


def _damaged(source, reason: str) -> UserError:
    return UserError(
        f"{source} is damaged, or of another search: {reason}. Nothing was changed: put a copy of it back (or give the "
        "--study_storage that the search had), or start anew with another --group"
    )


def sampler_of(space: dict, seed: int):
    """Optuna's quasi-random sampler for the first trials, then its Gaussian process, both over the current ranges.

    (Optuna by itself would no longer model a flag whose range was widened.)
    """
    import optuna

    start = max(5, len(space))
    # seeds of NumPy's generators are below 2**32
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
            copy = _with_failures(study, space)
            # the last trial of the copy, which now stands in for `trial`
            copy.ask()
            return super().sample_relative(copy, copy.get_trials(deepcopy=False)[-1], search_space)

    return QuasiRandomThenGaussianProcess()


def _with_failures(study, space: dict):
    """The trials of a study with values for all flags of `space`, in memory; failed ones have the worst value.

    The Gaussian process learns from values alone: without one it would propose what failed again and again.
    """
    import optuna

    states = optuna.trial.TrialState
    begun = (states.COMPLETE, states.FAIL, states.RUNNING)
    trials = [trial for trial in latest(study) if trial.state in begun and space.keys() <= trial.params.keys()]
    values = [trial.value for trial in trials if trial.value is not None]
    worst = min(values) if study.direction == optuna.study.StudyDirection.MAXIMIZE else max(values)
    copy = optuna.create_study(direction=study.direction)
    for trial in trials:
        if trial.state == states.RUNNING:
            result = {"state": trial.state}
        elif trial.value is None:
            result = {"value": worst}
        else:
            result = {"value": trial.value}
        copy.add_trial(optuna.trial.create_trial(params=trial.params, distributions=trial.distributions, **result))
    return copy


# ------------------------------------------------------------------------------------------------ processes of trials
def this_process() -> dict:
    """What a trial records about the process that works on it; `host` last."""
    return {"process": os.getpid(), "host": socket.gethostname()}


def lock_of(folder: Path, name: str) -> Lock:
    """The lock that the process of the trial `name` holds."""
    return Lock(folder / f".{name}.lock")


def _lost(study, trial, folder: Path) -> bool:
    """Whether the process of a running trial is known to be gone; on another machine only its heartbeat shows that."""
    host = trial.user_attrs.get("host")
    # its process died under the search's lock, which the caller holds now
    if host is None:
        return True
    return host == socket.gethostname() and lock_of(folder, folder_name(study, trial)).holder() is None


# ------------------------------------------------------------------------------------------------------ trials in order
def folder_name(study, trial) -> str:
    """`trial_<i>`; a continuation keeps the name of the first attempt, so that i counts trials and not attempts."""
    if "folder" in trial.user_attrs:
        return _checked_name(trial.user_attrs["folder"])
    earlier = [attempt for attempt in study.get_trials(deepcopy=False) if attempt.number < trial.number]
    n_continuations = sum("continues" in attempt.user_attrs for attempt in earlier)
    return f"trial_{trial.number - n_continuations}"


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
    latest_attempts = [trial for trial in trials if trial.number not in superseded]
    return sorted(latest_attempts, key=lambda trial: int(folder_name(study, trial).rpartition("_")[2]))


def put_back(study, trial, killed: bool = True) -> bool:
    """End an attempt and queue the trial's continuation, with the same values in the same folder.

    Returns False if its processes were killed too often: the trial then counts as failed.
    A stopped one is always continued.
    """
    import optuna

    attempt = trial.user_attrs.get("attempt", 1)
    attempts = study.get_trials(deepcopy=False)
    is_continued = any(later.user_attrs.get("continues") == trial.number for later in attempts)
    may_continue = attempt < ATTEMPTS or not killed
    # first the continuation, then the end: a kill between them loses nothing
    if may_continue and not is_continued:
        reason = "its process was killed" if killed else "its process stopped"
        attributes = {
            "folder": folder_name(study, trial),
            "continues": trial.number,
            "attempt": attempt + killed,
            "reason": reason,
        }
        study.enqueue_trial(dict(trial.params), user_attrs=attributes)
    # it has ended already
    with contextlib.suppress(ValueError, optuna.exceptions.UpdateFinishedTrialError):
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
    if killed:
        consequence = "it is continued" if may_continue else "for the last time: it counts as failed"
        print(f"{folder_name(study, trial)}: its process was killed; {consequence}")
    return may_continue


def collect_lost(study, folder: Path) -> list[str]:
    """Put back the trials of dead processes; call it under the search's lock.

    Returns descriptions of the trials that run elsewhere.
    """
    import optuna

    # trials whose heartbeats stopped
    optuna.storages.fail_stale_trials(study)
    elsewhere = []
    for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
        if _lost(study, trial, folder):
            put_back(study, trial)
        else:
            process = trial.user_attrs
            elsewhere.append(f"{folder_name(study, trial)} (host {process['host']}, process {process['process']})")
    return elsewhere
