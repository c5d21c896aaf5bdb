"""Any images in one folder a class: --dataset_folder_path X, where X/<class>/<images>; also X/<super>/<class>/ and deeper, X/train and X/test, X/query and X/gallery.

The layout is recognised by the content of X:

  X/<class>/<images>            all visible subfolders are classes; the first half, sorted by name, trains
  X/<super>/<class>/<images>    the same with super-classes; a class is called <super>/<class>; X/<order>/<family>/<class>/<images> has further levels
  X/train/…, X/test/…           one of these in each part; X/val/…, where it exists, is for validation
  X/train/…, X/query/…, X/gallery/…   the same where test images have roles: the query images are searched for in the gallery

Ambiguous layouts are refused.
"""

import difflib
from pathlib import Path

from datasets import _layout
from datasets._images import Image
from datasets._layout import Reading
from utilities.errors import UserError
from utilities.roles import DATA

PARTS = ("train", "val", "test", "query", "gallery")
ALSO_MEANT = {  # names of parts elsewhere -> the part's name here
    **{name: "train" for name in ("training", "trn")}, **{name: "val" for name in ("valid", "validation", "dev")},
    **{name: "test" for name in ("testing", "tst")}, **{name: "query" for name in ("queries", "probe")}, "galleries": "gallery",
}  # fmt: skip
SPLIT = {"query": "test", "gallery": "test"}  # the two roles of a test set, in the place of X/test
LAYOUTS = "X/<class>/<images> or X/<super>/<class>/<images>, all at one depth"


def add_arguments(group) -> None:
    """Declare the flag of this data set."""
    path = group.add_argument(
        "--dataset_folder_path", default=None,
        help="the folder X of X/<class>/<images> or X/<super>/<class>/<images>; with X/train and X/test (X/val) in place of X the split is theirs; X/query "
             "and X/gallery in the place of X/test give test images roles",
    )  # fmt: skip
    path.role = DATA.but(fixed=None)  # a folder may move


def check(opt) -> None:
    """The path is needed. Raises UserError."""
    if opt.dataset_folder_path is None:
        raise UserError("--dataset folder needs --dataset_folder_path X, where images lie in X/<class>/")


def has_validation(opt) -> bool:
    """Whether the folder has a validation part. Raises UserError as `read`."""
    root = Path(opt.dataset_folder_path or "").expanduser()
    return bool(opt.dataset_folder_path) and root.is_dir() and "val" in _parts(root)


def prepare(opt, source: Path) -> Path:
    """The folder that the flag names. Raises UserError where there is none."""
    root = Path(opt.dataset_folder_path).expanduser()
    if not root.is_dir():
        raise UserError(f"--dataset_folder_path {root}: no such folder. Expected: {root}/<class>/<images>")
    return root


def read(opt, root: Path) -> Reading:
    """The images of every class, classes sorted by name. Raises UserError for an ambiguous layout."""
    parts = _parts(root)
    if not parts:
        levels = _levels_above([root])
        reading = _classes(root, opt, levels)
        reading.notes.append(f"taken as classes: the folders X/{'<super>/' * levels}<class> of X = {root}")
        cut_by_name = opt.split_scheme in ("half", "class_disjoint", "mlrc")
    else:
        reading = _of_parts(root, parts, opt)
        reading.notes.append(f"taken as parts: {', '.join(parts)}; as classes: the folders in them")
        cut_by_name = opt.use_tv_split and not opt.tv_split_by_samples
    if cut_by_name and opt.split_shuffle is None:
        reading.notes.append(
            "classes are cut into blocks in the order of their names, alike ones perhaps together: --split_shuffle SEED mixes them"
        )
    return reading


def _of_parts(root: Path, parts: list[str], opt) -> Reading:
    """The classes of the folder's parts, and the split of each image."""
    levels = _levels_above([root / part for part in parts])
    readings = {part: _classes(root / part, opt, levels) for part in parts}
    for part, reading in readings.items():
        if not reading.images:
            raise UserError(f"{root / part} holds no image: fill it, or take it away so that no split is read from the folders of {root}")
    placed = [(_with_role(image, part), SPLIT.get(part, part)) for part, reading in readings.items() for image in reading.images]
    placed.sort(key=lambda one: one[0].class_name)
    notes = [note for reading in readings.values() for note in reading.notes]
    names = {split: {image.class_name for image, of_split in placed if of_split == split} for split in ("train", "test")}
    shared = names["train"] & names["test"]
    if shared:
        notes.append(f"{len(shared):,} classes are in train and in test: the test classes are not new ones, as {min(shared)}")
    return Reading([image for image, _ in placed], split_of=[split for _, split in placed], notes=notes)


