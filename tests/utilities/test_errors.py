"""A user's mistake is one line and status 2; anything else keeps its traceback."""

import subprocess
import sys
from pathlib import Path

import pytest

from utilities.errors import NotFinite, OneLineParser, UnknownName, UserError, one_line_errors, terminable

ROOT = Path(__file__).resolve().parents[2]


def test_a_users_mistake_is_one_line_and_status_2(capsys):
    with pytest.raises(SystemExit) as stop, one_line_errors("tool.py"):
        raise UserError("--bs 0: at least 1")
    assert stop.value.code == 2
    assert capsys.readouterr() == ("", "tool.py: error: --bs 0: at least 1\n")


def test_of_a_mistake_in_a_loaders_worker_the_last_line_is_said(capsys):
    wrapped = 'Caught UserError in DataLoader worker process 0.\nTraceback (most recent call last):\n  File "x.py"\n'
    with pytest.raises(SystemExit), one_line_errors():
        raise UserError(wrapped + "utilities.errors.UserError: a.jpg cannot be decoded\n")
    assert capsys.readouterr().err == "main.py: error: a.jpg cannot be decoded\n"


def test_an_interrupt_is_status_130(capsys):
    with pytest.raises(SystemExit) as stop, one_line_errors():
        raise KeyboardInterrupt
    assert stop.value.code == 130
    assert "interrupted" in capsys.readouterr().err


@pytest.mark.parametrize("error", [ValueError, RuntimeError, SystemExit])
def test_other_errors_pass(error):
    with pytest.raises(error, match="as it is"), one_line_errors():
        raise error("as it is")


def test_a_worker_that_is_lost_as_its_loader_is_freed_is_no_traceback(monkeypatch):
    class Loader:
        def __init__(self, error):
            self.error = error

        def __del__(self):
            raise self.error

    said = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: said.append(str(unraisable.exc_value)))
    with terminable():
        Loader(RuntimeError("DataLoader worker (pid 7) is killed by signal: Terminated."))
        Loader(RuntimeError("another"))
    assert said == ["another"]


def test_kinds_of_mistakes():
    for kind in (NotFinite, UnknownName):
        assert issubclass(kind, UserError)
    assert issubclass(UnknownName, LookupError)


def test_a_reader_that_stops_is_no_error():
    script = "from utilities.errors import one_line_errors\nwith one_line_errors():\n    for i in range(10**5): print(i)\n"
    process = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"0\n"
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 0


def test_a_mistake_on_the_command_line_is_one_line(capsys):
    parser = OneLineParser(prog="tool.py")
    parser.add_argument("--bs", type=int)
    assert parser.parse_args(["--bs", "3"]).bs == 3
    with pytest.raises(SystemExit) as stop:
        parser.parse_args(["--bs", "three"])
    assert stop.value.code == 2
    assert capsys.readouterr().err == "tool.py: error: argument --bs: invalid int value: 'three'\n"
