"""A user's mistake is one line and status 2; anything else keeps its traceback."""

import subprocess
import sys

import pytest
import torch

from tests.conftest import ROOT
from utilities.errors import NotFinite, OneLineParser, UnknownName, UserError, one_line_errors, terminable

OF_A_WORKER = (
    'Caught UserError in DataLoader worker process 0.\nTraceback:\n  File "x.py"\nutilities.errors.UserError: a.jpg\n'
)
OF_CUDA = (
    "CUDA out of memory. Tried to allocate 20.00 GiB.\nGPU 0 has a total capacity of 79.11 GiB of which 3.00 GiB is "
    "free."
)


@pytest.mark.parametrize(
    ("error", "status", "expected"),
    [
        (UserError("--bs 0: at least 1"), 2, "tool.py: error: --bs 0: at least 1\n"),
        (UserError(OF_A_WORKER), 2, "tool.py: error: a.jpg\n"),
        (UnknownName("which?"), 2, "tool.py: error: which?\n"),
        (NotFinite("NaN"), 2, "tool.py: error: NaN\n"),
        (torch.OutOfMemoryError(OF_CUDA), 2, ("tool.py: error: ", "20.00 GiB", "--bs")),
        (KeyboardInterrupt(), 130, ("interrupted",)),
    ],
)
def test_a_users_mistake_is_one_line_and_a_status(error, status, expected, capsys):
    with pytest.raises(SystemExit) as stop, one_line_errors("tool.py"):
        raise error
    output = capsys.readouterr()
    assert stop.value.code == status and output.out == ""
    if isinstance(expected, str):
        assert output.err == expected
    else:
        assert all(word in output.err for word in expected)
    assert status == 130 or output.err.count("\n") == 1


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

    messages = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: messages.append(str(unraisable.exc_value)))
    with terminable():
        Loader(RuntimeError("DataLoader worker (pid 7) is killed by signal: Terminated."))
        Loader(RuntimeError("another"))
    assert messages == ["another"]


def test_a_reader_that_stops_is_no_error():
    script = (
        "from utilities.errors import one_line_errors\nwith one_line_errors():\n    for i in range(10**5): print(i)\n"
    )
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
    assert (
        stop.value.code == 2
        and capsys.readouterr().err == "tool.py: error: argument --bs: invalid int value: 'three'\n"
    )
