"""Finding a data set on disk, listing its class folders, and comparing its counts with the published ones.

A data set's module returns a `Reading`: images with their classes and roles, and the split or the lists of ground truth
if it has some. `class_folders` reads a tree of one folder per class, `listed` the images that a file of the data set
names, `read_table` and `typed` such a file. `Published` holds the counts of a paper, `difference` compares.
"""

import itertools
import os
import re
from collections import Counter
from collections.abc import Callable, Container
from dataclasses import astuple, dataclass, field, replace
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
    # None: the first half of the classes
    train_classes: set[str] | None = None
    # train, val or test of each image, if the data set has its own split; without test, val is the test set too
    split_of: list[str] | None = None
    # listed files that do not exist
    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    is_rendered: bool = False  # made by this program: no check for copies and transparency
    lists: Lists | None = None  # ground truth of the queries; None: the images of a query's class are relevant
    several_labels: bool = False  # of an image: what is relevant to a query shares one with it
    by_domain: bool = False  # super-classes are domains: there are results for each domain
    partial: str | None = None  # how the parts of a union differ from the published ones
    fixes: tuple = ()  # the corrections that were applied, each a `_fixes.Fix`
    rows: Callable | None = None  # a `_rows.Rows`, which gives features in place of images


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

    def fits(self, counted: "Published") -> bool:
        """Whether all known counts equal those of `counted`."""
        published = itertools.chain(*filter(None, astuple(self)))
        counts = itertools.chain(*filter(None, astuple(counted)))
        return all(number in (None, count) for number, count in zip(published, counts, strict=True))

    def __str__(self):
        parts = {"training": (self.images[0], self.classes[0]), "test": (self.images[1], self.classes[1])}
        if self.query is not None:
            parts |= {"query": self.query, "gallery": self.gallery}
        texts = []
        for name, (images, classes) in parts.items():
            text = f"{name} {_number(images)}"
            if classes != 0:
                text += f" of {_number(classes)}"
            texts.append(text)
        if self.searched is not None:
            texts.append(f"gallery with distractors {_number(*self.searched)}")
        return f"{self._totals()} ({', '.join(texts)})"

    def _totals(self) -> str:
        """Numbers of images and of classes in training and test together."""
        if None in (*self.images, *self.classes):
            images = "images"
            classes = "classes"
        else:
            images = f"{sum(self.images):,} images"
            classes = f"{sum(self.classes):,} classes"
        return images if self.classes == (0, 0) else f"{images} of {classes}"


def _number(count: int | None) -> str:
    return "unknown" if count is None else f"{count:,}"


def _counted(training: list[Image], testing: list[Image], distractors: int, published: Published) -> Published:
    """The counts of the images found, of those kinds that are published."""
    n_training, training_classes = _count(training)
    n_test, test_classes = _count(testing)
    counts = Published((training_classes, test_classes), (n_training, n_test))
    if published.query is None:
        return counts
    gallery = _count([image for image in testing if image.is_gallery])
    searched = None if published.searched is None else (gallery[0] + distractors,)
    query = _count([image for image in testing if image.is_query])
    return replace(counts, query=query, gallery=gallery, searched=searched)


def _count(images: list[Image]) -> tuple[int, int]:
    """Numbers of images and of classes."""
    return len(images), len({image.class_name for image in images} - {None})


def find(name: str, module, source: Path) -> Path | None:
    """The data set's folder: the first that its module recognises of `module.FOLDERS` under `source`, and `source`."""
    for root in [*(source / folder for folder in module.FOLDERS), source]:
        if root.is_dir() and module.recognises(root):
            return root
    return None


def not_found(name: str, module, source: Path) -> UserError:
    """The error that says what is expected, where, and how to get it."""
    folders = ", ".join(str(source / folder) for folder in module.FOLDERS)
    download = "--download, or " if module.DOWNLOAD.archives else ""
    return UserError(
        f"--dataset {name}: not found in {folders} nor in {source} itself. Expected: {module.EXPECTED}. Pass its "
        f"parent folder as --source, or fetch it: {download}{module.DOWNLOAD.alternatives}"
    )


