"""CSV files and arrays: what is written reads back, and later rows are cut."""

import numpy as np
import pytest

from runs.records import Row
from runs.records.local import ArrayFiles, GroupFiles, LongFile
from tests.runs.records._made import read, rows


def test_long_file_round_trips_every_bit(tmp_path):
    sink = LongFile(tmp_path)
    for epoch in (1, 2, 3):
        sink.write(rows(epoch))
    got = read(tmp_path / "CSV_Logs" / "metrics.csv")
    assert [(int(r["epoch"]), r["split"], r["metric"]) for r in got] == [
        (r.epoch, r.split, r.metric) for e in (1, 2, 3) for r in rows(e)
    ]
    assert [float(r["value"]) for r in got if r["metric"] == "loss"] == [1 / e for e in (1, 2, 3)]


@pytest.mark.parametrize("sink_class", [LongFile, GroupFiles])
def test_cut_drops_later_rows_and_broken_lines(tmp_path, capsys, sink_class):
    sink = sink_class(tmp_path)
    for epoch in (1, 2, 3):
        sink.write(rows(epoch))
    files = sorted((tmp_path / "CSV_Logs").glob("*.csv"))
    assert files
    for path in files:
        with open(path, "a") as file:
            # a crash in the middle of a line
            file.write("4,te")
    sink.cut(2)
    for path in files:
        assert {int(r["epoch"]) for r in read(path)} == {1, 2} and path.read_text().endswith("\n")
    assert capsys.readouterr().out == "", "what a kill leaves is no damage"
    sink.cut(-2)
    sink.write(rows(3))
    for path in files:
        assert {int(r["epoch"]) for r in read(path)} == {3}


def test_group_files_have_a_column_a_metric_and_grow_with_new_ones(tmp_path):
    sink = GroupFiles(tmp_path)
    sink.write(rows(1))
    path = tmp_path / "CSV_Logs" / "Test_discriminative_e_recall.csv"
    assert path.read_text() == "epoch,e_recall@1,e_recall@2\n1,0.1,0.2\n"
    sink.write([Row(2, "test", "discriminative_e_recall", "e_recall@4", 0.9)])
    assert path.read_text() == "epoch,e_recall@1,e_recall@2,e_recall@4\n1,0.1,0.2,\n2,,,0.9\n"


def test_arrays_are_cut_too(tmp_path):
    sink = ArrayFiles(tmp_path)
    for epoch in (1, 2):
        sink.arrays(epoch, "train", {"rho_spectrum@0": np.arange(3.0)})
    sink.cut(1)
    assert [p.name for p in (tmp_path / "Arrays").iterdir()] == ["train_0001.npz"]
    assert np.array_equal(np.load(tmp_path / "Arrays" / "train_0001.npz")["rho_spectrum@0"], np.arange(3.0))


def test_files_of_the_user_are_left_alone(tmp_path):
    (tmp_path / "CSV_Logs").mkdir()
    (tmp_path / "Arrays").mkdir()
    files = [tmp_path / name for name in ("CSV_Logs/my_notes.csv", "Arrays/mean_image.npz", "Arrays/test_best.npz")]
    for path in files:
        path.write_text("mine")
    for sink in (GroupFiles(tmp_path), ArrayFiles(tmp_path)):
        sink.cut(0)
    assert [path.read_text() for path in files] == ["mine"] * 3
