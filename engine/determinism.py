"""The same bits twice, `--deterministic`: torch's deterministic algorithms for the length of a run.

On a GPU the terms of some sums arrive in any order, and each order rounds differently. torch has slower forms with one
order for most of these operations, and refuses the others with a RuntimeError when they are called.
"""

import contextlib
import os
import re
import traceback
from pathlib import Path

import torch

from utilities.errors import UserError

# cuBLAS reads it when its handle is made, once a process. Values whose sums have one order, see NVIDIA's "cuBLAS
# results reproducibility"; the first is set where the user has set none.
WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
WORKSPACES = (":4096:8", ":16:8")
# torch's words
_REFUSAL = re.compile(r"(\S.*?) does not have a deterministic implementation")
FLAG_OF_FOLDER = {"architectures": "arch", "batch_mining": "batch_mining", "criteria": "loss", "trainers": "trainer"}


@contextlib.contextmanager
def same_bits(opt):
    """Context of a run; with `--deterministic` its operations give the same bits in an equal run.

    On exit torch's settings are those of before. The variable for cuBLAS stays: its handle keeps what it has read.
    Raises UserError for an operation that torch refuses, with its name, and where cuBLAS cannot be set.
    """
    if not opt.deterministic:
        yield
        return
    set_workspace()
    mode = torch.get_deterministic_debug_mode()
    benchmark = torch.backends.cudnn.benchmark
    try:
        _set_mode(2, opt.compile)
        # The benchmark picks an algorithm by its time, which differs from run to run.
        torch.backends.cudnn.benchmark = False
        yield
    except RuntimeError as error:
        refusal = _REFUSAL.search(str(error))
        if refusal is None:
            raise
        raise UserError(
            f"--deterministic: torch has no deterministic form of {refusal[1]}, which {_user_of(error, opt)}: change "
            "that, or leave --deterministic out"
        ) from error
    finally:
        _set_mode(mode, opt.compile)
        torch.backends.cudnn.benchmark = benchmark


def run_job(job, opt):
    """What `job(opt)` gives, in the context of `same_bits`."""
    with same_bits(opt):
        return job(opt)


def _set_mode(mode: int, compiles: bool) -> None:
    """Set what torch does with an operation that has no deterministic form: 0 calls it, 1 warns, 2 refuses it."""
    torch.set_deterministic_debug_mode(mode)
    # the compiler's choices as well, only where it is used, as its modules take seconds to import
    if compiles:
        torch.use_deterministic_algorithms(mode > 0, warn_only=mode == 1)


def set_workspace() -> None:
    """Set the variable of cuBLAS. Raises UserError where it has another value, or where a GPU has already computed."""
    value = os.environ.get(WORKSPACE)
    if value is None and _has_computed():
        raise UserError(
            f"--deterministic: a GPU has already been used in this process without {WORKSPACE}={WORKSPACES[0]}, which "
            "cuBLAS reads once: set it first, or start another process"
        )
    if value not in (None, *WORKSPACES):
        raise UserError(f"--deterministic: {WORKSPACE}={value} must be {' or '.join(WORKSPACES)}, or unset")
    os.environ.setdefault(WORKSPACE, WORKSPACES[0])


def _has_computed() -> bool:
    """Whether this process has had memory on a GPU."""
    if not torch.cuda.is_initialized():
        return False
    return any(torch.cuda.max_memory_allocated(device) for device in range(torch.cuda.device_count()))


def _user_of(error: RuntimeError, opt) -> str:
    """What called the operation of an error, by the last line of a plug-in that led there."""
    folders = [Path(frame.filename).parent.name for frame in traceback.extract_tb(error.__traceback__)]
    flags = [FLAG_OF_FOLDER[folder] for folder in folders if folder in FLAG_OF_FOLDER]
    if flags:
        return f"--{flags[-1]} {getattr(opt, flags[-1])} uses"
    # no line of the program calls what computes a gradient
    return f"a gradient of --arch {opt.arch}, --loss {opt.loss} or --trainer {opt.trainer} uses"
