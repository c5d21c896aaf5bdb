"""A damaged record never stops a run: it is renamed, and the run goes on without it."""

import os
from pathlib import Path

from utilities.console import say
from utilities.errors import UserError
from utilities.files import alternatives, refuse_link


def set_aside(path: Path, reason: str) -> Path:
    """Rename a file or folder to `<name>.damaged`, `<name>.damaged_1` …, with a note; return the new path.

    Raises UserError where it cannot be renamed.
    """
    target = next(free for free in alternatives(path.with_name(f"{path.name}.damaged")) if not os.path.lexists(free))
    try:
        path.rename(target)
    except OSError as error:
        raise UserError(
            f"{path} is damaged ({reason}) and cannot be renamed ({error.strerror}): move it away"
        ) from error
    say(f"{path} is damaged ({reason}): it is now {target.name}, and the run goes on without it")
    return target


def as_folder(path: Path) -> Path:
    """Make the folder `path` where it is missing; anything else of that name is set aside. Returns `path`.

    Raises UserError for a link to a folder.
    """
    if os.path.lexists(path) and not path.is_dir():
        set_aside(path, "no folder")
    refuse_link(path)
    path.mkdir(exist_ok=True)
    return path


def as_file(path: Path) -> Path:
    """Set `path` aside where it exists and is no file, so that a file can have the name. Returns `path`.

    Raises UserError for a link to a file.
    """
    if os.path.lexists(path) and not path.is_file():
        set_aside(path, "no file")
    refuse_link(path)
    return path
