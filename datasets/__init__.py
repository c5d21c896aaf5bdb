"""Data sets: one file each, the file name is the value of `--dataset`.

A module says how to read its images; finding, splitting, counting and transforming are the same for all (`_layout.py`,
`_reading.py`, `_splits.py`, `_transforms.py`). It defines:

    read(opt, root) -> Reading       the images in class order, with their roles; the split or lists if it has some
    FOLDERS, recognises(root),       how its folder is called and recognised, the layout, and where it comes from;
    EXPECTED, DOWNLOAD               or `prepare(opt, source) -> root` in place of these four

Optional:

    PUBLISHED, or published(opt)     counts that are checked; the function if they depend on flags
    EVALUATION_METRICS,              the metrics in which papers publish results
    or evaluation_metrics(opt)
    FLAGS, check(opt)                its own flags, and the rules for them
    derived(opt)                     values of other flags that are unset
    has_validation(opt)              whether it has validation images of its own
    validation_groups(names)         lists of training classes; each list is cut for validation
    role_draws(opt, images)          random galleries of the test images, bool `(D, N)`, or None
    TEST_ONLY                        there are no training images
    OWN_LABELS                       the labels are the user's: --dataset_unknown_label, --dataset_fixes
    IMAGE_SIZE                       the images are grey, all of this size; they are shown whole and stay in memory
    width(opt)                       there are no images but rows of so many features (`_layout.Reading.rows`)
    DEFAULT_AUGMENTATION             the value of --augmentation if it is unset
    default_source_path()            the value of --source if it is unset
    ALSO_CALLED, TABLE_ORDER         short names in names of groups; the place in tables

An `_images.Image` holds an image's class, roles, sequence and box; `_lists.py` describes lists of ground truth.
"""

import copy
import functools
import math
from argparse import Namespace
from pathlib import Path

from datasets import _check, _lists, _own, _reading, _revisitop, _rows, _schemes, _splits, _transforms, gldv2
from datasets._content import Encoded as Encoded
from datasets._files import MOST_HASHED as MOST_HASHED
from datasets._files import dark_16_bit as dark_16_bit
from datasets._files import differences as differences
from datasets._groups import group_files as group_files
from datasets._groups import join as join
from datasets._images import decode as decode
from datasets._images import pixel_count as pixel_count
from datasets._images import suffixes as suffixes
from datasets._layout import below as below
from datasets._layout import spellings as spellings
from datasets._layout import unread_files as unread_files
from datasets._times import photographed as photographed
from options.flags import roles
from utilities.errors import UserError
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
    if _schemes.has_validation(opt):
        return True
    module = REGISTRY.module(opt.dataset)
    return opt.split_scheme == "half" and hasattr(module, "has_validation") and module.has_validation(opt)


def is_test_only(opt) -> bool:
    """Whether the data set has no training images: all its images are one split, test."""
    module = REGISTRY.module(opt.dataset)
    return getattr(module, "TEST_ONLY", False)


def width(opt) -> int | None:
    """Number of features, of a data set that has rows of these in place of images; else None. Raises UserError."""
    return _rows.width_of(REGISTRY.module(opt.dataset), opt)


def sizes(flags: dict, input_size=None) -> tuple | None:
    """Sizes of the test images' crop and of the resize before it, by the flags of a run (`_transforms.sizes`).

    None for images that are shown whole, and for flags that name no known data set or augmentation.

    Args:
        input_size: side, or (height, width), of the network's input; None: 224.
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
    """The metrics in which results on the flags' data set are published; None if it names none."""
    module = REGISTRY.module(opt.dataset)
    if hasattr(module, "evaluation_metrics"):
        return module.evaluation_metrics(opt)
    return getattr(module, "EVALUATION_METRICS", None)


def names_in_groups() -> list[str]:
    """The data sets' names in names of groups, such as CUB_Margin: their own and shorter ones, the longest first."""
    names = set()
    for name, module in REGISTRY.modules().items():
        names |= {name, *getattr(module, "ALSO_CALLED", ())}
    return sorted(names, key=len, reverse=True)


def table_order(name: str) -> float:
    """The place of a data set among those of a paper's table; infinite for others."""
    if name not in REGISTRY.names():
        return math.inf
    return getattr(REGISTRY.module(name), "TABLE_ORDER", math.inf)


