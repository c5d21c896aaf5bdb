"""Images in tar files: --dataset_shards 'data-{000..015}.tar', WebDataset shards of <key>.jpg with <key>.cls or <key>.json.

The class of an image is the text of its `.cls`, or in its `.json` the value of `label`, `cls` or `class`; `category` there is the super-class.
Each shard is scanned once, as a stream, and its index written beside it as `<shard>.index.json`; it is scanned anew when its size or time
of change differs. Images are read by their offsets, in any order.
"""

import itertools
import json
import os
import re
import sys
from pathlib import Path

from datasets import _content, _layout
from datasets._images import Image, uncollected
from datasets._layout import Reading
from utilities.errors import UserError
from utilities.files import write_json
from utilities.roles import DATA

VERSION = 1  # of the index: raise it when a change below alters it
BLOCK = 512  # bytes of a tar file's block
LABELS = ("label", "cls", "class")  # keys of a .json that name the class
MOST_BRACES = 10**6  # shards
LARGEST = 1 << 20  # bytes of a .cls or .json


def add_arguments(group) -> None:
    """Declare the flag of this data set."""
    shards = group.add_argument(
        "--dataset_shards", default=None, metavar="PATTERN",
        help="tar files of WebDataset, as data-{000..015}.tar or {a,b}.tar, from the working folder or from --source: <key>.jpg (png, webp) "
             "with <key>.cls or <key>.json, whose label, cls or class is the class and category the super-class; an index is written beside "
             "each once",
    )  # fmt: skip
    shards.role = DATA.but(fixed=None)  # shards may move


def check(opt) -> None:
    """The shards are needed. Raises UserError."""
    if opt.dataset_shards is None:
        raise UserError("--dataset shards needs --dataset_shards 'data-{000..015}.tar', where images lie in WebDataset tar files")
    expand(opt.dataset_shards)


def prepare(opt, source: Path) -> Path:
    """The folder of the first shard, looked for below the working folder, then below `source`."""
    first = expand(opt.dataset_shards)[0]
    for place in (Path(), source):
        if (place / first).is_file():
            return Path(os.path.abspath(place / first)).parent
    raise UserError(
        f"--dataset_shards {opt.dataset_shards}: there is no {first}, neither in {Path().absolute()} nor below --source {source}"
    )


@uncollected()
def read(opt, root: Path) -> Reading:
    """The images of all shards, classes in the order of their labels: of numbers where all are whole numbers, else of names."""
    from tqdm import tqdm

    images, unlabelled, names = [], [], expand(opt.dataset_shards)
    for name in tqdm(names, desc="shards", unit="shard", leave=False, disable=None):
        shard = os.path.normpath(os.path.join(root, os.path.relpath(name, os.path.dirname(names[0]) or ".")))
        content = _index(shard)
        unlabelled += [f"{shard}: {key}" for key in content["unlabelled"]]
        images += [
            Image(_content.address(shard, offset, size, key), str(label), category)
            for key, offset, size, label, category in zip(*(content[column] for column in COLUMNS), strict=True)
        ]
    if unlabelled:
        told = f"images without a class, no .cls and no {'/'.join(LABELS)} in a .json: {len(unlabelled):,}, the first {unlabelled[0]}"
        if not opt.allow_partial_dataset:
            raise UserError(
                f"--dataset_shards {opt.dataset_shards}: {told}. Mend the shards, or leave them out with --allow_partial_dataset"
            )
    order = _layout.by_label([image.class_name for image in images])
    return Reading([images[i] for i in order], notes=[f"left out: {told}"] if unlabelled else [])


def expand(pattern: str) -> list[str]:
    """The names of a pattern with braces: `{000..015}` counts, padded with zeros as written; `{a,b}` lists. Raises UserError."""
    pieces = []
    for text in re.split(r"(\{[^{}]*\})", os.path.expanduser(pattern)):
        counted = re.fullmatch(r"\{(\d+)\.\.(\d+)\}", text)
        if counted:
            first, last = int(counted[1]), int(counted[2])
            if not 0 <= last - first < MOST_BRACES:
                raise UserError(f"--dataset_shards {pattern}: {text} counts from {first} to {last}: the first is the smaller one")
            pieces.append([f"{number:0{len(counted[1])}d}" for number in range(first, last + 1)])
        elif text.startswith("{") and text.endswith("}"):
            pieces.append(text[1:-1].split(","))
        elif "{" in text or "}" in text:
            raise UserError(
                f"--dataset_shards {pattern}: a brace without its partner, or one in another; {{000..015}} and {{a,b}} are known"
            )
        else:
            pieces.append([text])
    names = ["".join(parts) for parts in itertools.product(*pieces)]
    other = next((name for name in names if not name.endswith(".tar")), None)
    if other is not None:
        raise UserError(
            f"--dataset_shards {pattern}: {other} is no .tar: shards are tar files, not compressed, as images are read by offset"
        )
    return names


