"""Groups of images that every split keeps on one side: --split_groups.

Photographs of one burst, of one sequence, and near-duplicates are almost the same image: if one of them trains and
another one tests, the test is too easy. Links between images (`equal`, `bursts`, `linked_by_file`) are joined to
groups, their connected components. `resolve` writes an image's group into `Image.group`. Each scheme then keeps groups
whole: schemes of classes move the classes that share a group together (`follow`), those of images move whole groups
(`_held_out.py`), and `refuse_divided` looks at every result.
"""

import functools
import os
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from datasets import _times
from datasets._images import Image
from datasets._layout import spellings
from utilities.counts import count_of
from utilities.errors import UserError
from utilities.files import expanded
from utilities.reading import Unreadable, read_records
from utilities.registry import did_you_mean

KINDS = ("none", "sequence", "burst")
BURST_SECONDS = 60.0
NO_LINKS = np.zeros((0, 2), dtype=np.int64)


def kinds(opt) -> list[str]:
    """The words of --split_groups that join images; empty for none."""
    return [kind for kind in opt.split_groups if kind != "none"]


def group_files(words: Sequence[str]) -> list[str]:
    """The words of --split_groups that name files."""
    return [word for word in words if word not in KINDS]


def needs_times(opt) -> bool:
    """Whether the flags of the split read the images' times."""
    return "burst" in kinds(opt) or opt.split_scheme.startswith("time_")


def check(opt) -> None:
    """Refuse words of --split_groups that contradict each other or are misspelt. Raises UserError.

    A file is read with the images.
    """
    flag = f"--split_groups {' '.join(opt.split_groups)}"
    if "none" in opt.split_groups and len(opt.split_groups) > 1:
        raise UserError(f"{flag}: none joins no images, leave it out")
    for kind in kinds(opt):
        if opt.split_groups.count(kind) > 1:
            raise UserError(f"{flag}: {kind} is named twice")
        is_name = "." not in kind and "/" not in kind
        if kind not in KINDS and is_name and not expanded(kind).is_file():
            raise UserError(
                f"{flag}: {kind} is no file and none of {', '.join(KINDS)}.{did_you_mean(kind, KINDS)}".rstrip(".")
            )


