"""Images in tar files: --dataset_shards 'data-{000..015}.tar', WebDataset shards.

A shard holds <key>.jpg with <key>.cls or <key>.json. The class of an image is the text of its `.cls`, or in its `.json`
the value of `label`, `cls` or `class`; `category` there is the super-class. Each shard is scanned once, as a stream,
and its index written beside it as `<shard>.index.json`; it is scanned anew when its size or time of change differs.
Images are read by their offsets, in any order.
"""

import itertools
import json
import math
import os
import re
import sys
from collections import Counter
from pathlib import Path

from datasets import _content, _layout
from datasets._images import Image, suffixes, uncollected
from datasets._layout import Reading
from options.flags import Flag
from options.flags.roles import DATA
from utilities.errors import UserError
from utilities.files import write_json
from utilities.labels import present
from utilities.reading import Unreadable, parsing, read_json

VERSION = 2  # of the index: raise it when a change below alters it
BLOCK = 512  # bytes of a tar file's block
LABELS = ("label", "cls", "class")  # keys of a .json that name the class
OWN_LABELS = True
MOST_SHARDS = 10**6  # names of a pattern
MOST_DIGITS = 18  # of a number in braces
LARGEST = 1 << 20  # bytes of a .cls or .json
COLUMNS = ("keys", "offsets", "sizes", "labels", "categories")  # columns of an index, one entry per image

FLAGS = {
    "--dataset_shards": Flag(
        str,
        None,
        "tar files of WebDataset, such as data-{000..015}.tar or {a,b}.tar, from the working folder or from "
        "--source: <key>.jpg (png, webp) with <key>.cls or <key>.json, whose label, cls or class is the class and "
        "category the super-class; an index is written beside each once",
        metavar="PATTERN",
        # the files may move
        role=DATA.but(fixed=None),
    ),
}


def check(opt) -> None:
    """The shards are needed. Raises UserError."""
    if opt.dataset_shards is None:
        raise UserError(
            "--dataset shards needs --dataset_shards 'data-{000..015}.tar', where images lie in WebDataset tar files"
        )
    expand(opt.dataset_shards)


def prepare(opt, source: Path) -> Path:
    """The folder of the first shard, looked for below the working folder, then below `source`."""
    first = expand(opt.dataset_shards)[0]
    for place in (Path(), source):
        if (place / first).is_file():
            return Path(os.path.abspath(place / first)).parent
    raise UserError(
        f"--dataset_shards {opt.dataset_shards}: there is no {first}, neither in {Path().absolute()} nor below "
        f"--source {source}"
    )


@uncollected()
def read(opt, root: Path) -> Reading:
    """The images of all shards, classes in the order of their labels: of numbers if all are whole, else of names."""
    from tqdm import tqdm

    images = []
    unlabelled = []
    names = expand(opt.dataset_shards)
    unread = Counter()
    for name in tqdm(names, desc="shards", unit="shard", leave=False, disable=None):
        shard = os.path.normpath(os.path.join(root, os.path.relpath(name, os.path.dirname(names[0]) or ".")))
        content = _index(shard)
        unlabelled += [f"{shard}: {key}" for key in content["unlabelled"]]
        unread.update(content["unread"])
        columns = [content[column] for column in COLUMNS]
        for key, offset, size, label, category in zip(*columns, strict=True):
            images.append(Image(_content.address(shard, offset, size, key), str(label), category))
    notes = []
    if unlabelled:
        note = (
            f"images without a class, no .cls and no {'/'.join(LABELS)} in a .json: {len(unlabelled):,}, the first "
            f"{unlabelled[0]}"
        )
        if not opt.allow_partial_dataset:
            raise UserError(
                f"--dataset_shards {opt.dataset_shards}: {note}. Mend the shards, or leave them out with "
                "--allow_partial_dataset"
            )
        notes.append(f"left out: {note}")
    if unread:
        notes.append(_layout.unread_files(unread))
    order = _layout.by_label([image.class_name for image in images])
    return Reading([images[i] for i in order], notes=notes)


def expand(pattern: str) -> list[str]:
    """The names of a pattern with braces: `{000..015}` counts, padded with zeros as written; `{a,b}` lists.

    The names are counted before any is made. Raises UserError for more than `MOST_SHARDS`, and for other braces.
    """
    pieces = [_piece(pattern, text) for text in re.split(r"(\{[^{}]*\})", os.path.expanduser(pattern))]
    count = math.prod(map(len, pieces))
    if count > MOST_SHARDS:
        raise UserError(
            f"--dataset_shards {pattern}: its braces make {count:,} names, and at most {MOST_SHARDS:,} are read: "
            f"several braces multiply, so write one pair that counts all shards, as data-{{000..015}}.tar"
        )
    names = []
    for parts in itertools.product(*pieces):
        name = "".join(parts)
        if not name.endswith(".tar"):
            raise UserError(
                f"--dataset_shards {pattern}: {name} is no .tar: shards are tar files, not compressed, as images are "
                "read by offset"
            )
        names.append(name)
    return names


class _Numbers:
    """The numbers from `first` to `last` as texts of at least `digits` digits: counted at once, written one by one."""

    def __init__(self, first: int, last: int, digits: int):
        self.range = range(first, last + 1)
        self.digits = digits

    def __len__(self):
        return len(self.range)

    def __iter__(self):
        return (f"{number:0{self.digits}d}" for number in self.range)


