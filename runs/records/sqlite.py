"""metrics.db: the rows of metrics.csv in SQLite, one table per group, those of batches.csv in the table `batches`.

NaN is NULL there.
"""

import contextlib
import itertools
import sqlite3
from pathlib import Path

from runs.records import BatchRow, Row, Sink
from runs.records.damaged import as_file, set_aside
from utilities.console import say
from utilities.errors import UserError

# columns
EPOCHS = ["epoch", "split", "metric", "value"]
BATCHES = ["epoch", "step", "name", "value"]
# Endings of SQLite's own files beside a database, which would spoil a new database of that name.
_BESIDE = ("-journal", "-wal", "-shm")

# seconds that a lock is waited for, and while rows wait already
PATIENCE = 60
SHORT_PATIENCE = 1
LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
# None: what the checks below raise themselves has no code of SQLite's
DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, None)


def _code(error: sqlite3.DatabaseError) -> int | None:
    """SQLite's primary error code; None of an error that is not SQLite's."""
    return error.sqlite_errorcode & 0xFF if hasattr(error, "sqlite_errorcode") else None


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class Database(Sink):
    """Tables named after the groups, with columns epoch, split, metric, value.

    SQLite ignores case in names. Of groups whose names differ in case alone, the first one written gets
    the plain name (within one epoch capitals come first), and the next ones are numbered:
    `discriminative_mAP`, `discriminative_map (2)`.
    """

    def __init__(self, folder: Path):
        self.path = as_file(folder / "metrics.db")
        # what could not be written while another program held the database
        self._waiting = []

    def _take(self, action) -> None:
        """Call `action(connection)` in one transaction. A damaged database is set aside, and `action` gets a new one.

        While another program holds the database locked, actions wait for the next call. Raises UserError where it
        cannot be written.
        """
        patience = SHORT_PATIENCE if self._waiting else PATIENCE
        self._waiting.append(action)
        try:
            try:
                self._write_waiting(patience)
            except sqlite3.DatabaseError as error:
                if _code(error) not in DAMAGED:
                    raise
                aside = set_aside(self.path, str(error))
                for ending in _BESIDE:
                    with contextlib.suppress(FileNotFoundError):
                        self.path.with_name(self.path.name + ending).rename(aside.with_name(aside.name + ending))
                self._write_waiting(patience)
        except sqlite3.DatabaseError as error:
            if _code(error) not in LOCKED:
                # the run ends: `fill` gives these rows to the run that resumes it
                self._waiting.clear()
                raise UserError(
                    f"cannot write {self.path} ({error}): free the disk or correct the permissions, then --resume"
                ) from error
            if patience > SHORT_PATIENCE:
                say(f"{self.path} is locked by another program: its rows wait until it is free, or for a --resume")

    def _write_waiting(self, patience: float) -> None:
        with contextlib.closing(sqlite3.connect(self.path, timeout=patience)) as connection, connection:
            for action in self._waiting:
                action(connection)
        self._waiting.clear()

    def close(self) -> None:
        if self._waiting:
            self._take(lambda connection: None)

    @staticmethod
    def _tables(connection) -> list[str]:
        return [name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")]

    def _table(self, connection, group: str) -> str:
        """The name of a group's table, which is made if it is missing."""
        tables = self._tables(connection)
        lower_names = {name.lower() for name in tables}
        for name in itertools.chain([group], (f"{group} ({number})" for number in itertools.count(2))):
            if name in tables:
                return name
            if name.lower() not in lower_names:
                connection.execute(
                    f"create table {_quoted(name)} (epoch integer, split text, metric text, value real, primary "
                    "key (epoch, split, metric))"
                )
                return name

    def write(self, rows: list[Row], existing: str = "replace") -> None:
        """Record rows; `known`: what becomes of one that is there, `replace` or `ignore`."""

        def insert(connection):
            groups = {}
            for row in rows:
                groups.setdefault(row.group, []).append((row.epoch, row.split, row.metric, row.value))
            for group in sorted(groups):
                table = _quoted(self._table(connection, group))
                connection.executemany(f"insert or {existing} into {table} values (?, ?, ?, ?)", groups[group])

        self._take(insert)

    def write_batches(self, rows: list[BatchRow], existing: str = "replace") -> None:
        """As `write`."""

        def insert(connection):
            connection.execute(
                "create table if not exists batches (epoch integer, step integer, name text, value real, primary "
                "key (step, name))"
            )
            connection.executemany(f"insert or {existing} into batches values (?, ?, ?, ?)", rows)

        self._take(insert)

    def fill(self, rows: list[Row], batches: list[BatchRow]) -> None:
        if rows:
            self.write(rows, "ignore")
        if batches:
            self.write_batches(batches, "ignore")

    def cut(self, epoch: int, step: int = 0, tested: bool = True) -> None:
        def drop_later(connection):
            self._check(connection)
            for table in self._tables(connection):
                connection.execute(f"delete from {_quoted(table)} where epoch > ?", (epoch,))
                if not tested and table != "batches":
                    connection.execute(f"delete from {_quoted(table)} where split = 'test'")

        if self.path.exists():
            self._take(drop_later)

    def _check(self, connection) -> None:
        """Raise DatabaseError where pages are damaged, or a table is not as this program makes them."""
        (result,) = connection.execute("pragma integrity_check(1)").fetchone()
        if result != "ok":
            raise sqlite3.DatabaseError(" ".join(result.split()))
        for table in self._tables(connection):
            columns = [column[1] for column in connection.execute(f"pragma table_info({_quoted(table)})")]
            if columns != (BATCHES if table == "batches" else EPOCHS):
                raise sqlite3.DatabaseError(f"the table {table!r} is none of a run")
