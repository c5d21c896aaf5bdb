"""Pickles as data sets publish their lists in, read without running anything that they hold."""

import pickle
import re
from pathlib import Path

import numpy as np


class Array:
    """An array of a pickle: `np.asarray` and iteration give what it holds. NumPy's own class would take addresses from the file."""

    def __setstate__(self, state: tuple):
        _, shape, kind, by_columns, content = state
        self._fill(content, kind, shape, "F" if by_columns else "C")

    def _fill(self, content, kind: "_Kind", shape: tuple, order: str) -> "Array":
        self.values = np.frombuffer(_bytes(content), kind.dtype).reshape(shape, order=order)
        return self

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype)

    def __iter__(self):
        return iter(self.values.tolist())


class _Kind:
    """Stands for a NumPy type of strings or numbers."""

    def __init__(self, text: str, *_):
        if not re.fullmatch(r"[UfiubS]\d+", str(text)):
            raise pickle.UnpicklingError(f"it holds values of NumPy's type {text!r}")
        self.dtype = np.dtype(text)

    def __setstate__(self, state: tuple):
        self.dtype = self.dtype.newbyteorder(state[1] if state[1] in ("<", ">") else "=")


def _bytes(content: bytes | str) -> bytes:
    """Bytes, which Python 2 wrote as text."""
    return content.encode("latin1") if isinstance(content, str) else bytes(content)


def _scalar(kind: _Kind, content):
    """A NumPy string or number as Python's."""
    value = np.frombuffer(_bytes(content), dtype=kind.dtype, count=1)[0].item()
    return value.decode() if isinstance(value, bytes) else value


def _encoded(text: str, encoding: str) -> bytes:
    """Bytes from the text that stands for them in pickles of protocol 2."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it holds bytes in the encoding {encoding!r}")
    return text.encode("latin1")


NUMPY = ("numpy.core", "numpy._core")  # as old and new versions are called
PLAIN = {("numpy", "dtype"): _Kind, ("_codecs", "encode"): _encoded, **{(f"{numpy}.multiarray", "scalar"): _scalar for numpy in NUMPY}}
ARRAYS = {
    ("numpy", "ndarray"): Array,
    **{(f"{numpy}.multiarray", "_reconstruct"): lambda *_: Array() for numpy in NUMPY},
    **{(f"{numpy}.numeric", "_frombuffer"): lambda *content: Array()._fill(*content) for numpy in NUMPY},
    **{(module, "bytes"): lambda: b"" for module in ("__builtin__", "builtins")},  # an empty array's content
}


class _Unpickler(pickle.Unpickler):
    """Loads lists, dictionaries, tuples, strings and numbers, also NumPy's; a pickle that names anything but `known` is refused, not run."""

    def __init__(self, file, known: dict):
        super().__init__(file, encoding="latin1")
        self.known = known

    def find_class(self, module: str, name: str):
        """What stands for a name in the pickle. Raises UnpicklingError for an unknown one."""
        if (module, name) not in self.known:
            raise pickle.UnpicklingError(f"it holds {module}.{name}; lists, dictionaries, tuples, strings and numbers are read, no code")
        return self.known[module, name]


def load(path: Path, arrays: bool = False):
    """The content of a pickle; with `arrays` it may hold NumPy's, which come as `Array`.

    Raises OSError where it cannot be read, UnpicklingError where it is damaged or holds more.
    """
    with open(path, "rb") as file:
        try:
            return _Unpickler(file, PLAIN | (ARRAYS if arrays else {})).load()
        except Exception as error:  # unpickling damaged bytes raises many kinds
            raise pickle.UnpicklingError(str(error).partition("\n")[0] or type(error).__name__) from error
