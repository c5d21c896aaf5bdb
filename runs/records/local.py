"""CSV files: metrics.csv and batches.csv in long form, one file a group as the ICML pipeline writes, arrays as .npz."""

import csv
from pathlib import Path

from runs.records import SPLIT_TITLES, BatchRow, Row, Sink
from utilities.files import replacing


def read_rows(path: Path) -> list[dict]:
    """The complete rows of a CSV file; a last line that a crash cut short is dropped."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    return list(csv.DictReader(whole.splitlines()))


def _number(value: float) -> str:
    return repr(float(value))  # shortest text that reads back as the same number


class _LongForm(Sink):
    """A CSV file in long form, `CSV_Logs/<NAME>` with the columns FIELDS."""

    NAME: str
    FIELDS: tuple[str, ...]

    def __init__(self, folder: Path):
        self.path = folder / "CSV_Logs" / self.NAME
        self.path.parent.mkdir(exist_ok=True)

    def cut(self, epoch: int, step: int = 0) -> None:
        if self.path.exists():
            self._replace([row for row in read_rows(self.path) if int(row["epoch"]) <= epoch])

    def _append(self, lines) -> None:
        if not self.path.exists():
            self._replace([])
        with open(self.path, "a", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(lines)

    def _replace(self, rows: list[dict]) -> None:
        with replacing(self.path) as file:
            writer = csv.DictWriter(file, self.FIELDS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


class LongFile(_LongForm):
    """`CSV_Logs/metrics.csv`: epoch,split,metric,value."""

    NAME, FIELDS = "metrics.csv", ("epoch", "split", "metric", "value")

    def __init__(self, folder: Path):
        super().__init__(folder)
        self.write([])  # the file is there from the start

    def write(self, rows: list[Row]) -> None:
        self._append([r.epoch, r.split, r.metric, _number(r.value)] for r in rows)


class BatchFile(_LongForm):
    """`CSV_Logs/batches.csv`, with --log_every: epoch,step,name,value."""

    NAME, FIELDS = "batches.csv", ("epoch", "step", "name", "value")

    def write_batches(self, rows: list[BatchRow]) -> None:
        self._append([r.epoch, r.step, r.name, _number(r.value)] for r in rows)


class GroupFiles(Sink):
    """`CSV_Logs/<Train|Val|Test>_<group>.csv`: one column a metric, one line an epoch.

    Where file names ignore case, groups that differ in nothing else (`mAP`, `map`) share a file, with a line each an epoch.
    """

    def __init__(self, folder: Path):
        self.folder = folder / "CSV_Logs"
        self.folder.mkdir(exist_ok=True)

    def write(self, rows: list[Row]) -> None:
        files = {}
        for row in rows:
            files.setdefault((row.split, row.group, row.epoch), {})[row.metric.rpartition("/")[2]] = _number(row.value)
        for (split, group, epoch), values in files.items():
            path = self.folder / f"{SPLIT_TITLES[split]}_{group}.csv"
            line = {"epoch": epoch, **values}
            fields = list(line)
            if path.exists():
                with open(path, encoding="utf-8", newline="") as file:
                    known = next(csv.reader(file), [])
                if set(fields) - set(known):  # a metric joined the group, on resume: widen the file
                    self._replace(path, known + [f for f in fields if f not in known], read_rows(path))
                fields = known + [f for f in fields if f not in known]
            else:
                self._replace(path, fields, [])
            with open(path, "a", encoding="utf-8", newline="") as file:
                csv.DictWriter(file, fields, restval="", lineterminator="\n").writerow(line)

    def cut(self, epoch: int, step: int = 0) -> None:
        for path in self.folder.glob("*_*.csv"):
            rows = read_rows(path)
            if rows:
                self._replace(path, list(rows[0]), [row for row in rows if int(row["epoch"]) <= epoch])

    @staticmethod
    def _replace(path: Path, fields: list[str], rows: list[dict]) -> None:
        with replacing(path) as file:
            writer = csv.DictWriter(file, fields, restval="", lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


class ArrayFiles(Sink):
    """`Arrays/<split>_<epoch>.npz`: array-valued metrics, such as spectra."""

    def __init__(self, folder: Path):
        self.folder = folder / "Arrays"

    def arrays(self, epoch: int, split: str, values: dict) -> None:
        import numpy as np

        if values:
            self.folder.mkdir(exist_ok=True)
            with replacing(self.folder / f"{split}_{epoch:04d}.npz", "wb") as file:
                np.savez(file, **values)

    def cut(self, epoch: int, step: int = 0) -> None:
        for path in self.folder.glob("*_*.npz"):
            if int(path.stem.rpartition("_")[2]) > epoch:
                path.unlink()