def is_hidden(name: str) -> bool:
    """Whether a file or folder is none of the user's: hidden, or the `__MACOSX` of archives."""
    return name.startswith(".") or name == "__MACOSX"


def ending(name: str) -> str:
    """The ending of a file's name in lower case, `.jpg`; empty if it has none."""
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
    except OSError:
        # links in a circle
        return True


def below(folder: Path, unread: Counter | None = None):
    """Yield the paths of the image files in and below `folder`, each real folder once, without what `is_hidden`.

    Args:
        unread: counts the other visible files by their endings.
    """
    for parent, folders, files in walk(folder):
        folders[:] = sorted(name for name in folders if not is_hidden(name))
        for name in sorted(name for name in files if not is_hidden(name)):
            if ending(name) in suffixes():
                yield os.path.join(parent, name)
            elif unread is not None:
                unread[ending(name)] += 1


def unread_files(counts: Counter) -> str | None:
    """One line on files that are no images by their endings, with the number of each ending; None without any."""
    if not counts:
        return None
    common = [f"{number:,} {name or 'without an ending'}" for name, number in counts.most_common(MOST_ENDINGS)]
    n_further = len(counts) - len(common)
    line = f"{counts.total():,} files are not read, as their endings are none of images: {', '.join(common)}"
    return f"{line} and {n_further:,} further endings" if n_further else line


def image_files(folder: Path) -> list[str]:
    """Names of the image files in `folder`, sorted."""
    return [entry.name for entry in visible(folder) if is_image(entry) and entry.is_file()]


def class_folders(folders: list[Path], opt, order=None, by_id: bool = False, left_out: Container[Path] = ()) -> Reading:
    """One class per subfolder; subfolders of the same name in several `folders` are one class.

    Subfolders that hold files but no image are not classes. An empty one is an error,
    or left out with a note under `--allow_partial_dataset`.

    Args:
        order: sort key of the class names; default: the name.
        by_id: the class folders' names begin with their ids, `001.name`: they are sorted by id, and other folders are
            ignored.
        left_out: subfolders that are not read.
    """
    names = set()
    for folder in folders:
        subfolders = [entry for entry in visible(folder) if entry.is_dir()]
        names |= {entry.name for entry in subfolders if Path(entry.path) not in left_out}
    names = sorted(names, key=order)
    numbered = [name for name in names if by_id and NUMBERED.match(name)]
    reading = Reading([])
    ignored = []
    if numbered:
        ignored = [name for name in names if name not in set(numbered)]
        names = sorted(numbered, key=lambda name: (int(name.split(".")[0]), name))
    for name in names:
        class_parts = [folder / name for folder in folders if (folder / name).is_dir()]
        files = [entry.path for part in class_parts for entry in visible(part) if is_image(entry)]
        if not files:
            if name not in numbered and any(visible(part) for part in class_parts):
                ignored.append(name)
            else:
                _leave_out_empty(class_parts[0], reading, opt)
        reading.images += [Image(path, name) for path in _without_dead_links(files, class_parts[0], reading, opt)]
    if ignored:
        names = ", ".join(ignored[:5])
        if len(ignored) > 5:
            names += " …"
        reading.notes.append(f"folders that are no classes of the data set, ignored: {names}")
    return reading


def _leave_out_empty(folder: Path, reading: Reading, opt) -> None:
    """Note that a class folder is empty. Raises UserError unless --allow_partial_dataset is given."""
    if not opt.allow_partial_dataset:
        raise UserError(
            f"class folder {folder} holds no image: fill or remove it, or leave it out with --allow_partial_dataset"
        )
    reading.notes.append(f"class folder {folder} holds no image: left out")


