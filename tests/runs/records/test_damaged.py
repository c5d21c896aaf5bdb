"""What is damaged is renamed, never deleted, and said in one line."""

import os

import pytest

from runs.records.damaged import as_file, as_folder, set_aside
from utilities.errors import UserError


def test_names_are_numbered_and_nothing_is_lost(tmp_path, capsys):
    path, expected = tmp_path / "metrics.db", ["metrics.db.damaged", "metrics.db.damaged_1", "metrics.db.damaged_2"]
    for number, name in enumerate(expected):
        path.write_text(str(number))
        assert set_aside(path, "why it is") == tmp_path / name and not path.exists()
    assert [(tmp_path / name).read_text() for name in expected] == ["0", "1", "2"]
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 3 and all("metrics.db is damaged (why it is)" in line for line in said)


def test_a_link_to_nothing_counts_as_there(tmp_path):
    for make in (as_file, as_folder):
        path = tmp_path / make.__name__
        path.symlink_to(tmp_path / "nowhere")
        assert make(path) == path and os.path.lexists(tmp_path / f"{path.name}.damaged") and path.is_dir() == (make is as_folder)


def test_what_is_right_stays(tmp_path, capsys):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "content").write_text("kept")
    assert as_folder(tmp_path / "folder") / "content" == as_file(tmp_path / "folder" / "content")
    assert (tmp_path / "folder" / "content").read_text() == "kept" and capsys.readouterr().out == ""


def test_what_cannot_be_renamed_is_told(tmp_path, monkeypatch):
    from pathlib import Path

    def refuse(self, target):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "rename", refuse)
    (tmp_path / "metrics.csv").write_text("x")
    with pytest.raises(UserError, match="metrics.csv is damaged .* cannot be renamed .Permission denied.: move it away"):
        set_aside(tmp_path / "metrics.csv", "another header")
