"""Any images in one folder a class: --dataset_folder_path X, where X/<class>/<images>; also X/<super>/<class>/ and
deeper, X/train and X/test, X/query and X/gallery.

The layout is recognised by the content of X:

  X/<class>/<images>            all visible subfolders are classes; the first half, sorted by name, trains
  X/<super>/<class>/<images>    the same with super-classes; a class is called <super>/<class>; X/<order>/<family>/<class>/<images> has further levels
  X/train/…, X/test/…           one of these in each part; X/val/…, where it exists, is for validation
  X/train/…, X/query/…, X/gallery/…   the same where test images have roles: the query images are searched for in the gallery

Ambiguous layouts are refused.
"""

import difflib
import os
from collections import Counter
from collections.abc import Container
from pathlib import Path

from datasets import _layout
from datasets._images import Image, suffixes
from datasets._layout import Reading
from utilities.errors import UserError
from utilities.files import expanded
from utilities.roles import DATA

PARTS = ("train", "val", "test", "query", "gallery")
ALSO_MEANT = {  # names of parts elsewhere -> the part's name here
    **{name: "train" for name in ("training", "trn")},
    **{name: "val" for name in ("valid", "validation", "dev")},
    **{name: "test" for name in ("testing", "tst")},
    **{name: "query" for name in ("queries", "probe")},
    "galleries": "gallery",
}
SPLIT = {"query": "test", "gallery": "test"}  # the two roles of a test set, in the place of X/test
OWN_LABELS = True
LAYOUTS = "X/<class>/<images> or X/<super>/<class>/<images>, all at one depth"


def add_arguments(group) -> None:
    """Declare the flag of this data set."""
    path = group.add_argument(
        "--dataset_folder_path",
        default=None,
        help="the folder X of X/<class>/<images> or X/<super>/<class>/<images>; with X/train and X/test (X/val) in "
        "place of X the split is theirs; X/query and X/gallery in the place of X/test give test images roles",
    )
    path.role = DATA.but(fixed=None)  # a folder may move


def check(opt) -> None:
    """The path is needed. Raises UserError."""
    if opt.dataset_folder_path is None:
        raise UserError("--dataset folder needs --dataset_folder_path X, where images lie in X/<class>/")


def has_validation(opt) -> bool:
    """Whether the folder has a validation part. Raises UserError as `read`."""
    root = expanded(opt.dataset_folder_path or "")
    return bool(opt.dataset_folder_path) and root.is_dir() and "val" in _parts(_top(root))


def prepare(opt, source: Path) -> Path:
    """The folder that the flag names. Raises UserError where there is none."""
    root = expanded(opt.dataset_folder_path)
    if not root.is_dir():
        raise UserError(f"--dataset_folder_path {root}: no such folder. Expected: {root}/<class>/<images>")
    return root


class Tree:
    """The folders in and below `root`, each real folder once: circles of links end.

    Args:
        depth: of how many levels the folders are listed; None: of all.
        twice: names of links that are followed even if the folder is read under another name too.

    Attributes:
        levels: the folders of each depth, `root` the first.
        holders: the listed folders that hold an image themselves.
        repeated: the links that are left out.
        unread: ending -> number of files in the listed folders that are no images.

    Raises UserError for a folder that cannot be read.
    """

    def __init__(self, root: Path, depth: int | None = None, twice: Container[str] = ()):
        self.root = root
        self.levels = [[root]]
        self.holders = set()
        self.repeated = set()
        self.unread = Counter()
        real_root = Path(os.path.realpath(root))
        real_of = {root: str(real_root)}
        known = {str(real_root), *map(str, real_root.parents)}
        while self.levels[-1] and len(self.levels) - 1 != depth:
            subfolders = [subfolder for folder in self.levels[-1] for subfolder in self._subfolders(folder, real_of)]
            level = []
            # Folders come before links to them, whatever their names.
            for folder in sorted(subfolders, key=Path.is_symlink):
                real = real_of[folder]
                if real in known and folder.name not in twice:
                    self.repeated.add(folder)
                else:
                    known.add(real)
                    level.append(folder)
            self.levels.append(sorted(level))

    def _subfolders(self, folder: Path, real_of: dict[Path, str]) -> list[Path]:
        """The visible folders in a folder; their real paths go into `real_of`."""
        subfolders = []
        for entry in _layout.visible(folder):
            if _layout.is_image(entry):
                self.holders.add(folder)
            elif _is_folder(entry):
                subfolders.append(folder / entry.name)
                real = os.path.join(real_of[folder], entry.name)
                real_of[subfolders[-1]] = os.path.realpath(real) if entry.is_symlink() else real
            else:
                self.unread[_layout.ending(entry.name)] += 1
        return subfolders


