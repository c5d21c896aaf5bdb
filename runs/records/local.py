"""CSV files: metrics.csv and batches.csv in long form, one file a group as the ICML pipeline writes, arrays as .npz."""

import csv
import io
import itertools
import re
from pathlib import Path
from typing import NamedTuple

from runs.records import SECTIONS, SPLIT_TITLES, BatchRow, Row, Sink
from runs.records.damaged import as_file, as_folder, set_aside
from utilities.files import appending, write_npz, write_records

# before all: the untrained states are -1 and 0
NO_EPOCH = -2
_ARRAYS = re.compile(rf"({'|'.join(SPLIT_TITLES)})_(-?\d+)\.npz")


def read_rows(path: Path, fields: tuple[str, ...] | None = None) -> list[dict]:
    """The complete rows of a CSV file with the columns `fields` (None: any after `epoch`), none where it is missing.

    A last line that a crash cut short is dropped. Raises ValueError, with the reason, where the file is damaged.
    """
    if not path.exists():
        return []
    try:
        text = path.read_bytes().decode("utf-8")
        reader = csv.DictReader(text[: text.rfind("\n") + 1].splitlines())
        header = reader.fieldnames or []
        rows = list(reader)
    except UnicodeDecodeError as error:
        raise ValueError("not UTF-8") from error
    except csv.Error as error:
        raise ValueError(f"no CSV: {error}") from error
    if "\0" in text:
        raise ValueError("a NUL byte")
    if header[:1] != ["epoch"] or len(set(header)) < len(header) or fields not in (None, tuple(header)):
        raise ValueError("the header is missing or another")
    for number, row in enumerate(rows, start=2):
        _check(row, number)
    return rows


class Columns(NamedTuple):
    """The columns of a metrics.csv, and whether a crash cut its last line short."""

    epochs: list[int]
    splits: list[str]
    metrics: list[str]
    values: list[float]
    is_cut: bool


def read_metrics(path: Path) -> Columns:
    """The complete rows of a metrics.csv, numbers exactly as written.

    Raises FileNotFoundError; ValueError where the file is damaged.
    """
    content = path.read_bytes()
    end = content.rfind(b"\n") + 1
    text = content[:end].decode()
    if "\0" in text:
        raise ValueError("a NUL byte")
    if '"' in text:
        cells = list(itertools.chain(*csv.reader(io.StringIO(text))))
    else:
        cells = text.replace("\n", ",").split(",")[:-1]
    if tuple(cells[:4]) != LongFile.FIELDS or len(cells) % 4:
        raise ValueError(f"it has other columns than {', '.join(LongFile.FIELDS)}")
    epochs, splits, metrics, values = (cells[column + 4 :: 4] for column in range(4))
    if "" in splits or "" in metrics:
        raise ValueError("a row without split or metric")
    return Columns(list(map(int, epochs)), splits, metrics, list(map(float, values)), end < len(content))


def _check(row: dict, number: int) -> None:
    """Raise ValueError where a row, the line `number`, has too many or too few columns, or text for a number."""
    if None in row:
        raise ValueError(f"line {number} has too many columns")
    if None in row.values():
        raise ValueError(f"line {number} has too few columns")
    for column, value in row.items():
        try:
            if column in ("epoch", "step"):
                int(value)
            elif column not in ("split", "metric", "name") and value:
                # an empty value, which is not read, says that the epoch lacks this metric of the group
                float(value)
        except ValueError as error:
            raise ValueError(f"line {number} has {value[:20]!r} for {column}") from error


def _number(value: float) -> str:
    # shortest text that reads back as the same number
    return repr(float(value))


def _sound_rows(path: Path, fields: tuple[str, ...] | None = None) -> list[dict] | None:
    """The rows of a file, None if there is none; a damaged one is set aside."""
    try:
        return read_rows(path, fields) if as_file(path).exists() else None
    except ValueError as error:
        set_aside(path, str(error))
        return None


def _write(path: Path, fields, rows: list[dict]) -> None:
    write_records(path, fields, rows)


