"""Checks of a data set's files without decoding them: a fingerprint, byte-identical copies, transparency."""

import contextlib
import functools
import hashlib
import os
import zlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate, chain, pairwise
from pathlib import Path

from datasets import _content, _images
from datasets._images import Image
from utilities.errors import UserError
from utilities.files import write_json
from utilities.reading import Unreadable, parsing, read_json

PIECE = 4096  # bytes from the middle of a file, enough to tell most files of one size apart
MOST_FILES = 50_000  # files of equal sizes that are compared
MOST_BYTES = 1 << 30  # bytes that are read to compare whole files with equal pieces
KEPT_FROM = 2_000  # number of files of equal sizes from which the result is cached
SAMPLE = 64  # files that are checked for transparency, or for the highest value
OPAQUE = (".jpg", ".jpeg", ".jpe", ".jfif", ".bmp", ".ppm", ".pgm")  # endings of files that cannot be transparent
DEEP = (".png", ".apng", ".tif", ".tiff", ".pgm", ".ppm", ".pnm", ".jp2", ".j2k")  # that may have 16 bits per channel
DARK = 2**14  # an image of 16 bits whose values are all below this, a quarter of white, is almost black
# files a thread takes at a time
THREADS = 16
CHUNK = 256
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

    def _digest(self, facts: list) -> str:
        lines = sorted(f"{self.name(path)}\0{fact}\n" for path, fact in zip(self.paths, facts, strict=True))
        return hashlib.sha256(os.fsencode("".join(lines))).hexdigest()

    def fingerprint(self) -> dict:
        """SHA-256 of the sorted names and sizes, of names and times of change, and the numbers of files and bytes; not
        of the location.
        """
        sizes = [size for size, _ in self.stats]
        times = self._digest([time for _, time in self.stats])
        return {
            "sha256": self._digest(sizes),
            "files": len(sizes),
            "bytes": sum(sizes),
            "times": times,
            "by_content": self.hashed,
        }

    @property
    def hashed(self) -> bool:
        """Whether `class_lists` are of the files' bytes too."""
        return sum(size for size, _ in self.stats) <= MOST_HASHED

    def class_lists(self, splits: dict[str, list[Image] | None]) -> dict[str, str]:
        """The classes of each split, a line each: number of images, checksum of their names, sizes and, where `hashed`,
        bytes, name.
        """
        sums = dict(
            zip(self.paths, _of_each(_checksum, self.paths) if self.hashed else [0] * len(self.paths), strict=True)
        )
        facts = {
            path: f"{self.name(path)}\0{size}\0{sums[path]}\n"
            for path, (size, _) in zip(self.paths, self.stats, strict=True)
        }
        lists = {}
        for split, images in splits.items():
            of_class = {}
            for image in images or ():
                of_class.setdefault(image.class_name, []).append(facts[image.path])
            lines = (
                f"{len(found)} {zlib.crc32(os.fsencode(''.join(sorted(found)))):08x} {' '.join((name or '').split())}"
                for name, found in of_class.items()
            )
            lists[split] = "\n".join(lines)
        return {split: text for split, text in lists.items() if text}

    def copies(self) -> tuple[list[list[str]], int]:
        """Groups of paths whose files are the same byte for byte, and the number of files that may have copies but were
        not compared.

        Files of equal size are compared by a piece, those with equal pieces as a whole. For a large set the result is
        cached until a name, size or time of change differs.
        """
        sizes = Counter(size for size, _ in self.stats)
        alike = [path for path, (size, _) in zip(self.paths, self.stats, strict=True) if sizes[size] > 1 and size > 0]
        if len(alike) < KEPT_FROM:
            return _copies(alike)
        kept = cache_folder() / f"copies-{self._digest(self.stats)[:32]}.json"
        try:
            with parsing(kept):
                content = read_json(kept)
                return [[os.path.join(self.root, name) for name in group] for group in content["groups"]], int(
                    content["left"]
                )
        except Unreadable:
            groups, left = _copies(alike)
        try:
            kept.parent.mkdir(parents=True, exist_ok=True)
            write_json(
                kept, {"groups": [[self.name(path) for path in group] for group in groups], "left": left}, indent=None
            )
        except (OSError, UserError, UnicodeEncodeError):
            pass  # the next run compares them again
        return groups, left

    def transparent(self) -> str | None:
        """The first file with an alpha channel or a transparent colour, in a sample spread over all files whose format
        allows it.
        """
        import PIL.Image

        open_image = functools.partial(PIL.Image.open, formats=_images.formats())
        for path in _sample([path for path in self.paths if not path.lower().endswith(OPAQUE)]):
            # A damaged image is reported when it is decoded.
            with contextlib.suppress(Unreadable), parsing(path), open_image(_content.opened(path)) as image:
                if image.has_transparency_data:
                    return path
        return None


