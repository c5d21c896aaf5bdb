"""main.py for the tests of torchrun: `$FAIL`, `RANK:STEP:HOW`, ends one process, or all (`*`), in a step.

HOW: `kill`, `user` (a user's mistake), `bug`; `torchrun`: torchrun itself is killed; `interrupt`: torchrun gets a
Ctrl-C.
"""

import os
import signal
import time

import torch

import main
import parameters
from engine import step
from engine.ranks import several_processes
from utilities.errors import UserError, one_line_errors

rank, at, how = os.environ.get("FAIL", "-1:0:").split(":")
steps = []
plain = step.Step.__call__


def failing(self, batch):
    steps.append(1)
    if rank in (str(torch.distributed.get_rank()), "*") and len(steps) == int(at):
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how in ("torchrun", "interrupt"):
            sent = signal.SIGKILL if how == "torchrun" else signal.SIGINT
            os.kill(os.getppid(), sent)
            time.sleep(60)
        raise UserError("this image is broken: restore it") if how == "user" else ValueError("a bug")
    return plain(self, batch)


step.Step.__call__ = failing
if __name__ == "__main__":
    with one_line_errors(), several_processes():
        main.main(parameters.read())
