"""Several data sets as one, each a domain: --union cub200 cars196 folder:PATH csv:FILE mot:ROOT.

All test images are searched together. A domain is called by its data set, that of folder:PATH, csv:FILE or mot:ROOT by
the last part of the path. Each one's training, validation and test images are its own; flags such as --source_path,
--split_shuffle and --use_tv_split go for all. Classes of two domains are never the same, whatever their names
(`_domains.py`), and every result comes for each domain, `<domain>/<metric>`, and as the plain mean of the domains,
`<metric>`.
"""

import os
from argparse import Namespace
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from datasets import _domains, _reading
from datasets._layout import Reading
from options.flags import Flag
from options.flags.roles import DATA
from utilities.errors import UserError
from utilities.registry import Registry
from utilities.splits import SPLITS, WORDS

# data sets at a path -> the flag that names it
PATHS = {"folder": "dataset_folder_path", "csv": "dataset_csv", "mot": "dataset_mot"}
OWN_LABELS = True
validation_groups = _domains.validation_groups

FLAGS = {
    "--union": Flag(
        str,
        None,
        "--dataset union: its data sets, each a domain, by name or as folder:PATH, csv:FILE, mot:ROOT; what "
        "--dataset_folder_path, --dataset_csv and --dataset_mot take",
        nargs="+",
        metavar="NAME",
        # the folders may move
        role=DATA.but(fixed=None),
    ),
}


def check(opt) -> None:
    """Two data sets or more, of different names, and what each of them checks. Raises UserError, UnknownName."""
    members = _members(opt)
    names = [member.domain for member in members]
    if len(names) < 2:
        raise UserError(
            "--dataset union needs --union A B …, two data sets or more, as in --union cub200 cars196 folder:PATH"
        )
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"--union: two domains are called {name}: rename one of the folders or files")
    for name in names:
        if name in SPLITS:
            raise UserError(f"--union: a domain is called {name}, as a split is: rename the folder or file")
    for member in members:
        if hasattr(member.module, "check"):
            member.module.check(member.opt)


def has_validation(opt) -> bool:
    """Whether any of the data sets has images for validation of its own."""
    return any(
        member.module.has_validation(member.opt) for member in _members(opt) if hasattr(member.module, "has_validation")
    )


def prepare(opt, source: Path) -> Path:
    """The folder that holds all data sets, each found as by itself. Raises UserError if one is missing."""
    return Path(os.path.commonpath([os.path.abspath(member.locate()) for member in _members(opt)]))


def read(opt, root: Path) -> Reading:
    """The images of one data set after the other.

    Raises UserError if one has no images for training or test, or does not go by classes.
    """
    joined = Reading([], split_of=[], by_domain=True)
    differences = []
    for member in _members(opt):
        contents = member.contents()
        member.refuse_other_truth(contents)
        for split, classes in zip(SPLITS, contents.parts, strict=True):
            if not classes and split != "val":
                raise UserError(f"--union {member.domain}: it has no {WORDS[split]} images: leave it out")
            images = [_domains.placed(image, member.domain) for image in _reading.images_of(classes) or ()]
            if split == "test":
                images += contents.classless
            joined.images += images
            joined.split_of += [split] * len(images)
        joined.notes += [f"{member.domain}: {note}" for note in contents.reading.notes]
        if contents.partial:
            differences.append(f"{member.domain}: {contents.partial}")
    joined.partial = "; ".join(differences) or None
    joined.notes += _domains.notes(joined)
    return joined


class Member(NamedTuple):
    """One data set of a union: its domain, its module, and the flags with which it is read."""

    domain: str
    module: ModuleType
    opt: Namespace

    def locate(self) -> Path:
        """The data set's folder."""
        source = _reading.source_of(self.module, self.opt)
        return _reading.locate(self.opt.dataset, self.module, self.opt, source)

    def contents(self) -> _reading.Contents:
        """Its images, as without the union."""
        root = self.locate()
        reading = _reading.read_labelled(self.module, self.opt, root)
        return _reading.check(self.opt.dataset, self.module, self.opt, root, reading)

    def refuse_other_truth(self, contents: _reading.Contents) -> None:
        """Raise UserError unless the classes alone say which images are relevant to a query."""
        reason = None
        if contents.reading.lists is not None:
            reason = "lists say what its queries find"
        elif contents.reading.several_labels:
            reason = "its images have several labels"
        elif hasattr(self.module, "role_draws"):
            draws = self.module.role_draws(self.opt, _reading.images_of(contents.parts.testing))
            reason = None if draws is None else "its gallery is drawn at random"
        if reason is not None:
            raise UserError(f"--union {self.domain}: {reason}, and a union needs classes: leave it out")


def _members(opt) -> list[Member]:
    members = []
    registry = Registry("datasets", "dataset")
    for word in opt.union or ():
        name, _, path = word.partition(":")
        if path and name not in PATHS or name == "union":
            raise UserError(f"--union {word}: a data set by its name, or folder:PATH, csv:FILE, mot:ROOT")
        flags = {"dataset": name}
        domain = name
        if path:
            flags[PATHS[name]] = path
            domain = os.path.basename(os.path.abspath(path)).removesuffix(".csv")
        members.append(Member(domain, registry.module(name), Namespace(**{**vars(opt), **flags})))
    return members
