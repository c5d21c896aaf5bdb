"""Files are whole or absent, folders are made once."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from utilities.errors import UserError
from utilities.files import new_folder, replacing


@pytest.mark.parametrize(("mode", "content"), [("w", "Größe\r\n1\n"), ("wb", b"\x00\r\n\xff")])
def test_content_arrives_as_it_is(tmp_path, mode, content):
    path = tmp_path / "values.csv"
    path.write_text("old")
    with replacing(path, mode) as file:
        file.write(content)
        assert path.read_text() == "old", "not before all is written"
    assert path.read_bytes() == (content if mode == "wb" else content.encode())
    assert os.listdir(tmp_path) == ["values.csv"]


def test_permissions_are_those_of_any_new_file(tmp_path):
    (tmp_path / "plain").touch()
    with replacing(tmp_path / "replaced") as file:
        file.write("x")
    assert stat.S_IMODE((tmp_path / "replaced").stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_leaves_what_was_there(tmp_path, error):
    path = tmp_path / "values.csv"
    path.write_text("old")
    with pytest.raises(error), replacing(path) as file:
        file.write("half of the n")
        raise error
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["values.csv"]


def test_a_full_disk_and_a_missing_folder_are_the_users_to_mend(tmp_path):
    path = tmp_path / "values.csv"
    path.write_text("old")
    with pytest.raises(UserError, match="cannot write .*values.csv: No space left on device"), replacing(path):
        raise OSError(28, "No space left on device")
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["values.csv"]
    with pytest.raises(UserError, match="No such file or directory"), replacing(tmp_path / "nowhere" / "x"):
        pass


def test_folders_are_numbered(tmp_path):
    wanted = tmp_path / "runs" / "margin"
    assert [new_folder(wanted).name for _ in range(3)] == ["margin", "margin_1", "margin_2"]
    with pytest.raises(UserError, match="exists: another process trains it"):
        new_folder(wanted, numbered=False)
    assert new_folder(tmp_path / "other", numbered=False) == tmp_path / "other"


def test_at_once_each_gets_a_folder_of_its_own(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: new_folder(tmp_path / "margin"), range(40)))
    assert len(set(made)) == 40 and all(folder.is_dir() for folder in made)


def test_a_parent_that_is_a_file_is_the_users_to_mend(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="Choose another --save_path"):
        new_folder(tmp_path / "file" / "margin")
