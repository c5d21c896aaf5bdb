"""Pickles that somebody else wrote, such as published lists and checkpoints, read without running what they hold."""

import pickle
import re
from collections import OrderedDict
from pathlib import Path

import numpy as np

from utilities.reading import parsing


class Array:
    """An array of a pickle: `np.asarray` and iteration give what it holds.

    NumPy's own class would take addresses from the file.
    """

    __slots__ = ("values",)

    def __setstate__(self, state: tuple):
        _, shape, kind, by_columns, content = state
        order = "F" if by_columns else "C"
        self.filled(content, kind, shape, order)

    def filled(self, content, kind: "_Kind", shape: tuple, order: str) -> "Array":
        """This array, with the values of `content`: bytes, or text that stands for them."""
        self.values = np.frombuffer(_bytes(content), kind.dtype).reshape(shape, order=order)
        return self

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype)

    def __iter__(self):
        return iter(self.values.tolist())


class _Kind:
    """Stands for a NumPy type of strings or numbers."""

    __slots__ = ("dtype",)

    def __init__(self, text: str, *_):
        if not re.fullmatch(r"[UfiubS]\d+", str(text)):
            raise pickle.UnpicklingError(f"it holds values of NumPy's type {text!r}")
        self.dtype = np.dtype(text)

    def __setstate__(self, state: tuple):
        byte_order = state[1] if state[1] in ("<", ">") else "="
        self.dtype = self.dtype.newbyteorder(byte_order)


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


class _Function:
    """What stands for a name in a pickle: it can be called, and nothing else.

    A pickle can set the attributes of whatever it was handed (its code BUILD), of a function even its code or its
    defaults, which then stay changed in this process. This has none to set, and refuses a state.
    """

    __slots__ = ("_function",)

    def __init__(self, function):
        object.__setattr__(self, "_function", function)

    def __call__(self, *arguments):
        return self._function(*arguments)

    def __setattr__(self, name, value):
        raise pickle.UnpicklingError(f"it sets {name!r:.40}")

    def __setstate__(self, state):
        raise pickle.UnpicklingError("it sets what stands for a name")


# the module's name in old and in new versions of NumPy
NUMPY = ("numpy.core", "numpy._core")
PLAIN = {
    ("numpy", "dtype"): _Function(_Kind),
    ("_codecs", "encode"): _Function(_encoded),
    **{(f"{numpy}.multiarray", "scalar"): _Function(_scalar) for numpy in NUMPY},
}
ARRAYS = {
    ("numpy", "ndarray"): _Function(Array),
    **{(f"{numpy}.multiarray", "_reconstruct"): _Function(lambda *_: Array()) for numpy in NUMPY},
    **{(f"{numpy}.numeric", "_frombuffer"): _Function(lambda *content: Array().filled(*content)) for numpy in NUMPY},
    # an empty array's content
    **{(module, "bytes"): _Function(lambda: b"") for module in ("__builtin__", "builtins")},
}


class _Unpickler(pickle._Unpickler):
    """Loads lists, dictionaries, tuples, strings and numbers, also NumPy's.

    A pickle that names anything but `allowed` is refused, not run.

    It is Python's own unpickler in Python: that in C takes as much memory for its memo as a damaged byte asks for.
    """

    def __init__(self, file, allowed: dict):
        super().__init__(file, encoding="latin1")
        self.allowed = allowed

    def find_class(self, module: str, name: str):
        """What stands for a name in the pickle. Raises UnpicklingError for an unknown one."""
        if (module, name) not in self.allowed:
            raise pickle.UnpicklingError(
                f"it holds {module}.{name}; lists, dictionaries, tuples, strings and numbers are read, no code"
            )
        return self.allowed[module, name]


def load(path: Path, arrays: bool = False):
    """The content of a pickle; with `arrays` it may hold NumPy's, which come as `Array`.

    Raises Unreadable where it is damaged or holds more.
    """
    with parsing(path), open(path, "rb") as file:
        allowed = PLAIN | ARRAYS if arrays else PLAIN
        return _Unpickler(file, allowed).load()


# torch's errors: a name that it does not import, a call, an object that is filled like a dict or a list
UNKNOWN = re.compile(r"Unsupported global: GLOBAL (\S+)")
CALLED = re.compile(r"Trying to call reduce|Can only create new object|Can only build")
FORBIDDEN = re.compile(r"GLOBAL (\S+)")
# names in a file that are not read
MOST_UNKNOWN = 500
AS_DICT = re.compile(r"Can only SETITEMS? .*Unread_(\d+)")
AS_LIST = re.compile(r"Can only (?:append to|extend) lists.*Unread_(\d+)")


class Unread:
    """Stands for an object of a class that is not imported; takes any arguments and state and keeps none."""

    def __init__(self, *_, **__):
        pass

    def __setstate__(self, state):
        pass


def load_tensors(path: Path | str):
    """The content of a file of torch.save that another program wrote, on the CPU; NumPy's arrays come as `Array`.

    Objects of other classes, such as an `argparse.Namespace` of flags, come as `Unread`: nothing that the file names is
    imported or run. Raises Unreadable.
    """
    with parsing(path):
        return _torch_content(path)


def _torch_content(path: Path | str):
    """Read with weights_only, and again with a stand-in for each name that torch refuses.

    Raises errors of all kinds.
    """
    import torch

    stand_ins = {f"{module}.{name}": value for (module, name), value in (PLAIN | ARRAYS).items()}
    # torch allows these names itself
    for name in ("_codecs.encode", "builtins.bytes", "__builtin__.bytes"):
        del stand_ins[name]
    # what the stand-ins make, which torch fills
    filled = [(Array, "Array"), (_Kind, "Kind")]
    for _ in range(MOST_UNKNOWN):
        allowed = [*filled, *((value, name) for name, value in stand_ins.items())]
        try:
            with torch.serialization.safe_globals(allowed):
                return torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            if not _replace(str(error), stand_ins):
                raise ValueError(_reason(str(error))) from error
    raise ValueError(f"it holds more than {MOST_UNKNOWN} kinds of objects, and tensors alone are read")


def _reason(message: str) -> str:
    """Why torch cannot read a file, in a few words."""
    forbidden = FORBIDDEN.search(message)
    if forbidden:
        return f"it holds {forbidden[1]}, and tensors alone are read"
    if CALLED.search(message):
        return "it holds calls of functions, and tensors alone are read"
    return "it is no file of torch.save"


def _replace(message: str, stand_ins: dict) -> bool:
    """Add the stand-in for the name in torch's error, or make one a dict or list. Returns whether something changed."""
    if (unknown := UNKNOWN.search(message)) is not None:
        name = unknown[1] if "." in unknown[1] else f"builtins.{unknown[1]}"
        if name in stand_ins:
            return False
        stand_ins[name] = type(f"Unread_{len(stand_ins)}", (Unread,), {})
        return True
    for pattern, container in ((AS_DICT, OrderedDict), (AS_LIST, list)):
        refused = pattern.search(message)
        if refused is not None:
            name = next(
                name for name, value in stand_ins.items() if getattr(value, "__name__", "") == f"Unread_{refused[1]}"
            )
            stand_ins[name] = container
            return True
    return False
