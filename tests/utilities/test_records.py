"""Every sink takes the same rows, and gives back the rows up to an epoch when a run is cut."""

import csv
import sqlite3

import numpy as np
import pytest

from utilities.records import Row
from utilities.records.local import ArrayFiles, GroupFiles, LongFile
from utilities.records.sqlite import Database
from utilities.records.tensorboard import EventFiles


def rows(epoch):
    return [
        Row(epoch, "train", "loss", "loss", 1 / epoch),
        Row(epoch, "test", "discriminative_e_recall", "e_recall@1", 0.1 * epoch),
        Row(epoch, "test", "discriminative_e_recall", "e_recall@2", 0.2 * epoch),
        Row(epoch, "test", "discriminative_nmi", "nmi", float("nan") if epoch == 2 else 0.5),
    ]


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_titles_are_those_of_the_icml_pipeline():
    assert rows(1)[1].title == "Test: discriminative_e_recall: e_recall@1"
    assert Row(1, "val", "fused_nmi", "fused/nmi", 0.0).title == "Val: fused_nmi: nmi"


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


def test_database_holds_the_rows_of_metrics_csv(tmp_path):
    sink = Database(tmp_path)
    for epoch in (1, 2, 3):
        sink.write(rows(epoch))
    sink.cut(2)
    with sqlite3.connect(tmp_path / "metrics.db") as connection:
        got = connection.execute('select epoch, split, metric, value from "discriminative_e_recall" order by epoch, metric').fetchall()
        tables = {name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")}
    assert got == [(e, "test", f"e_recall@{k}", 0.1 * k * e) for e in (1, 2) for k in (1, 2)]
    assert tables == {"loss", "discriminative_e_recall", "discriminative_nmi"}


def test_event_files_read_back(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    sink = EventFiles(tmp_path)
    for epoch in (1, 2, 3):
        sink.write(rows(epoch))
        sink.arrays(epoch, "train", {"rho_spectrum@0": np.linspace(0, 1, 8)})
    sink.close()
    again = EventFiles(tmp_path)
    again.cut(2)
    again.write(rows(3))
    again.close()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(e.step, round(e.value, 6)) for e in events.Scalars("test/e_recall@1")] == [(1, 0.1), (2, 0.2), (3, 0.3)]
    assert events.Tags()["histograms"] == ["train/rho_spectrum@0"]


def test_arrays_are_cut_too(tmp_path):
    sink = ArrayFiles(tmp_path)
    for epoch in (1, 2):
        sink.arrays(epoch, "train", {"rho_spectrum@0": np.arange(3.0)})
    sink.cut(1)
    assert [p.name for p in (tmp_path / "Arrays").iterdir()] == ["train_0001.npz"]
    assert np.array_equal(np.load(tmp_path / "Arrays" / "train_0001.npz")["rho_spectrum@0"], np.arange(3.0))


def test_a_failing_service_is_reported_once_and_stops_nothing(capsys):
    from utilities.records.online import Wandb

    class Broken:
        def log(self, *args, **kwargs):
            raise ConnectionError("no route to host")

    sink = Wandb.__new__(Wandb)
    sink.run = Broken()
    sink.write(rows(1))
    sink.write(rows(2))
    assert capsys.readouterr().out.count("no route to host") == 1


def wandb_records(data):
    """The protobuf messages of a .wandb file, a LevelDB log: blocks of 32 KiB, records cut into first, middle and last parts."""
    position, parts = 7, []
    while position + 7 <= len(data):
        if 32768 - position % 32768 < 7:
            position += 32768 - position % 32768  # the rest of a block is padding
            continue
        length, kind = int.from_bytes(data[position + 4 : position + 6], "little"), data[position + 6]
        parts.append(data[position + 7 : position + 7 + length])
        position += 7 + length
        if kind in (1, 4):  # whole, or last part
            yield b"".join(parts)
            parts = []


def test_an_offline_wandb_run_reads_back(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    import json
    from argparse import Namespace

    import wandb
    from wandb.proto import wandb_internal_pb2

    from utilities.records.online import Wandb

    opt = Namespace(wandb_key=None, project="P", group="G", lr=0.1, seed=0, flags=frozenset({"lr", "seed", "wandb_key"}))
    sink = Wandb(opt, tmp_path)
    for epoch in (1, 2):
        sink.write(rows(epoch))
    sink.close()
    wandb.teardown()  # its service writes the file in a process of its own
    (file,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    history, config = [], {}
    for data in wandb_records(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.HasField("history"):
            history.append({"".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item})
        if record.HasField("run"):
            config.update({item.key: json.loads(item.value_json) for item in record.run.config.update})
            assert record.run.run_group == "G" and record.run.project == "P"
    assert [h["Test: discriminative_e_recall: e_recall@1"] for h in history] == [0.1, 0.2]
    assert config["lr"] == 0.1 and "wandb_key" not in config