def flags_of_one() -> dict[str, str]:
    """Flag -> the one data set that declares it."""
    return {flag: name for name in REGISTRY.names() for flag in REGISTRY.flags(name)}


def changed_flags(saved: dict, opt) -> dict:
    """The flags of the data whose values in `opt` differ from a run's, with these values.

    Empty if `opt` names the run's data and split.

    Args:
        saved: the run's flags. The flags of the data are `dataset` and those that the data sets' plug-ins declare.
    """
    read_flags = {"dataset", "dataset_fixes", "evaluate_all", *REGISTRY.flags(opt.dataset)}
    if all(saved.get(flag, getattr(opt, flag)) == getattr(opt, flag) for flag in read_flags):
        return {}
    flags = sorted({"dataset", *REGISTRY.flags()} & set(vars(opt)))
    return {flag: getattr(opt, flag) for flag in flags if flag in saved and getattr(opt, flag) != saved[flag]}


def unfit(opt) -> list[str]:
    """The flags set in `opt` that apply to photographs only, if the images of `opt.dataset` are shown whole."""
    if not hasattr(REGISTRY.module(opt.dataset), "IMAGE_SIZE"):
        return []
    flags = [flag for flag in _transforms.OF_PHOTOGRAPHS if getattr(opt, flag)]
    if opt.augmentation is not None and opt.augmentation not in _transforms.SHOWN_WHOLE:
        flags.append("augmentation")
    return flags


def locate(opt) -> Path:
    """The folder of the flags' data set, made or downloaded if the flags say so. Raises UserError if it is missing.

    A run calls it before it loads a network, so that missing data are reported before missing weights.
    """
    module = REGISTRY.module(opt.dataset)
    return _reading.locate(opt.dataset, module, opt, _reading.source_of(module, opt))


def select(
    name: str,
    opt=None,
    source_path=None,
    input_size=None,
    fold: int | None = None,
    interpolation: str | None = None,
    multiple=1,
    **flags,
) -> dict:
    """The splits of the data set `name`: `training`, `validation` (or None), `testing`, `evaluation`.

    `evaluation` holds the training images with the test transform.

    Args:
        opt: the shared namespace; what it lacks takes its declared default.
        source_path: parent folder of the data sets, or the data set's own; default `opt.source_path`, else the data
            set's default.
        input_size: side, or (height, width), of the images that the network expects; None: 224, or the images' own
            where they are shown whole. (F,): it takes rows of F features.
        fold: which fold of `--split_scheme`, from 0; None: `opt.fold` where it is set, else 0.
        interpolation: how images are resized, "bilinear" (also None) or "bicubic".
        multiple: what sides of images are multiples of that are evaluated in their own shape.
        flags: single flags that override `opt`, e.g. `use_tv_split=True`.

    Returns:
        Split (with `--evaluate_all` testing alone, the others None) -> `datasets._image_set.ImageSet`, with
        `image_dict`, `image_list`, `avail_classes`, `n_classes`, `class_names`, `super_labels`, `paths`, `counts`,
        `transforms_as_resolved`; item `(label, image uint8 (3, H, W), index)`.

    Raises:
        UnknownName: no such data set. UserError: it is missing, incomplete or damaged,
        or a flag or fold is unknown or impossible.
    """
    module = REGISTRY.module(name)
    flags = {"dataset": name, **flags}
    if source_path:
        flags["source_path"] = source_path
    opt = REGISTRY.options(opt, **flags)
    if fold is None:
        # A property of `options.options.Options`, no flag in `vars(opt)`; the namespace of other programs may lack it.
        fold = getattr(opt, "fold", None) or 0
    shape = _transforms.Shape(input_size, interpolation, multiple)
    return _splits.build(name, module, opt, _reading.source_of(module, opt), shape, fold)


def shape_for(network) -> dict:
    """The arguments of `select` that depend on a network: the size of its images, and how they are resized for it;
    of a network that takes features their number.
    """
    if getattr(network, "takes_features", None) is not None:
        return {"input_size": (network.takes_features,)}
    return {
        "input_size": network.input_size,
        "interpolation": getattr(network, "interpolation", None),
        "multiple": getattr(network, "patch", 1),
    }


