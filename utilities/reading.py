"""Reading files: one function per kind of file, which all folders use.

A file may be cut short, damaged, of another program, or made to do harm; libraries answer with dozens of kinds of
exceptions, which no list holds. So `parsing` turns whatever goes wrong while a file is read into `Unreadable`, an error
of the user's in one line that names the file. Nothing else leaves a function of this module.
"""

import contextlib
import csv
import faulthandler
import io
import json
import os
import pickle
import signal
import sqlite3
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import yaml

from utilities.errors import UserError, needs_memory
from utilities.files import load_yaml, refuse_aliases

# characters of a library's message that are printed
LONGEST = 160
PLAIN_ARRAYS = "an .npz file of plain arrays"


class Unreadable(UserError):
    """A file that is missing, cannot be read, or is damaged.

    Attributes:
        reason: why, without the file's name.
        is_missing: whether there is no such file.
    """

    def __init__(self, message: str, reason: str = "", is_missing: bool = False):
        super().__init__(message)
        self.reason = reason
        self.is_missing = is_missing


class Locked(UserError):
    """A database that another program has locked for longer than the patience."""


@contextlib.contextmanager
def parsing(path: Path | str, way_out: str = "", expected: str = ""):
    """Context in which a file is read and parsed. Whatever fails in it raises Unreadable.

    Args:
        way_out: what the user can do, at the end of the message.
        expected: the kind of file, for messages of libraries that do not say it: `JSON`.
    """
    try:
        yield
    except UserError:
        raise
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        # a panic of a Rust library is no Exception
        reason = reason_of(error, expected)
        is_missing = isinstance(error, FileNotFoundError)
        if way_out:
            message = f"{printable(path)} cannot be read ({reason}): {way_out}"
        elif is_missing:
            message = f"{printable(path)}: {reason}"
        else:
            message = f"{printable(path)} cannot be read ({reason})"
        raise Unreadable(message, reason, is_missing) from error


def reason_of(error: BaseException, expected: str = "") -> str:
    """Why a file cannot be read, in one short line."""
    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, IsADirectoryError):
        return "a folder, expected a file"
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start} is no text in UTF-8"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if needs_memory(error):
        return f"it needs more memory than there is: {_short(error)}"
    reason = _short(error)
    if isinstance(error, RecursionError):
        reason = "nested too deeply"
    return f"not {expected}: {reason}" if expected else reason


def _short(error: BaseException) -> str:
    """The begin of an error's message, or its type if it has none; of a lone key it says that it is missing."""
    text = str(error).partition(". If you trust")[0]
    line = " ".join(printable(text).split())[:LONGEST]
    if isinstance(error, KeyError):
        return f"{line} is missing"
    return line or type(error).__name__


def printable(text) -> str:
    """Text of a file, or its name, with escapes in place of characters that a terminal cannot print or would obey."""
    escaped = str(text).encode("utf-8", "backslashreplace").decode()
    chars = [char if char.isprintable() or char in "\n\t" else ascii(char)[1:-1] for char in escaped]
    return "".join(chars)


def _checked(path: Path | str) -> str:
    """The path, for libraries that say of a folder or an impossible name that there is no such file, or make one.

    Raises OSError, ValueError.
    """
    if stat.S_ISDIR(os.stat(path).st_mode):
        raise IsADirectoryError
    return str(path)


def read_bytes(path: Path | str, way_out: str = "") -> bytes:
    """The content of a file. Raises Unreadable."""
    with parsing(path, way_out):
        return Path(path).read_bytes()


def read_text(path: Path | str, way_out: str = "", encoding: str = "utf-8") -> str:
    """The text of a file; line ends become `\\n`. Raises Unreadable, also for a NUL character, which no text holds."""
    with parsing(path, way_out):
        text = Path(path).read_text(encoding=encoding)
        if "\0" in text:
            raise ValueError("it holds a NUL character")
        return text


def read_json(path: Path | str, way_out: str = ""):
    """The content of a JSON file. Raises Unreadable."""
    with parsing(path, way_out, "JSON"):
        return json.loads(Path(path).read_bytes())


def read_yaml(path: Path | str, way_out: str = ""):
    """The content of a YAML file of plain values, without aliases that multiply. Raises Unreadable."""
    with parsing(path, way_out, "YAML"):
        return load_yaml(Path(path).read_bytes())


def read_yaml_nodes(path: Path | str, way_out: str = "") -> yaml.Node | None:
    """The nodes of a YAML file, before values get types; None of an empty one. Raises Unreadable as `read_yaml`."""
    with parsing(path, way_out, "YAML"):
        text = read_text(path, way_out)
        refuse_aliases(text)
        return yaml.compose(text, Loader=yaml.SafeLoader)


def read_csv(path: Path | str, way_out: str = "", encoding: str = "utf-8-sig") -> list[list[str]]:
    """The rows of a CSV file, without empty ones. Raises Unreadable."""
    with parsing(path, way_out, "CSV"):
        text = read_text(path, way_out, encoding)
        return [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]


def read_records(
    path: Path | str, way_out: str = "", encoding: str = "utf-8-sig"
) -> tuple[list[str], list[dict[str, str]]]:
    """The columns of a CSV file with a heading, and its rows as dicts; every row has all columns. Raises Unreadable."""
    with parsing(path, way_out, "CSV"):
        header, *rows = read_csv(path, way_out, encoding)
        if len(set(header)) < len(header):
            raise ValueError("a column has its name twice")
        for number, row in enumerate(rows, start=2):
            if len(row) != len(header):
                raise ValueError(f"row {number} has {len(row)} fields, the heading {len(header)}")
        return header, [dict(zip(header, row, strict=True)) for row in rows]


