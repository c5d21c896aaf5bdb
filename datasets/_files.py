"""Checks of a data set's files without decoding them: a fingerprint, byte-identical copies, transparency.

`Files` are those of one data set. The fingerprint and the lists of classes of two runs are compared by `differences`;
`repeated`, `copies_found` and `dark_16_bit` are lines for the console on data that are probably wrong.
"""

import contextlib
import functools
import hashlib
import itertools
import os
import zlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from datasets import _content, _images
from datasets._images import Image
from utilities.counts import count_of
from utilities.errors import UserError
from utilities.files import write_json
from utilities.reading import Unreadable, parsing, read_json

PIECE = 4096  # bytes from the middle of a file, enough to tell most files of one size apart
MOST_FILES = 50_000  # files of equal sizes that are compared
MOST_BYTES = 1 << 30  # bytes that are read to compare whole files with equal pieces
CACHED_FROM = 2_000  # number of files of equal sizes from which the result is cached
SAMPLE = 64  # files that are checked for transparency, or for the highest value
OPAQUE = (".jpg", ".jpeg", ".jpe", ".jfif", ".bmp", ".ppm", ".pgm")  # endings of files that cannot be transparent
DEEP = (".png", ".apng", ".tif", ".tiff", ".pgm", ".ppm", ".pnm", ".jp2", ".j2k")  # that may have 16 bits per channel
DARK = 2**14  # an image of 16 bits whose values are all below this, a quarter of white, is almost black
THREADS = 16
CHUNK = 256  # files that a thread takes at a time
MOST_HASHED = 2 << 30  # bytes of a data set up to which every file is read for the fingerprint
CACHE = "deep-metric-learning-pipeline"


def cache_folder() -> Path:
    """The user's cache folder of this program."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / CACHE


class Files:
    """The files of a data set.

    Args:
        images: all of them. root: the data set's folder; names are relative to it, in messages and hashes.
    """

    def __init__(self, images: list[Image], root: Path):
        # images with several boxes count once
        self.root = str(root)
        self.paths = list(dict.fromkeys(image.path for image in images))
        self.stats = _of_each(_stat, self.paths)

    def name(self, path: str) -> str:
        """A file's path relative to the data set's folder."""
        prefix = self.root + os.sep
        return path.removeprefix(prefix) if path.startswith(prefix) else os.path.relpath(path, self.root)

    def digest(self, facts: list) -> str:
        """SHA-256 of the sorted names with a fact about each file, in the order of `paths`."""
        lines = sorted(f"{self.name(path)}\0{fact}\n" for path, fact in zip(self.paths, facts, strict=True))
        return hashlib.sha256(os.fsencode("".join(lines))).hexdigest()

    def fingerprint(self) -> dict:
        """SHA-256 of the sorted names and sizes, of names and times of change, and the numbers of files and bytes.

        It does not depend on the location.
        """
        sizes = self._sizes()
        times = self.digest([time for _, time in self.stats])
        return {
            "sha256": self.digest(sizes),
            "files": len(sizes),
            "bytes": sum(sizes),
            "times": times,
            "by_content": self.hashed,
        }

    @property
    def hashed(self) -> bool:
        """Whether `class_lists` are of the files' bytes too."""
        return sum(self._sizes()) <= MOST_HASHED

    def class_lists(self, splits: dict[str, list[Image] | None]) -> dict[str, str]:
        """The classes of each split, a line each.

        A line holds the number of images, a checksum of their names, sizes and (where `hashed`) bytes, and the class.
        """
        facts = {}
        for path, size, checksum in zip(self.paths, self._sizes(), self._checksums(), strict=True):
            facts[path] = f"{self.name(path)}\0{size}\0{checksum}\n"
        lists = {}
        for split, images in splits.items():
            class_facts = {}
            for image in images or ():
                class_facts.setdefault(image.class_name, []).append(facts[image.path])
            if class_facts:
                lists[split] = "\n".join(_class_line(name, lines) for name, lines in class_facts.items())
        return lists

    def _sizes(self) -> list[int]:
        return [size for size, _ in self.stats]

    def _checksums(self) -> list[int]:
        """Of each file's bytes; all 0 for a data set too large to read."""
        return _of_each(_checksum, self.paths) if self.hashed else [0] * len(self.paths)

    def copies(self) -> tuple[list[list[str]], int]:
        """Groups of paths of equal files, and the number of files that may have copies but were not compared.

        Files of equal size are compared by a piece, those with equal pieces as a whole. For a large set the result is
        cached until a name, size or time of change differs.
        """
        sizes = self._sizes()
        counts = Counter(sizes)
        candidates = [path for path, size in zip(self.paths, sizes, strict=True) if counts[size] > 1 and size > 0]
        if len(candidates) < CACHED_FROM:
            return _copies(candidates)
        file = cache_folder() / f"copies-{self.digest(self.stats)[:32]}.json"
        try:
            with parsing(file):
                content = read_json(file)
                groups = [[os.path.join(self.root, name) for name in group] for group in content["groups"]]
                return groups, int(content["left"])
        except Unreadable:
            groups, not_compared = _copies(candidates)
        names = [[self.name(path) for path in group] for group in groups]
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_json(file, {"groups": names, "left": not_compared}, indent=None)
        except (OSError, UserError, UnicodeEncodeError):
            # the next run compares them again
            pass
        return groups, not_compared

    def transparent(self) -> str | None:
        """The first file with an alpha channel or a transparent colour, in a sample of those whose format allows it."""
        import PIL.Image

        open_image = functools.partial(PIL.Image.open, formats=_images.formats())
        for path in _sample([path for path in self.paths if not path.lower().endswith(OPAQUE)]):
            # A damaged image is reported when it is decoded.
            with contextlib.suppress(Unreadable), parsing(path), open_image(_content.opened(path)) as image:
                if image.has_transparency_data:
                    return path
        return None