def _without_dead_links(files: list[str], folder: Path, reading: Reading, opt) -> list[str]:
    """The files but links to nothing, with a note. Raises UserError for one unless --allow_partial_dataset is given."""
    dead = [path for path in files if os.path.islink(path) and not os.path.exists(path)]
    if not dead:
        return files
    if not opt.allow_partial_dataset:
        raise UserError(
            f"{dead[0]} is a link to nothing: is the disk there? Or leave such images out with --allow_partial_dataset"
        )
    reading.notes.append(f"class folder {folder}: {len(dead)} links to nothing left out")
    return [path for path in files if path not in dead]


def listed(folder: Path, images: list[Image]) -> Reading:
    """The images of a data set's own list that exist, and the paths of those that are missing.

    Args:
        images: in class order, each an `Image`, or a tuple of its first fields, with a path relative to `folder`.
    """
    existing_paths = existing(folder, (path for path, *_ in images))
    reading = Reading([])
    for path, *fields in images:
        full_path = os.path.join(folder, path)
        if path in existing_paths:
            reading.images.append(Image(full_path, *fields))
        else:
            reading.missing.append(full_path)
    return reading


def existing(folder: Path, paths) -> set[str]:
    """Those of many paths, absolute or relative to `folder`, that exist.

    Lists each folder once instead of looking up each file.
    """
    subfolders = {path.rpartition("/")[0] for path in paths}
    found_paths = set()
    for subfolder in subfolders:
        if os.path.isdir(folder / subfolder):
            found_paths |= {os.path.join(subfolder, file) for file in os.listdir(folder / subfolder)}
    return found_paths


def spellings(path: str) -> tuple[str, ...]:
    """A path as a table has it, and with slashes if it has the backslashes of Windows."""
    if "\\" not in path or os.sep != "/":
        return (path,)
    return path, os.path.normpath(path.replace("\\", "/"))


def by_label(labels: list[str]) -> list[int]:
    """Indices that sort by label, as numbers where all are whole numbers; within a class the order stays."""
    names = set(labels)
    key = int if all(map(is_whole, names)) else str
    ordered = sorted(names, key=lambda name: (key(name), name))
    position = {name: number for number, name in enumerate(ordered)}
    return sorted(range(len(labels)), key=lambda index: position[labels[index]])


def read_table(path: Path) -> list[list[str]]:
    """The rows of a space-separated text file, each split in as many fields as the first; empty rows are left out."""
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
    converted = []
    for number, row in enumerate(rows, start):
        try:
            converted.append(tuple(kind(field) for kind, field in zip(kinds.values(), row, strict=True)))
        except ValueError as error:
            raise UserError(
                f"{path}, row {number}: {' '.join(row)!r}, expected {', '.join(kinds)}: the file is damaged"
            ) from error
    return converted


def published_counts(module, opt) -> Published | None:
    """The published counts of a data set under the flags; None if its module has none."""
    if hasattr(module, "published"):
        return module.published(opt)
    return getattr(module, "PUBLISHED", None)


def difference(
    description: str,
    reading: Reading,
    published: Published | None,
    training: list[Image],
    testing: list[Image],
    classless: list[Image],
) -> str | None:
    """A text on how the data set differs from the published one, or from its own list; None if it does not.

    Args:
        description: the data set's name and folder, with which the text begins.
        classless: test images without a class. They are distractors, unless lists say what is relevant to a query.
    """
    distractors = len(classless)
    if reading.lists is not None:
        testing = [*testing, *classless]
        distractors = 0
    text = description
    separator = ":"
    if published is not None:
        counted = _counted(training, testing, distractors, published)
        if not published.fits(counted):
            text += f" holds {counted}; published are {published}"
            separator = ";"
    if reading.missing:
        text += f"{separator} {len(reading.missing):,} listed files are missing, the first {reading.missing[0]}"
    return None if text == description else text
