"""File locks, each held by one process at a time: of run folders, searches, lines of a file of runs."""

import errno
import fcntl
import os
import socket
import time
from pathlib import Path

from utilities.errors import UserError
from utilities.files import without_links


class Lock:
    """A lock on a file, which the system releases when its process ends, however it ends.

    A POSIX record lock (`lockf`): forked workers do not keep it, and within one process it excludes nobody. It works
    across machines where their shared disk supports such locks (NFS 4; NFS 3 with lockd; Lustre mounted with `flock`).
    On a disk without them it excludes nobody.
    """

    def __init__(self, path: Path):
        self.path = Path(path)
        self._file = None

    def acquire(self, wait: bool = True) -> bool:
        """Take the lock unless it is held already.
        Returns False where another process has it and not `wait`. Raises UserError.
        """
        if self._file is not None:
            return True
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # the file stays open until `release`
            self._file = open(self.path, "a+", encoding="utf-8", opener=without_links)  # noqa: SIM115
        except OSError as error:
            reason = "it is a link, and a lock is written to" if error.errno == errno.ELOOP else error.strerror
            raise UserError(f"cannot lock {self.path}: {reason}. Remove it, or choose another folder") from error
        if not _locked(self._file, wait):
            self.release()
            return False
        # what has a second name may be a file of the user's
        if os.fstat(self._file.fileno()).st_nlink <= 1:
            self._file.truncate(0)
            self._file.write(f"process {os.getpid()} on {socket.gethostname()}")
            self._file.flush()
        return True

    def release(self) -> None:
        """Release the lock, if held."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def holder(self) -> str | None:
        """The other process that has the lock, as text; None if there is none."""
        if self._file is not None:
            # this process has it: to open the file again and close it would release the lock
            return None
        try:
            with open(self.path, "r+", encoding="utf-8", errors="replace", opener=without_links) as file:
                if _locked(file, wait=False):
                    return None
                return file.read() or "another process"
        except OSError:
            return None

    def __enter__(self):
        self.acquire()
        return self

    def __exit__(self, *error):
        self.release()


def _locked(file, wait: bool) -> bool:
    """Lock an open file. False where another process has it; without waiting it is tried three times, as `holder` takes
    it for a moment.
    """
    operation = fcntl.LOCK_EX
    if not wait:
        operation |= fcntl.LOCK_NB
    for pause in (0.05, 0.05, 0):
        try:
            fcntl.lockf(file, operation)
            return True
        except (BlockingIOError, PermissionError):
            time.sleep(pause)
        except OSError:
            # no such locks on this disk
            return True
    return False
