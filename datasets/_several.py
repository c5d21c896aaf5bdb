"""Images with several labels: the column `labels` of --dataset csv, as in `cat|dog`.

Two images are of one class if they share a label. The first label of an image is its class for whatever needs a single
one: the split, the samplers, class-wise metrics.
"""

import numpy as np

from datasets._images import Image
from datasets._layout import Reading
from utilities.errors import UserError
from utilities.labels import present

COLUMN = "labels"
SEPARATOR = "|"
# labels that a note names
MOST_NAMES = 3


def with_first_label(path: str, header: list[str], rows: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """The table with a column `label`, the first of `labels`, unless it has one; each label once, the first in front.

    Raises UserError for an empty label between two others, and for a `label` that is not among `labels`.
    """
    if COLUMN not in header:
        return header, rows
    added = [] if "label" in header else ["label"]
    completed_header = [*header, *added]
    place = header.index(COLUMN)
    label_place = completed_header.index("label")
    completed = []
    for number, row in enumerate(rows, start=2):
        row = row + [""] * len(added)
        completed.append(row)
        # Such a row is damaged, which the caller reports.
        if len(row) != len(completed_header):
            continue
        flag = f"--dataset_csv {path}, row {number}"
        labels = _labels_of(row[place], f"{flag}: {COLUMN} {row[place]!r}")
        label = present(row[label_place])
        if labels and label and label not in labels:
            raise UserError(f"{flag}: label {label!r} is not among its {COLUMN} {row[place]!r}")
        labels = [name for name in dict.fromkeys([label, *labels]) if name]
        row[place] = SEPARATOR.join(labels)
        row[label_place] = labels[0] if labels else ""
    return completed_header, completed


def _labels_of(cell: str, place: str) -> list[str]:
    """The labels in a cell; none of an empty one."""
    if not present(cell):
        return []
    labels = [present(label) for label in cell.split(SEPARATOR)]
    if "" in labels:
        raise UserError(f"{place}: an empty label; expected names between {SEPARATOR}, as in cat{SEPARATOR}dog")
    return labels


def of_column(column: list[str | None]) -> list[tuple[str, ...]]:
    """The labels of each image by the completed column; none of an image without any."""
    return [() if cell is None else tuple(cell.split(SEPARATOR)) for cell in column]


def check(reading: Reading, has_sequences: bool, opt) -> None:
    """Set `several_labels` of a reading of which any image has several, with a note on them.

    Raises UserError for flags and columns that go by one label per image.
    """
    labelled_twice = [image for image in reading.images if len(image.labels) > 1]
    if not labelled_twice:
        return
    reading.several_labels = True
    reasons = {
        "--dataset_csv_lists": opt.dataset_csv_lists is not None,
        "--dataset_fixes": opt.dataset_fixes is not None,
        "--dataset_unknown_label": bool(opt.dataset_unknown_label),
        "--label_level_train": bool(opt.label_level_train),
        "the column sequence": has_sequences,
    }
    for name, is_set in reasons.items():
        if is_set:
            raise UserError(f"--dataset_csv {opt.dataset_csv}: images have several {COLUMN}: leave out {name}")
    labels_of = {"train": set(), "other": set()}
    for image, split in zip(reading.images, reading.split_of, strict=True):
        side = "train" if split == "train" else "other"
        labels_of[side].update(image.labels)
    shared = sorted(labels_of["train"] & labels_of["other"])
    counts = f"{len(labelled_twice):,} of {len(reading.images):,} images have several"
    n_labels = len(labels_of["train"] | labels_of["other"])
    reading.notes.append(
        f"{counts} of {n_labels:,} labels: images that share one are positives, and relevant to each other; the "
        "split, samplers and class-wise metrics go by the first"
    )
    if shared:
        reading.notes.append(
            f"{len(shared):,} labels are of training images and of others, such as {', '.join(shared[:MOST_NAMES])}"
        )


def number(dataset, images: list[Image]) -> None:
    """Set `label_numbers` of the training images, and count labels that are no image's first as classes too."""
    numbers = {name: label for label, name in dataset.class_names.items()}
    dataset.label_numbers = []
    for image in images:
        dataset.label_numbers.append([numbers.setdefault(name, len(numbers)) for name in image.labels])
    dataset.class_names = {label: name for name, label in numbers.items()}
    dataset.n_classes = len(numbers)


def lists_of(images: list[Image]) -> dict:
    """The ground truth of images for `ImageSet.lists`: the images of the gallery that share a label with a query."""
    rows_of = {}
    for row, image in enumerate(images):
        if image.is_gallery:
            for name in image.labels:
                rows_of.setdefault(name, []).append(row)
    rows_of = {name: np.array(rows) for name, rows in rows_of.items()}
    positives = []
    for row, image in enumerate(images):
        if image.is_query:
            rows = [rows_of[name] for name in image.labels if name in rows_of]
            rows = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *rows]))
            positives.append(rows[rows != row])
    return {"": (positives, [[]] * len(positives))}
