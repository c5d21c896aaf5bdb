"""Every sink takes the same rows, and gives back the rows up to an epoch when a run is cut."""

import csv
import json
import sqlite3
import sys
import threading
import time
import types
import zipfile
from argparse import Namespace

import numpy as np
import pytest

from runs.records import BatchRow, Row
from runs.records.local import ArrayFiles, BatchFile, GroupFiles, LongFile
from runs.records.sqlite import Database
from runs.records.tensorboard import EventFiles


def rows(epoch):
    return [
        Row(epoch, "train", "loss", "loss", 1 / epoch),
        Row(epoch, "test", "discriminative_e_recall", "e_recall@1", 0.1 * epoch),
        Row(epoch, "test", "discriminative_e_recall", "e_recall@2", 0.2 * epoch),
        Row(epoch, "test", "discriminative_nmi", "nmi", float("nan") if epoch == 2 else 0.5),
    ]


def batch_rows(epoch, steps):
    return [BatchRow(epoch, step, name, 1 / (step + i)) for step in steps for i, name in enumerate(("loss", "miner/tuples"))]


BATCHES = {1: (1, 2, 3), 2: (4, 5, 6), 3: (7, 8, 9)}  # epoch -> steps


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


def test_pictures_lie_in_the_event_files_as_they_are(tmp_path):
    import io

    from PIL import Image
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from tests.builders import write_image

    path = write_image(tmp_path / "sample_recoveries.png", seed=1, size=(40, 30))
    sink = EventFiles(tmp_path)
    sink.picture(3, "sample_recoveries", path)
    sink.close()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    (image,) = events.Images("sample_recoveries")
    assert (image.step, image.width, image.height) == (3, 40, 30)
    read_again = Image.open(io.BytesIO(image.encoded_image_string)).convert("RGB")
    assert np.array_equal(np.asarray(read_again), np.asarray(Image.open(path).convert("RGB")))


def test_arrays_are_cut_too(tmp_path):
    sink = ArrayFiles(tmp_path)
    for epoch in (1, 2):
        sink.arrays(epoch, "train", {"rho_spectrum@0": np.arange(3.0)})
    sink.cut(1)
    assert [p.name for p in (tmp_path / "Arrays").iterdir()] == ["train_0001.npz"]
    assert np.array_equal(np.load(tmp_path / "Arrays" / "train_0001.npz")["rho_spectrum@0"], np.arange(3.0))


def test_a_failing_service_is_reported_once_and_stops_nothing(capsys):
    from runs.records.online import Wandb

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


def offline_options(**more):
    flags = {"wandb_key": None, "comet_api_key": None, "project": "P", "group": "G", "lr": 0.1, "seed": 0, **more}
    return Namespace(**flags, flags=frozenset({"lr", "seed", "wandb_key", "comet_api_key"}))


def nested(items):
    """W&B's items as a dictionary, nested keys joined by a slash; values are JSON."""
    return {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in items}


def read_back(folder):
    """(run id, configuration, history rows by step) of every offline run in a folder, in the order of their start."""
    from wandb.proto import wandb_internal_pb2

    runs = []
    for file in sorted(folder.glob("wandb/offline-run-*/*.wandb"), key=lambda file: file.stat().st_mtime_ns):
        identity, config, history = None, {}, {}
        for data in wandb_records(file.read_bytes()):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            if record.HasField("history"):
                history[record.history.step.num] = nested(record.history.item)
            if record.HasField("run"):
                config.update(nested(record.run.config.update))
                identity = record.run.run_id
                assert record.run.run_group == "G" and record.run.project == "P"
        runs.append((identity, config, history))
    return runs


