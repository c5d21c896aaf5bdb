"""Damaged records: renamed, never deleted, said in one line, and the run goes on."""

import contextlib
import functools
import io
import os
import shutil
import sqlite3
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from runs.records.damaged import as_file, as_folder, set_aside
from runs.records.local import ArrayFiles, BatchFile, GroupFiles, LongFile
from runs.records.sqlite import Database
from tests.kit.refusals import refused
from tests.runs.records._made import BATCHES, batch_rows, read, rows
from tests.runs.test_damage import sql

FILES = {
    "CSV_Logs/metrics.csv": LongFile,
    "CSV_Logs/batches.csv": BatchFile,
    "CSV_Logs/Train_loss.csv": GroupFiles,
    "Arrays/train_0002.npz": ArrayFiles,
    "metrics.db": Database,
}


def write(sink, epoch):
    sink.write(rows(epoch))
    sink.write_batches(batch_rows(epoch, BATCHES[epoch]))
    sink.arrays(epoch, "train", {"rho_spectrum@0": np.arange(3.0)})
    sink.close()


def epochs(path):
    if path.suffix == ".npz":
        return {2} if "rho_spectrum@0" in np.load(path) else set()
    if path.suffix == ".db":
        with contextlib.closing(sqlite3.connect(path)) as connection:
            return {epoch for (epoch,) in connection.execute("select epoch from loss union select epoch from batches")}
    return {int(row["epoch"]) for row in read(path)}


def goes_on(folder, name, change):
    """What is said when epoch 2 is written again after `change(path)`; the damaged content is set aside."""
    path = folder / name
    for epoch in (1, 2):
        write(FILES[name](folder), epoch)
    change(path)
    changed = path.parent if path.parent.is_file() else path
    content = changed.read_bytes() if changed.is_file() else None
    with contextlib.redirect_stdout(io.StringIO()) as output:
        sink = FILES[name](folder)
        sink.cut(1, 3)
        write(sink, 2)
    aside = changed.with_name(f"{changed.name}.damaged")
    assert 2 in epochs(path) and output.getvalue().count("\n") == os.path.lexists(aside)
    if os.path.lexists(aside):
        assert epochs(path) == {2} and (aside.is_dir() if content is None else aside.read_bytes() == content)
        assert f"{changed} is damaged (" in output.getvalue()
        assert f"it is now {aside.name}, and the run goes on" in output.getvalue()
    return output.getvalue()


def a_folder(path):
    path.unlink()
    (path / "inside").mkdir(parents=True)


def a_file_for_its_folder(path):
    shutil.rmtree(path.parent)
    path.parent.write_text("no folder")


def noise(path):
    path.write_bytes(b"\xff\xfe\x00 noise\n" * 500)


@settings(max_examples=80, deadline=None, derandomize=True)
# a cut in the first row of losses
@example("CSV_Logs/Train_loss.csv", "cut", 0.6)
@given(st.sampled_from(sorted(FILES)), st.sampled_from(["cut", "flipped"]), st.floats(0, 0.99))
def test_a_run_goes_on_after_a_file_that_was_cut_or_has_flipped_bits(name, kind, at):
    def change(path):
        content = path.read_bytes()
        place = int(len(content) * at)
        # SQLite has no checksums: a flipped byte may give another number that is sound
        is_cut = kind == "cut" or name == "metrics.db"
        tail = b"" if is_cut else bytes([content[place] ^ 0x55]) + content[place + 1 :]
        path.write_bytes(content[:place] + tail)

    with tempfile.TemporaryDirectory() as folder:
        goes_on(Path(folder), name, change)


@pytest.mark.parametrize("name", FILES)
def test_what_is_no_file_is_set_aside(tmp_path, name):
    changes = [a_folder, noise]
    if "/" in name:
        changes.append(a_file_for_its_folder)
    for change in changes:
        (tmp_path / change.__name__).mkdir()
        assert goes_on(tmp_path / change.__name__, name, change) or (name.endswith(".npz") and change is noise)


def overwritten(path):
    content = bytearray(path.read_bytes())
    # the second page
    content[4096:8192] = b"\x17" * 4096
    path.write_bytes(bytes(content))


