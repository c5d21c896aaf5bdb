"""Runs of several processes each: torchrun's command, the GPUs of such a run, and the lines of its log."""

import os
import re
import sys

from utilities.errors import UserError
from utilities.programs import IS_PACKAGE

# how lines of torchrun's log begin
TORCHRUNS_LINE = re.compile(r"[A-Z]\d{4} [\d:.]+ +\d+ torch/distributed/")


def command(nproc: int, program: list[str]) -> list[str]:
    """The command that runs `program`, a script and its flags, in `nproc` processes.

    They meet at a free port of this machine.
    """
    # the package may be started in a folder that holds a clone, whose dmlkit/ is another one
    python = [sys.executable, "-P"] if IS_PACKAGE else [sys.executable]
    if nproc == 1:
        return [*python, *program]
    return [*python, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(nproc), *program]


def groups(gpus: list[int], nproc: int) -> list[list[int]]:
    """The GPUs in groups of one for each process of a run. Raises UserError where some would be left over."""
    if len(gpus) % nproc:
        numbers = " ".join(map(str, gpus))
        raise UserError(f"--gpus {numbers} --nproc {nproc}: each run takes {nproc} GPUs, so give a multiple of that")
    return [gpus[start : start + nproc] for start in range(0, len(gpus), nproc)]


def environment(nproc: int, gpus: list[int], at_once: int) -> dict[str, str]:
    """The environment of a run of several processes.

    Args:
        gpus: one for each process, numbered as this process sees them; empty: all there are.
        at_once: how many such runs share this machine. Its CPUs are divided among all their processes, unless
            OMP_NUM_THREADS is set.
    """
    cpus = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cpus = len(os.sched_getaffinity(0))
    variables = {"OMP_NUM_THREADS": str(max(cpus // (nproc * at_once), 1)), **os.environ}
    if IS_PACKAGE:
        # has the effect of Python's flag -P in the processes that torchrun starts
        variables["PYTHONSAFEPATH"] = "1"
    if gpus:
        visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
        if visible and max(gpus) >= len(visible):
            raise UserError(
                f"--gpus {max(gpus)}: CUDA_VISIBLE_DEVICES={','.join(visible)} shows GPUs 0 to {len(visible) - 1}"
            )
        names = [str(gpu) for gpu in gpus]
        if visible:
            names = [visible[gpu] for gpu in gpus]
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(names)
    return variables


def reasons(output: list[str]) -> list[str]:
    """The lines of a failed run's output that give the reason.

    Without torchrun's own lines, and without how it ended the other processes:
    its report, from the last traceback before it.
    """
    lines = [line for line in _before_report(output) if not TORCHRUNS_LINE.match(line)]
    errors = [line for line in lines if re.search(r"error|exception", line, re.IGNORECASE)]
    return errors or lines


def _before_report(output: list[str]) -> list[str]:
    """The lines before torchrun's report of a failed process."""
    traceback = None
    for number, line in enumerate(output):
        if re.search("ChildFailedError|SignalException", line):
            if traceback is None:
                return output[:number]
            return output[:traceback]
        if line.startswith("Traceback"):
            traceback = number
    return output