def preparation(opt, network) -> _own.Preparation | _rows.Preparation:
    """The reading and test transform of a run, for the user's images: `preparation(path or image)`, uint8 `(3, H, W)`;
    of a network that takes features `preparation(row)`, float32 `(F,)`.

    Raises UserError, as `select`, for unknown flags.
    """
    opt = REGISTRY.options(opt)
    if getattr(network, "takes_features", None) is not None:
        return _rows.Preparation(network.takes_features)
    module = REGISTRY.module(opt.dataset)
    return _own.Preparation(opt, getattr(module, "IMAGE_SIZE", None), _transforms.Shape(**shape_for(network)))


def prepared(images, preparation):
    """A split's images, read and transformed as another run does; rows of features as they are.

    Raises UserError where that run reads grey ones, or takes something else.
    """
    _rows.check_input(images.name, images.width, preparation.size)
    if images.width is not None:
        return images
    if preparation.grey and images.pixels is None:
        raise UserError("the other run's images are grey and shown whole, these are photographs: take a run on such")
    changed = copy.copy(images)
    changed.read = preparation.read
    changed.transform = preparation.transform
    changed.features = None
    return changed


def ground_truth(path: Path) -> dict:
    """Protocol -> name of a query -> its `_lists.GroundTruth`, by a published file or a table of lists.

    Names are those of Revisited Oxford and Paris (gnd_….pkl), the ids of Google Landmarks v2
    (retrieval_solution_….csv), or paths. Raises UserError.
    """
    if path.suffix == ".pkl":
        return _revisitop.lists(path)
    if "solution" in path.name:
        return gldv2.lists(path)
    return {"": _lists.of_table(path, str)}


def problems(opt) -> list[str]:
    """What is wrong with the data set's files, a line each; every image is decoded.

    Raises UserError if there is no data set.
    """
    module = REGISTRY.module(opt.dataset)
    root = locate(opt)
    # rows are checked as they are read
    if width(opt) is not None:
        notes = select(opt.dataset, opt)["testing"].notes
        return [note for note in notes if note.startswith("duplicate rows")]

    def split(reading) -> dict:
        return _splits.images_by_split(_reading.check(opt.dataset, module, opt, root, reading), opt)

    return _check.problems(functools.partial(_reading.read_labelled, module, opt, root), split, root, opt)


def describe(splits: dict) -> str:
    """The data set in a few lines: where it was found, counts of each split, notes on peculiarities."""
    training = splits["training"]
    lines = [f"{training.name} in {training.root}"]
    for split in ("training", "validation", "testing"):
        if splits[split] is not None:
            lines.append(f"  {split}: {_counts(splits[split])}")
    if training.width is None:
        height, width = training.transform.size
        lines.append(f"  images: {height} x {width} pixels for the network")
    else:
        lines.append(f"  rows: {training.transform.text}")
    if training.partial:
        lines.append(f"  PARTIAL: {training.partial}")
    return "\n".join(lines + [f"  note: {note}" for note in training.notes])


def _counts(images) -> str:
    """The counts of a split as text."""
    counts = images.counts
    item = "image" if images.width is None else "row"
    text = f"{counts['images']:,} {item}s "
    if counts["classes"]:
        text += f"of {counts['classes']:,} classes"
    else:
        text += "without classes"
    if counts["single_image_classes"]:
        text += f", {counts['single_image_classes']:,} of them with a single {item}, which has no positive"
    text += _roles(images)
    if "distractors" in counts:
        text += f"; {counts['distractors']:,} distractors, without a class"
    return text


def _roles(split) -> str:
    """The roles of a split's images as text; empty if all images are queries and in the gallery."""
    if not split.roles:
        return ""
    text = f"; {split.roles['query_images']:,} are queries, {split.roles['gallery_images']:,} are in the gallery"
    return text if split.role_draws is None else f"{text}, drawn anew {split.role_draws.shape[0]} times"


def record(splits: dict) -> dict:
    """The content of `describe` for a file, with the resolved transforms of each split and the fingerprint."""
    training = splits["training"]
    present = {split: images for split, images in splits.items() if images is not None}
    return {
        "name": training.name,
        "counts": {split: {**images.counts, **images.roles} for split, images in present.items()},
        "partial": training.partial,
        "fingerprint": dict(training.fingerprint),
        "classes": dict(training.class_lists),
        "notes": list(training.notes),
        "transforms": {split: images.transforms_as_resolved for split, images in present.items()},
    }