def _is_folder(entry: os.DirEntry) -> bool:
    """Whether an entry is a folder or a link to one. Raises UserError for a link to itself."""
    try:
        return entry.is_dir()
    except OSError as error:
        raise UserError(f"{error.filename} cannot be read ({error.strerror})") from error


def read(opt, root: Path) -> Reading:
    """The images of every class, classes sorted by name.

    Raises UserError for an ambiguous layout, and where there is no image.
    """
    top = _top(root)
    parts = _parts(top)
    if parts:
        trees = {folder.name: Tree(folder) for folder in top.levels[1]}
        reading = _of_parts(root, {part: trees[part] for part in parts}, opt)
        reading.notes.append(f"taken as parts: {', '.join(parts)}; as classes: the folders in them")
        cut_by_name = opt.use_tv_split and not opt.tv_split_by_samples
        listed = [top, *trees.values()]
    else:
        tree = Tree(root)
        levels = _levels_above([tree])
        reading = _classes(tree, opt, levels)
        reading.notes.append(f"taken as classes: the folders X/{'<super>/' * levels}<class> of X = {root}")
        cut_by_name = opt.split_scheme in ("half", "class_disjoint", "mlrc")
        listed = [tree]
    if cut_by_name and opt.split_shuffle is None:
        reading.notes.append(
            "classes are cut into blocks in the order of their names, alike ones perhaps together: --split_shuffle "
            "SEED mixes them"
        )
    unread = _layout.unread_files(sum((tree.unread for tree in listed), Counter()))
    if not reading.images and unread is not None:
        endings = " ".join(sorted(suffixes()))
        raise UserError(f"--dataset_folder_path {root}: no image. {unread}; images end in {endings}")
    reading.notes += [note for note in (unread, _repeated_links(listed)) if note is not None]
    return reading


def _top(root: Path) -> Tree:
    """The visible folders of `root`. A part may be a link to another, as val to test."""
    return Tree(root, depth=1, twice=PARTS)


def _repeated_links(trees: list[Tree]) -> str | None:
    """A line on the links that the trees leave out; None without any."""
    links = sorted(str(link) for tree in trees for link in tree.repeated)
    if not links:
        return None
    more = f" and {len(links) - 1:,} more" if len(links) > 1 else ""
    return f"links to folders that are read under another name, left out: {links[0]}{more}"


def _of_parts(root: Path, trees: dict[str, Tree], opt) -> Reading:
    """The classes of the folder's parts, and the split of each image."""
    levels = _levels_above(list(trees.values()))
    readings = {part: _classes(tree, opt, levels) for part, tree in trees.items()}
    for part, reading in readings.items():
        if not reading.images:
            raise UserError(
                f"{root / part} holds no image: fill it, or take it away so that no split is read from the folders of "
                f"{root}"
            )
    placed = [
        (_with_role(image, part), SPLIT.get(part, part))
        for part, reading in readings.items()
        for image in reading.images
    ]
    placed.sort(key=lambda one: one[0].class_name)
    notes = [note for reading in readings.values() for note in reading.notes]
    names = {
        split: {image.class_name for image, of_split in placed if of_split == split} for split in ("train", "test")
    }
    shared = names["train"] & names["test"]
    if shared:
        notes.append(
            f"{len(shared):,} classes are in train and in test: the test classes are not new ones, as {min(shared)}"
        )
    return Reading([image for image, _ in placed], split_of=[split for _, split in placed], notes=notes)


def _with_role(image: Image, part: str) -> Image:
    """The image with the role of its part: query or gallery only, in the parts of these names."""
    return image._replace(is_query=part == "query", is_gallery=part == "gallery") if part in SPLIT else image


