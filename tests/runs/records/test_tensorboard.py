"""Event files read back, go on where a run was resumed, and what stands in their way is set aside."""

import io
import shutil
import sqlite3

import numpy as np
import pytest
from PIL import Image

from runs.records import SPLIT_TITLES
from runs.records.local import BatchFile, LongFile
from runs.records.sqlite import Database
from runs.records.tensorboard import EventFiles
from tests.kit.images import write_image
from tests.kit.refusals import refused
from tests.runs.records._made import BATCHES, batch_rows, read, rows


def events(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return EventAccumulator(str(folder)).Reload()


def test_scalars_histograms_and_pictures_read_back_and_are_cut(tmp_path):
    picture = write_image(tmp_path / "sample_recoveries.png", seed=1, size=(40, 30))
    sink = EventFiles(tmp_path)
    for epoch in (1, 2, 3):
        sink.write(rows(epoch))
        sink.arrays(epoch, "train", {"rho_spectrum@0": np.linspace(0, 1, 8)})
    sink.close()
    reopened = EventFiles(tmp_path)
    reopened.cut(2)
    reopened.write(rows(3))
    reopened.picture(3, "sample_recoveries", picture)
    reopened.close()
    recorded = events(tmp_path / "tensorboard")
    assert [(e.step, round(e.value, 6)) for e in recorded.Scalars("test/e_recall@1")] == [(1, 0.1), (2, 0.2), (3, 0.3)]
    assert recorded.Tags()["histograms"] == ["train/rho_spectrum@0"]
    (image,) = recorded.Images("visuals/sample_recoveries")
    assert all(tag.startswith("visuals/") for tag in recorded.Tags()["images"])
    assert max("batch/", *(f"{split}/" for split in SPLIT_TITLES)) < "visuals/", "curves come before pictures"
    assert (image.step, image.width, image.height) == (3, 40, 30)
    pixels = [np.asarray(Image.open(file)) for file in (io.BytesIO(image.encoded_image_string), picture)]
    assert np.array_equal(*pixels), "the file's own bytes"


@pytest.mark.parametrize("n_files_before", [8, *(pytest.param(n, marks=pytest.mark.long) for n in (0, 9))])
def test_batches_have_a_file_a_table_and_curves_of_their_own_and_are_cut(tmp_path, monkeypatch, n_files_before):
    from tensorboard.summary.writer import event_file_writer

    # event files are read in the order of their names, which end with a counter of the process: 10 before 9
    monkeypatch.setattr(event_file_writer, "_global_uid", type(event_file_writer._global_uid)(n_files_before))
    kinds = (LongFile, BatchFile, Database, EventFiles)
    sinks = [kind(tmp_path) for kind in kinds]
    assert not (tmp_path / "CSV_Logs" / "batches.csv").exists(), "without batches there is no file"
    for sink in sinks:
        for epoch, steps in BATCHES.items():
            sink.write_batches(batch_rows(epoch, steps))
            sink.write(rows(epoch))
        sink.close()
    rows_again = batch_rows(3, (8,))
    for sink in [kind(tmp_path) for kind in kinds]:
        sink.cut(2, 6)
        sink.write_batches(rows_again)
        sink.write(rows(3))
        sink.close()
    expected = [tuple(row) for row in batch_rows(1, BATCHES[1]) + batch_rows(2, BATCHES[2]) + rows_again]
    lines = [r.values() for r in read(tmp_path / "CSV_Logs" / "batches.csv")]
    assert [(int(epoch), int(step), name, float(value)) for epoch, step, name, value in lines] == expected
    with sqlite3.connect(tmp_path / "metrics.db") as connection:
        assert sorted(connection.execute("select epoch, step, name, value from batches")) == sorted(expected)
        assert connection.execute("select max(epoch) from loss").fetchone() == (3,)
    batches = events(tmp_path / "tensorboard" / "batches")
    epochs = events(tmp_path / "tensorboard")
    losses = [(e.step, e.value) for e in batches.Scalars("batch/loss")]
    assert losses == [(s, pytest.approx(1 / s)) for s in (1, 2, 3, 4, 5, 6, 8)]
    assert [e.step for e in epochs.Scalars("train/loss")] == [1, 2, 3], "batches beyond epochs' numbers do not cut them"
    assert "batch/loss" not in epochs.Tags()["scalars"]
    assert {r["metric"] for r in read(tmp_path / "CSV_Logs" / "metrics.csv")} == {row.metric for row in rows(1)}


def a_file_for_the_folder(folder):
    folder.rename(folder.with_name("elsewhere"))
    folder.write_text("no folder")


def a_file_for_the_batches(folder):
    (folder / "batches").write_text("no folder")


def a_folder_for_an_event_file(folder):
    (folder / "events.out.tfevents.1.host.1.0").mkdir()


def noise_in_an_event_file(folder):
    (path,) = folder.glob("events.*")
    path.write_bytes(bytes(range(256)) * 4)


@pytest.mark.parametrize(
    "damage", [a_file_for_the_folder, a_file_for_the_batches, a_folder_for_an_event_file, noise_in_an_event_file]
)
def test_a_damaged_folder_of_events_takes_what_comes(tmp_path, capsys, damage):
    sink = EventFiles(tmp_path)
    sink.write(rows(1))
    sink.close()
    damage(tmp_path / "tensorboard")
    sink = EventFiles(tmp_path)
    sink.cut(1)
    sink.write(rows(2))
    sink.write_batches(batch_rows(2, BATCHES[2]))
    sink.close()
    assert events(tmp_path / "tensorboard").Scalars("test/e_recall@1")[-1].step == 2
    batches = events(tmp_path / "tensorboard" / "batches").Scalars("batch/loss")
    assert [event.step for event in batches] == list(BATCHES[2])
    assert capsys.readouterr().out.count("the run goes on") == (damage is not noise_in_an_event_file)


def test_a_folder_removed_in_mid_run_is_told_in_one_line(tmp_path, capfd):
    sink = EventFiles(tmp_path)
    sink.write(rows(1))
    shutil.rmtree(tmp_path / "tensorboard")
    with refused("tensorboard .No such file or directory.*--resume"):
        sink.write(rows(2))
    sink.close()
    assert "Traceback" not in capfd.readouterr().err