def _piece(pattern: str, text: str):
    """The texts that a part of a pattern stands for, a sized iterable.

    Raises UserError for braces that are no count and no list.
    """
    flag = f"--dataset_shards {pattern}"
    counted = re.fullmatch(r"\{(\d+)\.\.(\d+)\}", text)
    if counted:
        if max(map(len, counted.groups())) > MOST_DIGITS:
            raise UserError(f"{flag}: {text} has a number of more than {MOST_DIGITS} digits")
        first = int(counted[1])
        last = int(counted[2])
        if last < first:
            raise UserError(f"{flag}: {text} counts from {first} to {last}: the first is the smaller one")
        return _Numbers(first, last, len(counted[1]))
    if text.startswith("{") and text.endswith("}"):
        return text[1:-1].split(",")
    if "{" in text or "}" in text:
        raise UserError(f"{flag}: a brace without its partner, or one in another; {{000..015}} and {{a,b}} are known")
    return [text]


def _index(shard: str) -> dict:
    """A shard's content, from its index if that is current; else the shard is scanned and the index written.

    Raises UserError.
    """
    path = Path(f"{shard}.index.json")
    try:
        status = os.stat(shard)
    except OSError as error:
        raise UserError(
            f"shard {shard} cannot be read ({error.strerror or error}): restore it, or take it out of --dataset_shards"
        ) from error
    version = {
        "version": VERSION,
        "size": status.st_size,
        "changed": status.st_mtime_ns,
        "endings": sorted(suffixes()),
    }
    try:
        with parsing(path):
            content = read_json(path)
            is_current = {name: content[name] for name in version} == version and isinstance(content["unread"], dict)
            if is_current and len({len(content[column]) for column in COLUMNS}) == 1:
                return content
    except Unreadable:
        # none yet, or a damaged one
        pass
    content = {**version, **_scanned(shard)}
    try:
        write_json(path, content, indent=None)
    except (OSError, UserError) as error:
        print(f"WARNING: {error}: the shard is read through again by each run", file=sys.stderr)
    return content


def _scanned(shard: str) -> dict:
    """The images of a shard with their offsets and labels, in one pass; a label may come before or after its image."""
    images = {}
    labels = {}
    categories = {}
    unread = Counter()
    for member, data in _members(shard):
        folder, _, base = member.name.rpartition("/")
        stem, _, ending = base.partition(".")
        key = f"{folder}/{stem}" if folder else stem
        ending = ending.lower()
        if f".{ending}" in suffixes():
            if key in images:
                raise UserError(f"shard {shard}: {member.name} is the second image called {key}: keys must be unique")
            images[key] = (f"{key}.{ending}", member.offset_data, member.size)
        elif ending == "cls":
            labels[key] = present(data().decode("utf-8", "replace"))
        elif ending == "json":
            values = _parsed(shard, member.name, data())
            for name in LABELS:
                label = present(values.get(name))
                if label:
                    labels.setdefault(key, label)
                    break
            categories[key] = present(values.get("category")) or None
        else:
            unread[f".{ending}" if ending else ""] += 1
    columns = {name: [] for name in ("keys", "offsets", "sizes", "labels", "categories", "unlabelled")}
    for key, (name, offset, size) in images.items():
        if not labels.get(key):
            columns["unlabelled"].append(key)
            continue
        columns["keys"].append(name)
        columns["offsets"].append(offset)
        columns["sizes"].append(size)
        columns["labels"].append(labels[key])
        columns["categories"].append(categories.get(key))
    return {**columns, "unread": unread}


def _parsed(shard: str, name: str, data: bytes) -> dict:
    with parsing(f"shard {shard}: {name}", "correct the shard", "JSON"):
        content = json.loads(data)
    return content if isinstance(content, dict) else {"label": content}


def _members(shard: str):
    """Each file of a tar with a function that returns its bytes. Raises UserError if it is damaged or cut short."""
    import tarfile

    try:
        with parsing(shard), open(shard, "rb") as file, tarfile.open(fileobj=file, mode="r:") as archive:
            end = 0
            while (member := archive.next()) is not None:
                # emptied, as tarfile would keep all members in memory
                archive.members = []
                end = archive.offset
                if member.isreg():
                    # rounded up
                    n_blocks = -(-member.size // BLOCK)
                    end = member.offset_data + n_blocks * BLOCK
                if member.isreg() and not os.path.basename(member.name).startswith("."):
                    yield member, lambda member=member: _bytes(file, member)
            file.seek(end)
            closing = file.read(BLOCK)
            if len(closing) < BLOCK:
                raise tarfile.ReadError("it is cut short")
            if any(closing):
                raise tarfile.ReadError(f"no header at byte {end:,}")
    except Unreadable as error:
        raise UserError(
            f"shard {shard} is damaged ({error.reason}): fetch it anew, or take it out of --dataset_shards"
        ) from error


def _bytes(file, member) -> bytes:
    """The content of a small file of the tar."""
    if member.size > LARGEST:
        raise ValueError(f"{member.name} has {member.size:,} bytes, more than a label")
    place = file.tell()
    file.seek(member.offset_data)
    data = file.read(member.size)
    file.seek(place)
    if len(data) < member.size:
        raise EOFError("it is cut short")
    return data
