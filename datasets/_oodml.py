"""Out-of-distribution splits, --split_scheme oodml (ooDML, Milbich et al., arXiv 2107.09562).

Training and test classes are listed in a file, a pickle: number of the split -> {"train": class names, "test": class
names, "fid": number, …}, as published with the paper. It is read without running anything that it holds.
"""

import os
import pickle
from collections import Counter
from pathlib import Path

from datasets._images import Image
from options.flags import Flag
from options.flags.roles import DATA
from utilities import pickles
from utilities.errors import UserError
from utilities.files import expanded, replacing
from utilities.numbers import whole
from utilities.reading import Unreadable
from utilities.registry import did_you_mean

SCHEME = "oodml"
# lists of a split
PARTS = ("train", "test")

FLAGS = {
    "--oodml_file": Flag(
        str,
        None,
        "pickle of --split_scheme oodml, as published with the paper (2107.09562) or written by `python -m "
        "evaluation.oodml`",
        metavar="FILE",
        # the file may move
        role=DATA.but(fixed=None),
    ),
    "--oodml_id": Flag(whole(), None, "number of the split in --oodml_file; higher ones are harder", metavar="N"),
}


def check(opt) -> None:
    """Refuse flags that do not go together, and a file that cannot be read or lacks the split. Raises UserError."""
    if opt.split_scheme != SCHEME:
        for flag in ("oodml_file", "oodml_id"):
            if getattr(opt, flag) is not None:
                raise UserError(
                    f"--{flag} is read by --split_scheme oodml alone, not by {opt.split_scheme}: leave one of them out"
                )
        return
    if opt.oodml_file is None or opt.oodml_id is None:
        raise UserError(
            "--split_scheme oodml needs --oodml_file FILE and --oodml_id N: the class lists, and which of them"
        )
    of_file(opt)


def of_file(opt) -> dict:
    """The split that the flags name: `train` and `test`, lists of class names, and the file's other entries.

    Raises UserError.
    """
    path = expanded(opt.oodml_file)
    splits = read(path)
    split = splits.get(opt.oodml_id, splits.get(str(opt.oodml_id)))
    if split is None:
        raise UserError(f"--oodml_id {opt.oodml_id}: {path} has the splits {', '.join(map(str, splits))}")
    if not isinstance(split, dict) or not all(_are_names(split.get(part)) for part in PARTS):
        raise UserError(
            f"--oodml_file {path}: split {opt.oodml_id} has no lists train and test of class names: it is no file of "
            "such splits"
        )
    return {**split, **{part: [str(name) for name in split[part]] for part in PARTS}}


def _are_names(names) -> bool:
    """Whether a value is a list of class names, not an empty one."""
    return isinstance(names, list | tuple) and len(names) > 0 and all(isinstance(name, str | int) for name in names)


def read(path: Path) -> dict:
    """The content of a file of splits. Raises UserError if it is missing, damaged, or holds more than plain data."""
    try:
        content = pickles.load(path)
    except Unreadable as error:
        raise UserError(f"--oodml_file {path}: no pickle of class lists ({error.reason})") from error
    if not isinstance(content, dict) or not content:
        raise UserError(
            f"--oodml_file {path}: expected a dictionary, split -> train and test classes, found "
            f"{type(content).__name__}"
        )
    return content


def write(path: Path, splits: dict) -> None:
    """Write a file of splits. Raises UserError if it cannot be written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, "wb") as file:
        pickle.dump(splits, file, protocol=2)


def parts(classes: dict[str, list[Image]], opt) -> tuple[dict, None, dict]:
    """The training and the test classes of the split, in the data set's order; the others are left out.

    The file may name a class by its name, by its images' folder, or by the part of their file names before the `_`, as
    the published files do for Stanford Online Products. Raises UserError for an unknown class, and for one named twice.
    """
    split = of_file(opt)
    alias_maps = _aliases(classes)
    part_of = {}
    for part in PARTS:
        for alias in split[part]:
            name = next((names[alias] for names in alias_maps if alias in names), None)
            if name is None:
                raise UserError(
                    f"--oodml_file {opt.oodml_file}: split {opt.oodml_id} names {alias!r}, no class of --dataset "
                    f"{opt.dataset}.{did_you_mean(alias, classes)}"
                )
            if name in part_of:
                parts_of_class = f"twice in {part}" if part_of[name] == part else f"in train and in {part}"
                raise UserError(
                    f"--oodml_file {opt.oodml_file}: split {opt.oodml_id} has the class {alias!r} {parts_of_class}: a "
                    "class is in one split"
                )
            part_of[name] = part
    by_part = {part: {} for part in PARTS}
    for name, images in classes.items():
        if name in part_of:
            by_part[part_of[name]][name] = images
    return by_part["train"], None, by_part["test"]


def _aliases(classes: dict[str, list[Image]]) -> list[dict[str, str]]:
    """Maps from unique aliases to class names: by names, by folders, by the beginnings of file names."""
    kinds = [
        {name: name for name in classes},
        {name: os.path.basename(os.path.dirname(images[0].path)) for name, images in classes.items()},
        {name: os.path.basename(images[-1].path).partition("_")[0] for name, images in classes.items()},
    ]
    alias_maps = []
    for alias_of in kinds:
        counts = Counter(alias_of.values())
        alias_maps.append({alias: name for name, alias in alias_of.items() if counts[alias] == 1})
    return alias_maps
