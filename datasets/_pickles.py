"""Pickles of lists, texts, numbers and numpy arrays, as data sets publish their ground truth in; none can run code."""

import pickle
from pathlib import Path

import numpy as np

from utilities.errors import UserError

NUMPY = ("numpy.core", "numpy._core")  # as old and new versions are called
KNOWN = {
    **{(f"{module}.multiarray", "_reconstruct"): np.zeros(0).__reduce__()[0] for module in NUMPY},
    **{(f"{module}.multiarray", "scalar"): np.float64(0).__reduce__()[0] for module in NUMPY},
    **{(f"{module}.numeric", "_frombuffer"): lambda buffer, *of: np.zeros(0).__reduce_ex__(5)[0](buffer, *of) for module in NUMPY},
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): lambda text, encoding: text.encode("latin1"),  # bytes, as old protocols write them: in no other code
    **{(module, "bytes"): lambda: b"" for module in ("__builtin__", "builtins")},
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str):
        if (module, name) not in KNOWN:
            raise pickle.UnpicklingError(f"it names {module}.{name}")
        return KNOWN[module, name]

    def persistent_load(self, pid):
        raise pickle.UnpicklingError("it refers to something outside")


def read(path: Path):
    """The content of a pickle. Raises UserError where it is damaged, or names anything but lists, texts, numbers and arrays."""
    try:
        with open(path, "rb") as file:
            return _Unpickler(file, encoding="latin1").load()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from error
    except Exception as error:  # a damaged pickle may raise anything
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise UserError(f"{path}: refused, no pickle of plain lists, texts, numbers and arrays alone ({reason})") from error