def components(n_images: int, links: np.ndarray) -> np.ndarray:
    """The group of each image `(N,)`, numbered in the order of the groups' first images.

    Args:
        links: `(E, 2)`, rows of two images of one group.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    weights = np.ones(len(links), dtype=np.int8)
    graph = coo_array((weights, (links[:, 0], links[:, 1])), shape=(n_images, n_images))
    _, labels = connected_components(graph, directed=False)
    _, first, numbers = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[numbers]


def equal(names: Sequence[Hashable | None]) -> np.ndarray:
    """Links `(E, 2)` between the images of equal names; None is the name of no group."""
    first_row = {}
    links = []
    for row, name in enumerate(names):
        if name is not None and first_row.setdefault(name, row) != row:
            links.append((first_row[name], row))
    return np.array(links, dtype=np.int64).reshape(-1, 2)


def bursts(images: Sequence[Image], seconds: float = BURST_SECONDS) -> np.ndarray:
    """Links `(E, 2)` between images of one class and camera whose times are neighbours, at most `seconds` apart."""
    rows = [row for row, image in enumerate(images) if image.time is not None and image.class_name is not None]
    rows.sort(key=lambda row: (images[row].class_name, images[row].camera or "", images[row].time))
    links = []
    for first, second in zip(rows, rows[1:], strict=False):
        before = images[first]
        after = images[second]
        is_same = before.class_name == after.class_name and before.camera == after.camera
        if is_same and after.time - before.time <= seconds:
            links.append((first, second))
    return np.array(links, dtype=np.int64).reshape(-1, 2)


def linked_by_file(path: Path, images: Sequence[Image], root: Path | str) -> tuple[np.ndarray, str | None]:
    """Links `(E, 2)` of a table, and a note on names in it that are none of the images'; None if all are.

    The table has the columns path and group, or two columns of paths, such as `near_duplicates.csv` of
    `python -m evaluation.overlap`: a row is a pair. Paths are absolute, or relative to `root` or the current folder.

    Raises UserError for other tables, and if no image is in it.
    """
    flag = f"--split_groups {path}"
    try:
        header, records = read_records(path)
    except Unreadable as error:
        raise UserError(f"{flag}: {error.reason}") from error
    rows_of = rows_by_path(images)

    lookup = functools.cache(functools.partial(rows_named, rows_of=rows_of, root=root))
    if {"path", "group"} <= set(header):
        links, unknown = _of_named_groups(records, lookup, flag)
    else:
        links, unknown = _of_pairs(header, records, lookup, flag)
    if not unknown:
        return links, None
    return links, f"{flag}: {count_of(len(unknown), 'path')} in it, such as {min(unknown)}, no image of the data"


def rows_by_path(images: Sequence[Image]) -> dict[str, list[int]]:
    """Absolute path -> its images: a file with several boxes is several."""
    rows_of = {}
    for row, image in enumerate(images):
        rows_of.setdefault(os.path.abspath(image.path), []).append(row)
    return rows_of


def rows_named(name: str, rows_of: dict[str, list[int]], root: Path | str) -> list[int]:
    """The rows of the images with this path, below `root` or from the current folder; empty without any."""
    for spelling in spellings(name):
        for path in (os.path.join(root, spelling), spelling):
            rows = rows_of.get(os.path.abspath(path))
            if rows:
                return rows
    return []


def _of_named_groups(records: list[dict], lookup, flag: str) -> tuple[np.ndarray, set[str]]:
    """The links of a table of paths and groups, and the paths that name no image."""
    rows_of_group = {}
    unknown = set()
    for number, record in enumerate(records, start=2):
        if not record["path"] or not record["group"]:
            lacking = "group" if record["path"] else "path"
            raise UserError(f"{flag}, row {number}: no {lacking}")
        rows = lookup(record["path"])
        rows_of_group.setdefault(record["group"], []).extend(rows)
        if not rows:
            unknown.add(record["path"])
    if records and not any(rows_of_group.values()):
        raise UserError(f"{flag}: none of its paths is an image of the data, the first is {records[0]['path']}")
    return _chained(rows_of_group.values()), unknown


def _of_pairs(header: list[str], records: list[dict], lookup, flag: str) -> tuple[np.ndarray, set[str]]:
    """The links of a table of pairs, and the paths that name no image. The columns of paths are those with images."""
    rows_in = {name: [lookup(record[name]) for record in records] for name in header}
    columns = [name for name in header if any(rows_in[name])]
    if not records:
        return NO_LINKS, set()
    if len(columns) != 2:
        raise UserError(
            f"{flag}: {len(columns)} of its columns ({', '.join(header)}) name images of the data; expected the "
            "columns path and group, or two columns of paths"
        )
    first, second = columns
    unknown = set()
    pairs = []
    for record, rows, other_rows in zip(records, rows_in[first], rows_in[second], strict=True):
        unknown |= {record[name] for name, named in ((first, rows), (second, other_rows)) if not named}
        if rows and other_rows:
            pairs.append(rows + other_rows)
    return _chained(pairs), unknown


def _chained(groups: Iterable[list[int]]) -> np.ndarray:
    """Links `(E, 2)` from one image of a group to the next."""
    links = [link for rows in groups for link in zip(rows, rows[1:], strict=False)]
    return np.array(links, dtype=np.int64).reshape(-1, 2)


def resolve(reading, opt, root: Path) -> None:
    """Set `Image.group` of all images to the name of the group by --split_groups, None for an image by itself.

    Notes say how many there are, and which join images of several classes. Raises UserError as `linked_by_file`, and
    for bursts without any time.
    """
    images = reading.images
    words = kinds(opt)
    if not words:
        if any(image.group for image in images):
            reading.notes.append("the column group is not used without --split_groups: sequence joins its images")
            reading.images = [image._replace(group=None) for image in images]
        return
    links = [equal([image.group for image in images])]
    notes = []
    for word in words:
        if word == "sequence":
            links.append(equal([image.sequence for image in images]))
        elif word == "burst":
            notes += _notes_on_bursts(images, opt)
            links.append(bursts(images, opt.burst_seconds))
        else:
            of_file, note = linked_by_file(expanded(word), images, root)
            links.append(of_file)
            notes.append(note)
    numbers = components(len(images), np.concatenate(links))
    is_group = np.bincount(numbers, minlength=1) > 1
    reading.images = []
    for image, number in zip(images, numbers.tolist(), strict=True):
        group = f"group {number}" if is_group[number] else None
        reading.images.append(image._replace(group=group))
    notes += _notes_on_groups(reading.images, words)
    # each domain has its own notes
    if not reading.by_domain:
        reading.notes += [note for note in notes if note is not None]


def _notes_on_bursts(images: list[Image], opt) -> list[str]:
    """Notes on images without a time, and on times that are dates alone. Raises UserError if no image has a time."""
    times = [image.time for image in images if image.time is not None]
    if not times:
        raise UserError(
            f"--split_groups burst: none of the {len(images):,} images has a time; times are those of EXIF data "
            "(--dataset folder) or of the column time (--dataset csv)"
        )
    notes = []
    if len(times) < len(images):
        notes.append(f"--split_groups burst: {len(images) - len(times):,} images have no time, and are of no burst")
    if are_dates(images):
        notes.append("--split_groups burst: times are dates alone, so a burst is all images of a class and a date")
    return notes


def are_dates(images: Sequence[Image]) -> bool:
    """Whether images have times, and none has a time of day: a burst is then all images of a class and a date."""
    times = [image.time for image in images if image.time is not None]
    return bool(times) and all(time % _times.DAY == 0 for time in times)


def _notes_on_groups(images: list[Image], words: list[str]) -> list[str]:
    """Notes on the number of groups, and on groups of several classes."""
    members = by_group(images)
    flag = f"--split_groups {' '.join(words)}"
    n_grouped = sum(map(len, members.values()))
    notes = [f"{flag}: {n_grouped:,} images in {count_of(len(members), 'group')}, each on one side of the split"]
    pairs = []
    for rows in members.values():
        first = images[rows[0]]
        second = next((images[row] for row in rows if images[row].class_name != first.class_name), None)
        if second is not None:
            pairs.append((first, second))
    if pairs:
        first, second = pairs[0]
        notes.append(
            f"{count_of(len(pairs), 'group')} of images of several classes (is a label wrong?), e.g. {first.path} of "
            f"{first.class_name} and {second.path} of {second.class_name}"
        )
    return notes


def by_group(images: Sequence[Image]) -> dict[str, list[int]]:
    """Group -> the rows of its images, of the groups of several images."""
    rows_of = {}
    for row, image in enumerate(images):
        if image.group is not None:
            rows_of.setdefault(image.group, []).append(row)
    return {group: rows for group, rows in rows_of.items() if len(rows) > 1}


class Joined(NamedTuple):
    """Images joined to groups, and classes joined by them.

    Attributes:
        groups: `(N,)`, the number of each image's group, in the order of the groups' first images.
        leader_of: class -> the first class that it shares a group with, directly or over further classes; itself
            without any. Classes of one leader are one unit: they belong on one side of a split.
    """

    groups: np.ndarray
    leader_of: dict[str, str]


def join(images: Sequence[Image], pairs: np.ndarray = NO_LINKS, burst_seconds: float | None = BURST_SECONDS) -> Joined:
    """Join images of equal groups, of one burst, and of `pairs` of rows `(E, 2)`, such as near-duplicates.

    Args:
        burst_seconds: longest pause in a burst; None: times are not used.
    """
    links = [equal([image.group for image in images]), np.asarray(pairs, dtype=np.int64).reshape(-1, 2)]
    if burst_seconds is not None:
        links.append(bursts(images, burst_seconds))
    groups = components(len(images), np.concatenate(links))
    named = [image._replace(group=str(group)) for image, group in zip(images, groups.tolist(), strict=True)]
    return Joined(groups, leading_classes(named))


def numbers_of(images: Sequence[Image]) -> np.ndarray:
    """The group of each image as a number `(N,)`, in the order of the groups' first images."""
    return components(len(images), equal([image.group for image in images]))


