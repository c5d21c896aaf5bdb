"""metrics.db: the rows of metrics.csv in SQLite, one table a group, and those of batches.csv in the table `batches`.

A value that is no number (nan) is NULL there: SQLite knows no other.
"""

import itertools
import sqlite3
from pathlib import Path

from runs.records import BatchRow, Row, Sink


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class Database(Sink):
    """Tables named after the groups, with columns epoch, split, metric, value.

    SQLite's names ignore case. Of groups that differ in nothing else the first one written has the plain name, of several in one epoch
    the first in the order of ASCII (capitals before small letters), and the next are numbered: `discriminative_mAP`,
    `discriminative_map (2)`. A table keeps its name when a run goes on.
    """

    def __init__(self, folder: Path):
        self.path = folder / "metrics.db"

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=60)

    @staticmethod
    def _tables(connection) -> list[str]:
        return [name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")]

    def _table(self, connection, group: str) -> str:
        """The name of a group's table, which is made if it is not there."""
        there = self._tables(connection)
        taken = {name.lower() for name in there}
        for name in itertools.chain([group], (f"{group} ({number})" for number in itertools.count(2))):
            if name in there:
                return name
            if name.lower() not in taken:
                connection.execute(
                    f"create table {_quoted(name)} (epoch integer, split text, metric text, value real, primary key (epoch, split, metric))"
                )
                return name

    def write(self, rows: list[Row]) -> None:
        with self._connect() as connection:
            tables = {group: self._table(connection, group) for group in sorted({row.group for row in rows})}
            for row in rows:
                connection.execute(
                    f"insert or replace into {_quoted(tables[row.group])} values (?, ?, ?, ?)",
                    (row.epoch, row.split, row.metric, row.value),
                )
        connection.close()

    def write_batches(self, rows: list[BatchRow]) -> None:
        with self._connect() as connection:
            connection.execute(
                "create table if not exists batches (epoch integer, step integer, name text, value real, primary key (step, name))"
            )
            connection.executemany("insert or replace into batches values (?, ?, ?, ?)", rows)
        connection.close()

    def cut(self, epoch: int, step: int = 0) -> None:
        if not self.path.exists():
            return
        with self._connect() as connection:
            for table in self._tables(connection):
                connection.execute(f"delete from {_quoted(table)} where epoch > ?", (epoch,))
        connection.close()