METRICS = b"epoch,split,metric,value\n1,test,nmi,0.5\n"
WRONG_METRICS = {
    b"1,test,nmi,0.5\n2,test,nmi,0.5\n": "header",
    b"epoch,split,metric\n1,test,nmi\n": "header",
    b"": "header",
    METRICS + b"2,test,nmi,0.5,0.6\n": "line 3 has too many columns",
    METRICS + b"2,test\n": "line 3 has too few columns",
    METRICS + b"x,test,nmi,0.5\n": "line 3 has 'x' for epoch",
    METRICS + b"2,test,nmi,high\n": "line 3 has 'high' for value",
    METRICS + b"2,te\0st,nmi,0.5\n": "NUL",
    METRICS.decode().encode("utf-16"): "UTF-8",
    METRICS + b'2,"' + b"a" * 200_000 + b'",nmi,0.5\n': "no CSV",
}
WRONG_LOSSES = (b"1,0.5\n", b"epoch,loss\n1,0.5,0.6\n", b"epoch,loss\n1,\xff\n", b"epoch,loss,loss\n1,2,3\n")
# damage that a check of its own finds
KNOWN = [
    *(("CSV_Logs/metrics.csv", content, reason) for content, reason in WRONG_METRICS.items()),
    *(("CSV_Logs/Train_loss.csv", content, "") for content in WRONG_LOSSES),
    ("metrics.db", overwritten, ""),
    ("metrics.db", sql("create table notes (text)"), "notes"),
    ("metrics.db", sql("drop table loss", "create table loss (epoch, value)"), "loss"),
]


def test_what_a_file_of_the_right_kind_may_not_hold(tmp_path):
    for number, (name, change, reason) in enumerate(KNOWN):
        (tmp_path / str(number)).mkdir()
        if not callable(change):
            change = functools.partial(Path.write_bytes, data=change)
        output = goes_on(tmp_path / str(number), name, change)
        assert output and reason in output, (name, reason, output)


@pytest.mark.parametrize("ending", ["-journal", "-wal"])
def test_a_database_that_breaks_in_mid_run_and_what_sqlite_wrote_beside_it(tmp_path, capsys, ending):
    sink = Database(tmp_path)
    noise = b"no database at all\n" * 100
    sink.write(rows(1))
    sink.path.write_bytes(noise)
    (tmp_path / f"metrics.db{ending}").write_bytes(b"of the old one" * 100)
    sink.cut(1)
    assert not (tmp_path / f"metrics.db{ending}").exists()
    sink.path.write_bytes(noise)
    sink.write(rows(2))
    with contextlib.closing(sqlite3.connect(sink.path)) as connection:
        assert connection.execute("select epoch from loss").fetchall() == [(2,)]
    assert capsys.readouterr().out.count("the run goes on") == 2


def test_a_link_to_what_is_there_is_refused(tmp_path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    for make, name in ((as_file, "file"), (as_folder, "folder")):
        (tmp_path / f"{name}_link").symlink_to(tmp_path / name)
        with refused(f"{name}_link is a link to .*/{name}, and a run writes only to files in its folder"):
            make(tmp_path / f"{name}_link")
    assert (tmp_path / "file_link").is_symlink() and (tmp_path / "file").read_text() == "mine"


def test_names_are_numbered_and_what_is_right_stays(tmp_path, capsys):
    path = tmp_path / "metrics.db"
    expected = ["metrics.db.damaged", "metrics.db.damaged_1", "metrics.db.damaged_2"]
    for number, name in enumerate(expected):
        path.write_text(str(number))
        assert set_aside(path, "why it is") == tmp_path / name and not path.exists()
    assert [(tmp_path / name).read_text() for name in expected] == ["0", "1", "2"]
    assert capsys.readouterr().out.count("(why it is)") == 3
    # a link to nothing counts as there
    for make in (as_file, as_folder):
        link = tmp_path / make.__name__
        link.symlink_to(tmp_path / "nowhere")
        assert make(link) == link and link.is_dir() == (make is as_folder)
        assert os.path.lexists(tmp_path / f"{link.name}.damaged")
    capsys.readouterr()
    file = tmp_path / "folder" / "content"
    file.parent.mkdir()
    file.write_text("kept")
    assert as_folder(file.parent) / "content" == as_file(file)
    assert file.read_text() == "kept" and capsys.readouterr().out == ""


def test_what_cannot_be_renamed_is_told(tmp_path, monkeypatch):
    def refuse(self, target):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "rename", refuse)
    (tmp_path / "metrics.csv").write_text("x")
    with refused("metrics.csv is damaged .* cannot be renamed .Permission denied.: move it away"):
        set_aside(tmp_path / "metrics.csv", "another header")