COLUMNS = ("keys", "offsets", "sizes", "labels", "categories")  # columns of an index, one entry per image


def _index(shard: str) -> dict:
    """A shard's content, from its index where that is current; else the shard is scanned and the index written. Raises UserError."""
    path = Path(f"{shard}.index.json")
    try:
        found = os.stat(shard)
    except OSError as error:
        raise UserError(
            f"shard {shard} cannot be read ({error.strerror or error}): restore it, or take it out of --dataset_shards"
        ) from error
    about = {"version": VERSION, "size": found.st_size, "changed": found.st_mtime_ns}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if {name: content[name] for name in about} == about and len({len(content[column]) for column in COLUMNS}) == 1:
            return content
    except (OSError, ValueError, KeyError, TypeError):
        pass  # none yet, or a damaged one
    content = {**about, **_scanned(shard)}
    try:
        write_json(path, content, indent=None)
    except (OSError, UserError) as error:
        print(f"WARNING: {error}: the shard is read through again by each run", file=sys.stderr)
    return content


def _scanned(shard: str) -> dict:
    """The images of a shard with their offsets and labels, in one pass; an image's label may come before or after it."""
    images, labels, categories = {}, {}, {}
    for member, data in _members(shard):
        folder, _, base = member.name.rpartition("/")
        stem, _, ending = base.partition(".")
        key, ending = f"{folder}/{stem}" if folder else stem, ending.lower()
        if f".{ending}" in _layout.SUFFIXES:
            if key in images:
                raise UserError(f"shard {shard}: {member.name} is the second image called {key}: keys must be unique")
            images[key] = (f"{key}.{ending}", member.offset_data, member.size)
        elif ending == "cls":
            labels[key] = data().decode("utf-8", "replace").strip()
        elif ending == "json":
            found = _parsed(shard, member.name, data())
            label = next((found[name] for name in LABELS if found.get(name) is not None), None)
            if label is not None:
                labels.setdefault(key, str(label))
            if found.get("category") is not None:
                categories[key] = str(found["category"])
    unlabelled = [key for key in images if not labels.get(key)]
    there = [key for key in images if labels.get(key)]
    named, offsets, sizes = zip(*(images[key] for key in there), strict=True) if there else ((), (), ())
    return {
        "keys": named, "offsets": offsets, "sizes": sizes, "labels": [labels[key] for key in there],
        "categories": [categories.get(key) for key in there], "unlabelled": unlabelled,
    }  # fmt: skip


def _parsed(shard: str, name: str, data: bytes) -> dict:
    try:
        found = json.loads(data)
    except ValueError as error:
        raise UserError(f"shard {shard}: {name} is no JSON ({error}): correct the shard") from error
    return found if isinstance(found, dict) else {"label": found}


def _members(shard: str):
    """Each file of a tar with a function that returns its bytes. Raises UserError, naming the shard, where it is damaged or cut short."""
    import tarfile

    try:
        with open(shard, "rb") as file, tarfile.open(fileobj=file, mode="r:") as archive:
            end = 0
            while (member := archive.next()) is not None:
                archive.members = []  # else tarfile keeps them all in memory
                end = member.offset_data + -(-member.size // BLOCK) * BLOCK if member.isreg() else archive.offset
                if member.isreg() and not os.path.basename(member.name).startswith("."):
                    yield member, lambda member=member: _bytes(file, member)
            file.seek(end)
            closing = file.read(BLOCK)
            if len(closing) < BLOCK or any(closing):
                raise tarfile.ReadError("it is cut short" if len(closing) < BLOCK else f"no header at byte {end:,}")
    except (tarfile.TarError, OSError, EOFError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"shard {shard} is damaged ({reason}): fetch it anew, or take it out of --dataset_shards") from error


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
