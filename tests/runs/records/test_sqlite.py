"""metrics.db holds the rows; while it is locked they wait."""

import sqlite3

from runs.records import Row, sqlite
from runs.records.sqlite import Database
from tests.kit.refusals import refused
from tests.runs.records._made import rows


def test_database_holds_the_rows_of_metrics_csv(tmp_path):
    sink = Database(tmp_path)
    for epoch in (1, 2, 3):
        sink.write(rows(epoch))
    sink.cut(2)
    with sqlite3.connect(tmp_path / "metrics.db") as connection:
        columns = "select epoch, split, metric, value from discriminative_e_recall order by epoch, metric"
        recorded = connection.execute(columns).fetchall()
        tables = {name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")}
        of_nan = connection.execute("select count(*) from discriminative_nmi where value is null").fetchone()
    assert of_nan == (1,)
    assert recorded == [(e, "test", f"e_recall@{k}", 0.1 * k * e) for e in (1, 2) for k in (1, 2)]
    assert tables == {"loss", "discriminative_e_recall", "discriminative_nmi"}


def test_groups_that_differ_in_case_alone_have_a_table_each(tmp_path):
    """SQLite's names ignore case."""
    # group -> its value
    groups = {"discriminative_mAP": 0.1, "discriminative_map": 0.2, "discriminative_MAP": 0.3}
    # a new sink finds the tables again
    for epoch in (1, 2):
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

    with refused("disk is full.*free the disk"):
        sink._take(full)
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.db"]
