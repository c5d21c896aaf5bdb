"""A stand-in for a GPU: tensors of the CPU claim to be on one, and operations that would wait for it are counted.

What waits on a GPU: reading a value or a size back (`item`, `tolist`, `nonzero`, a boolean index …), and copying
numbers of Python there. On a real one `torch.cuda.set_sync_debug_mode("error")` does the same; see tests/test_gpu.py.
All tensors count as its own, so that intended work with tensors of the CPU (an optimiser's counters, the draws of
subset mining) has to be paused.
"""

import contextlib
import sys
from pathlib import Path

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from utilities.tensors import _odd_numbers

GPU = torch.device("cuda", 0)
ROOT = str(Path(__file__).resolve().parents[2])


def _is_ours(path: str) -> bool:
    """Whether a file is of the project: neither this one, nor of a package of the environment in .venv."""
    return path != __file__ and path.startswith(ROOT) and "site-packages" not in path


DEVICE = torch.Tensor.device
IS_CUDA = torch.Tensor.is_cuda
# Kernels whose CUDA form asks the device for a number, by the name of the operator without its overload.
WAITING = set(
    (
        "_local_scalar_dense nonzero masked_select _unique _unique2 unique_dim unique_consecutive "
        "unique_dim_consecutive bincount equal _linalg_eigh _linalg_svd _linalg_check_errors linalg_lstsq histogram"
    ).split()
)
TO_PYTHON = {torch.Tensor.tolist, torch.Tensor.cpu, torch.Tensor.numpy, torch.Tensor.__array__}


def _is_gpu(value) -> bool:
    if isinstance(value, torch.device):
        return value.type == "cuda"
    return isinstance(value, str) and value.split(":")[0] == "cuda"


def _is_host(value) -> bool:
    return value == "cpu" if isinstance(value, str) else isinstance(value, torch.device) and value.type == "cpu"


def _on_cpu(value):
    return torch.device("cpu") if _is_gpu(value) else value


def _has_list(index) -> bool:
    return isinstance(index, list) or isinstance(index, tuple) and any(isinstance(part, list) for part in index)


class Reads:
    """What waited, in order: `(operation, "file:line function")` each."""

    def __init__(self):
        self.found = []
        self.pauses = 0

    def note(self, operation: str) -> None:
        """Write one down, with the last of the project's lines that led there."""
        if not self.pauses:
            frame = sys._getframe(1)
            while frame.f_back and not _is_ours(frame.f_code.co_filename):
                frame = frame.f_back
            at = frame.f_code.co_filename.removeprefix(ROOT + "/")
            self.found.append((operation, f"{at}:{frame.f_lineno} {frame.f_code.co_name}"))

    @contextlib.contextmanager
    def pause(self):
        """Inside nothing counts."""
        self.pauses += 1
        try:
            yield
        finally:
            self.pauses -= 1

    def __len__(self) -> int:
        return len(self.found)

    def __str__(self) -> str:
        return "\n".join(f"{operation} at {at}" for operation, at in self.found) or "none"


class _Functions(TorchFunctionMode):
    def __init__(self, reads: Reads):
        super().__init__()
        self.reads = reads

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function == DEVICE.__get__:
            return GPU
        if function == IS_CUDA.__get__:
            return True
        if self._reads(function, args, kwargs):
            self.reads.note(function.__name__)
            with self.reads.pause():
                return function(*args, **kwargs)
        if self._sends(function, args, kwargs):
            self.reads.note(function.__name__)
        return function(*map(_on_cpu, args), **{name: _on_cpu(value) for name, value in kwargs.items()})

    @staticmethod
    def _reads(function, args: tuple, kwargs: dict) -> bool:
        """Whether a value comes back to Python or the CPU."""
        caller = sys._getframe(2).f_globals.get("__name__", "")
        # Calls from torch itself do not count: it knows where tensors really are
        if function is torch.Tensor.to and not caller.startswith("torch."):
            return any(map(_is_host, (*args[1:], kwargs.get("device"))))
        return function in TO_PYTHON

    @staticmethod
    def _sends(function, args: tuple, kwargs: dict) -> bool:
        """Whether numbers of Python are copied to the GPU."""
        if function in (torch.Tensor.__getitem__, torch.Tensor.__setitem__):
            return _has_list(args[1])
        if function is torch.Tensor.new_tensor:
            return not isinstance(args[1], torch.Tensor)
        return (
            function in (torch.tensor, torch.as_tensor)
            and _is_gpu(kwargs.get("device"))
            and not isinstance(args[0], torch.Tensor)
        )


class _Kernels(TorchDispatchMode):
    def __init__(self, reads: Reads):
        super().__init__()
        self.reads = reads

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = function._schema.name.partition("::")[2]
        if name in WAITING or self._asks(name, args, kwargs):
            self.reads.note(name)
        return function(*args, **kwargs)

    @staticmethod
    def _asks(name: str, args: tuple, kwargs: dict) -> bool:
        if name in ("index", "index_put", "index_put_", "_index_put_impl_"):
            masks = any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1])
            # Writing one value is a masked_fill, which does not wait
            return masks and not (name != "index" and args[2].numel() == 1)
        if name == "repeat_interleave":
            return kwargs.get("output_size") is None
        return name == "multinomial" and not (args[2] if len(args) > 2 else kwargs.get("replacement", False))


@contextlib.contextmanager
def pretend_gpu():
    """Inside, tensors say that they are on a GPU. Gives the `Reads`."""
    reads = Reads()
    try:
        with _Kernels(reads), _Functions(reads):
            yield reads
    finally:
        # The numbers cached for the pretended GPU lie on the CPU
        _odd_numbers.cache_clear()