def _sample(paths: list[str]) -> list[str]:
    """About `SAMPLE` of the paths, spread over all."""
    return paths[:: max(len(paths) // SAMPLE, 1)]


def dark_16_bit(paths: list[str]) -> str | None:
    """One line on images with 16 bits per channel that use few of them, as 12-bit data do, and so are almost black.

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
    """`[function(path) for path in paths]`, with threads where there are many: a network drive answers several requests
    at once.
    """
    chunks = [paths[start : start + CHUNK] for start in range(0, len(paths), CHUNK)]
    if len(chunks) < 2:
        return [function(path) for path in paths]
    with ThreadPoolExecutor(THREADS) as pool:
        return list(chain.from_iterable(pool.map(lambda chunk: [function(path) for path in chunk], chunks)))


def _stat(path: str) -> tuple[int, int]:
    """Size in bytes and time of change in nanoseconds."""
    try:
        return _content.stat(path)
    except OSError:  # removed since it was listed: reported when it is decoded
        return 0, 0


def _piece(path: str) -> bytes:
    """A file's size and the bytes from its middle; empty where it cannot be read."""
    try:
        file, begin, size = _content.place(path) or (path, 0, None)
        with open(file, "rb") as file:
            size = os.fstat(file.fileno()).st_size if size is None else size
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


def differences(before: dict, now: dict) -> list[str]:
    """What differs between two records of one data set, `datasets.record`: classes that came, went, moved or changed;
    empty if nothing.
    """
    if "classes" not in before:  # of a run of an older version
        same = (before.get("fingerprint") or {}).get("sha256") in (None, now["fingerprint"]["sha256"])
        return [] if same else ["names or sizes of files"]
    old = _by_class(before["classes"])
    new = _by_class(now["classes"])
    there_before, there_now = ({name for name, _ in lists} for lists in (old, new))
    found = {
        "new": [f"class {name}" for name in sorted(there_now - there_before)],
        "gone": [f"class {name}" for name in sorted(there_before - there_now)],
        "moved": [
            f"class {name} from {' and '.join(was)} to {' and '.join(is_in)}"
            for name in sorted(there_before & there_now)
            if (was := [split for one, split in old if one == name])
            != (is_in := [split for one, split in new if one == name])
        ],
    }
    kept = [key for key in old if key in new and old[key] != new[key]]
    comparable = before["fingerprint"]["by_content"] == now["fingerprint"]["by_content"]
    for name, split in kept:
        (n_old, _), (n_new, _) = old[name, split], new[name, split]
        if n_old != n_new:
            found.setdefault("images", []).append(f"class {name} has {n_new}, had {n_old}")
        elif comparable:
            found.setdefault("files", []).append(f"of class {name}")
    if not comparable and before["fingerprint"]["sha256"] != now["fingerprint"]["sha256"] and not any(found.values()):
        found["files"] = ["names or sizes"]
    return [
        f"{kind}: {', '.join(some[:3])}" + (f" and {len(some) - 3:,} more" if len(some) > 3 else "")
        for kind, some in found.items()
        if some
    ]


def _by_class(lists: dict[str, str]) -> dict[tuple[str, str], tuple[int, str]]:
    """(class, split) -> number of images, checksum."""
    rows = ((line.split(" ", 2), split) for split, text in lists.items() for line in text.split("\n"))
    return {(name, split): (int(number), checksum) for (number, checksum, name), split in rows}


def _copies(alike: list[str]) -> tuple[list[list[str]], int]:
    """See `Files.copies`; `alike` are the paths of files that share their size with another."""
    looked_at = alike[:MOST_FILES]
    candidates = [path for group in _groups(looked_at, _of_each(_piece, looked_at)) for path in group]
    ends = accumulate(size for size, _ in _of_each(_stat, candidates))
    read = [path for path, end in zip(candidates, ends, strict=True) if end <= MOST_BYTES]
    groups = _groups(read, _of_each(_whole, read))
    return groups, len(alike) - len(looked_at) + len(candidates) - len(read)


def _groups(paths: list[str], keys) -> list[list[str]]:
    """Groups of at least two paths with equal keys; empty keys are left out."""
    found = {}
    for path, key in zip(paths, keys, strict=True):
        if key:
            found.setdefault(key, []).append(path)
    return [group for group in found.values() if len(group) > 1]


def repeated(splits: dict[str, list[Image] | None]) -> str | None:
    """One line on images, each a file or a box of it, that are twice in a split, or in test and in training or
    validation; None without any.

    `splits` as of `copies_found`. A test set that is the validation set is said elsewhere.
    """
    own = {split: [(image.path, image.box) for image in images or ()] for split, images in splits.items()}
    twice = [place for places in own.values() for place, times in Counter(places).items() if times > 1]
    others = (
        set(own["training"])
        if set(own["validation"]) == set(own["testing"])
        else {*own["training"], *own["validation"]}
    )
    across = sorted(others & set(own["testing"]), key=str)
    parts = [f"twice in one split, so that they find themselves: {len(twice):,}"] if twice else []
    if across:
        parts.append(f"in test and in training or validation: {len(across):,}")
    return f"the same images, {'; '.join(parts)}, as {(across or twice)[0][0]}" if parts else None


def copies_found(groups: list[list[str]], left: int, splits: dict[str, list[Image] | None]) -> str | None:
    """One line on copies in several classes, or in test and in training or validation; None where there are none.

    Args:
        groups, left: the result of `Files.copies`.
        splits: `training`, `validation`, `testing` -> images.
    """
    place = {
        image.path: (image.class_name, split == "testing") for split, images in splits.items() for image in images or ()
    }
    between = []
    across = []
    for group in groups:
        there = [path for path in group if path in place]
        if len({place[path][0] for path in there}) > 1:
            between.append(there)
        if len({place[path][1] for path in there}) > 1:
            across.append(there)
    parts = (
        [f"groups of equal files in several classes: {len(between):,} ({sum(map(len, between)):,} images)"]
        if between
        else []
    )
    parts += (
        [f"in test and in training or validation: {len(across):,} ({sum(map(len, across)):,} images)"] if across else []
    )
    if left:
        parts.append(f"{left:,} files of equal size were not compared")
    if not parts:
        return None
    first = next(
        (pair for group in between or across for pair in pairwise(group) if place[pair[0]] != place[pair[1]]), None
    )
    return f"exact copies: {'; '.join(parts)}" + (f", as {first[0]} and {first[1]}" if first else "")
