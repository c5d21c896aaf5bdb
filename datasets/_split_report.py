"""What a split tests, in lines for the start of a run: closed, open or disjoint, and the counts of its sides."""

from collections.abc import Iterable

from datasets import _groups, _times
from datasets._images import Image
from options.flags.shared import OF_KNOWN_CLASSES
from utilities.counts import count_of


def lines(division, classes: dict[str, list[Image]], opt) -> list[str]:
    """The lines on a split with --split_groups, or of a scheme whose training classes are tested; else none.

    Args:
        division: training, validation and test images (`_splits.Division`). classes: all classes of the data set.
    """
    if division.training is None or not (_groups.kinds(opt) or opt.split_scheme in OF_KNOWN_CLASSES):
        return []
    all_images = [image for images in classes.values() for image in images]
    return [_counts(division, all_images, opt), *_on_times(division, all_images, opt)]


def _counts(division, all_images: list[Image], opt) -> str:
    """Closed, open or disjoint; images and classes of training, validation and test, of both, and left out."""
    sides = {"training": division.training, "validation": division.validation, "test": division.testing}
    class_names = {side: _names(images or ()) for side, images in sides.items()}
    shared = class_names["training"] & class_names["test"]
    kind = "open"
    if not shared:
        kind = "disjoint"
    elif class_names["test"] <= class_names["training"]:
        kind = "closed"
    parts = []
    for side, images in sides.items():
        if images is not None:
            parts.append(f"{side} {len(images):,} images of {count_of(len(class_names[side]), 'class', 'classes')}")
    n_left_out = len(all_images) - sum(len(images or ()) for images in sides.values())
    named = set().union(*class_names.values())
    return (
        f"--split_scheme {opt.split_scheme}, {kind} set: {', '.join(parts)}; "
        f"classes in training and test {len(shared):,}, "
        f"in test alone {len(class_names['test'] - class_names['training']):,}; left out {n_left_out:,} images, "
        f"{count_of(len(_names(all_images) - named), 'class', 'classes')} as a whole"
    )


def _on_times(division, all_images: list[Image], opt) -> list[str]:
    """Lines on images without a time, and on groups that --split_time goes through."""
    if not opt.split_scheme.startswith("time_"):
        return []
    notes = []
    n_timeless = sum(image.time is None and image.group is None for image in all_images)
    if n_timeless:
        notes.append(f"--split_scheme {opt.split_scheme}: {count_of(n_timeless, 'image')} without a time left out")
    if opt.split_scheme == "time_cutoff":
        begin = _times.seconds(opt.split_time)
        late = [image for image in division.training if image.time is not None and image.time >= begin]
        if late:
            notes.append(
                f"--split_time {opt.split_time}: {count_of(len(late), 'image')} of later times in training, as their "
                f"group begins before it, e.g. {late[0].path}"
            )
    return notes


def _names(images: Iterable[Image]) -> set[str]:
    """The classes of images; distractors have none."""
    return {image.class_name for image in images} - {None}
