"""Rows of features of anything (sounds, texts, tables): --dataset arrays --dataset_arrays FILE.npz.

Another program has computed them; what is trained is what lies behind a backbone: hidden layers, embedding layer, neck.
The arrays have a row for each item; those from split on are optional:

    features (N, F), labels (N,)   numbers; whole numbers or text. -1, NaN and "": a distractor, a row that is in the
                                   gallery of the test set alone
    split                          train, val, test; without it the flags of the split divide the classes
    is_query, is_gallery           roles of test rows
    sequence                       rows of one sequence never retrieve each other; -1 or "": none
    super_names                    super-classes
    paths                          names of the rows, each once, by which other files are joined to them

A folder with features.npy, labels.npy, …, or the path of its features.npy, is read as memory maps.
"""

import functools
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from datasets import _layout
from datasets._images import Image
from datasets._layout import Reading
from datasets._rows import Rows
from options.flags import Flag
from options.flags.roles import DATA
from utilities.errors import UserError
from utilities.files import expanded
from utilities.labels import are_missing
from utilities.reading import map_array, read_array_or_arrays

# the other arrays, in the order of the fields of an `Image`, with what holds without them
FIELDS = {"paths": None, "labels": None, "super_names": None, "is_query": True, "is_gallery": True, "sequence": None}
SPLITS = {"train": "train", "val": "val", "validation": "val", "test": "test"}
NAMES = ("features", *FIELDS, "split")
# rows that are looked at together
BLOCK = 1 << 14
DEFAULT_AUGMENTATION = "none"

FLAGS = {
    "--dataset_arrays": Flag(
        str,
        None,
        "features that another program has computed, in place of images: an .npz file with features (N, F), labels "
        "(N,) and optionally split (train, val, test), is_query, is_gallery, sequence, super_names, paths; or a folder "
        "of these as .npy files",
        metavar="FILE.npz",
        # the file may move
        role=DATA.but(fixed=None),
    ),
}


class Arrays(NamedTuple):
    """The arrays of a file: features `(N, F)`, a list of each other one by its name, names of those not read."""

    features: np.ndarray
    columns: dict[str, list]
    ignored: list[str]


def check(opt) -> None:
    """The file is needed. Raises UserError."""
    if opt.dataset_arrays is None:
        raise UserError("--dataset arrays needs --dataset_arrays FILE.npz, a file with features (N, F) and labels (N,)")


def width(opt) -> int | None:
    """F; None where no file is named. Raises UserError as `read`."""
    return None if opt.dataset_arrays is None else _arrays(opt).features.shape[1]


def has_validation(opt) -> bool:
    """Whether there are rows of `val`. Raises UserError as `read`."""
    return opt.dataset_arrays is not None and "val" in _arrays(opt).columns.get("split", ())


def prepare(opt, source: Path) -> Path:
    """The folder of the file, wherever `source` is."""
    return _file(opt).parent


def read(opt, root: Path) -> Reading:
    """The rows, classes in the order of their labels: of numbers if all are whole numbers, else of names.

    Raises UserError for arrays of other shapes or types, NaN, repeated names, and labels that are missing.
    """
    features, columns, ignored = _arrays(opt)
    name = expanded(opt.dataset_arrays).name
    fields = [columns.get(field, [default] * len(features)) for field, default in FIELDS.items()]
    if "paths" not in columns:
        fields[0] = [f"{name}:{row}" for row in range(len(features))]
    images = [Image(*row) for row in zip(*fields, strict=True)]
    splits = columns.get("split")
    _refuse_unlabelled(f"--dataset_arrays {opt.dataset_arrays}", images, splits)
    order = [row for row, image in enumerate(images) if image.class_name is not None]
    order = [order[place] for place in _layout.by_label([images[row].class_name for row in order])]
    order += [row for row, image in enumerate(images) if image.class_name is None]
    reading = Reading([images[row] for row in order], is_rendered=True, rows=Rows(features, fields[0]))
    if splits is not None:
        if not opt.evaluate_all and ("train" not in splits or len(set(splits)) < 2):
            words = "/".join(sorted(set(splits)))
            raise UserError(
                f"--dataset_arrays {opt.dataset_arrays}: all rows are of {words}: train and test are needed"
            )
        reading.split_of = [splits[row] for row in order]
        if "test" not in splits:
            reading.notes.append("split has no test: the rows of val validate and are the test set too")
    if ignored:
        reading.notes.append(f"arrays that are not read: {', '.join(ignored)}")
    return reading


