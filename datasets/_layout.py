"""Finding a data set on disk, listing its class folders, and comparing its counts with the published ones."""

import itertools
import os
import re
from collections import Counter
from collections.abc import Container
from dataclasses import astuple, dataclass, field
from pathlib import Path

from datasets._images import Image, suffixes
from datasets._lists import Lists
from utilities.errors import UserError
from utilities.files import walk
from utilities.numbers import is_whole
from utilities.reading import read_text

MOST_ENDINGS = 8  # endings of files that are no images, named in a note
NUMBERED = re.compile(r"\d+\.")  # class folders with their official id: 001.Black_footed_Albatross


@dataclass
class Reading:
    """The images that a data set's module found, those of a class together, classes in order."""

    images: list[Image]
    train_classes: set[str] | None = None  # None: the first half of the classes
    split_of: list[str] | None = (
        # train, val or test of each image, where the data set has its own split; without test, val is the test set too
        None
    )
    missing: list[str] = field(default_factory=list)  # listed files that are not there
    notes: list[str] = field(default_factory=list)
    made: bool = False  # made by this program: no check for copies and transparency
    lists: Lists | None = None  # what each query is to find; None: the images of its class
    by_domain: bool = False  # super-classes are domains: results come one a domain
    partial: str | None = None  # how the parts of a union differ from the published ones


@dataclass(frozen=True)
class Published:
    """Counts of training and test, as published, without distractors; a count of None is not known, and fits any.

    Attributes:
        query, gallery: numbers of images and of classes, where the test set has roles.
        searched: number of images of the gallery, distractors counted in, where it has some.
    """

    classes: tuple[int | None, int | None]
    images: tuple[int | None, int | None]
    query: tuple[int | None, int | None] | None = None
    gallery: tuple[int | None, int | None] | None = None
    searched: tuple[int | None] | None = None

    def fits(self, found: "Published") -> bool:
        """Whether all counts that are known are those found."""
        pairs = zip(
            itertools.chain(*filter(None, astuple(self))), itertools.chain(*filter(None, astuple(found))), strict=True
        )
        return all(count in (None, other) for count, other in pairs)

    def __str__(self):
        parts = {"training": (self.images[0], self.classes[0]), "test": (self.images[1], self.classes[1])}
        if self.query is not None:
            parts |= {"query": self.query, "gallery": self.gallery}
        each = ", ".join(
            f"{name} {_number(images)}" + f" of {_number(classes)}" * (classes != 0)
            for name, (images, classes) in parts.items()
        )
        each += "" if self.searched is None else f", gallery with distractors {_number(*self.searched)}"
        whole = (
            f"{sum(self.images):,} images of {sum(self.classes):,} classes"
            if None not in (*self.images, *self.classes)
            else "images of classes"
        )
        whole = whole if self.classes != (0, 0) else whole.partition(" of ")[0]
        return f"{whole} ({each})"


def _number(count: int | None) -> str:
    return "unknown" if count is None else f"{count:,}"


def _counted(training: list[Image], testing: list[Image], distractors: int, published: Published) -> Published:
    """The counts of the images found, of those kinds that are published."""
    has_roles = published.query is not None
    roles = (
        [[image for image in testing if image.is_query], [image for image in testing if image.is_gallery]]
        if has_roles
        else []
    )
    (of_training, of_test, *of_roles) = (
        (len(images), len({image.class_name for image in images} - {None})) for images in (training, testing, *roles)
    )
    searched = None if published.searched is None else (of_roles[1][0] + distractors,)
    return Published((of_training[1], of_test[1]), (of_training[0], of_test[0]), *of_roles, searched=searched)


def find(name: str, module, source: Path) -> Path | None:
    """The data set's folder: one of `module.FOLDERS` under `source`, or `source` itself; the first that the module
    recognises.
    """
    for root in [*(source / folder for folder in module.FOLDERS), source]:
        if root.is_dir() and module.recognises(root):
            return root
    return None