@pytest.fixture
def offline(monkeypatch):
    """W&B without network; `wandb.teardown` waits for its service, which writes the file in a process of its own."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    import wandb

    return wandb


def test_an_offline_wandb_run_reads_back(tmp_path, offline):
    from runs.records.online import Wandb

    sink = Wandb(offline_options(), tmp_path)
    for epoch in (1, 2):
        sink.write(rows(epoch))
    sink.close()
    offline.teardown()
    ((_, config, history),) = read_back(tmp_path)
    assert [h["Test: discriminative_e_recall: e_recall@1"] for h in history.values()] == [0.1, 0.2]
    assert list(history) == [2, 3]
    assert config["lr"] == 0.1 and "wandb_key" not in config


def test_an_offline_wandb_run_holds_batches_spectra_and_pictures_and_is_continued(tmp_path, offline):
    from runs.records.online import Background, Wandb
    from tests.builders import write_image

    picture = write_image(tmp_path / "sample_recoveries.png", seed=1)
    for epoch in (1, 2):
        sink = Background(lambda: Wandb(offline_options(), tmp_path))
        sink.cut(epoch - 1, 3 * (epoch - 1))
        sink.write_batches(batch_rows(epoch, BATCHES[epoch]))
        sink.write([row._replace(step=3 * epoch) for row in rows(epoch)])
        sink.arrays(epoch, "test", {"rho_spectrum@0": np.linspace(0, 1, 8)})
        sink.picture(epoch, "sample_recoveries", picture)
        sink.close()
        offline.teardown()
        time.sleep(1.1)  # the names of offline runs are seconds
    first, second = read_back(tmp_path)
    assert first[0] == second[0] == (tmp_path / "wandb" / "run_id.txt").read_text(), "one run"
    assert list(first[2]) == [3, 4, 5] and list(second[2]) == [7, 8, 9], "one order of steps"
    for epoch, (_, _, history) in enumerate((first, second), start=1):
        logged = list(history.values())
        assert [row["batch/step"] for row in logged] == list(BATCHES[epoch]) and {row["epoch"] for row in logged} == {epoch}
        assert [row["batch/loss"] for row in logged] == [1 / step for step in BATCHES[epoch]]
        assert logged[-1]["Test: discriminative_e_recall: e_recall@1"] == 0.1 * epoch
        assert (
            logged[-1]["test/rho_spectrum@0/_type"] == "histogram"
            if "test/rho_spectrum@0/_type" in logged[-1]
            else (logged[-1]["test/rho_spectrum@0"]["_type"] == "histogram")
        )
    media = sorted(path.name for path in tmp_path.glob("wandb/offline-run-*/files/media/images/*.png"))
    assert len(media) == 2 and all(name.startswith("sample_recoveries") for name in media)


@pytest.mark.parametrize("key", [None, "secret-key"])
def test_comet_takes_the_same_rows(tmp_path, monkeypatch, capsys, key):
    calls = []

    class Experiment:
        def __init__(self, **settings):
            calls.append(("start", type(self).__name__, settings))

        def __getattr__(self, name):
            return lambda *args, **kwargs: calls.append((name, args, kwargs))

    fake = types.SimpleNamespace(Experiment=Experiment, OfflineExperiment=type("OfflineExperiment", (Experiment,), {}))
    monkeypatch.setitem(sys.modules, "comet_ml", fake)
    monkeypatch.delenv("COMET_API_KEY", raising=False)
    from runs.records.online import online_sink

    sink = online_sink(offline_options(log_online=True, online_backend="comet_ml", comet_api_key=key), tmp_path)
    sink.write(rows(1))
    sink.write_batches(batch_rows(1, (1, 2)))
    sink.arrays(1, "test", {"rho_spectrum@0": np.arange(3.0)})
    sink.picture(1, "sample_recoveries", tmp_path / "sample_recoveries.png")
    sink.close()
    start = calls[0]
    assert start[1] == ("Experiment" if key else "OfflineExperiment") and start[2]["project_name"] == "P"
    collects = ("parse_args", "log_env_details", "log_env_host", "log_git_metadata", "log_git_patch", "log_code", "auto_output_logging")
    assert [start[2][name] for name in collects] == [False] * len(collects), "the command line may hold a key"
    assert start[2].get("api_key") == key and ("offline" in capsys.readouterr().out) == (key is None)
    said = {name: [(args, kwargs) for called, args, kwargs in calls if called == name] for name, _, _ in calls}
    assert said["log_parameters"] == [(({"lr": 0.1, "seed": 0},), {})], "the flags, and no key"
    assert said["set_name"] == [((tmp_path.name,), {})] and said["add_tag"] == [(("G",), {})]
    metrics = {(args[0], kwargs["step"]): (args[1], kwargs["epoch"]) for args, kwargs in said["log_metric"]}
    assert metrics["Test: discriminative_e_recall: e_recall@2", 0] == (0.2, 1)
    assert metrics["batch/miner/tuples", 2] == (1 / 3, 1) and len(metrics) == 8
    assert said["log_histogram_3d"][0][1]["name"] == "test/rho_spectrum@0" and len(said["log_image"]) == len(said["end"]) == 1


def test_an_offline_comet_experiment_holds_no_key(tmp_path, monkeypatch):
    pytest.importorskip("comet_ml")
    from runs.records.online import online_sink

    monkeypatch.delenv("COMET_API_KEY", raising=False)
    monkeypatch.setattr(sys, "argv", ["main.py", "--wandb_key", "SECRET-OF-WANDB"])
    sink = online_sink(offline_options(log_online=True, online_backend="comet_ml", wandb_key="SECRET-OF-WANDB"), tmp_path)
    sink.write(rows(1))
    sink.close()
    (path,) = tmp_path.glob("comet/*.zip")
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    assert b"e_recall@1" in content["messages.json"] and not any(b"SECRET-OF-WANDB" in data for data in content.values())


def test_comet_that_is_not_installed_is_said_in_one_line(tmp_path, monkeypatch):
    from runs.records.online import online_sink
    from utilities.errors import UserError

    monkeypatch.setitem(sys.modules, "comet_ml", None)
    with pytest.raises(UserError, match="pip install comet_ml"):
        online_sink(offline_options(log_online=True, online_backend="comet_ml"), tmp_path)


@pytest.mark.parametrize("stuck_in", ["start", "write", "close"])
def test_a_service_that_hangs_keeps_nobody_waiting(capsys, stuck_in):
    from runs.records import Sink
    from runs.records.online import Background

    released, taken = threading.Event(), []

    class Stuck(Sink):
        def __init__(self):
            self.wait("start")

        def wait(self, place):
            if place == stuck_in:
                released.wait(30)

        def write(self, rows):
            self.wait("write")
            taken.append(rows[0].epoch)

        def close(self):
            self.wait("close")

    began = time.monotonic()
    sink = Background(Stuck, open_within=0.1, given_up_after=0.2, close_within=0.1)
    for epoch in range(1, 51):
        sink.write(rows(epoch))
    sink.close()
    assert time.monotonic() - began < 5
    assert "given up" in capsys.readouterr().out
    released.set()  # the service comes back: what waited is taken, in order
    sink._thread.join(10)
    assert taken == list(range(1, 51)) and not sink._thread.is_alive()


@pytest.mark.parametrize("trained", [29.9, 500], ids=["a short run", "a run longer than the service may take"])
def test_a_service_that_never_opens_is_waited_for_from_its_start(monkeypatch, capsys, trained):
    from runs.records import online

    now = [0.0]
    monkeypatch.setattr(online, "time", types.SimpleNamespace(monotonic=lambda: now[0]))  # real time is only what is waited
    sink = online.Background(threading.Event().wait, open_within=0, given_up_after=30, close_within=60)
    now[0] = trained
    closing = time.monotonic()
    sink.close()
    waited = time.monotonic() - closing
    assert (waited >= 0.09 or trained > 30) and waited < 15, "what is left of its time, not as long as one that opened"
    said = capsys.readouterr().out
    assert said.count("\n") == 1 and "did not open within 30 s: given up" in said


@pytest.mark.parametrize("opens", ["at once", "while the run closes"])
def test_a_service_that_opened_has_time_to_take_everything(monkeypatch, capsys, opens):
    from runs.records import Sink, online

    asked, closing, taken = [], threading.Event(), []

    def clock():
        """The time of the start, then of the closing; once opened, later than the service may take to open."""
        asked.append(True)
        if len(asked) == 2:
            closing.set()
        return 1000.0 if opens == "at once" and len(asked) > 1 else 0.0

    class Slow(Sink):
        def __init__(self):
            if opens == "while the run closes":
                closing.wait(30)

        def write(self, rows):
            time.sleep(0.3)
            taken.append(rows[0].epoch)

    monkeypatch.setattr(online, "time", types.SimpleNamespace(monotonic=clock))
    sink = online.Background(Slow, open_within=30 if opens == "at once" else 0, given_up_after=20, close_within=30)
    sink.write(rows(1))
    sink.close()
    assert taken == [1] and capsys.readouterr().out == ""


def test_a_queue_that_is_full_drops_and_says_so_once(monkeypatch, capsys):
    from runs.records import Sink, online

    monkeypatch.setattr(online, "MOST_WAITING", 3)
    released = threading.Event()

    def open_late():
        released.wait(30)
        return Sink()

    sink = online.Background(open_late, open_within=0, given_up_after=10, close_within=10)
    for epoch in range(1, 10):
        sink.write(rows(epoch))
    assert capsys.readouterr().out.count("too slow") == 1
    released.set()
    while not sink._calls.empty():
        time.sleep(0.01)
    sink.close()
    assert not sink._thread.is_alive()


@pytest.mark.parametrize("n_files_before", [0, 8, 9])
def test_batches_have_a_file_a_table_and_curves_of_their_own_and_are_cut(tmp_path, monkeypatch, n_files_before):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.summary.writer import event_file_writer

    # The names of event files end with a counter of the process, and are read in the order of their names: 10 before 9.
    counter = type(event_file_writer._global_uid)(n_files_before)
    monkeypatch.setattr(event_file_writer, "_global_uid", counter)
    kinds = (LongFile, BatchFile, Database, EventFiles)
    sinks = [kind(tmp_path) for kind in kinds]
    assert not (tmp_path / "CSV_Logs" / "batches.csv").exists(), "without batches there is no file"
    for sink in sinks:
        for epoch, steps in BATCHES.items():
            sink.write_batches(batch_rows(epoch, steps))
            sink.write(rows(epoch))
        sink.close()
    sinks = [kind(tmp_path) for kind in kinds]
    for sink in sinks:
        sink.cut(2, 6)
    kept = batch_rows(1, BATCHES[1]) + batch_rows(2, BATCHES[2])
    again = batch_rows(3, (8,))
    for sink in sinks:
        sink.write_batches(again)
        sink.write(rows(3))
        sink.close()
    expected = [tuple(row) for row in kept + again]
    got = [(int(r["epoch"]), int(r["step"]), r["name"], float(r["value"])) for r in read(tmp_path / "CSV_Logs" / "batches.csv")]
    assert got == expected
    with sqlite3.connect(tmp_path / "metrics.db") as connection:
        assert sorted(connection.execute("select epoch, step, name, value from batches")) == sorted(expected)
        assert connection.execute("select max(epoch) from loss").fetchone() == (3,)
    events = EventAccumulator(str(tmp_path / "tensorboard" / "batches"))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("batch/loss")] == [(s, pytest.approx(1 / s)) for s in (1, 2, 3, 4, 5, 6, 8)]
    epochs = EventAccumulator(str(tmp_path / "tensorboard"))
    epochs.Reload()
    assert [e.step for e in epochs.Scalars("train/loss")] == [1, 2, 3], "batches beyond epochs' numbers do not cut them"
    assert "batch/loss" not in epochs.Tags()["scalars"]
    assert {r["metric"] for r in read(tmp_path / "CSV_Logs" / "metrics.csv")} == {row.metric for row in rows(1)}