def _refuse_unlabelled(flag: str, images: list[Image], splits: list[str] | None) -> None:
    """Raise UserError for a row without a label that is no distractor."""
    for row, image in enumerate(images):
        is_distractor = image.is_gallery and not image.is_query and (splits is None or splits[row] == "test")
        if image.class_name is None and not is_distractor:
            raise UserError(
                f"{flag}: labels, row {row}: none (-1, NaN or empty), as only a test row with is_query False and "
                "is_gallery True may have, a distractor"
            )


def _file(opt) -> Path:
    """The .npz file, or the .npy file of the features. Raises UserError where there is none."""
    path = expanded(opt.dataset_arrays)
    if path.is_dir():
        path /= "features.npy"
    if not path.is_file():
        raise UserError(f"--dataset_arrays {opt.dataset_arrays}: there is no file {path}")
    return path


def _arrays(opt) -> Arrays:
    """The checked arrays, read once in a process while the file stays as it is."""
    path = _file(opt)
    status = path.stat()
    return _parsed(str(path), status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=2)
def _parsed(path: str, size: int, changed: int) -> Arrays:
    flag = f"--dataset_arrays {path}"
    content = read_array_or_arrays(path, NAMES.__contains__)
    if isinstance(content, np.ndarray):
        files = {file.stem: file for file in Path(path).parent.glob("*.npy") if file != Path(path)}
        arrays = {name: np.array(map_array(file)) for name, file in files.items() if name in NAMES}
        content = ({**arrays, "features": content}, [*files, "features"])
    arrays, present = content
    if not {"features", "labels"} <= arrays.keys():
        raise UserError(f"{flag}: features and labels are needed, it has {', '.join(sorted(present)) or 'nothing'}")
    features = arrays.pop("features")
    _check_features(flag, features)
    columns = {}
    for name, values in arrays.items():
        if values.shape != features.shape[:1] or values.dtype.kind not in "biufUS":
            raise UserError(
                f"{flag}: {name} has shape {values.shape} and type {values.dtype.name}, expected ({len(features)},) of "
                "numbers or text, one for each row of features"
            )
        convert = _truth if FIELDS.get(name) else _texts
        columns[name] = convert(f"{flag}: {name}", values)
    _check_columns(flag, columns)
    return Arrays(features, columns, sorted(set(present) - set(NAMES)))


def _check_features(flag: str, features: np.ndarray) -> None:
    """Raise UserError unless they are finite numbers `(N, F)`."""
    if features.ndim != 2 or 0 in features.shape or features.dtype.kind not in "biuf":
        hint = "; several vectors of an item are joined first, as by features.mean(1)" if features.ndim == 3 else ""
        raise UserError(
            f"{flag}: features has shape {features.shape} and type {features.dtype.name}, expected numbers (N, F){hint}"
        )
    for start in range(0, len(features), BLOCK):
        with np.errstate(over="ignore"):
            block = features[start : start + BLOCK].astype(np.float32)
        damaged = np.flatnonzero(~np.isfinite(block).all(1))
        if len(damaged):
            raise UserError(f"{flag}: features, row {start + damaged[0]}, counted from 0: NaN or infinity (32 bits)")


def _check_columns(flag: str, columns: dict[str, list]) -> None:
    """Name the splits as `SPLITS` does. Raises UserError for other words, and for rows without a name of their own."""
    for row, word in enumerate(columns.get("split", ())):
        if word not in SPLITS:
            raise UserError(f"{flag}: split, row {row}: {word!r}, expected train, val or test")
        columns["split"][row] = SPLITS[word]
    for name, times in Counter(columns.get("paths", ())).items():
        if name is None or times > 1:
            raise UserError(f"{flag}: paths has {name!r} {times} times: each row needs a name of its own")


def _truth(place: str, values: np.ndarray) -> list[bool]:
    """The values of an array of roles. Raises UserError for others than true and false, or 1 and 0."""
    if values.dtype.kind not in "biu" or not np.isin(values, (0, 1)).all():
        raise UserError(f"{place}: expected True and False, or 1 and 0")
    return values.astype(bool).tolist()


def _texts(place: str, values: np.ndarray) -> list[str | None]:
    """The values of an array as text, None for missing ones. Raises UserError for numbers that are not whole."""
    missing = are_missing(values)
    if values.dtype.kind == "f":
        if (values[~missing] % 1 != 0).any():
            raise UserError(f"{place}: fractions, expected whole numbers or text")
        values = np.where(missing, -1, values).astype(np.int64)
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8", "replace")
    if values.dtype.kind == "i":
        missing = values < 0
    texts = [str(value).strip() for value in values.tolist()]
    return [None if is_missing else text for text, is_missing in zip(texts, missing.tolist(), strict=True)]
