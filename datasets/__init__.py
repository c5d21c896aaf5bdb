"""Data sets: one file each, the file name is the value of `--dataset`.

A module says how to read its images; finding, splitting, counting and transforming are the same for all (`_layout.py`,
`_splits.py`, `_transforms.py`). It defines `read(opt, root) -> Reading` (images in class order, and the training
classes where these are not the first half) and either `FOLDERS`, `recognises(root)`, `EXPECTED`, `PUBLISHED`,
`DOWNLOAD`, or `prepare(opt, source) -> root`. `IMAGE_SIZE` says that the images are small, grey and of this one size;
they are shown whole and kept in memory. Optional: `check(opt)`, `default_source_path()`, `OWN_LABELS` (labels are the
user's: --dataset_unknown_label), `TEST_ONLY` (there are no training images), `DEFAULT_AUGMENTATION`,
`validation_groups(names)` (lists of training classes; each list is cut for validation), `has_validation(opt)`,
`published(opt)` (where the counts depend on flags), `role_draws(opt, images)` (random galleries of the test images,
bool `(D, N)`, or None), `EVALUATION_METRICS` or `evaluation_metrics(opt)` (those that papers publish for the set),
`derived(opt)` (other flags' values where they are unset). An `_images.Image` holds its roles, sequence and box.
"""

import functools
import math
from argparse import Namespace
from pathlib import Path

from datasets import _check, _lists, _own, _revisitop, _schemes, _splits, _transforms, gldv2
from datasets._files import MOST_HASHED as MOST_HASHED
from datasets._files import dark_16_bit as dark_16_bit
from datasets._files import differences as differences
from datasets._images import decode as decode
from datasets._images import suffixes as suffixes
from datasets._layout import below as below
from datasets._layout import spellings as spellings
from datasets._layout import unread_files as unread_files
from utilities import roles
from utilities.registry import Registry

REGISTRY = Registry("datasets", "dataset", roles.DATA)


def check(opt) -> None:
    """Refuse flags that `opt.dataset` cannot satisfy, without touching the disk. Raises UserError, UnknownName."""
    _splits.check(opt, REGISTRY.module(opt.dataset))


def n_folds(opt) -> int:
    """How many folds `--split_scheme` makes; 1 for half and predefined."""
    return _schemes.count(opt)


def has_validation(opt) -> bool:
    """Whether the flags keep data for validation, or the data set has its own."""
    own = getattr(REGISTRY.module(opt.dataset), "has_validation", None) if opt.split_scheme == "half" else None
    return _schemes.has_validation(opt) or (own is not None and own(opt))


def is_test_only(opt) -> bool:
    """Whether the data set has no training images: all its images are one split, test."""
    return getattr(REGISTRY.module(opt.dataset), "TEST_ONLY", False)


def sizes(flags: dict, input_size: int | None = None) -> tuple | None:
    """Size of the test images' crop, and that which they are resized to before it, by the flags of a run; see
    `_transforms.sizes`.

    None for images that are shown whole, and for flags that name no known data set or augmentation.

    Args:
        input_size: side of the network's input; None: 224.
    """
    name = flags.get("dataset")
    if flags.get("eval_long_side") or name not in REGISTRY.names() or hasattr(REGISTRY.module(name), "IMAGE_SIZE"):
        return None
    names = ("augmentation", "crop_size", "resize_size", "eval_resize_size", "resize_mode")
    opt = Namespace(**{flag: flags.get(flag) for flag in names})
    if (opt.augmentation or "base") not in _transforms.PRESETS:
        return None
    return _transforms.sizes(opt, input_size, test=True)


def evaluation_metrics(opt) -> list[str] | None:
    """The metrics in which results on the flags' data set are published; None where it names none."""
    module = REGISTRY.module(opt.dataset)
    return (
        module.evaluation_metrics(opt)
        if hasattr(module, "evaluation_metrics")
        else getattr(module, "EVALUATION_METRICS", None)
    )


def names_in_groups() -> list[str]:
    """What data sets are called in names of groups, such as CUB_Margin: their own names and shorter ones, the longest
    first.
    """
    modules = REGISTRY.modules()
    return sorted(
        {*modules, *(name for module in modules.values() for name in getattr(module, "ALSO_CALLED", ()))},
        key=len,
        reverse=True,
    )


def table_order(name: str) -> float:
    """The place of a data set among those of a paper's table; others come behind."""
    return getattr(REGISTRY.module(name), "TABLE_ORDER", math.inf) if name in REGISTRY.names() else math.inf


def flags_of_one() -> dict[str, str]:
    """Flag -> the one data set that declares it."""
    return {flag: name for name in REGISTRY.names() for flag in REGISTRY.flags(name)}


def other(saved: dict, opt) -> dict:
    """The flags of the data whose values in `opt` differ from a run's, and these values; {} where `opt` names the run's
    data and split.

    Args:
        saved: the run's flags. The flags of the data are `dataset` and those that the data sets' plug-ins declare.
    """
    if all(
        saved.get(flag, getattr(opt, flag)) == getattr(opt, flag)
        for flag in {"dataset", "evaluate_all", *REGISTRY.flags(opt.dataset)}
    ):
        return {}
    flags = sorted({"dataset", *REGISTRY.flags()} & set(vars(opt)))
    return {flag: getattr(opt, flag) for flag in flags if flag in saved and getattr(opt, flag) != saved[flag]}


def unfit(opt) -> list[str]:
    """The flags set in `opt` that apply to photographs only, where the images of `opt.dataset` are shown whole; else
    none.
    """
    if not hasattr(REGISTRY.module(opt.dataset), "IMAGE_SIZE"):
        return []
    cropped = opt.augmentation is not None and opt.augmentation not in _transforms.SHOWN_WHOLE
    return [flag for flag in _transforms.OF_PHOTOGRAPHS if getattr(opt, flag)] + ["augmentation"] * cropped


