"""Folders that are either whole or as they were: written under a hidden name beside, then renamed."""

import contextlib
import glob
import os
import re
import shutil
import tempfile
from pathlib import Path

from utilities.errors import UserError
from utilities.locks import Lock

# ending of the hidden name that a folder has while another takes its place
BEFORE = ".before"


@contextlib.contextmanager
def replacing_folder(out):
    """Give a new hidden folder beside `out`; on success it takes that name and place, on any error it is removed.

    Raises UserError, and leaves what was there untouched, where it cannot be written, or another process is about to.
    """
    out = Path(os.path.abspath(out))
    hidden = None
    lock = Lock(out.parent / f".{out.name}.lock")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        if not lock.acquire(wait=False):
            raise UserError(f"{out} is being written by {lock.holder() or 'another process'}: wait for its end")
        _clean_up(out)
        hidden = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}."))
        yield hidden
        _take_place(hidden, out)
    except OSError as error:
        raise UserError(f"cannot write {out}: {error.strerror or error}. What was there before is untouched") from error
    finally:
        if hidden is not None:
            shutil.rmtree(hidden, ignore_errors=True)
            lock.path.unlink(missing_ok=True)
        lock.release()


def _take_place(hidden: Path, out: Path) -> None:
    # the process's mask can only be read by setting it
    mask = os.umask(0)
    os.umask(mask)
    # mkdtemp gives access to the owner alone
    hidden.chmod(0o777 & ~mask)
    before = hidden.with_name(f"{hidden.name}{BEFORE}")
    if out.exists():
        out.rename(before)
    hidden.rename(out)
    shutil.rmtree(before, ignore_errors=True)


def _left_behind(out: Path) -> list[Path]:
    """The hidden folders of `replacing_folder`: a folder of the user's that merely begins as they do is none."""
    ours = re.compile(rf"\.{re.escape(out.name)}\.[a-z0-9_]{{8}}(?:{re.escape(BEFORE)})?")
    hidden = out.parent.glob(f".{glob.escape(out.name)}.*")
    return [path for path in hidden if ours.fullmatch(path.name) and path.is_dir()]


def _clean_up(out: Path) -> None:
    """Give `out` its folder back where a kill fell between the two renames, and remove what killed writers left.
    Nobody else writes.
    """
    for path in _left_behind(out):
        if path.name.endswith(BEFORE) and not out.exists():
            path.rename(out)
        else:
            shutil.rmtree(path, ignore_errors=True)


def found_again(out) -> None:
    """Where a kill fell between the two renames, give `out` its folder back; not while another process writes it."""
    out = Path(os.path.abspath(out))
    if out.exists() or not any(path.name.endswith(BEFORE) for path in _left_behind(out)):
        return
    lock = Lock(out.parent / f".{out.name}.lock")
    if lock.acquire(wait=False):
        _clean_up(out)
        lock.path.unlink(missing_ok=True)
        lock.release()


def check_new(out) -> None:
    """Raise UserError where `out` exists, unless it is an empty folder."""
    out = Path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} exists: choose another --out, or delete it")
