"""Any images in one folder per class: --dataset_folder_path X.

The layout is recognised by the content of X:

    X/<class>/<images>            all visible subfolders are classes; the first half, sorted by name, trains
    X/<super>/<class>/<images>    the same with super-classes; a class is called <super>/<class>;
                                  X/<order>/<family>/<class>/<images> has further levels
    X/train/…, X/test/…           one of these in each part; X/val/…, if it exists, is for validation
    X/train/…, X/query/…,         the same with roles of test images: query images are searched for in the gallery
    X/gallery/…

Ambiguous layouts are refused.
"""

import difflib
import os
from collections import Counter
from collections.abc import Container
from pathlib import Path

from datasets import _groups, _layout, _times
from datasets._images import Image, suffixes
from datasets._layout import Reading
from options.flags import Flag
from options.flags.roles import DATA
from utilities.counts import count_of
from utilities.errors import UserError
from utilities.files import expanded

PARTS = ("train", "val", "test", "query", "gallery")
# names of parts elsewhere -> the part's name here
ALSO_MEANT = {
    **dict.fromkeys(("training", "trn"), "train"),
    **dict.fromkeys(("valid", "validation", "dev"), "val"),
    **dict.fromkeys(("testing", "tst"), "test"),
    **dict.fromkeys(("queries", "probe"), "query"),
    "galleries": "gallery",
}
# the two roles of a test set, in the place of X/test
SPLIT = {"query": "test", "gallery": "test"}
OWN_LABELS = True
LAYOUTS = "X/<class>/<images> or X/<super>/<class>/<images>, all at one depth"

FLAGS = {
    "--dataset_folder_path": Flag(
        str,
        None,
        "the folder X of X/<class>/<images> or X/<super>/<class>/<images>; with X/train and X/test (X/val) in "
        "place of X the split is theirs; X/query and X/gallery in the place of X/test give test images roles",
        # the folder may move
        role=DATA.but(fixed=None),
    ),
}


def check(opt) -> None:
    """The path is needed. Raises UserError."""
    if opt.dataset_folder_path is None:
        raise UserError("--dataset folder needs --dataset_folder_path X, where images lie in X/<class>/")


def has_validation(opt) -> bool:
    """Whether the folder has a validation part. Raises UserError as `read`."""
    root = expanded(opt.dataset_folder_path or "")
    return bool(opt.dataset_folder_path) and root.is_dir() and "val" in _parts(_top(root))


def prepare(opt, source: Path) -> Path:
    """The folder that the flag names. Raises UserError if there is none."""
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
        read_folders = {str(real_root), *map(str, real_root.parents)}
        while self.levels[-1] and len(self.levels) - 1 != depth:
            subfolders = [subfolder for folder in self.levels[-1] for subfolder in self._subfolders(folder, real_of)]
            level = []
            # Folders come before links to them, whatever their names.
            for folder in sorted(subfolders, key=Path.is_symlink):
                real = real_of[folder]
                if real in read_folders and folder.name not in twice:
                    self.repeated.add(folder)
                else:
                    read_folders.add(real)
                    level.append(folder)
            self.levels.append(sorted(level))

    def _subfolders(self, folder: Path, real_of: dict[Path, str]) -> list[Path]:
        """The visible folders in a folder; their real paths go into `real_of`."""
        subfolders = []
        for entry in _layout.visible(folder):
            if _layout.is_image(entry):
                self.holders.add(folder)
            elif _is_folder(entry):
                subfolder = folder / entry.name
                subfolders.append(subfolder)
                real = os.path.join(real_of[folder], entry.name)
                if entry.is_symlink():
                    real = os.path.realpath(real)
                real_of[subfolder] = real
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

    Raises UserError for an ambiguous layout, and if there is no image.
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
        cut_by_name = opt.split_scheme in ("half", "class_disjoint", "mlrc", "open_set")
        listed = [tree]
    if cut_by_name and opt.split_shuffle is None:
        reading.notes.append(
            "classes are split in the order of their names, so similar classes may fall into the same part; "
            "--split_shuffle SEED shuffles them"
        )
    unread = _layout.unread_files(sum((tree.unread for tree in listed), Counter()))
    if not reading.images and unread is not None:
        endings = " ".join(sorted(suffixes()))
        raise UserError(f"--dataset_folder_path {root}: no image. {unread}; images end in {endings}")
    reading.notes += [note for note in (unread, _repeated_links(listed)) if note is not None]
    if _groups.needs_times(opt):
        reading.images = _times.photographed(reading.images, root)
    return reading


def _top(root: Path) -> Tree:
    """The visible folders of `root`. A part may be a link to another, as val to test."""
    return Tree(root, depth=1, twice=PARTS)


def _repeated_links(trees: list[Tree]) -> str | None:
    """A line on the links that the trees leave out; None without any."""
    links = sorted(str(link) for tree in trees for link in tree.repeated)
    if not links:
        return None
    line = f"links to folders that are read under another name, left out: {links[0]}"
    return f"{line} and {len(links) - 1:,} more" if len(links) > 1 else line


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
    rows = []
    notes = []
    for part, reading in readings.items():
        notes += reading.notes
        rows += [(_with_role(image, part), SPLIT.get(part, part)) for image in reading.images]
    rows.sort(key=lambda row: row[0].class_name)
    train_names = {image.class_name for image, split in rows if split == "train"}
    test_names = {image.class_name for image, split in rows if split == "test"}
    shared = train_names & test_names
    if shared:
        number = count_of(len(shared), "class", "classes")
        notes.append(f"train and test share {number}: the test classes are not all new ones, as {min(shared)}")
    return Reading([image for image, _ in rows], split_of=[split for _, split in rows], notes=notes)


