"""The images that a command is given: files, folders with all below them, CSV files with a column of paths."""

import os
from collections import Counter
from pathlib import Path

import datasets
from utilities.errors import UserError
from utilities.files import expanded
from utilities.reading import read_records

# columns of a CSV file; the first that it has is read
COLUMNS = ("path", "image", "file", "filename")


def listed(arguments: list[str]) -> list[str]:
    """The paths of `listed_with_notes`."""
    return listed_with_notes(arguments)[0]


def listed_with_notes(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Absolute paths of all images, in the order of the arguments, each once; and what the user should know of them.

    A folder gives the files with an ending of images, in the order of their names, hidden ones left out; a note counts
    its other files by their endings. Paths in a CSV file are relative to its folder. Raises UserError for a missing
    file or folder, and if there is no image at all.
    """
    images = {}
    unread = Counter()
    for argument in arguments:
        path = expanded(argument)
        if path.is_dir():
            paths = datasets.below(path, unread)
        elif not path.exists():
            raise UserError(f"{argument}: no such file or folder")
        else:
            paths = [path]
            if path.suffix.lower() == ".csv":
                paths = _of_csv(path)
        images |= dict.fromkeys(map(os.path.abspath, paths))
    note = datasets.unread_files(unread)
    if not images:
        endings = " ".join(sorted(datasets.suffixes()))
        reason = f"; {note}" if note else ""
        raise UserError(f"{' '.join(arguments)}: no image, of which the names end in {endings}{reason}")
    notes = [note, datasets.dark_16_bit(list(images))]
    return list(images), [f"note: {text}" for text in notes if text is not None]


def _of_csv(path: Path) -> list[Path]:
    columns, rows = read_records(path)
    column = next((name for name in COLUMNS if name in columns), None)
    if column is None:
        raise UserError(f"{path}: no column {' or '.join(COLUMNS)}; it has {', '.join(columns) or 'nothing'}")
    return [_existing(path.parent, row[column]) for row in rows if row[column]]


def _existing(folder: Path, name: str) -> Path:
    """The image that a table names, perhaps with the backslashes of Windows."""
    paths = [folder / spelling for spelling in datasets.spellings(name)]
    if len(paths) > 1:
        for path in paths:
            if path.exists():
                return path
    return paths[0]