def _classes(tree: Tree, opt, levels: int) -> Reading:
    """The classes in a tree, below folders of this many levels."""
    reading = Reading([])
    for place in tree.levels[levels] if levels < len(tree.levels) else []:
        found = _layout.class_folders([place], opt, left_out=tree.repeated)
        steps = place.relative_to(tree.root).parts
        super_name, *higher = ["/".join(steps[:n]) for n in range(len(steps), 0, -1)] or [None]
        for image in found.images:
            reading.images.append(
                image._replace(
                    class_name="/".join((*steps, image.class_name)), super_name=super_name, higher_names=tuple(higher)
                )
            )
        reading.notes += found.notes
    reading.images.sort(
        key=lambda image: image.class_name
    )  # stable; by the whole name `a b/c` comes before `a/c`, unlike their folders
    return reading


def _parts(top: Tree) -> list[str]:
    """Those of `PARTS` whose folders make up the split; none where the root holds classes.

    Raises UserError where it is ambiguous.
    """
    root = top.root
    there = {folder.name: folder for folder in top.levels[1]}
    like_parts = [name for name, folder in there.items() if _is_like_part(folder)]
    named = [part for part in PARTS if part in like_parts]
    meant = {name: part for name in like_parts if name not in PARTS and (part := _part_meant(name)) is not None}
    if meant and len(meant) + len(named) > 1:
        name, part = next(iter(meant.items()))
        raise UserError(
            f"{root} holds {' and '.join([*named, *meant])}: is {name} the part {part}? Then rename it; parts are "
            f"{', '.join(PARTS)}"
        )
    if not named:
        return []
    others = [name for name, folder in there.items() if name not in named and Tree(folder).holders]
    testing = [part for part in named if part in ("test", "query", "gallery")]
    if "train" in named and testing in (["test"], ["query", "gallery"]):
        if others:
            raise UserError(
                f"{root} holds train and {' and '.join(testing)}, and beside them {others[0]}: a split, or classes? A "
                "split is of train, val and test, or query and gallery, alone"
            )
        return named
    if named and not others:
        if len(testing) == 3:
            raise UserError(
                f"{root} holds test, and beside it query and gallery: the test images have roles or have none, take "
                "one away"
            )
        wanted = ("train", *(["query", "gallery"] if "test" not in named and testing else ["test"]))
        missing = " and ".join(part for part in wanted if part not in named)
        raise UserError(
            f"{root} holds {' and '.join(named)}, but no {missing}: name both, or give one of them as "
            "--dataset_folder_path"
        )
    return []


def _part_meant(name: str) -> str | None:
    """The part that a folder's name means with another spelling, such as Test, validation, tets; None where it means
    none.
    """
    names = {**{part: part for part in PARTS}, **ALSO_MEANT}
    near = difflib.get_close_matches(name.casefold(), names, n=1, cutoff=0.75)
    return names[near[0]] if near else None


def _is_like_part(folder: Path) -> bool:
    """Whether a folder holds folders and no image itself."""
    entries = _layout.visible(folder)
    return not any(map(_layout.is_image, entries)) and any(map(_is_folder, entries))


def _levels_above(trees: list[Tree]) -> int:
    """How many levels of folders lie between the roots and the classes.

    Raises UserError where images lie at several depths, or in parts.
    """
    holders = {}  # depth below a root -> the first folder there that holds images
    for tree in trees:
        for depth, folders in enumerate(tree.levels[1:]):
            first = next((folder for folder in folders if folder in tree.holders), None)
            if first is not None:
                holders.setdefault(depth, first)
    if len(holders) > 1:
        one, other = [holders[depth] for depth in sorted(holders)][:2]
        where = f"images lie in {one} and in {other}"
        raise UserError(f"{where}: which are the classes? Expected {LAYOUTS}, X = {trees[0].root}")
    levels, place = next(iter(holders.items()), (0, None))
    part = next((upper for upper in place.parents[: levels - 1] if upper.name in PARTS), None) if levels > 1 else None
    if part is not None:
        raise UserError(
            f"images lie in {place}: is {part} a part of the split? Then X is {part.parent}; else rename it"
        )
    return levels
