"""Several data sets as one, each a domain: --union cub200 cars196 folder:PATH csv:FILE; all test images are searched
together.

A domain is called by its data set, that of folder:PATH or csv:FILE by the last part of the path. Each one's training,
validation and test images are its own; flags such as --source_path, --split_shuffle and --use_tv_split go for all.
Classes of two domains are never the same, whatever their names (`_domains.py`), and every result comes for each domain,
`<domain>/<metric>`, and as the plain mean of the domains, `<metric>`.
"""

import os
from argparse import Namespace
from pathlib import Path

from datasets import _domains, _schemes, _splits
from datasets._layout import Reading
from utilities.errors import UserError
from utilities.registry import Registry
from utilities.roles import DATA

PATHS = {
    "folder": "dataset_folder_path",
    "csv": "dataset_csv",
}  # data sets that lie at a path, and the flag that names it
OWN_LABELS = True
validation_groups = _domains.validation_groups


def add_arguments(group) -> None:
    """Declare the flag of this data set."""
    group.add_argument(
        "--union",
        nargs="+",
        default=None,
        metavar="NAME",
        help=(
            "--dataset union: its data sets, each a domain, by name or as folder:PATH, csv:FILE; what "
            "--dataset_folder_path and --dataset_csv take"
        ),
    ).role = DATA.but(fixed=None)  # a folder may move


def check(opt) -> None:
    """Two data sets or more, of different names, and what each of them checks. Raises UserError, UnknownName."""
    names = [domain for domain, *_ in _members(opt)]
    if len(names) < 2:
        raise UserError(
            "--dataset union needs --union A B …, two data sets or more, as in --union cub200 cars196 folder:PATH"
        )
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"--union: two domains are called {twice}: rename one of the folders or files")
    if taken := next((name for name in names if name in _schemes.SPLITS), None):
        raise UserError(f"--union: a domain is called {taken}, as a split is: rename the folder or file")
    for _, module, flags in _members(opt):
        getattr(module, "check", lambda flags: None)(flags)


def has_validation(opt) -> bool:
    """Whether any of the data sets has images for validation of its own."""
    return any(getattr(module, "has_validation", lambda flags: False)(flags) for _, module, flags in _members(opt))


def prepare(opt, source: Path) -> Path:
    """The folder that holds all data sets, each found as by itself. Raises UserError where one is missing."""
    return Path(os.path.commonpath([os.path.abspath(_root(module, flags)) for _, module, flags in _members(opt)]))


def read(opt, root: Path) -> Reading:
    """The images of one data set after the other. Raises UserError where one has nothing to train on or to test, or
    does not go by classes.
    """
    joined = Reading([], split_of=[], by_domain=True)
    for domain, module, flags in _members(opt):
        root = _root(module, flags)
        reading = _splits.labelled_reading(module, flags, root)
        _, parts, of_none, partial = _splits.checked(flags.dataset, module, flags, root, reading)
        if reading.lists is not None or (
            hasattr(module, "role_draws")
            and module.role_draws(flags, [image for of in parts[2].values() for image in of]) is not None
        ):
            why = "lists say what its queries find" if reading.lists is not None else "its gallery is drawn at random"
            raise UserError(f"--union {domain}: {why}, and a union needs classes: leave it out")
        for split, classes in zip(_schemes.SPLITS, parts, strict=True):
            if not classes and split != "val":
                raise UserError(f"--union {domain}: it has no {_domains.SPLIT_NAMES[split]} images: leave it out")
            images = [_domains.placed(image, domain) for of in (classes or {}).values() for image in of] + (
                of_none if split == "test" else []
            )
            joined.images += images
            joined.split_of += [split] * len(images)
        joined.notes += [f"{domain}: {note}" for note in reading.notes]
        joined.partial = "; ".join(filter(None, (joined.partial, partial and f"{domain}: {partial}"))) or None
    joined.notes += _domains.notes(joined)
    return joined


def _members(opt) -> list[tuple]:
    """Domain, module and flags of each data set."""
    found = []
    registry = Registry("datasets", "dataset")
    for word in opt.union or ():
        name, _, path = word.partition(":")
        if path and name not in PATHS or name == "union":
            raise UserError(f"--union {word}: a data set by its name, or folder:PATH, csv:FILE")
        flags = {"dataset": name} | ({PATHS[name]: path} if path else {})
        domain = os.path.basename(os.path.abspath(path)).removesuffix(".csv") if path else name
        found.append((domain, registry.module(name), Namespace(**{**vars(opt), **flags})))
    return found


def _root(module, flags) -> Path:
    return _splits.locate(flags.dataset, module, flags, _splits.source_of(module, flags))
