"""Runs of several processes each: torchrun's command, the GPUs of such a run, and the lines of its log."""

import os
import re
import sys

from utilities.errors import UserError

TORCHRUNS_LINE = re.compile(r"[A-Z]\d{4} [\d:.]+ +\d+ torch/distributed/")  # how lines of torchrun's log begin


def command(nproc: int, program: list[str]) -> list[str]:
    """The command that runs `program`, a script and its flags, in `nproc` processes, which meet at a free port of this
    machine.
    """
    if nproc == 1:
        return [sys.executable, *program]
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(nproc), *program]


def groups(gpus: list[int], nproc: int) -> list[list[int]]:
    """The GPUs in groups of one for each process of a run. Raises UserError where some would be left over."""
    if len(gpus) % nproc:
        shown = " ".join(map(str, gpus))
        raise UserError(f"--gpus {shown} --nproc {nproc}: each run takes {nproc} GPUs, so give a multiple of that")
    return [gpus[start : start + nproc] for start in range(0, len(gpus), nproc)]


def environment(nproc: int, gpus: list[int], at_once: int) -> dict[str, str]:
    """The environment of a run of several processes.

    Args:
        gpus: one for each process, numbered as this process sees them; empty: all there are.
        at_once: how many such runs share this machine: its CPUs are divided among all their processes, unless
        OMP_NUM_THREADS is set.
    """
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    found = {"OMP_NUM_THREADS": str(max(cpus // (nproc * at_once), 1)), **os.environ}
    if gpus:
        seen = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
        if seen and max(gpus) >= len(seen):
            raise UserError(
                f"--gpus {max(gpus)}: CUDA_VISIBLE_DEVICES={','.join(seen)} shows GPUs 0 to {len(seen) - 1}"
            )
        found["CUDA_VISIBLE_DEVICES"] = ",".join(seen[gpu] if seen else str(gpu) for gpu in gpus)
    return found


def reasons(said: list[str]) -> list[str]:
    """The lines of a failed run's output that tell why it failed: without torchrun's own, and how it ended the other
    processes.
    """
    report = next(
        (number for number, line in enumerate(said) if re.search("ChildFailedError|SignalException", line)), None
    )
    if report is not None:
        said = said[
            : max((number for number, line in enumerate(said[:report]) if line.startswith("Traceback")), default=report)
        ]
    lines = [line for line in said if not TORCHRUNS_LINE.match(line)]
    errors = [line for line in lines if re.search(r"error|exception", line, re.IGNORECASE)]
    return errors or lines
