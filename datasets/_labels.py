"""Labels as users write them: names that differ only in writing, and labels that mean nobody."""

import difflib
import re
import unicodedata
from collections import Counter

from datasets._layout import Reading
from utilities.errors import UserError
from utilities.labels import present

NUMBER = re.compile(r"[+-]?\d+(\.\d*)?", re.ASCII)


def _normal(name: str) -> str:
    """What names that differ only in writing have in common: in Unicode form, case, spaces, digits of numbers."""
    parts = []
    for part in unicodedata.normalize("NFKC", name).casefold().split("/"):
        part = " ".join(part.split())
        if NUMBER.fullmatch(part):
            part = _normal_number(part)
        parts.append(part)
    return "/".join(parts)


def _normal_number(text: str) -> str:
    """A decimal number without the zeros that change no value; exact, however many digits it has."""
    sign = "-" if text.startswith("-") else ""
    integer, _, fraction = text.lstrip("+-").partition(".")
    digits = f"{integer.lstrip('0') or '0'}.{fraction.rstrip('0')}"
    return digits if digits == "0." else sign + digits


def alike_names(names, noun: str) -> str | None:
    """One line on names that differ only in their writing, such as 1 and 1.0, C1 and c1; None without any.

    Args:
        names: distinct names. noun: what they are called in the line, such as `classes`.
    """
    groups = {}
    for name in names:
        groups.setdefault(_normal(name), []).append(name)
    groups = [sorted(group) for group in groups.values() if len(group) > 1]
    if not groups:
        return None
    examples = "; ".join(" and ".join(map(repr, group[:3])) for group in groups[:3])
    count = sum(map(len, groups))
    advice = "correct the labels if these are the same"
    return f"{count:,} {noun} differ from another only in writing, as {examples}: {advice}"


def alike_notes(reading: Reading) -> list[str]:
    """The lines of `alike_names` on classes and on super-classes of all levels, and a line on classes called None."""
    classes = {image.class_name for image in reading.images} - {None}
    supers = {name for image in reading.images for name in (image.super_name, *image.higher_names)} - {None}
    # each domain has its own lines
    if reading.by_domain:
        return []
    notes = [alike_names(sorted(classes), "classes"), alike_names(sorted(supers), "super-classes")]
    nameless = sorted(name for name in classes if not present(name.rpartition("/")[2]))
    if nameless:
        word = nameless[0].rpartition("/")[2]
        advice = f"if it holds images of none, add --dataset_unknown_label {word}"
        notes.append(f"the folder {nameless[0]} is a class; {advice}")
    return [note for note in notes if note is not None]


def means_nobody(label: str | None, opt) -> bool:
    """Whether a label is one of `--dataset_unknown_label`, or the last part of a class `<super>/<class>` is."""
    names = opt.dataset_unknown_label or ()
    return label is not None and (label in names or label.rpartition("/")[2] in names)


def without_nobody(reading: Reading, opt) -> Reading:
    """The reading in which images of `--dataset_unknown_label` have no class.

    Those of the test set that are in its gallery are distractors. The others are left out, as are queries, to which no
    image is relevant, unless lists say otherwise. A note counts both. If the data set names no split, all are
    distractors of the test set.

    Raises UserError if no image has such a label.
    """
    if not opt.dataset_unknown_label:
        return reading
    # Each domain has done it before the union.
    if reading.by_domain and any("--dataset_unknown_label" in note for note in reading.notes):
        return reading
    images = []
    split_of = []
    counts = Counter()
    splits = reading.split_of or ["test"] * len(reading.images)
    for image, split in zip(reading.images, splits, strict=True):
        if means_nobody(image.class_name, opt):
            is_listed = reading.lists is not None
            is_kept = split == "test" and (image.is_gallery or is_listed)
            counts["without a class" if is_kept else "left out"] += 1
            if not is_kept:
                continue
            is_query = image.is_query and is_listed
            image = image._replace(class_name=None, super_name=None, higher_names=(), is_query=is_query)
        images.append(image)
        split_of.append(split)
    names = " ".join(opt.dataset_unknown_label)
    # one domain of a union: another one may have the label
    if not counts and opt.union and not reading.by_domain:
        return reading
    if not counts:
        raise UserError(f"--dataset_unknown_label {names}: no image has this label{_nearest(reading, opt)}")
    reading.images = images
    if reading.split_of is not None:
        reading.split_of = split_of
    reading.notes.append(
        f"--dataset_unknown_label {names}: {counts['without a class']:,} images are in the test set without a class, "
        f"{counts['left out']:,} are left out"
    )
    return reading


def _nearest(reading: Reading, opt) -> str:
    """A hint at the class whose name is nearest to a label of `--dataset_unknown_label`; empty if none is near."""
    classes = sorted({image.class_name for image in reading.images} - {None})
    lower = {name.lower(): name for name in classes}
    near = difflib.get_close_matches(opt.dataset_unknown_label[0].lower(), lower, n=1)
    if near:
        return f". Did you mean {lower[near[0]]}?"
    return f"; there are classes such as {', '.join(classes[:3])}"
