"""Splits of the classes of the objects: the official one, and disjoint sets of which draws are made.

Classes of one series (models whose names differ in numbers) are never on two sides of a split or in two sets. The
order of series and models is that of their hashes, so it needs no generator of random numbers.
"""

import hashlib
import re
from collections import defaultdict
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from experiments.objects.selection import part_series
from utilities.files import write_csv, write_json

# classes per set
SIZES = (100, 50, 20)
SEED = 0
HEAD = ("label", "path", "split", "category", "category_2", "series", "model", "licence")


class Entry(NamedTuple):
    """A class: its label `<super>/<class>`, its model's name in the package, and who made the model under what."""

    label: str
    model: str
    licence: str
    creator: str

    @property
    def is_part(self) -> bool:
        """Whether it is an electronic part, and not a piece of furniture."""
        return not self.model.endswith(".obj")

    @property
    def series(self) -> str:
        """The name without its numbers: of parts with the folder, of furniture of the file alone."""
        if self.is_part:
            return part_series(self.model)
        return re.sub(r"\d", "", PurePosixPath(self.model).stem)


def _digest(text: str) -> bytes:
    return hashlib.sha256(f"{SEED} {text}".encode()).digest()


def in_order(entries: list[Entry]) -> list[list[Entry]]:
    """The series in the order of their hashes, and the classes of each likewise."""
    members = defaultdict(list)
    for entry in entries:
        members[entry.series].append(entry)
    ordered = sorted(members, key=_digest)
    return [sorted(members[series], key=lambda entry: _digest(entry.model)) for series in ordered]


def training_half(entries: list[Entry]) -> set[str]:
    """The labels of the official training classes: whole series until half the classes."""
    labels = set()
    for members in in_order(entries):
        if 2 * len(labels) >= len(entries):
            break
        labels |= {entry.label for entry in members}
    return labels


def disjoint_sets(entries: list[Entry], size: int) -> list[list[str]]:
    """Sets of `size` labels; what a full set leaves of a series is in none, and an incomplete set is left out."""
    sets = []
    current = []
    for members in in_order(entries):
        current += [entry.label for entry in members][: size - len(current)]
        if len(current) == size:
            sets.append(current)
            current = []
    return sets


def draws(sets: list[list[str]]) -> list[dict[str, list[str]]]:
    """Splits of `--split_scheme predefined`: two sets each for training and test; the next set is for validation."""
    splits = []
    for first in range(0, len(sets) - 1, 2):
        splits.append({"train": sets[first], "val": sets[(first + 2) % len(sets)], "test": sets[first + 1]})
    return splits


def write_lists(entries: list[Entry], n_views: int, out: Path) -> None:
    """Write the sets, the draws and, last, objects.csv below `out`."""
    for size in SIZES:
        sets = disjoint_sets(entries, size)
        folder = out / "objects_draws" / str(size)
        folder.mkdir(parents=True, exist_ok=True)
        (out / "objects_sets").mkdir(exist_ok=True)
        write_json(out / "objects_sets" / f"{size}.json", sets)
        for number, split in enumerate(draws(sets)):
            write_json(folder / f"draw_{number:02}.json", split)
    training = training_half(entries)
    rows = []
    for entry in sorted(entries):
        split = "train" if entry.label in training else "validation"
        kind = "parts" if entry.is_part else "furniture"
        category = entry.label.split("/")[0]
        for view in range(n_views):
            path = f"objects/{entry.label}/{view:02}.png"
            rows.append((entry.label, path, split, category, kind, entry.series, entry.model, entry.licence))
    write_csv(out / "objects.csv", HEAD, rows)
