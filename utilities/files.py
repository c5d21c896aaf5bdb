"""Files that are either whole or absent: written under a temporary name, then renamed."""

import contextlib
import csv
import itertools
import json
import math
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import yaml

from utilities.errors import UserError

# libyaml reads hundreds of files in a second, plain PyYAML in many
YAML = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # and writes in a fifth of the time
DEEPEST = 1000  # levels of a YAML file


@contextlib.contextmanager
def replacing(path: Path | str, mode: str = "w"):
    """Open a temporary file beside `path`; on success it takes the name `path`, on any error it is removed.

    Raises UserError, and leaves what `path` held untouched, when the disk is full or the folder not writable.
    """
    path = Path(path)
    temporary = None
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        text_options = {} if "b" in mode else {"encoding": "utf-8", "newline": ""}
        with open(descriptor, mode, **text_options) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        # the process's mask can only be read by setting it
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    except BaseException as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        if isinstance(error, OSError):
            raise UserError(
                f"cannot write {path}: {error.strerror or error}. What was there before is untouched"
            ) from error
        raise


def refuse_link(path: Path | str) -> None:
    """Raise UserError where `path` is a link: one in a folder from someone else may lead to any file of the user."""
    if os.path.islink(path):
        raise UserError(
            f"{path} is a link to {os.readlink(path)}, and a run writes only to files in its folder: "
            "put a copy in its place, or remove it"
        )


def without_links(path: str, flags: int) -> int:
    """An opener for `open`: not through a link, see `refuse_link`, nor a pipe without a reader."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)


@contextlib.contextmanager
def appending(path: Path | str):
    """Open a text file at its end. Raises UserError for a link, and when the disk is full or the file not writable."""
    refuse_link(path)
    try:
        with open(path, "a", encoding="utf-8", newline="", opener=without_links) as file:
            yield file
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}. Free the disk, then --resume") from error


def write_file(path: Path | str, content: str | bytes) -> None:
    """Write a text, or bytes."""
    mode = "w" if isinstance(content, str) else "wb"
    with replacing(path, mode) as file:
        file.write(content)


def json_safe(value):
    """The value, with None for numbers that JSON lacks (NaN and infinity)."""
    if isinstance(value, dict):
        return {key: json_safe(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_safe(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_json(path: Path | str, content, indent: int | None = 1) -> None:
    """Write a JSON file, null for NaN and infinity."""
    write_file(path, json.dumps(json_safe(content), indent=indent, allow_nan=False))


def write_yaml(path: Path | str, content, sort_keys: bool = True) -> None:
    """Write a YAML file."""
    write_file(path, yaml.dump(content, Dumper=DUMPER, sort_keys=sort_keys))


def write_npz(path: Path | str, arrays: dict, save=np.savez) -> None:
    """Write an .npz file of arrays, name -> array. `save`: `np.savez` or `np.savez_compressed`."""
    with replacing(path, "wb") as file:
        save(file, **arrays)


def write_csv(path: Path | str, head, rows) -> None:
    """Write a table with a heading."""
    with replacing(path) as file:
        csv.writer(file, lineterminator="\n").writerows(itertools.chain([head], rows))


def write_records(path: Path | str, names, rows) -> None:
    """Write a table of rows that are dicts, with the columns `names`; empty where a row lacks one."""
    write_csv(path, names, ([row.get(name, "") for name in names] for row in rows))


def load_yaml(text: str | bytes):
    """The content of a YAML text. Raises yaml.YAMLError as `refuse_depth` and `refuse_aliases` too."""
    refuse_depth(text)
    refuse_aliases(text)
    return yaml.load(text, Loader=YAML)


def refuse_depth(text: str | bytes) -> None:
    """Raise yaml.YAMLError where values are nested more than `DEEPEST` times.

    libyaml's loader would overflow the stack, which ends the process.

    Each level takes a bracket or another column, so that in ordinary files counting these is enough.
    """
    text = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    brackets = text.count(b"[") + text.count(b"{")
    if brackets < DEEPEST and max(map(len, text.splitlines()), default=0) < DEEPEST:
        return
    depth = 0
    for event in yaml.parse(text, Loader=YAML):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > DEEPEST:
            raise yaml.YAMLError(f"values are nested more than {DEEPEST} times")


def refuse_aliases(text: str | bytes) -> None:
    """Raise yaml.YAMLError for an alias within an anchor's value:
    such values refer to themselves, or multiply without end.
    """
    asterisk = b"*" if isinstance(text, bytes) else "*"
    if asterisk not in text:
        return
    # anchors of the collections that are open, None where one has none
    anchors = []
    for event in yaml.parse(text, Loader=YAML):
        if isinstance(event, yaml.CollectionStartEvent):
            anchors.append(event.anchor)
        elif isinstance(event, yaml.CollectionEndEvent):
            anchors.pop()
        elif isinstance(event, yaml.AliasEvent) and any(anchors):
            raise yaml.YAMLError(f"the alias *{event.anchor} occurs within the value of an anchor: write it out")


def walk(root: Path | str, follow_links: bool = True):
    """Yield `(folder, names of its folders, names of its files)` of `root` and all below it, top down.

    Each real folder comes once: links that lead back, or to a folder that was yielded under another name, are passed
    over, so that no circle of links makes the walk endless. The caller may sort and shorten the list of folders.
    """
    seen = set()
    for folder, folders, files in os.walk(root, followlinks=follow_links):
        real = os.path.realpath(folder)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        yield folder, folders, files


def expanded(path: Path | str) -> Path:
    """The path with the home folder in place of `~`.

    Unchanged if there is no such user: then there is no such file either.
    """
    return Path(os.path.expanduser(path))


def link(path: Path, name: Path) -> None:
    """Give the file `path` a second name, in place of what has it; where the file system has no links, a copy."""
    temporary = name.with_name(f".{name.name}.{os.getpid()}.tmp")
    try:
        os.link(path, temporary)
        os.replace(temporary, name)
    except OSError:
        temporary.unlink(missing_ok=True)
        with replacing(name, "wb") as file, open(path, "rb") as source:
            shutil.copyfileobj(source, file)


def alternatives(path: Path, ending: str = ""):
    """`path`, then `path_1`, `path_2` …, each with `ending`: the caller takes the first that is free."""
    yield path.with_name(f"{path.name}{ending}")
    for number in itertools.count(1):
        yield path.with_name(f"{path.name}_{number}{ending}")


def make_folder(path: Path | str, title: str) -> Path:
    """Make the folder where it is missing. Raises UserError, which calls it `title`, where that fails.
    Returns the path.
    """
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{title}: cannot be made: {error.strerror}") from error
    return Path(path)


def refuse_unwritable(folder: Path) -> None:
    """Raise UserError where `folder` could not be made, or written to. Leaves nothing behind."""
    nearest = next(path for path in (folder, *folder.parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        raise UserError(f"cannot make the run folder {folder}: {error.strerror}. Choose another --save_path") from error


def new_folder(path: Path, numbered: bool = True) -> Path:
    """Make `path`, or `path_1`, `path_2` … if it exists: atomically,
    so that two processes at once get two folders.

    Raises UserError where the parent cannot be written, or, if not `numbered`, where the folder exists.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for folder in alternatives(path):
            try:
                folder.mkdir()
                return folder
            except FileExistsError as error:
                if not numbered and not path.is_dir():
                    raise UserError(f"{path} is no folder: move it away") from error
                if not numbered:
                    raise UserError(f"{path} exists: another process trains it, or add --resume") from error
    except OSError as error:
        raise UserError(f"cannot make the run folder {path}: {error.strerror}. Choose another --save_path") from error
