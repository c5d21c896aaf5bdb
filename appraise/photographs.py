"""The photographs: faults of their files, near-duplicates and bursts, and a split that keeps these together."""

import hashlib
import os
from collections import Counter
from pathlib import Path

import numpy as np

from appraise.steps import Appraisal
from datasets import _check, _files, _groups, _schemes, _times
from datasets._images import Image
from tools import overlap
from utilities.counts import count_of
from utilities.errors import UserError
from utilities.files import write_csv, write_json
from utilities.labels import present

IMAGES = "images.csv"
PHOTOGRAPHS = "photographs.csv"
PAIRS = "near_duplicates.csv"
PARTS = ("train", "select", "set aside", "test")
# the fewest classes that each part needs
LEAST = {"train": 2, "select": 2, "set aside": 2, "test": 2}
LEAST_CLASSES = 8
# Similarities from which two images are near-duplicates: a network without training finds all photographs alike, and
# the next value is tried while more than `MOST_ALIKE` of the images have a near-duplicate of another class.
SIMILARITIES = (0.95, 0.98, 0.99, 0.995, 0.999)
MOST_ALIKE = 0.1
# pairs on the page
MOST_SHOWN = 24
BOX = ("x_1", "y_1", "x_2", "y_2")


# ----------------------------------------------------------------------------------------------------------------- data
def find_faults(appraisal: Appraisal) -> dict:
    """Broken files and names, equal files, stray files, classes of one image; writes the table of the other images."""
    opt, root, reading = appraisal.source
    reasons = _check.undecodable(reading.images, opt)
    images = []
    broken = []
    for image, reason in zip(reading.images, reasons, strict=True):
        reason = reason or unwritable(image)
        if reason is not None:
            broken.append(reason)
        elif image.class_name is not None:
            images.append(image)
    refuse_few(images, appraisal.flags.parts)
    write_table(appraisal.folder / IMAGES, images)
    groups, _ = _files.Files(images, root).copies()
    class_of = {image.path: image.class_name for image in images}
    classes_of = [sorted({class_of[path] for path in group}) for group in groups]
    across = [group for group, names in zip(groups, classes_of, strict=True) if len(names) > 1]
    sizes = Counter(image.class_name for image in images)
    strays = list(_check.strays(root)) if opt.dataset == "folder" else []
    faults = count_of(len(broken) + len(across), "fault")
    return {
        "summary": f"{count_of(len(images), 'photograph')} of {count_of(len(sizes), 'class', 'classes')}, {faults}",
        "images": len(images),
        "sizes": dict(sizes),
        "broken": broken,
        "missing": reading.missing,
        "without_class": sum(image.class_name is None for image in reading.images),
        "copies_across": [[[path, class_of[path]] for path in group] for group in across],
        "copies_within": len(groups) - len(across),
        "single": sorted(name for name, size in sizes.items() if size == 1),
        "strays": strays,
        "notes": reading.notes,
    }


def unwritable(image: Image) -> str | None:
    """Why a table does not give an image back: by its class or by its name. None if it does."""
    if image.class_name is not None and not present(image.class_name):
        return f"{image.path}: class {image.class_name!r} means no class in tables: rename it"
    try:
        f"{image.path}{image.class_name}".encode()
    except UnicodeEncodeError:
        return f"{image.path}: its name is not UTF-8: rename it"
    return None


def write_table(path: Path, images: list[Image], sequences: list[str] | None = None, training=()) -> None:
    """Write the images as a table for --dataset csv.

    Args:
        sequences: of each image, "" for none. training: names of the classes that train; without them the first class.
    """
    training = set(training) or {images[0].class_name}
    columns = {
        "label": [image.class_name for image in images],
        "path": [os.path.abspath(image.path) for image in images],
        "split": ["train" if image.class_name in training else "validation" for image in images],
    }
    if sequences is not None:
        columns["sequence"] = sequences
    if any(image.super_name for image in images):
        columns["category"] = [image.super_name for image in images]
    if any(image.box for image in images):
        boxes = [image.box or [""] * len(BOX) for image in images]
        columns |= zip(BOX, zip(*boxes, strict=True), strict=True)
    write_csv(path, list(columns), list(zip(*columns.values(), strict=True)))


def refuse_few(images: list[Image], parts: list[float]) -> None:
    """Raise UserError where there are too few classes, or images, for any number."""
    sizes = Counter(image.class_name for image in images)
    if len(sizes) < LEAST_CLASSES:
        raise UserError(f"{count_of(len(sizes), 'class', 'classes')}: an appraisal needs {LEAST_CLASSES}")
    if max(sizes.values()) == 1:
        raise UserError(f"all {len(sizes):,} classes have one image: take at least two of most")
    counts = shares(len(sizes), parts)
    for name, count in zip(PARTS, counts, strict=True):
        if count < LEAST[name]:
            raise UserError(
                f"{len(sizes)} classes give {', '.join(map(str, counts))} ({', '.join(PARTS)}): {name} needs "
                f"{LEAST[name]}; take more classes or other --parts"
            )


