"""CSV files and arrays: what is written reads back, later rows are cut, and damaged files are set aside."""

import numpy as np
import pytest

from runs.records import Row
from runs.records.local import ArrayFiles, BatchFile, GroupFiles, LongFile
from tests.runs.records._made import BATCHES, batch_rows, read, rows


def test_long_file_round_trips_every_bit(tmp_path):
    sink = LongFile(tmp_path)
    for epoch in (1, 2, 3):
        sink.write(rows(epoch))
    got = read(tmp_path / "CSV_Logs" / "metrics.csv")
    assert [(int(r["epoch"]), r["split"], r["metric"]) for r in got] == [(r.epoch, r.split, r.metric) for e in (1, 2, 3) for r in rows(e)]
    assert [float(r["value"]) for r in got if r["metric"] == "loss"] == [1 / e for e in (1, 2, 3)]


@pytest.mark.parametrize("sink_class", [LongFile, GroupFiles])
def test_cut_drops_later_rows_and_broken_lines(tmp_path, sink_class):
    sink = sink_class(tmp_path)
    for epoch in (1, 2, 3):
        sink.write(rows(epoch))
    files = sorted((tmp_path / "CSV_Logs").glob("*.csv"))
    assert files
    for path in files:
        with open(path, "a") as file:
            file.write("4,te")  # a crash in the middle of a line
    sink.cut(2)
    for path in files:
        assert {int(r["epoch"]) for r in read(path)} <= {1, 2} and path.read_text().endswith("\n")
    sink.write(rows(3))
    for path in files:
        assert max(int(r["epoch"]) for r in read(path)) == 3


def test_group_files_have_a_column_a_metric_and_grow_with_new_ones(tmp_path):
    sink = GroupFiles(tmp_path)
    sink.write(rows(1))
    path = tmp_path / "CSV_Logs" / "Test_discriminative_e_recall.csv"
    assert path.read_text() == "epoch,e_recall@1,e_recall@2\n1,0.1,0.2\n"
    sink.write([Row(2, "test", "discriminative_e_recall", "e_recall@4", 0.9)])
    assert path.read_text() == "epoch,e_recall@1,e_recall@2,e_recall@4\n1,0.1,0.2,\n2,,,0.9\n"


def test_cut_of_a_group_to_nothing_keeps_it_usable(tmp_path):
    sink = GroupFiles(tmp_path)
    sink.write(rows(5))
    sink.cut(-2)
    sink.write(rows(1))
    assert [r["epoch"] for r in read(tmp_path / "CSV_Logs" / "Train_loss.csv")] == ["1"]


def test_arrays_are_cut_too(tmp_path):
    sink = ArrayFiles(tmp_path)
    for epoch in (1, 2):
        sink.arrays(epoch, "train", {"rho_spectrum@0": np.arange(3.0)})
    sink.cut(1)
    assert [p.name for p in (tmp_path / "Arrays").iterdir()] == ["train_0001.npz"]
    assert np.array_equal(np.load(tmp_path / "Arrays" / "train_0001.npz")["rho_spectrum@0"], np.arange(3.0))