def _with_role(image: Image, part: str) -> Image:
    """The image with the role of its part: query or gallery only, in the parts of these names."""
    if part not in SPLIT:
        return image
    return image._replace(is_query=part == "query", is_gallery=part == "gallery")


def _classes(tree: Tree, opt, levels: int) -> Reading:
    """The classes in a tree, below folders of this many levels."""
    reading = Reading([])
    if levels >= len(tree.levels):
        return reading
    for folder in tree.levels[levels]:
        below = _layout.class_folders([folder], opt, left_out=tree.repeated)
        names = folder.relative_to(tree.root).parts
        # the finest first
        upper_names = ["/".join(names[:n]) for n in range(len(names), 0, -1)]
        super_name, *higher_names = upper_names or [None]
        for image in below.images:
            class_name = "/".join((*names, image.class_name))
            reading.images.append(
                image._replace(class_name=class_name, super_name=super_name, higher_names=tuple(higher_names))
            )
        reading.notes += below.notes
    # stable; by the whole name `a b/c` comes before `a/c`, unlike their folders
    reading.images.sort(key=lambda image: image.class_name)
    return reading


def _parts(top: Tree) -> list[str]:
    """Those of `PARTS` whose folders make up the split; none if the root holds classes.

    Raises UserError if it is ambiguous.
    """
    root = top.root
    folders = {folder.name: folder for folder in top.levels[1]}
    like_parts = [name for name, folder in folders.items() if _is_like_part(folder)]
    parts = [part for part in PARTS if part in like_parts]
    _refuse_misspelt(root, parts, like_parts)
    if not parts:
        return []
    classes = [name for name, folder in folders.items() if name not in parts and Tree(folder).holders]
    testing = [part for part in parts if part in ("test", "query", "gallery")]
    if "train" in parts and testing in (["test"], ["query", "gallery"]):
        if classes:
            raise UserError(
                f"{root} contains train, {' and '.join(testing)} and also {classes[0]}: a split, or classes? "
                "A split has only train, val and test, or query and gallery"
            )
        return parts
    if classes:
        return []
    if len(testing) == 3:
        raise UserError(
            f"{root} holds test, and beside it query and gallery: the test images have roles or have none, take one "
            "away"
        )
    has_roles = "test" not in parts and testing
    needed = ("train", "query", "gallery") if has_roles else ("train", "test")
    missing = " and ".join(part for part in needed if part not in parts)
    raise UserError(
        f"{root} holds {' and '.join(parts)}, but no {missing}: name both, or give one of them as --dataset_folder_path"
    )


def _refuse_misspelt(root: Path, parts: list[str], like_parts: list[str]) -> None:
    """Raise UserError if a folder's name means a part in another spelling, beside another part."""
    part_of_name = {}
    for name in like_parts:
        part = None if name in PARTS else _part_meant(name)
        if part is not None:
            part_of_name[name] = part
    if part_of_name and len(part_of_name) + len(parts) > 1:
        name, part = next(iter(part_of_name.items()))
        raise UserError(
            f"{root} holds {' and '.join([*parts, *part_of_name])}: is {name} the part {part}? Then rename it; parts "
            f"are {', '.join(PARTS)}"
        )


def _part_meant(name: str) -> str | None:
    """The part that a folder's name means in another spelling, such as Test, validation, tets; None if it is none."""
    names = {**{part: part for part in PARTS}, **ALSO_MEANT}
    near = difflib.get_close_matches(name.casefold(), names, n=1, cutoff=0.75)
    return names[near[0]] if near else None


def _is_like_part(folder: Path) -> bool:
    """Whether a folder holds folders and no image itself."""
    entries = _layout.visible(folder)
    return not any(map(_layout.is_image, entries)) and any(map(_is_folder, entries))


def _levels_above(trees: list[Tree]) -> int:
    """How many levels of folders lie between the roots and the classes.

    Raises UserError if images lie at several depths, or in parts.
    """
    # depth below a root -> the first folder there that holds images
    holders = {}
    for tree in trees:
        for depth, folders in enumerate(tree.levels[1:]):
            first = next((folder for folder in folders if folder in tree.holders), None)
            if first is not None:
                holders.setdefault(depth, first)
    if len(holders) > 1:
        upper, lower = [holders[depth] for depth in sorted(holders)][:2]
        raise UserError(
            f"images lie in {upper} and in {lower}: which are the classes? Expected {LAYOUTS}, X = {trees[0].root}"
        )
    if not holders:
        return 0
    levels, folder = next(iter(holders.items()))
    if levels > 1:
        for upper in folder.parents[: levels - 1]:
            if upper.name in PARTS:
                raise UserError(
                    f"images lie in {folder}: is {upper} a part of the split? Then X is {upper.parent}; else rename it"
                )
    return levels