def shares(count: int, parts: list[float]) -> list[int]:
    """How many of `count` classes each part gets: whole numbers, the largest remainders rounded up."""
    exact = count * np.array(parts) / sum(parts)
    counts = np.floor(exact + 1e-9).astype(int)
    largest = np.argsort(counts - exact, kind="stable")
    counts[largest[: count - counts.sum()]] += 1
    return counts.tolist()


def fewer_of_each_class(images: list[Image], limit: int) -> list[Image]:
    """At most `limit` images of each class, those whose names have the smallest hashes, in the order of before."""
    order = sorted(range(len(images)), key=lambda row: hashlib.sha256(os.fsencode(images[row].path)).digest())
    counts = Counter()
    rows = []
    for row in order:
        counts[images[row].class_name] += 1
        if counts[images[row].class_name] <= limit:
            rows.append(row)
    return [images[row] for row in sorted(rows)]


# --------------------------------------------------------------------------------------------------------------- groups
def near_duplicates(features: np.ndarray, classes: np.ndarray) -> tuple[float, overlap.Duplicates]:
    """The similarity from which two images are near-duplicates, and the pairs, the first row below the second.

    Args:
        features: `(N, F)` of the images. classes: `(N,)` their numbers.
    """
    for similarity in SIMILARITIES:
        is_last = similarity == SIMILARITIES[-1]
        try:
            pairs = overlap.near_duplicates(features, {"photographs": features}, similarity)
        except UserError:
            # more pairs than can be listed
            if is_last:
                raise
            continue
        is_ordered = pairs.test < pairs.reference
        pairs = overlap.Duplicates(*(column[is_ordered] for column in pairs))
        is_across = classes[pairs.test] != classes[pairs.reference]
        alike = np.union1d(pairs.test[is_across], pairs.reference[is_across])
        if is_last or len(alike) <= MOST_ALIKE * len(classes):
            return similarity, pairs


