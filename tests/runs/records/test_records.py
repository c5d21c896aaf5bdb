"""Names of rows, and what every sink has after a resume."""

import contextlib
import shutil
import sqlite3
from argparse import Namespace

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from runs.records import Row, metric_group, open_sinks
from tests.runs.records._made import batch_rows, read, rows


def test_names_and_groups_are_plain_or_those_of_the_icml_pipeline():
    of_val = Row(1, "val", "fused_nmi", "fused/nmi", 0.0)
    names = "train/loss test/e_recall@1 test/e_recall@2 test/nmi val/fused/nmi"
    assert [row.name for row in (*rows(1), of_val)] == names.split()
    assert (rows(1)[1].title, of_val.title) == ("Test: discriminative_e_recall: e_recall@1", "Val: fused_nmi: nmi")
    assert metric_group("e_recall@1", ["discriminative"]) == "discriminative_e_recall"
    assert metric_group("fused/nmi", ["discriminative", "fused"]) == "fused_nmi"


@pytest.mark.parametrize("lost", ["metrics.db", "tensorboard", "CSV_Logs/Test_discriminative_nmi.csv"])
def test_what_a_sink_lacks_is_filled_on_resume(tmp_path, lost):
    """A sink that lost its file has every epoch and batch after a resume; one that has them has them once."""

    def content():
        tables = {}
        with contextlib.closing(sqlite3.connect(tmp_path / "metrics.db")) as connection:
            for (name,) in connection.execute("select name from sqlite_master where type = 'table'").fetchall():
                tables[name] = connection.execute(f'select * from "{name}" order by 1, 2, 3').fetchall()
        events = {}
        for folder in ("", "batches"):
            read = EventAccumulator(str(tmp_path / "tensorboard" / folder)).Reload()
            for tag in read.Tags()["scalars"]:
                events[tag] = [(event.step, event.value) for event in read.Scalars(tag)]
        return tables, repr(events), {path.name: path.read_text() for path in (tmp_path / "CSV_Logs").iterdir()}

    def sinks():
        return open_sinks(Namespace(no_records=False, log_online=False), tmp_path)

    written = rows(1) + rows(2)
    batches = batch_rows(1, (1, 2)) + batch_rows(2, (3, 4))
    for sink in sinks():
        sink.write(written)
        sink.write_batches(batches)
        sink.close()
    before = content()
    path = tmp_path / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    for sink in sinks():
        sink.cut(2, 4)
        sink.fill(written, batches)
        sink.close()
    assert content() == before


def test_values_of_test_are_dropped_where_the_final_test_is_to_come(tmp_path):
    for tested in (True, False):
        for sink in open_sinks(Namespace(no_records=False, log_online=False), tmp_path):
            if tested:
                sink.write(rows(1))
                sink.write_batches(batch_rows(1, (1, 2)))
            sink.cut(1, 2, tested=tested)
            sink.close()
        expected = {"train", "test"} if tested else {"train"}
        assert {row["split"] for row in read(tmp_path / "CSV_Logs" / "metrics.csv")} == expected
        assert len(read(tmp_path / "CSV_Logs" / "Test_discriminative_nmi.csv")) == tested
        counts = {}
        with contextlib.closing(sqlite3.connect(tmp_path / "metrics.db")) as connection:
            for table in ("loss", "discriminative_nmi", "batches"):
                (counts[table],) = connection.execute(f"select count(*) from {table}").fetchone()
        assert counts == {"loss": 1, "discriminative_nmi": tested, "batches": len(batch_rows(1, (1, 2)))}