def not_found(name: str, module, source: Path) -> UserError:
    """The error that says what is expected, where, and how to get it."""
    looked = ", ".join(str(source / folder) for folder in module.FOLDERS)
    return UserError(
        f"--dataset {name}: not found in {looked} nor in {source} itself. Expected: {module.EXPECTED}. Pass its "
        "parent folder as --source, or fetch it: "
        f"{'--download, or ' * bool(module.DOWNLOAD.archives)}{module.DOWNLOAD.alternatives}"
    )


def is_hidden(name: str) -> bool:
    """Whether a file or folder is none of the user's: hidden, or the `__MACOSX` of archives."""
    return name.startswith(".") or name == "__MACOSX"


def ending(name: str) -> str:
    """The ending of a file's name in lower case, `.jpg`; empty where it has none."""
    return os.path.splitext(name)[1].lower()


def visible(folder: Path) -> list[os.DirEntry]:
    """The entries of `folder`, sorted by name, without those that `is_hidden` names."""
    try:
        with os.scandir(folder) as entries:
            return sorted((entry for entry in entries if not is_hidden(entry.name)), key=lambda entry: entry.name)
    except OSError as error:
        raise UserError(f"{folder} cannot be read ({error.strerror})") from error


def is_image(entry: os.DirEntry) -> bool:
    """Whether a folder's entry is an image file, by its name; also a link to one that is gone."""
    try:
        return ending(entry.name) in suffixes() and not entry.is_dir()
    except OSError:  # links in a circle
        return True


def below(folder: Path, unread: Counter | None = None):
    """Yield the paths of the image files in and below `folder`, each real folder once, without what `is_hidden`.

    Args:
        unread: counts the other visible files by their endings.
    """
    for where, folders, files in walk(folder):
        folders[:] = sorted(name for name in folders if not is_hidden(name))
        for name in sorted(name for name in files if not is_hidden(name)):
            if ending(name) in suffixes():
                yield os.path.join(where, name)
            elif unread is not None:
                unread[ending(name)] += 1


def unread_files(counts: Counter) -> str | None:
    """One line on files that are no images by their endings, with the number of each ending; None without any."""
    if not counts:
        return None
    common = [f"{number:,} {name or 'without an ending'}" for name, number in counts.most_common(MOST_ENDINGS)]
    rest = len(counts) - len(common)
    more = f" and {rest:,} further endings" if rest else ""
    return f"{counts.total():,} files are not read, as their endings are none of images: {', '.join(common)}{more}"


def image_files(folder: Path) -> list[str]:
    """Names of the image files in `folder`, sorted."""
    return [entry.name for entry in visible(folder) if is_image(entry) and entry.is_file()]


def class_folders(folders: list[Path], opt, order=None, by_id: bool = False, without: Container[Path] = ()) -> Reading:
    """One class a subfolder; subfolders of the same name in several `folders` are one class.

    Subfolders that hold files but no image are not classes. An empty one is an error, or left out with a note under
    `--allow_partial_dataset`.

    Args:
        order: sort key of the class names; default: the name.
        by_id: the class folders' names begin with their ids, `001.name`: they are sorted by id, and other folders are
            ignored.
        without: subfolders that are left out.
    """
    names = set()
    for folder in folders:
        subfolders = [entry for entry in visible(folder) if entry.is_dir()]
        names |= {entry.name for entry in subfolders if Path(entry.path) not in without}
    names = sorted(names, key=order)
    numbered = [name for name in names if by_id and NUMBERED.match(name)]
    reading = Reading([])
    ignored = []
    if numbered:
        ignored = [name for name in names if name not in set(numbered)]
        names = sorted(numbered, key=lambda name: (int(name.split(".")[0]), name))
    for name in names:
        places = [folder / name for folder in folders if (folder / name).is_dir()]
        files = [entry.path for place in places for entry in visible(place) if is_image(entry)]
        if not files and any(visible(place) for place in places) and name not in numbered:
            ignored.append(name)
        elif not files:
            if not opt.allow_partial_dataset:
                raise UserError(
                    f"class folder {places[0]} holds no image: fill or remove it, or leave it out with "
                    "--allow_partial_dataset"
                )
            reading.notes.append(f"class folder {places[0]} holds no image: left out")
        gone = [path for path in files if os.path.islink(path) and not os.path.exists(path)]
        if gone and not opt.allow_partial_dataset:
            raise UserError(
                f"{gone[0]} is a link to nothing: is the disk there? Or leave such images out with "
                "--allow_partial_dataset"
            )
        reading.notes += [f"class folder {places[0]}: {len(gone)} links to nothing left out"] * bool(gone)
        reading.images += [Image(path, name) for path in files if path not in gone]
    if ignored:
        reading.notes.append(
            f"folders that are no classes of the data set, ignored: {', '.join(ignored[:5])}{' …' * (len(ignored) > 5)}"
        )
    return reading


