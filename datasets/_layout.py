"""Finding a data set on disk, listing its class folders, and holding what was found against the published counts."""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from datasets._images import Image
from utilities.errors import UserError

SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff", ".webp"}
NUMBERED = re.compile(r"\d+\.")  # class folders that bear their official id: 001.Black_footed_Albatross


@dataclass
class Reading:
    """What a data set's module found: its images, those of a class together, classes in their order."""

    images: list[Image]
    train_classes: set[str] | None = None  # None: the first half of the classes
    split_of: dict[str, str] | None = None  # path -> train, val or test, where the data set's own folders say so for every image
    missing: list[str] = field(default_factory=list)  # listed files that are not there
    notes: list[str] = field(default_factory=list)
    made: bool = False  # by this program: neither copies nor transparency are looked for


@dataclass(frozen=True)
class Published:
    """Counts of training and test, as published."""

    classes: tuple[int, int]
    images: tuple[int, int]

    def __str__(self):
        return _counts(sum(self.classes), sum(self.images), self.classes, self.images)


def _counts(n_classes, n_images, classes, images) -> str:
    return f"{n_images:,} images of {n_classes:,} classes (training {images[0]:,} of {classes[0]:,}, test {images[1]:,} of {classes[1]:,})"


def find(name: str, module, source: Path) -> Path | None:
    """The data set's folder: one of `module.FOLDERS` under `source`, or `source` itself; the first that the module recognises."""
    for root in [*(source / folder for folder in module.FOLDERS), source]:
        if root.is_dir() and module.recognises(root):
            return root
    return None


def not_found(name: str, module, source: Path) -> UserError:
    """The error that says what was expected where, and how to get it."""
    looked = ", ".join(str(source / folder) for folder in module.FOLDERS)
    return UserError(
        f"--dataset {name}: not found in {looked} nor in {source} itself. Expected: {module.EXPECTED}. Pass its parent folder as --source, "
        f"or fetch it: --download, or {module.DOWNLOAD.alternatives}"
    )


def visible(folder: Path) -> list[os.DirEntry]:
    """What lies in `folder`, sorted by name, without hidden files and what archives leave behind."""
    with os.scandir(folder) as entries:
        return sorted((e for e in entries if not e.name.startswith(".") and e.name != "__MACOSX"), key=lambda e: e.name)


def is_image(entry: os.DirEntry) -> bool:
    """Whether a folder's entry is an image file, by its name."""
    return os.path.splitext(entry.name)[1].lower() in SUFFIXES and entry.is_file()


def image_files(folder: Path) -> list[str]:
    """Names of the image files in `folder`, sorted."""
    return [entry.name for entry in visible(folder) if is_image(entry)]


def class_folders(folders: list[Path], opt, order=None, by_id: bool = False) -> Reading:
    """One class a subfolder; subfolders of the same name in several `folders` are one class.

    Subfolders that hold files but no image are no classes. An empty one is an error, or left out with a note under
    `--allow_partial_dataset`.

    Args:
        order: sort key of the class names; default: the name.
        by_id: the data set's class folders bear their ids, `001.name`: they come in this order, and others are none of the data set.
    """
    names = sorted({e.name for folder in folders for e in visible(folder) if e.is_dir()}, key=order)
    numbered = [name for name in names if by_id and NUMBERED.match(name)]
    reading = Reading([])
    ignored = []
    if numbered:
        ignored = [name for name in names if name not in set(numbered)]
        names = sorted(numbered, key=lambda name: (int(name.split(".")[0]), name))
    for name in names:
        places = [folder / name for folder in folders if (folder / name).is_dir()]
        files = [str(place / file) for place in places for file in image_files(place)]
        if not files and any(visible(place) for place in places) and name not in numbered:
            ignored.append(name)
        elif not files:
            if not opt.allow_partial_dataset:
                raise UserError(f"class folder {places[0]} holds no image: fill or remove it, or leave it out with --allow_partial_dataset")
            reading.notes.append(f"class folder {places[0]} holds no image: left out")
        reading.images += [Image(path, name) for path in files]
    if ignored:
        reading.notes.append(f"folders that are no classes of the data set, ignored: {', '.join(ignored[:5])}{' …' * (len(ignored) > 5)}")
    return reading


def listed(folder: Path, rows: list[tuple[str, str, str | None]]) -> Reading:
    """Images from a data set's own list: rows of `(path below folder, class name, super name)`, in class order."""
    folders = {os.path.dirname(path) for path, _, _ in rows}
    there = {os.path.join(sub, file) for sub in folders if (folder / sub).is_dir() for file in os.listdir(folder / sub)}
    images = [Image(str(folder / path), class_name, super_name) for path, class_name, super_name in rows if path in there]
    return Reading(images, missing=[str(folder / path) for path, _, _ in rows if path not in there])


def read_table(path: Path) -> list[list[str]]:
    """The rows of a space-separated text file, split in as many fields as its first row has; empty rows are left out."""
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): the data set needs it") from error
    lines = [line for line in lines if line]
    n_fields = len(lines[0].split()) if lines else 0
    rows = [line.split(maxsplit=n_fields - 1) for line in lines]
    for number, row in enumerate(rows, start=1):
        if len(row) != n_fields:
            raise UserError(f"{path}, row {number}: {len(row)} fields, expected {n_fields}: the file is damaged")
    return rows


def difference(name: str, module, root: Path, reading: Reading, training: list[Image], testing: list[Image]) -> str | None:
    """In which way the data set differs from the published one; None where it does not."""
    published = getattr(module, "PUBLISHED", None)
    if published is None:
        return None
    classes = tuple(len({image.class_name for image in images}) for images in (training, testing))
    images = (len(training), len(testing))
    if (classes, images) == (published.classes, published.images) and not reading.missing:
        return None
    text = f"{name} in {root} holds {_counts(sum(classes), sum(images), classes, images)}; published are {published}"
    if reading.missing:
        text += f"; {len(reading.missing):,} listed files are missing, the first {reading.missing[0]}"
    return text