def _with_role(image: Image, part: str) -> Image:
    """The image with the role of its part: query or gallery only, in the parts of these names."""
    return image._replace(is_query=part == "query", is_gallery=part == "gallery") if part in SPLIT else image


def _classes(folder: Path, opt, levels: int) -> Reading:
    """The classes in one folder, below folders of this many levels."""
    above, reading = [folder], Reading([])
    for _ in range(levels):
        above = [lower for upper in above for lower in _content(upper)[1]]
    for place in above:
        found, steps = _layout.class_folders([place], opt), place.relative_to(folder).parts
        super_name, *higher = ["/".join(steps[:n]) for n in range(len(steps), 0, -1)] or [None]
        for image in found.images:
            reading.images.append(image._replace(class_name="/".join((*steps, image.class_name)), super_name=super_name, higher_names=tuple(higher)))
        reading.notes += found.notes
    reading.images.sort(key=lambda image: image.class_name)  # stable; by the whole name `a b/c` comes before `a/c`, unlike their folders
    return reading


def _parts(root: Path) -> list[str]:
    """Those of `PARTS` whose folders make up the split; none where `root` holds classes. Raises UserError where it is ambiguous."""
    there = {folder.name: folder for folder in _content(root)[1]}
    like_parts = [name for name, folder in there.items() if not _content(folder)[0] and _content(folder)[1]]
    named = [part for part in PARTS if part in like_parts]
    meant = {name: part for name in like_parts if name not in PARTS and (part := _part_meant(name)) is not None}
    if meant and len(meant) + len(named) > 1:
        name, part = next(iter(meant.items()))
        raise UserError(f"{root} holds {' and '.join([*named, *meant])}: is {name} the part {part}? Then rename it; parts are {', '.join(PARTS)}")
    if not named:
        return []
    others = sorted(name for name, folder in there.items() if name not in named and _holds_images(folder))
    testing = [part for part in named if part in ("test", "query", "gallery")]
    if "train" in named and testing in (["test"], ["query", "gallery"]):
        if others:
            raise UserError(
                f"{root} holds train and {' and '.join(testing)}, and beside them {others[0]}: a split, or classes? A split is of train, val "
                "and test, or query and gallery, alone"
            )
        return named
    if named and not others:
        if len(testing) == 3:
            raise UserError(f"{root} holds test, and beside it query and gallery: the test images have roles or have none, take one away")
        wanted = ("train", *(["query", "gallery"] if "test" not in named and testing else ["test"]))
        missing = " and ".join(part for part in wanted if part not in named)
        raise UserError(f"{root} holds {' and '.join(named)}, but no {missing}: name both, or give one of them as --dataset_folder_path")
    return []


def _part_meant(name: str) -> str | None:
    """The part that a folder's name means with another spelling, such as Test, validation, tets; None where it means none."""
    names = {**{part: part for part in PARTS}, **ALSO_MEANT}
    near = difflib.get_close_matches(name.casefold(), names, n=1, cutoff=0.75)
    return names[near[0]] if near else None


def _levels_above(folders: list[Path]) -> int:
    """How many levels of folders lie between the folders and the classes. Raises UserError where images lie at several depths, or in parts."""
    there, level, depth = {}, [sub for folder in folders for sub in _content(folder)[1]], 0  # depth -> the first folder that holds images
    while level:
        contents = [(folder, *_content(folder)) for folder in level]
        first = next((folder for folder, has_images, _ in contents if has_images), None)
        there |= {} if first is None else {depth: first}
        level, depth = [lower for _, _, below in contents for lower in below], depth + 1
    if len(there) > 1:
        one, other = list(there.values())[:2]
        raise UserError(f"images lie in {one} and in {other}: which are the classes? Expected {LAYOUTS}, X = {folders[0]}")
    levels, place = next(iter(there.items()), (0, None))
    part = next((upper for upper in place.parents[: levels - 1] if upper.name in PARTS), None) if levels > 1 else None
    if part is not None:
        raise UserError(f"images lie in {place}: is {part} a part of the split? Then X is {part.parent}; else rename it")
    return levels


def _content(folder: Path) -> tuple[bool, list[Path]]:
    """Whether a folder holds an image itself; its visible subfolders, sorted by name."""
    entries = _layout.visible(folder)
    try:
        return any(map(_layout.is_image, entries)), [folder / entry.name for entry in entries if entry.is_dir()]
    except OSError as error:  # links in a circle
        raise UserError(f"{error.filename} cannot be read ({error.strerror})") from error


def _holds_images(folder: Path) -> bool:
    """Whether an image lies in a folder, or in one of its subfolders."""
    has_images, below = _content(folder)
    return has_images or any(map(_holds_images, below))
