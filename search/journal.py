"""The file of a study, and a check that a study still knows the trials whose results lie in the search's folder.

A journal grows by one line per event. A journal that lost lines looks like a smaller study, and would forget finished trials. So it is
compared with the trial folders and trials.csv beside it before anything is written.
"""

import math
from pathlib import Path

from search.files import TABLE, read_table
from utilities.errors import UserError

JOURNAL = "journal.log"


def left_in(folder: Path) -> dict[str, float | None]:
    """Trial -> value (None: not known to be finished) of a search's folder. Read it before the study: processes write there first."""
    found = dict.fromkeys(path.name for path in folder.glob("trial_*") if path.name.removeprefix("trial_").isdigit())
    return found | {row["trial"]: float(row["value"]) if row["state"] == "complete" else None for row in read_table(folder)}


def open_journal(folder: Path, name: str, left: dict):
    """The storage of the study `name` in a search's folder, made if it is not there. Call it under the search's lock, after `left_in`.

    Raises UserError where the file is no journal, or lacks a trial: nothing has been changed then.
    """
    from optuna.storages import JournalStorage, journal

    path = folder / JOURNAL
    if not path.exists():
        check(path, [], left)
    try:
        storage = JournalStorage(journal.JournalFileBackend(str(path)))
        trials = trials_of(storage, name)
    except Exception as error:  # the engine raises errors of many kinds for a damaged file
        raise _damaged(path, f"it is not a journal of a search ({type(error).__name__}: {error})") from error
    check(path, trials, left)
    lock = journal.JournalFileSymlinkLock(str(path))  # the engine's own lock: no process is in the middle of a line
    lock.acquire()
    try:
        content = path.read_bytes()
        if not content.endswith(b"\n") and content:
            with open(path, "r+b") as file:
                file.truncate(content.rfind(b"\n") + 1)
            print(f"{path}: its last line was cut off when a process was killed; that piece is dropped")
    finally:
        lock.release()
    return storage


def trials_of(storage, name: str) -> list:
    """All attempts of a study in their order, none where there is no such study."""
    try:
        return storage.get_all_trials(storage.get_study_id_from_name(name))
    except KeyError:
        return []


def check(where, attempts: list, left: dict) -> None:
    """Refuse a study whose `attempts` lack a trial of `left` (`left_in`), or the value of a finished one; `where` names it in the message.

    Raises UserError with the first that is missing.
    """
    values = {f"trial_{number}": [] for number in range(sum("continues" not in attempt.user_attrs for attempt in attempts))}
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
        f"{where} is damaged, or of another search: {what}. Nothing was changed: put a copy of it back (or give the --study_storage that "
        "the search had), or start anew with another --group"
    )
