"""Who works on which run: a lock file beside each run folder, for several runners on one machine or on several with a common disk."""

import contextlib
import fcntl
import json
import os
import socket
import tempfile
import time
from pathlib import Path

HEARTBEAT = 30  # seconds after which a held lock is touched
SILENT_FOR = 900  # seconds without a touch after which a lock of another machine counts as left behind


class Lock:
    """A file beside a run folder that says which processes work on it: pids and host.

    It counts as left behind when its processes have ended on this machine, or when another machine has not touched it for
    `SILENT_FOR` seconds. The holder is the runner and the run that it started: a run that outlives its runner keeps the lock.
    """

    def __init__(self, path: Path):
        self.path = path
        self._touched = 0.0

    def take(self) -> bool:
        """Take the lock. False where somebody else has it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            with open(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666), "r+", encoding="utf-8") as file:
                fcntl.flock(file, fcntl.LOCK_EX)  # for the moment of reading and writing: two takers at once see each other's entry
                if not self._is_current(file):
                    continue  # its holder has removed it meanwhile: begin anew
                if self._holder(file) is not None:
                    return False
                self._write(file, [os.getpid()])
                return True

    def add(self, pid: int) -> None:
        """Let a started process hold the lock too."""
        with open(self.path, "r+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self._write(file, [os.getpid(), pid])

    def touch(self) -> None:
        """Show, now and then, that the holder lives."""
        if time.monotonic() - self._touched > HEARTBEAT:
            self._touched = time.monotonic()
            with contextlib.suppress(OSError):
                os.utime(self.path)

    def release(self) -> None:
        """Give the lock back."""
        self.path.unlink(missing_ok=True)

    def holder(self) -> str | None:
        """Who holds it, in words; None where nobody does."""
        try:
            with open(self.path, encoding="utf-8") as file:
                return self._holder(file)
        except FileNotFoundError:
            return None

    def _is_current(self, file) -> bool:
        try:
            return os.fstat(file.fileno()).st_ino == os.stat(self.path).st_ino
        except FileNotFoundError:
            return False

    def _write(self, file, pids: list[int]) -> None:
        file.seek(0)
        file.truncate()
        json.dump({"host": socket.gethostname(), "processes": [[pid, _started(pid)] for pid in pids]}, file)
        file.flush()
        os.fsync(file.fileno())
        self._touched = time.monotonic()

    def _holder(self, file) -> str | None:
        try:
            entry = json.load(file)
            host, processes = entry["host"], entry["processes"]
        except (ValueError, KeyError, TypeError):
            return None  # just made, or broken off while it was written
        if host == socket.gethostname():
            living = [pid for pid, started in processes if _started(pid) == started is not None]
            return f"process {living[-1]}" if living else None
        silent = _now_on_disk(self.path.parent) - os.fstat(file.fileno()).st_mtime  # clocks of machines differ, the disk has one
        return f"process {processes[-1][0]} on {host}" if silent < SILENT_FOR else None


def _started(pid: int) -> str | None:
    """When a process started, so that a number that the system gave out again is told apart; None where there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] == "Z" else fields[19]
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return None
    except (OSError, IndexError):
        return None
    try:  # no /proc, as on macOS
        os.kill(pid, 0)
        return ""
    except ProcessLookupError:
        return None
    except PermissionError:
        return ""


def _now_on_disk(folder: Path) -> float:
    """The time by the clock that stamps the files of `folder`."""
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".clock.") as file:
        return os.fstat(file.fileno()).st_mtime
