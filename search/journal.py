"""The file that a study is kept in, and whether a study still knows all that its search has left.

A journal grows by a line for each thing that happens. One that lost lines would be read as a smaller study, or as one whose trials have
other numbers, and what is written next would bury the rest: such a one is refused before anything is written.
"""

import collections
import json
import math
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from search.files import TABLE, read_table
from utilities.errors import UserError

JOURNAL = "journal.log"


class Left(NamedTuple):
    """What a search has left beside its study: names of the trials that have folders, and the rows of trials.csv."""

    folders: list[str]
    rows: list[dict]


def left_in(folder: Path) -> Left:
    """What lies in a search's folder. Read it before the study: other processes write into that one first."""
    names = (re.fullmatch(r"(trial_\d+)(?:_reproduction_\d+)?", path.name) for path in folder.iterdir())
    return Left(sorted({name[1] for name in names if name}), read_table(folder))


def open_journal(folder: Path, name: str, left: Left, ranges: dict):
    """The storage in a search's folder, made if it is not there.

    The beginning of a last line that a killed process did not finish is set aside, if nothing that is known is lost with it.

    Args:
        name: the study's.
        left: what was left of it.
        ranges: flag -> anything: every flag that a trial has a value of.

    Raises:
        UserError: a line is no record, or records are missing. Nothing was changed then.
    """
    from optuna.storages import JournalStorage, journal

    path = folder / JOURNAL
    if not path.exists() and (left.folders or left.rows):
        raise UserError(
            f"{path} is not there, and trials are: was this search kept in a --study_storage? Else put a copy of it back, or start anew "
            "with another --group"
        )
    whole, torn = _lines(path)
    with tempfile.TemporaryDirectory() as elsewhere:  # read as a copy, so that nothing is changed
        copy = Path(elsewhere, JOURNAL)
        copy.write_bytes(whole)
        try:
            trials = trials_of(JournalStorage(journal.JournalFileBackend(str(copy))), name)
        except Exception as error:  # whatever the engine stumbles over: the file is not a journal that it wrote
            raise _damaged(path, f"it is not a journal of a search ({type(error).__name__}: {error})") from error
    if whole and trials is None:
        raise _damaged(path, f"the beginning of the study {name} is missing")
    check(path, trials or [], left, ranges)
    if torn:
        aside = path.with_name(f"{path.name}.torn_{int(time.time())}")
        aside.write_bytes(torn)
        with open(path, "r+b") as file:
            file.truncate(len(whole))
        print(f"{path}: its last line was cut off when a process was killed; the piece is in {aside.name}")
    return JournalStorage(journal.JournalFileBackend(str(path)))


def _lines(path: Path) -> tuple[bytes, bytes]:
    """The whole lines of a journal, each a record, and the beginning of one that was not finished. Raises UserError for others."""
    content = path.read_bytes() if path.exists() else b""
    if content and not content.endswith(b"\n"):
        time.sleep(1)  # perhaps another process is just writing it
        content = path.read_bytes()
    lines = content.splitlines(keepends=True)
    torn = lines.pop() if lines and not lines[-1].endswith(b"\n") else b""
    for number, line in enumerate(lines, start=1):
        try:
            if not isinstance(json.loads(line), dict):
                raise ValueError("no record")
        except ValueError as error:
            raise _damaged(path, f"line {number} cannot be read ({error})") from error
    if torn and not torn.startswith(b"{"):
        raise _damaged(path, f"line {len(lines) + 1} is not the beginning of a record")
    return b"".join(lines), torn


def trials_of(storage, name: str) -> list | None:
    """All trials of a study in their order; None where there is no such study."""
    try:
        return storage.get_all_trials(storage.get_study_id_from_name(name))
    except KeyError:
        return None


def check(where, trials: list, left: Left, ranges: dict) -> None:
    """Refuse a study from which something is missing.

    Args:
        where: the study is kept, in words.
        trials: its.
        left: what was left of it.
        ranges: flag -> anything: every flag that a trial has a value of.

    Raises:
        UserError: a trial has a folder or a row and is not known, is not what its row says, has another number, or lacks a value.
    """
    for fault in _faults(trials, left, ranges):
        raise _damaged(where, fault)


def _faults(trials: list, left: Left, ranges: dict) -> Iterator[str]:
    """What is missing from a study, in words; arguments as of `check`."""
    names, attempts = [], collections.defaultdict(list)  # of each attempt its trial's name; name -> attempts
    for trial in trials:
        continues = trial.user_attrs.get("continues")
        name = f"trial_{len(attempts)}" if continues is None else (names[continues] if continues < len(names) else "a later one")
        if name != trial.user_attrs.get("folder", name):
            yield f"{trial.user_attrs['folder']} has the number of {name}"
        names.append(name)
        attempts[name].append(trial)
        lacking = [flag for flag in ranges if flag not in trial.params]
        if lacking and (trial.state.name == "COMPLETE" or "host" in trial.user_attrs):  # the host is noted after all values
            yield f"{name} lacks its value of {', '.join(lacking)}"
    for name in left.folders:
        if name not in attempts:
            yield f"{name} has a folder, and is not in it"
    for row in left.rows:
        known = [trial for trial in attempts[row["trial"]] if trial.state.name.lower() == row["state"]]
        if not attempts[row["trial"]]:
            yield f"{row['trial']} is in {TABLE}, and is not in it"
        elif row["state"] in ("complete", "fail") and not known:
            yield f"{row['trial']} is {row['state']} in {TABLE}, and not in it"
        elif row["state"] == "complete" and not any(math.isclose(trial.value, float(row["value"]), rel_tol=1e-6) for trial in known):
            yield f"{row['trial']} has another value in {TABLE}"


def _damaged(where, what: str) -> UserError:
    return UserError(f"{where} is damaged: {what}. Nothing was changed: put a copy of it back, or start anew with another --group")
