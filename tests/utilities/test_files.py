"""Files are whole or absent, folders are made once."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.kit.refusals import refused
from utilities.files import appending, new_folder, replacing, walk


@pytest.mark.parametrize(("mode", "content"), [("w", "Größe\r\n1\n"), ("wb", b"\x00\r\n\xff")])
def test_content_arrives_as_it_is_with_the_permissions_of_any_new_file(tmp_path, mode, content):
    path = tmp_path / "values.csv"
    plain_file = tmp_path / "plain"
    path.write_text("old")
    plain_file.touch()
    with replacing(path, mode) as file:
        file.write(content)
        assert path.read_text() == "old", "not before all is written"
    assert path.read_bytes() == (content if mode == "wb" else content.encode())
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain_file.stat().st_mode)
    assert sorted(os.listdir(tmp_path)) == ["plain", "values.csv"]


def test_a_full_disk_is_one_line_also_at_the_end_of_a_file():
    with refused("cannot write /dev/full: No space left"), appending("/dev/full") as file:
        file.write("x")


def test_nothing_is_appended_through_a_link(tmp_path):
    mine = tmp_path / "mine"
    link = tmp_path / "metrics.csv"
    mine.write_text("mine")
    for target in (mine, tmp_path / "absent"):
        link.symlink_to(target)
        with refused(f"metrics.csv is a link to {target}.*: put a copy in its place, or remove it"), appending(link):
            pytest.fail("opened")
        link.unlink()
    assert mine.read_text() == "mine" and os.listdir(tmp_path) == ["mine"]


def test_an_error_leaves_what_was_there(tmp_path):
    path = tmp_path / "values.csv"
    path.write_text("old")
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error), replacing(path) as file:
            file.write("half of the n")
            raise error
    with refused("cannot write .*values.csv: No space left on device"), replacing(path):
        raise OSError(28, "No space left on device")
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["values.csv"]
    with refused("No such file or directory"), replacing(tmp_path / "nowhere" / "x"):
        pass


def test_each_process_gets_a_folder_of_its_own(tmp_path):
    path = tmp_path / "runs" / "margin"
    assert [new_folder(path).name for _ in range(3)] == ["margin", "margin_1", "margin_2"]
    with refused("exists: another process trains it"):
        new_folder(path, numbered=False)
    assert new_folder(tmp_path / "other", numbered=False) == tmp_path / "other"
    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(lambda _: new_folder(tmp_path / "margin"), range(40)))
    assert len(set(folders)) == 40 and all(folder.is_dir() for folder in folders)
    (tmp_path / "file").touch()
    with refused("Choose another --save_path"):
        new_folder(tmp_path / "file" / "margin")


def test_a_walk_comes_to_each_real_folder_once(tmp_path):
    for place in ("a/b", "c"):
        (tmp_path / "root" / place).mkdir(parents=True)
    (tmp_path / "elsewhere/d").mkdir(parents=True)
    links = {"a/loop": "root", "a/b/loop": "root", "c/again": "root/a", "other": "elsewhere", "other2": "elsewhere/d"}
    for link, target in links.items():
        (tmp_path / "root" / link).symlink_to(tmp_path / target)
    folders = [folder for folder, *_ in walk(tmp_path / "root")]
    assert len(folders) == len({os.path.realpath(folder) for folder in folders}) == 6
    assert len([folder for folder, *_ in walk(tmp_path / "root", follow_links=False)]) == 4