METRICS = "epoch,split,metric,value\n1,test,nmi,0.5\n"
DAMAGE = {  # of metrics.csv -> what the line says
    "no header": (b"1,test,nmi,0.5\n2,test,nmi,0.5\n", "header"),
    "another header": (b"epoch,split,metric\n1,test,nmi\n", "header"),
    "empty": (b"", "header"),
    "extra column": (METRICS.encode() + b"2,test,nmi,0.5,0.6\n", "line 3 has too many columns"),
    "short row": (METRICS.encode() + b"2,test\n", "line 3 has too few columns"),
    "no epoch": (METRICS.encode() + b"x,test,nmi,0.5\n", "line 3 has 'x' for epoch"),
    "no number": (METRICS.encode() + b"2,test,nmi,high\n", "line 3 has 'high' for value"),
    "NUL": (METRICS.encode() + b"2,te\0st,nmi,0.5\n", "NUL"),
    "UTF-16": (METRICS.encode("utf-16"), "UTF-8"),
    "endless field": (METRICS.encode() + b'2,"' + b"a" * 200_000 + b'",nmi,0.5\n', "no CSV"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_set_aside_on_resume(tmp_path, capsys, damage):
    content, why = DAMAGE[damage]
    LongFile(tmp_path)
    path = tmp_path / "CSV_Logs" / "metrics.csv"
    path.write_bytes(content)
    sink = LongFile(tmp_path)
    sink.cut(1)
    sink.write(rows(2))
    assert [int(row["epoch"]) for row in read(path)] == [2] * 4
    assert path.with_name("metrics.csv.damaged").read_bytes() == content
    said = capsys.readouterr().out
    assert said.count("\n") == 1 and str(path) in said and why in said and "metrics.csv.damaged" in said


def test_what_a_kill_leaves_is_no_damage(tmp_path, capsys):
    sink = LongFile(tmp_path)
    sink.write(rows(1))
    with open(sink.path, "a") as file:
        file.write("2,te")
    LongFile(tmp_path).cut(1)
    assert len(read(sink.path)) == 4 and capsys.readouterr().out == ""


@pytest.mark.parametrize("content", [b"1,0.5\n", b"epoch,loss\n1,0.5,0.6\n", b"epoch,loss\n1,\xff\n", b"epoch,loss,loss\n1,2,3\n"])
def test_a_damaged_file_of_a_group_is_set_aside(tmp_path, content):
    GroupFiles(tmp_path).write(rows(1))
    path = tmp_path / "CSV_Logs" / "Train_loss.csv"
    path.write_bytes(content)
    sink = GroupFiles(tmp_path)
    sink.cut(1)
    sink.write(rows(2))
    assert path.read_text() == "epoch,loss\n2,0.5\n" and path.with_name("Train_loss.csv.damaged").read_bytes() == content
    assert [row["epoch"] for row in read(tmp_path / "CSV_Logs" / "Test_discriminative_nmi.csv")] == ["1", "2"]


def test_files_of_the_user_are_left_alone(tmp_path):
    (tmp_path / "CSV_Logs").mkdir()
    (tmp_path / "Arrays").mkdir()
    files = [tmp_path / "CSV_Logs" / "my_notes.csv", tmp_path / "Arrays" / "mean_image.npz", tmp_path / "Arrays" / "test_best.npz"]
    for path in files:
        path.write_text("mine")
    for sink in (GroupFiles(tmp_path), ArrayFiles(tmp_path)):
        sink.cut(0)
    assert [path.read_text() for path in files] == ["mine"] * 3


@pytest.mark.parametrize("kind", [LongFile, BatchFile, GroupFiles, ArrayFiles])
def test_a_file_where_the_folder_should_be_and_a_folder_where_the_file(tmp_path, capsys, kind):
    folders = ("Arrays" if kind is ArrayFiles else "CSV_Logs",)
    names = {LongFile: "metrics.csv", BatchFile: "batches.csv", GroupFiles: "Train_loss.csv", ArrayFiles: "train_0002.npz"}

    def write(sink):
        sink.write(rows(2))
        sink.write_batches(batch_rows(2, BATCHES[2]))
        sink.arrays(2, "train", {"rho_spectrum@0": np.arange(3.0)})

    (tmp_path / folders[0]).write_text("no folder")
    sink = kind(tmp_path)
    sink.cut(1)
    write(sink)
    path = tmp_path / folders[0] / names[kind]
    assert path.is_file()
    path.unlink()
    path.mkdir()
    sink = kind(tmp_path)
    sink.cut(1)
    write(sink)
    assert path.is_file() and path.with_name(f"{path.name}.damaged").is_dir()
    assert (tmp_path / f"{folders[0]}.damaged").read_text() == "no folder" and capsys.readouterr().out.count("\n") == 2