def _class_line(name: str | None, facts: list[str]) -> str:
    """The line of a class in `Files.class_lists`; `facts`: a text on each of its images."""
    checksum = zlib.crc32(os.fsencode("".join(sorted(facts))))
    return f"{len(facts)} {checksum:08x} {' '.join((name or '').split())}"


def _sample(paths: list[str]) -> list[str]:
    """About `SAMPLE` of the paths, spread over all."""
    return paths[:: max(len(paths) // SAMPLE, 1)]


def dark_16_bit(paths: list[str]) -> str | None:
    """One line on images with 16 bits per channel that are almost black, as 12-bit data are.

    A sample is examined, spread over all files whose format allows 16 bits. None without any, and where one is bright.
    """
    highest = {}
    for path in _sample([path for path in paths if path.lower().endswith(DEEP)]):
        value = _images.highest_of_16_bits(path)
        if value is not None:
            highest[path] = value
    if not highest or max(highest.values()) >= DARK:
        return None
    path = max(highest, key=highest.get)
    bits = max(highest[path].bit_length(), 8)
    return (
        f"16-bit images are decoded almost black: the highest value in {len(highest):,} of them is {highest[path]:,} "
        f"of {_images.MOST_16:,}, in {path}. If these are {bits}-bit data, multiply the values by {2 ** (16 - bits)}"
    )


def _of_each(function, paths: list[str]) -> list:
    """`[function(path) for path in paths]`, in threads if there are many: a network drive answers several at once."""
    chunks = [paths[start : start + CHUNK] for start in range(0, len(paths), CHUNK)]
    if len(chunks) < 2:
        return [function(path) for path in paths]
    with ThreadPoolExecutor(THREADS) as pool:
        return list(itertools.chain.from_iterable(pool.map(lambda chunk: [function(path) for path in chunk], chunks)))


def _stat(path: str) -> tuple[int, int]:
    """Size in bytes and time of change in nanoseconds."""
    try:
        return _content.stat(path)
    except OSError:
        # removed since it was listed: reported when it is decoded
        return 0, 0


def _piece(path: str) -> bytes:
    """A file's size and the bytes from its middle; empty if it cannot be read."""
    try:
        path, begin, size = _content.place(path) or (path, 0, None)
        with open(path, "rb") as file:
            if size is None:
                size = os.fstat(file.fileno()).st_size
            file.seek(begin + max(size - PIECE, 0) // 2)
            return size.to_bytes(8, "big") + file.read(min(size, PIECE))
    except OSError:
        return b""


def _whole(path: str) -> bytes:
    try:
        return hashlib.sha256(_content.read(path)).digest()
    except OSError:
        return b""


def _checksum(path: str) -> int:
    try:
        return zlib.crc32(_content.read(path))
    except OSError:
        return 0


def differences(before: dict, after: dict) -> list[str]:
    """What differs between two records of one data set (`datasets.record`); empty if nothing.

    A line for each kind of difference: classes that are new, gone, moved, or whose images or files changed.
    """
    # the record of a run of an older version
    if "classes" not in before:
        is_same = (before.get("fingerprint") or {}).get("sha256") in (None, after["fingerprint"]["sha256"])
        return [] if is_same else ["names or sizes of files"]
    old = _by_class(before["classes"])
    new = _by_class(after["classes"])
    old_splits = _splits_of(old)
    new_splits = _splits_of(new)
    changes = {
        "new": [f"class {name}" for name in sorted(set(new_splits) - set(old_splits))],
        "gone": [f"class {name}" for name in sorted(set(old_splits) - set(new_splits))],
        "moved": [],
    }
    for name in sorted(set(old_splits) & set(new_splits)):
        if old_splits[name] != new_splits[name]:
            origin = " and ".join(old_splits[name])
            changes["moved"].append(f"class {name} from {origin} to {' and '.join(new_splits[name])}")
    are_comparable = before["fingerprint"]["by_content"] == after["fingerprint"]["by_content"]
    for key, (n_old, old_checksum) in old.items():
        n_new, new_checksum = new.get(key, (n_old, old_checksum))
        if n_old != n_new:
            changes.setdefault("images", []).append(f"class {key[0]} has {n_new}, had {n_old}")
        elif old_checksum != new_checksum and are_comparable:
            changes.setdefault("files", []).append(f"of class {key[0]}")
    is_other = before["fingerprint"]["sha256"] != after["fingerprint"]["sha256"]
    if not are_comparable and is_other and not any(changes.values()):
        changes["files"] = ["names or sizes"]
    return [_change_line(kind, lines) for kind, lines in changes.items() if lines]


def _change_line(kind: str, lines: list[str]) -> str:
    text = f"{kind}: {', '.join(lines[:3])}"
    return text if len(lines) <= 3 else f"{text} and {len(lines) - 3:,} more"


def _by_class(lists: dict[str, str]) -> dict[tuple[str, str], tuple[int, str]]:
    """(class, split) -> number of images, checksum."""
    classes = {}
    for split, text in lists.items():
        for line in text.split("\n"):
            count, checksum, name = line.split(" ", 2)
            classes[name, split] = (int(count), checksum)
    return classes


def _splits_of(classes: dict[tuple[str, str], tuple]) -> dict[str, list[str]]:
    """Class -> the splits that it is in."""
    splits = {}
    for name, split in classes:
        splits.setdefault(name, []).append(split)
    return splits


def _copies(candidates: list[str]) -> tuple[list[list[str]], int]:
    """The result of `Files.copies`; `candidates`: the paths of files that share their size with another."""
    compared = candidates[:MOST_FILES]
    similar = [path for group in _groups(compared, _of_each(_piece, compared)) for path in group]
    ends = itertools.accumulate(size for size, _ in _of_each(_stat, similar))
    read = [path for path, end in zip(similar, ends, strict=True) if end <= MOST_BYTES]
    groups = _groups(read, _of_each(_whole, read))
    return groups, len(candidates) - len(compared) + len(similar) - len(read)


def _groups(paths: list[str], keys) -> list[list[str]]:
    """Groups of at least two paths with equal keys; empty keys are left out."""
    groups = {}
    for path, key in zip(paths, keys, strict=True):
        if key:
            groups.setdefault(key, []).append(path)
    return [group for group in groups.values() if len(group) > 1]


def repeated(splits: dict[str, list[Image] | None]) -> str | None:
    """One line on images that are twice in a split, or in test and in training or validation; None without any.

    An image is a file or a box of it. `splits` as in `copies_found`.
    A test set that is the validation set is noted elsewhere.
    """
    images_of = {}
    for split, images in splits.items():
        images_of[split] = [(image.path, image.box) for image in images or ()]
    twice = []
    for images in images_of.values():
        twice += [image for image, times in Counter(images).items() if times > 1]
    before_test = set(images_of["training"])
    if set(images_of["validation"]) != set(images_of["testing"]):
        before_test |= set(images_of["validation"])
    across = sorted(before_test & set(images_of["testing"]), key=str)
    parts = []
    if twice:
        parts.append(f"{len(twice):,} twice in one split, where they retrieve themselves")
    if across:
        parts.append(f"{len(across):,} both in test and in training or validation")
    if not parts:
        return None
    path, _ = (across or twice)[0]
    return f"repeated images: {', '.join(parts)}, e.g. {path}"


def copies_found(
    groups: list[list[str]], not_compared: int, splits: dict[str, list[Image] | None], noun: str = "files"
) -> str | None:
    """One line on copies in several classes, or in test and in training or validation; None if there are none.

    Args:
        groups, not_compared: the result of `Files.copies`.
        splits: `training`, `validation`, `testing` -> images. noun: what is compared.
    """
    # path -> its class, and whether it is in test
    place = {}
    for split, images in splits.items():
        for image in images or ():
            place[image.path] = (image.class_name, split == "testing")
    between = []
    across = []
    for group in groups:
        paths = [path for path in group if path in place]
        places = [place[path] for path in paths]
        if len({class_name for class_name, _ in places}) > 1:
            between.append(paths)
        if len({is_test for _, is_test in places}) > 1:
            across.append(paths)
    items = "images" if noun == "files" else noun
    parts = []
    if between:
        parts.append(f"{_size(between, items)} in more than one class")
    if across:
        parts.append(f"{_size(across, items)} both in test and in training or validation")
    if not_compared:
        parts.append(f"{not_compared:,} files of equal size were not compared")
    if not parts:
        return None
    return f"duplicate {noun}: {', '.join(parts)}{_example(between or across, place)}"


def _example(groups: list[list[str]], place: dict[str, tuple]) -> str:
    """The first two neighbours of a group in different places, in words; empty without groups."""
    for paths in groups:
        for first, second in itertools.pairwise(paths):
            if place[first] != place[second]:
                return f", e.g. {first} and {second}"
    return ""


def _size(groups: list[list[str]], items: str) -> str:
    return f"{count_of(len(groups), 'group')} ({sum(map(len, groups)):,} {items})"