def read_arrays(path: Path | str, names=None, way_out: str = "") -> dict[str, np.ndarray]:
    """The arrays of an .npz file, name -> array. Raises Unreadable.

    Args:
        names: those that it must have, the others are not read; None: all.
    """
    with parsing(path, way_out, PLAIN_ARRAYS), np.load(path, allow_pickle=False) as file:
        if isinstance(file, np.ndarray):
            raise ValueError("it is a single array")
        missing = [name for name in names or () if name not in file.files]
        if missing:
            raise ValueError(f"it has no {' and no '.join(missing)}; it holds {', '.join(file.files) or 'nothing'}")
        if names is None:
            names = file.files
        return {name: file[name] for name in names}


def read_array_or_arrays(path: Path | str, is_wanted: Callable[[str], bool]) -> np.ndarray | tuple[dict, list[str]]:
    """The memory map of an .npy file; or of an .npz file the arrays whose name `is_wanted`, and the names of all.

    Raises Unreadable.
    """
    with parsing(path, expected=f"{PLAIN_ARRAYS}, nor an .npy file"):
        content = np.load(path, allow_pickle=False, mmap_mode="r")
        if isinstance(content, np.ndarray):
            return content
        with content as file:
            return {name: file[name] for name in file.files if is_wanted(name)}, file.files


def map_array(path: Path | str, way_out: str = "") -> np.ndarray:
    """The memory map of an .npy file. Raises Unreadable."""
    with parsing(path, way_out, "an .npy file"):
        content = np.load(path, allow_pickle=False, mmap_mode="r")
        if not isinstance(content, np.ndarray):
            content.close()
            raise ValueError("it holds several arrays")
        return content


def read_tensors(path: Path | str, way_out: str = "", lazily: bool = False):
    """The content of a file of `torch.save`, on the CPU: tensors and plain values alone. Raises Unreadable.

    Args:
        lazily: map the file into memory, so that values are read on first use; files of old versions are read whole.
    """
    import torch

    with parsing(path, way_out):
        # of any other file torch says only that it cannot be read lazily
        lazily = lazily and zipfile.is_zipfile(path)
        try:
            return torch.load(path, map_location="cpu", weights_only=True, mmap=lazily)
        except pickle.UnpicklingError as error:
            raise ValueError(_of_torch(error)) from error


def _of_torch(error: pickle.UnpicklingError) -> str:
    """torch's message, several lines long, in a few words."""
    text = str(error)
    if "GLOBAL " in text:
        return f"it holds {text.partition('GLOBAL ')[2].split()[0]}, and tensors alone are read"
    return "it is no file of torch.save"


def read_safetensors(path: Path | str, way_out: str = "") -> dict:
    """The tensors of a .safetensors file, on the CPU, name -> tensor. Raises Unreadable."""
    import safetensors.torch

    with parsing(path, way_out):
        return safetensors.torch.load_file(_checked(path), device="cpu")


def read_safetensors_metadata(path: Path | str, way_out: str = "") -> dict[str, str]:
    """The words that a .safetensors file holds beside its tensors, by their names. Raises Unreadable."""
    import safetensors

    with parsing(path, way_out), safetensors.safe_open(_checked(path), framework="pt") as file:
        return file.metadata() or {}


def read_matlab(path: Path | str, way_out: str = "") -> dict:
    """The variables of a MATLAB file, name -> value. Raises Unreadable."""
    from scipy.io import loadmat

    def load() -> dict:
        return loadmat(_checked(path), squeeze_me=True, appendmat=False)

    with parsing(path, way_out, "a MATLAB file"):
        _refuse_a_crash(load)
        return load()


def _refuse_a_crash(read: Callable[[], object]) -> None:
    """Try `read()` in a forked process. Raises ValueError where a signal ends it: a library in C trusted the file."""
    child = os.fork()
    if child == 0:
        # the report of faulthandler on a crash would be printed
        faulthandler.disable()
        with contextlib.suppress(BaseException):
            read()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        raise ValueError(f"reading it crashes ({signal.Signals(os.WTERMSIG(status)).name})")


def check_sqlite(path: Path | str, patience: float, way_out: str = "") -> None:
    """Check a whole SQLite database: damage behind its first pages would show only when a row there is read.

    Args:
        patience: seconds that a lock of another program is waited for.

    Raises Unreadable for a damaged one; sqlite3.OperationalError where it is locked.
    """
    with parsing(path, way_out):
        try:
            with contextlib.closing(sqlite3.connect(_checked(path), timeout=patience)) as connection:
                (answer,) = connection.execute("pragma integrity_check(1)").fetchone()
        except sqlite3.OperationalError as error:
            if is_locked(error):
                raise Locked(f"{printable(path)} is locked by another program") from error
            raise
        if answer != "ok":
            raise sqlite3.DatabaseError(" ".join(answer.split()))


def is_locked(error: BaseException | None) -> bool:
    """Whether an error of SQLite, or one that was raised from it, is that another program holds the database."""
    while error is not None:
        code = getattr(error, "sqlite_errorcode", None)
        if code is not None and code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return True
        error = error.__cause__
    return False