def group(appraisal: Appraisal, table: str, dataset, similarity: float, pairs: overlap.Duplicates) -> dict:
    """Join near-duplicates, bursts and sequences, and write the table in which each group is a sequence.

    Args:
        table: the images that are embedded, the rows of `dataset`. similarity, pairs: of `near_duplicates`.
    """
    images = _as_read(appraisal, appraisal.images(table))
    if all(image.time is None for image in images):
        images = _times.photographed(images, appraisal.source.root)
    listed = write_pairs(appraisal.folder / PAIRS, pairs, dataset)
    burst_links = _groups.bursts(images)
    links = [np.stack([pairs.test, pairs.reference], axis=1), burst_links]
    links.append(_groups.equal([image.sequence for image in images]))
    group_of = _groups.components(len(images), np.concatenate(links))
    sizes = np.bincount(group_of)
    sequences = [f"group {number}" if sizes[number] > 1 else "" for number in group_of.tolist()]
    write_table(appraisal.folder / PHOTOGRAPHS, images, sequences)
    in_groups = zip(images, sequences, strict=True)
    counts = groups_of_classes([image._replace(sequence=sequence) for image, sequence in in_groups])
    across = [row for row in listed if row["classes"][0] != row["classes"][1]]
    class_pairs = {tuple(sorted(row["classes"])) for row in across}
    n_bursts = int((np.bincount(_groups.components(len(images), burst_links)) > 1).sum())
    return {
        "summary": f"{count_of(len(listed), 'pair')} of near-duplicates, {len(across):,} between classes; "
        f"{count_of(n_bursts, 'burst')}",
        "similarity": similarity,
        "pairs": len(listed),
        "pairs_across": len(across),
        "class_pairs": sorted(class_pairs),
        "shown": [*across[:MOST_SHOWN], *listed[len(across) :][: max(MOST_SHOWN // 3, MOST_SHOWN - len(across))]],
        "with_time": sum(image.time is not None for image in images),
        "dates_alone": _groups.are_dates(images),
        "images": len(images),
        "bursts": n_bursts,
        "single_groups": sum(count == 1 for count in counts.values()),
        "groups": int((sizes > 1).sum()),
        "grouped_images": int(sizes[sizes > 1].sum()),
    }


def _as_read(appraisal: Appraisal, images: list[Image]) -> list[Image]:
    """The images of a table with the times, cameras and sequences of the photographs as they were read."""
    originals = {(os.path.abspath(image.path), image.box): image for image in appraisal.source.reading.images}
    completed = []
    for image in images:
        original = originals[image.path, image.box]
        completed.append(image._replace(time=original.time, camera=original.camera, sequence=original.sequence))
    return completed


def write_pairs(path: Path, pairs: overlap.Duplicates, dataset) -> list[dict]:
    """Write the pairs of near-duplicates, between classes first. Returns them."""
    rows = []
    for similarity, *members in zip(pairs.similarity.tolist(), pairs.test, pairs.reference, strict=True):
        (first, first_label), (second, second_label) = (dataset.image_list[row] for row in members)
        names = [dataset.class_names[first_label], dataset.class_names[second_label]]
        rows.append({"similarity": round(similarity, 5), "paths": [first, second], "classes": names})
    rows.sort(key=lambda row: (row["classes"][0] == row["classes"][1], -row["similarity"]))
    lines = [[row["similarity"], *row["paths"], *row["classes"]] for row in rows]
    write_csv(path, ["similarity", "path", "path_2", "class", "class_2"], lines)
    return rows


# ---------------------------------------------------------------------------------------------------------------- split
def split(appraisal: Appraisal) -> dict:
    """The classes of each part; classes that share a group of photographs are in one part."""
    images = appraisal.images(PHOTOGRAPHS)
    names = list(dict.fromkeys(image.class_name for image in images))
    number = {name: place for place, name in enumerate(names)}
    classes_of = {}
    for image in images:
        if image.sequence:
            classes_of.setdefault(image.sequence, []).append(number[image.class_name])
    links = [(members[0], member) for members in classes_of.values() for member in members[1:]]
    unit_of = _groups.components(len(names), np.array(links, dtype=np.int64).reshape(-1, 2))
    units = [[names[place] for place in np.flatnonzero(unit_of == unit)] for unit in range(unit_of.max() + 1)]
    counts = shares(len(names), appraisal.flags.parts)
    part_of = _deal(units, counts, appraisal.flags.seed)
    for name in PARTS:
        if len(part_of[name]) < LEAST[name]:
            raise UserError(
                f"{len(units)} groups of classes that share photographs leave {len(part_of[name])} for {name}, which "
                f"needs {LEAST[name]}: correct the near-duplicates between classes ({appraisal.folder / PAIRS})"
            )
    refuse_single_groups(images, part_of)
    train, select, aside, test = (part_of[name] for name in PARTS)
    write_json(appraisal.folder / "split.json", {"train": train, "val": select, "test": test})
    write_json(appraisal.folder / "set_aside.json", {"classes": aside})
    for name in PARTS[1:]:
        members = {*train, *part_of[name]}
        of_part = [image for image in images if image.class_name in members]
        sequences = [image.sequence or "" for image in of_part]
        write_table(appraisal.folder / table_of(name), of_part, sequences, train)
    sizes = Counter(image.class_name for image in images)
    parts = []
    for name in PARTS:
        count = sum(sizes[class_name] for class_name in part_of[name])
        parts.append({"part": name, "classes": len(part_of[name]), "images": count})
    return {
        "summary": ", ".join(f"{part['part']} {part['classes']:,}" for part in parts) + " classes",
        "parts": parts,
        "joined": sum(len(unit) for unit in units if len(unit) > 1),
    }


def table_of(part: str) -> str:
    """The table with the training classes and those of a part."""
    return f"{part.replace(' ', '_')}.csv"


def groups_of_classes(images: list[Image]) -> Counter:
    """Class -> its number of groups; an image without a sequence is a group of its own."""
    groups = {(image.class_name, image.sequence or image.path) for image in images}
    return Counter(class_name for class_name, _ in groups)


def refuse_single_groups(images: list[Image], part_of: dict[str, list[str]]) -> None:
    """Raise UserError where too few classes of the parts that are measured have two groups."""
    counts = groups_of_classes(images)
    for name in ("select", "test"):
        measured = sum(counts[class_name] > 1 for class_name in part_of[name])
        if measured < LEAST[name]:
            raise UserError(
                f"{measured} of {len(part_of[name])} {name} classes have photographs of two groups, and {LEAST[name]} "
                "are needed (a burst, near-duplicates and a sequence are one group each, and never find each other): "
                "take photographs of each class at several times"
            )


def _deal(units: list[list[str]], counts: list[int], seed: int) -> dict[str, list[str]]:
    """Part -> its classes: units in the order of `mixed`, each to the part that lacks most of its share."""
    part_of = {name: [] for name in PARTS}
    order = _schemes.mixed([unit[0] for unit in units], seed)
    # large units first, while every part has room for them
    for place in sorted(order, key=lambda place: -len(units[place])):
        missing = [(count - len(part_of[name])) / count for name, count in zip(PARTS, counts, strict=True)]
        part_of[PARTS[int(np.argmax(missing))]] += units[place]
    return part_of
