"""metrics.db holds the rows, and where it is damaged a new one takes them."""

import sqlite3

import pytest

from runs.records import Row, sqlite
from runs.records.sqlite import Database
from tests.runs.records._made import BATCHES, batch_rows, rows
from utilities.errors import UserError


def test_database_holds_the_rows_of_metrics_csv(tmp_path):
    sink = Database(tmp_path)
    for epoch in (1, 2, 3):
        sink.write(rows(epoch))
    sink.cut(2)
    with sqlite3.connect(tmp_path / "metrics.db") as connection:
        got = connection.execute('select epoch, split, metric, value from "discriminative_e_recall" order by epoch, metric').fetchall()
        tables = {name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")}
        assert connection.execute("select count(*) from discriminative_nmi where value is null").fetchone() == (1,), "nan"
    assert got == [(e, "test", f"e_recall@{k}", 0.1 * k * e) for e in (1, 2) for k in (1, 2)]
    assert tables == {"loss", "discriminative_e_recall", "discriminative_nmi"}


def test_groups_that_differ_in_case_alone_have_a_table_each(tmp_path):
    """SQLite's names ignore case."""
    groups = {"discriminative_mAP": 0.1, "discriminative_map": 0.2, "discriminative_MAP": 0.3}  # group -> its value
    for epoch in (1, 2):  # a new sink finds the tables again
        Database(tmp_path).write([Row(epoch, "test", group, group, value) for group, value in groups.items()])
    Database(tmp_path).write([Row(2, "test", "discriminative_map", "again", 0.4)])
    Database(tmp_path).cut(1)
    expected = {"discriminative_MAP": 0.3, "discriminative_mAP (2)": 0.1, "discriminative_map (3)": 0.2}
    with sqlite3.connect(tmp_path / "metrics.db") as connection:
        tables = {name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")}
        assert tables == set(expected)
        for table, value in expected.items():
            assert connection.execute(f'select epoch, value from "{table}"').fetchall() == [(1, value)]


def test_rows_wait_while_another_program_reads(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sqlite, "PATIENCE", 0.1)
    monkeypatch.setattr(sqlite, "SHORT_PATIENCE", 0.01)
    sink = Database(tmp_path)
    sink.write(rows(1))
    reader = sqlite3.connect(tmp_path / "metrics.db")
    reader.execute("begin exclusive")
    sink.write(rows(2))
    sink.write(rows(3))
    assert capsys.readouterr().out.count("locked by another program") == 1
    reader.rollback()
    sink.close()
    assert [epoch for (epoch,) in reader.execute("select distinct epoch from loss order by epoch")] == [1, 2, 3]
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.db"]


def test_a_full_disk_is_no_damage(tmp_path):
    sink = Database(tmp_path)
    sink.write(rows(1))

    def full(connection):
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    with pytest.raises(UserError, match="disk is full.*free the disk"):
        sink._take(full)
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.db"]


def truncated(path):
    path.write_bytes(path.read_bytes()[:5000])


def overwritten(path):
    content = bytearray(path.read_bytes())
    content[4096:8192] = b"\x17" * 4096  # the second page
    path.write_bytes(bytes(content))


def with_a_table_of_others(path):
    with sqlite3.connect(path) as connection:
        connection.execute("create table notes (text)")


def with_other_columns(path):
    with sqlite3.connect(path) as connection:
        connection.execute("drop table loss")
        connection.execute("create table loss (epoch, value)")


def a_folder(path):
    path.unlink()
    (path / "inside").mkdir(parents=True)


DAMAGE = [
    lambda path: path.write_bytes(b"no database at all\n" * 100),
    truncated,
    overwritten,
    with_a_table_of_others,
    with_other_columns,
    a_folder,
]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_database_is_set_aside_on_resume(tmp_path, capsys, damage):
    sink = Database(tmp_path)
    sink.write(rows(1))
    sink.write_batches(batch_rows(1, BATCHES[1]))
    damage(tmp_path / "metrics.db")
    (tmp_path / "metrics.db-journal").write_bytes(b"")
    sink = Database(tmp_path)
    sink.cut(1)
    sink.write(rows(2))
    sink.write_batches(batch_rows(2, BATCHES[2]))
    with sqlite3.connect(tmp_path / "metrics.db") as connection:
        assert connection.execute("select epoch, value from loss").fetchall() == [(2, 0.5)]
        assert connection.execute("select count(*), min(epoch) from batches").fetchone() == (6, 2)
    said = capsys.readouterr().out
    assert said.count("\n") == 1 and "metrics.db is damaged" in said and (tmp_path / "metrics.db.damaged").exists()


def test_a_database_that_breaks_while_the_run_goes_on_is_set_aside(tmp_path, capsys):
    sink = Database(tmp_path)
    sink.write(rows(1))
    sink.path.write_bytes(b"no database at all\n" * 100)
    sink.write(rows(2))
    with sqlite3.connect(sink.path) as connection:
        assert connection.execute("select epoch from loss").fetchall() == [(2,)]
    assert capsys.readouterr().out.count("metrics.db.damaged") == 1


@pytest.mark.parametrize("ending", ["-journal", "-wal"])
def test_what_sqlite_wrote_beside_a_damaged_database_spoils_no_new_one(tmp_path, ending):
    sink = Database(tmp_path)
    sink.path.write_bytes(b"no database at all\n" * 100)
    (tmp_path / f"metrics.db{ending}").write_bytes(b"of the old one" * 100)
    sink.cut(1)
    assert not (tmp_path / f"metrics.db{ending}").exists()
    sink.write(rows(2))
    with sqlite3.connect(sink.path) as connection:
        assert connection.execute("select epoch from loss").fetchall() == [(2,)]