class _LongForm(Sink):
    """A CSV file in long form, `CSV_Logs/<NAME>` with the columns FIELDS."""

    NAME: str
    FIELDS: tuple[str, ...]

    def __init__(self, folder: Path):
        self.path = as_file(as_folder(folder / "CSV_Logs") / self.NAME)

    def cut(self, epoch: int, step: int = 0, tested: bool = True) -> None:
        """Remove the rows of epochs after `epoch`, and those of test unless `tested`."""
        if self.path.exists():
            rows = _sound_rows(self.path, self.FIELDS) or []
            kept_rows = [row for row in rows if int(row["epoch"]) <= epoch and (tested or row.get("split") != "test")]
            _write(self.path, self.FIELDS, kept_rows)

    def _append(self, lines) -> None:
        if not self.path.exists():
            _write(self.path, self.FIELDS, [])
        with appending(self.path) as file:
            csv.writer(file, lineterminator="\n").writerows(lines)


class LongFile(_LongForm):
    """`CSV_Logs/metrics.csv`: epoch,split,metric,value."""

    NAME = "metrics.csv"
    FIELDS = ("epoch", "split", "metric", "value")

    def __init__(self, folder: Path):
        super().__init__(folder)
        # the file is there from the start
        self.write([])

    def write(self, rows: list[Row]) -> None:
        self._append([r.epoch, r.split, r.metric, _number(r.value)] for r in rows)


class BatchFile(_LongForm):
    """`CSV_Logs/batches.csv`, with --log_every: epoch,step,name,value."""

    NAME = "batches.csv"
    FIELDS = ("epoch", "step", "name", "value")

    def write_batches(self, rows: list[BatchRow]) -> None:
        self._append([r.epoch, r.step, r.name, _number(r.value)] for r in rows)


class GroupFiles(Sink):
    """`CSV_Logs/<Train|Val|Test|Model Grad>_<group>.csv`: one column a value of the group, one line an epoch.

    On a file system that ignores case, groups whose names differ in case alone (`mAP`, `map`) share a file, each with
    its own lines.
    """

    def __init__(self, folder: Path):
        self.folder = as_folder(folder / "CSV_Logs")

    def write(self, rows: list[Row]) -> None:
        lines = {}
        for row in rows:
            lines.setdefault((self._path(row), row.epoch), {})[row.icml_name.label] = _number(row.value)
        for (path, epoch), values in lines.items():
            columns = []
            if path.exists():
                with open(path, encoding="utf-8", newline="") as file:
                    columns = next(csv.reader(file), [])
            fields = list(dict.fromkeys([*columns, "epoch", *values]))
            # a new file, or a metric that joined the group on resume
            if fields != columns:
                _write(path, fields, read_rows(path))
            with appending(path) as file:
                csv.DictWriter(file, fields, restval="", lineterminator="\n").writerow({"epoch": epoch, **values})

    def _path(self, row: Row) -> Path:
        """The file of the row's group."""
        return self.folder / f"{row.icml_name.section}_{row.group}.csv"

    def cut(self, epoch: int, step: int = 0, tested: bool = True) -> None:
        for section in SECTIONS:
            last = epoch if tested or section != SPLIT_TITLES["test"] else NO_EPOCH
            for path in sorted(self.folder.glob(f"{section}_*.csv")):
                rows = _sound_rows(path)
                if rows:
                    _write(path, list(rows[0]), [row for row in rows if int(row["epoch"]) <= last])
                elif rows is not None:
                    # a first row that a crash cut short: the next row would go on in its line
                    path.unlink()

    def fill(self, rows: list[Row], batches: list[BatchRow]) -> None:
        # file -> the epochs that it has
        epochs = {}
        for path in {self._path(row) for row in rows}:
            epochs[path] = {int(row["epoch"]) for row in read_rows(path)}
        self.write([row for row in rows if row.epoch not in epochs[self._path(row)]])


class ArrayFiles(Sink):
    """`Arrays/<split>_<epoch>.npz`: array-valued metrics, such as spectra."""

    def __init__(self, folder: Path):
        self.folder = folder / "Arrays"

    def arrays(self, epoch: int, split: str, values: dict) -> None:
        if values:
            write_npz(as_file(as_folder(self.folder) / f"{split}_{epoch:04d}.npz"), values)

    def cut(self, epoch: int, step: int = 0, tested: bool = True) -> None:
        for path in self.folder.glob("*.npz"):
            ours = _ARRAYS.fullmatch(path.name)
            dropped = ours and (int(ours[2]) > epoch or (ours[1] == "test" and not tested))
            if dropped and as_file(path).exists():
                path.unlink()
