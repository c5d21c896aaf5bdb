"""Locks: one process at a time, released with it however it ends."""

import subprocess
import sys
from pathlib import Path

import pytest

from utilities.errors import UserError
from utilities.locks import Lock

ROOT = Path(__file__).resolve().parent.parent.parent
HOLD = (
    "import sys, time; from utilities.locks import Lock; lock = Lock(sys.argv[1]); print(lock.acquire(wait=False), "
    "flush=True); time.sleep(60)"
)


def start(path):
    """A process that takes the lock and sleeps, and whether it got it."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    return process, process.stdout.readline().strip() == "True"


def test_one_process_holds_it_until_it_is_killed(tmp_path):
    path = tmp_path / "folder" / "a.lock"
    assert Lock(path).holder() is None and not path.exists(), "looking makes no file"
    process, got = start(path)
    try:
        assert got and not Lock(path).acquire(wait=False)
        assert Lock(path).holder().startswith(f"process {process.pid} on ")
    finally:
        process.kill()
        process.wait()
    mine = Lock(path)
    assert mine.holder() is None and mine.acquire(wait=False)
    assert mine.holder() is None, "another one"
    second, got = start(path)
    second.kill()
    assert not got
    mine.release()
    mine.release()
    third, got = start(path)
    third.kill()
    assert got


def test_waiting(tmp_path):
    process, _ = start(tmp_path / "a.lock")
    waiting = (
        f"import sys; sys.argv[1:] = [{str(tmp_path / 'a.lock')!r}]; from utilities.locks import Lock; "
        "Lock(sys.argv[1]).acquire(); print('in')"
    )
    with subprocess.Popen([sys.executable, "-c", waiting], cwd=ROOT, stdout=subprocess.PIPE, text=True) as second:
        with pytest.raises(subprocess.TimeoutExpired):
            second.wait(timeout=1)
        process.kill()
        process.wait()
        assert second.stdout.readline().strip() == "in"


def test_a_folder_in_its_place_is_one_line(tmp_path):
    with pytest.raises(UserError, match="cannot lock .*Is a directory"):
        Lock(tmp_path).acquire()