def locate(opt) -> Path:
    """The folder of the flags' data set, made or downloaded where the flags ask for it. Raises UserError where it is
    missing.
    """
    return _splits.locate(
        opt.dataset, REGISTRY.module(opt.dataset), opt, _splits.source_of(REGISTRY.module(opt.dataset), opt)
    )


def select(
    name: str,
    opt=None,
    source_path=None,
    input_size: int | None = None,
    fold: int | None = None,
    interpolation: str | None = None,
    **flags,
) -> dict:
    """The splits of the data set `name`: `training`, `validation` (or None), `testing`, `evaluation` (training images,
    test transform).

    Args:
        opt: the shared namespace; what it lacks takes its declared default.
        source_path: parent folder of the data sets, or the data set's own; default `opt.source_path`, else the data
            set's default.
        input_size: side of the images that the network expects; None: 224, or the images' own where they are shown
            whole.
        fold: which fold of `--split_scheme`, from 0; None: `opt.fold` where it is set, else 0.
        interpolation: how images are resized, "bilinear" (also None) or "bicubic".
        flags: single flags that override `opt`, e.g. `use_tv_split=True`.

    Returns:
        Split (with `--evaluate_all` testing alone, the others None) -> `datasets._image_set.ImageSet`, with
        `image_dict`, `image_list`, `avail_classes`, `n_classes`, `class_names`, `super_labels`, `paths`, `counts`,
        `transforms_as_resolved`; item `(label, image uint8 (3, H, W), index)`.

    Raises:
        UnknownName: no such data set. UserError: it is missing, incomplete or damaged, or a flag or fold is unknown or
        impossible.
    """
    module = REGISTRY.module(name)
    opt = REGISTRY.options(opt, **{"dataset": name, **flags, **({"source_path": source_path} if source_path else {})})
    if fold is None:
        fold = getattr(opt, "fold", None) or 0
    return _splits.build(name, module, opt, _splits.source_of(module, opt), input_size, fold, interpolation)


def shape_for(network) -> dict:
    """The arguments of `select` that depend on a network: the side of its images, and how they are resized for it."""
    return {"input_size": network.input_size, "interpolation": getattr(network, "interpolation", None)}


def preparation(opt, network) -> _own.Preparation:
    """The reading and test transform of a run with these flags, for the user's images: `preparation(path or image)`,
    uint8 `(3, H, W)`.

    Raises UserError, as `select`, for unknown flags.
    """
    opt = REGISTRY.options(opt)
    return _own.Preparation(opt, getattr(REGISTRY.module(opt.dataset), "IMAGE_SIZE", None), **shape_for(network))


def ground_truth(path: Path) -> dict:
    """Protocol -> name of a query -> names of its positives, and of its junk, of a published file of ground truth, or
    of a table of lists.

    Names are those of Revisited Oxford and Paris (gnd_….pkl), the ids of Google Landmarks v2
    (retrieval_solution_….csv), or paths. Raises UserError.
    """
    if path.suffix == ".pkl":
        return _revisitop.lists(path)
    if "solution" in path.name:
        return gldv2.lists(path)
    return {"": _lists.of_table(path, str)}


def problems(opt) -> list[str]:
    """What is wrong with the data set's files, a line each; every image is decoded. Raises UserError where there is no
    data set.
    """
    module = REGISTRY.module(opt.dataset)
    root = locate(opt)
    split = functools.partial(_splits.images_by_split, opt.dataset, module, opt, root)
    return _check.problems(functools.partial(_splits.labelled_reading, module, opt, root), split, root, opt)


def describe(splits: dict) -> str:
    """The data set in a few lines: where it was found, counts of each split, notes on peculiarities."""
    training = splits["training"]
    lines = [f"{training.name} in {training.root}"]
    for split in ("training", "validation", "testing"):
        if splits[split] is not None:
            counts = splits[split].counts
            single = counts["single_image_classes"]
            odd = f", {single:,} of them with a single image, which has no positive" if single else ""
            others = f"; {counts['distractors']:,} distractors, of no class" if "distractors" in counts else ""
            classes = f"of {counts['classes']:,} classes" if counts["classes"] else "without classes"
            lines.append(f"  {split}: {counts['images']:,} images {classes}{odd}{_roles(splits[split])}{others}")
    lines += ["  images: {} x {} pixels for the network".format(*training.transform.size)]
    lines += [f"  PARTIAL: {training.partial}"] if training.partial else []
    return "\n".join(lines + [f"  note: {note}" for note in training.notes])


def _roles(split) -> str:
    """The roles of a split's images in words; empty where all images are queries and in the gallery."""
    if not split.roles:
        return ""
    drawn = f", drawn anew {split.role_draws.shape[0]} times" if split.role_draws is not None else ""
    return f"; {split.roles['query_images']:,} are queries, {split.roles['gallery_images']:,} are in the gallery{drawn}"


def record(splits: dict) -> dict:
    """The content of `describe` for a file, with the resolved transforms of each split and the fingerprint."""
    there = {split: dataset for split, dataset in splits.items() if dataset is not None}
    return {
        "name": splits["training"].name,
        "counts": {split: {**dataset.counts, **dataset.roles} for split, dataset in there.items()},
        "partial": splits["training"].partial,
        "fingerprint": dict(splits["training"].fingerprint),
        "classes": dict(splits["training"].class_lists),
        "notes": list(splits["training"].notes),
        "transforms": {split: dataset.transforms_as_resolved for split, dataset in there.items()},
    }