def listed(folder: Path, rows: list[tuple]) -> Reading:
    """Images from a data set's own list: rows of the fields of an `Image`, paths relative to `folder`, in class order."""
    there = existing(folder, (row[0] for row in rows))
    images = [Image(os.path.join(folder, path), *row) for path, *row in rows if path in there]
    return Reading(images, missing=[os.path.join(folder, row[0]) for row in rows if row[0] not in there])


def existing(folder: Path, paths) -> set[str]:
    """Those of many paths, absolute or relative to `folder`, that exist. Lists each folder once instead of looking up
    each file.
    """
    folders = {path.rpartition("/")[0] for path in paths}
    return {
        os.path.join(sub, file) for sub in folders if os.path.isdir(folder / sub) for file in os.listdir(folder / sub)
    }


def spellings(path: str) -> tuple[str, ...]:
    """A path as a table has it, and with slashes where it has the backslashes of Windows."""
    return (path, os.path.normpath(path.replace("\\", "/"))) if "\\" in path and os.sep == "/" else (path,)


def by_label(labels: list[str]) -> list[int]:
    """Indices that sort by label, as numbers where all are whole numbers; within a class the order stays."""
    names = set(labels)
    key = int if all(map(is_whole, names)) else str
    place = {name: number for number, name in enumerate(sorted(names, key=lambda name: (key(name), name)))}
    return sorted(range(len(labels)), key=[place[label] for label in labels].__getitem__)


def read_table(path: Path) -> list[list[str]]:
    """The rows of a space-separated text file, split in as many fields as its first row has; empty rows are left out."""
    lines = [line.strip() for line in read_text(path, "the data set needs it").splitlines()]
    lines = [line for line in lines if line]
    n_fields = len(lines[0].split()) if lines else 0
    rows = [line.split(maxsplit=n_fields - 1) for line in lines]
    for number, row in enumerate(rows, start=1):
        if len(row) != n_fields:
            raise UserError(f"{path}, row {number}: {len(row)} fields, expected {n_fields}: the file is damaged")
    return rows


def typed(path: Path, rows: list[list[str]], start: int = 1, **kinds) -> list[tuple]:
    """Rows of a table, the first of them row `start`, with each field converted by its kind, such as `image=int`."""
    found = []
    for number, row in enumerate(rows, start):
        try:
            found.append(tuple(kind(field) for kind, field in zip(kinds.values(), row, strict=True)))
        except ValueError as error:
            raise UserError(
                f"{path}, row {number}: {' '.join(row)!r}, expected {', '.join(kinds)}: the file is damaged"
            ) from error
    return found


def difference(
    name: str,
    module,
    opt,
    root: Path,
    reading: Reading,
    training: list[Image],
    testing: list[Image],
    of_none: list[Image],
) -> str | None:
    """A text on how the data set differs from the published one, or from its own list; None where it does not.
    `of_none`: test images of no class.
    """
    published = module.published(opt) if hasattr(module, "published") else getattr(module, "PUBLISHED", None)
    has_distractors = reading.lists is None  # else images without a class are as good as others
    testing, distractors = (testing, len(of_none)) if has_distractors else ([*testing, *of_none], 0)
    found = None if published is None else _counted(training, testing, distractors, published)
    fits = published is None or published.fits(found)
    if fits and not reading.missing:
        return None
    text = f"{name} in {root}" + ("" if fits else f" holds {found}; published are {published}")
    if reading.missing:
        text += (
            f"{':' if fits else ';'} {len(reading.missing):,} listed files are missing, the first {reading.missing[0]}"
        )
    return text