def leading_rows(numbers: np.ndarray) -> np.ndarray:
    """The first row `(N,)` with the same number as each row."""
    _, first, positions = np.unique(numbers, return_index=True, return_inverse=True)
    return first[positions]


def leading_classes(images: Sequence[Image]) -> dict[str, str]:
    """Class -> the first class that groups join it with, directly or over further classes; itself without any."""
    names = list(dict.fromkeys(image.class_name for image in images))
    number_of = {name: number for number, name in enumerate(names)}
    numbers = [number_of[image.class_name] for image in images]
    links = np.array(numbers, dtype=np.int64)[equal([image.group for image in images])]
    leaders = leading_rows(components(len(names), links))
    return {name: names[leader] for name, leader in zip(names, leaders.tolist(), strict=True)}


def follow(chosen: set[str], classes: dict[str, list[Image]]) -> set[str]:
    """The classes whose leading class is in `chosen`: classes that share a group go together."""
    all_images = [image for images in classes.values() for image in images]
    if all(image.group is None for image in all_images):
        return chosen
    leader_of = leading_classes(all_images)
    return {name for name in classes if leader_of[name] in chosen}


def refuse_divided(sides: dict[str, Sequence[Image] | None], opt) -> None:
    """Raise UserError if images of one group are on two sides; `sides`: training, validation, test -> its images."""
    # group -> the side and an image of it
    first_of = {}
    divided = {}
    for side, images in sides.items():
        for image in images or ():
            if image.group is None:
                continue
            first = first_of.setdefault(image.group, (side, image))
            if first[0] != side:
                divided.setdefault(image.group, (*first, side, image))
    if not divided:
        return
    side, image, second_side, second = next(iter(divided.values()))
    raise UserError(
        f"--split_groups {' '.join(opt.split_groups)}: {count_of(len(divided), 'group')} in two parts of a split "
        f"that is fixed, e.g. {image.path} ({side}) and {second.path} ({second_side}): correct the split, take a "
        "--split_scheme that divides the images anew, or leave --split_groups out"
    )
