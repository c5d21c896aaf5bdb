"""Locks: one process at a time, released with it however it ends."""

import subprocess
import sys

import pytest

from tests.kit.processes import ROOT, lock_holder
from tests.kit.refusals import refused
from utilities.locks import Lock

WAIT = "import sys; from utilities.locks import Lock; Lock(sys.argv[1]).acquire(); print('in')"


def test_one_process_holds_it_until_it_is_killed(tmp_path):
    path = tmp_path / "folder" / "a.lock"
    assert Lock(path).holder() is None and not path.exists(), "looking makes no file"
    with lock_holder(path) as process:
        assert not Lock(path).acquire(wait=False)
        assert Lock(path).holder().startswith(f"process {process.pid} on ")
    mine = Lock(path)
    assert mine.holder() is None and mine.acquire(wait=False)
    assert mine.holder() is None, "another one"
    with lock_holder(path, gets_it=False):
        pass
    mine.release()
    mine.release()
    with lock_holder(path):
        pass


def test_waiting(tmp_path):
    path = tmp_path / "a.lock"
    words = [sys.executable, "-c", WAIT, str(path)]
    with lock_holder(path):
        second = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        with pytest.raises(subprocess.TimeoutExpired):
            second.wait(timeout=1)
    assert second.communicate(timeout=60)[0].strip() == "in"


def test_a_folder_in_its_place_is_one_line(tmp_path):
    with refused("cannot lock .*Is a directory"):
        Lock(tmp_path).acquire()
