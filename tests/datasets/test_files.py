"""Fingerprints, exact copies and transparency of a data set's files."""

import json
import os
import shutil

import pytest

import datasets
from datasets import _files
from datasets._images import Image
from tests.datasets.layouts import read_folder
from tests.kit.data_sets import make_folder
from tests.kit.images import write_image


def read(root, **flags):
    return read_folder(root, input_size=32, **flags)


def test_copies_are_counted_and_transparency_is_noted(tmp_path):
    def notes_with(words, **flags):
        return [note for note in read(root, **flags)["training"].notes if words in note]

    root = make_folder(tmp_path / "things", n_classes=8, n_images=3, size=(16, 16))
    # A copy within its class is nobody's problem
    shutil.copy(root / "class_0/000.jpg", root / "class_0/x.jpg")
    assert not notes_with("duplicate files") and not notes_with("are transparent")
    for source, place in (("001", "class_1"), ("002", "class_5"), ("002", "class_6")):
        shutil.copy(root / f"class_0/{source}.jpg", root / place / "x.jpg")
    for i in range(3):
        write_image(root / "class_3" / f"a{i}.png", i, (16, 16), "RGBA")
    (line,) = notes_with("duplicate files: 2 groups (5 images) in more than one class")
    assert "1 group (3 images) both in test and in training or validation, e.g." in line
    (line,) = notes_with("duplicate files", split_scheme="closed_set", split_sets=1, split_partitions=2)
    assert "2 groups (5 images) in more than one class" in line
    (line,) = notes_with("are transparent")
    assert "class_3/a0.png" in line and line in datasets.describe(read(root))


def test_files_equal_in_size_and_middle_are_compared_whole(tmp_path):
    content = os.urandom(100_000)
    contents = {
        "a": b"1" + content,
        "b": b"2" + content,
        "c": b"1" + content,
        "d": b"3" + content,
        "empty": b"",
        "empty too": b"",
    }
    for name, file_content in contents.items():
        (tmp_path / name).write_bytes(file_content)
    images = [Image(str(tmp_path / name), name) for name in (*contents, "gone")]
    assert _files.Files(images, tmp_path).copies() == ([[str(tmp_path / "a"), str(tmp_path / "c")]], 0)


def test_of_a_large_set_the_copies_are_kept_until_a_file_changes(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(_files, "CACHED_FROM", 4)
    paths = [tmp_path / f"{i:02d}" for i in range(20)]
    for i, path in enumerate(paths):
        path.write_bytes(bytes([i % 10]) * 5000)
    expected = ([[str(paths[i]), str(paths[i + 10])] for i in range(10)], 0)

    def copies():
        return _files.Files([Image(str(path), "c") for path in paths], tmp_path).copies()

    with monkeypatch.context() as patch:
        patch.setattr(_files, "CHUNK", 3)
        assert copies() == expected
        patch.setattr(_files, "_copies", lambda alike: pytest.fail("looked for again"))
        assert copies() == expected
    (cache,) = (tmp_path / "cache").rglob("*.json")
    cache.write_text("{")
    assert copies() == expected and json.loads(cache.read_text())["left"] == 0
    paths[3].write_bytes(b"x" * 5000)
    assert len(copies()[0]) == 9
    monkeypatch.setattr(_files, "MOST_FILES", 15)
    monkeypatch.setattr(_files, "MOST_BYTES", 20_000)
    # The cache cannot be written there: copies are looked for at each call
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    assert copies()[1] == 5 + 4


def test_the_fingerprint_is_of_names_and_sizes(tmp_path):
    root = make_folder(tmp_path / "things", n_classes=4, n_images=2, size=(16, 16))

    def fingerprint(root, **flags):
        return datasets.record(read(root, **flags))["fingerprint"]

    facts = fingerprint(root)
    assert facts["files"] == 8 and facts["bytes"] == sum(path.stat().st_size for path in root.rglob("*.jpg"))
    moved = shutil.copytree(root, tmp_path / "moved")
    assert fingerprint(moved, use_tv_split=True, tv_split_perc=0.5) == facts
    os.utime(moved / "class_2/000.jpg", ns=(1, 1))
    assert fingerprint(moved)["sha256"] == facts["sha256"], "of no times"
    (moved / "class_0/000.jpg").rename(moved / "class_0/zero.jpg")
    renamed = fingerprint(moved)
    assert renamed["sha256"] != facts["sha256"] and renamed["bytes"] == facts["bytes"]
    with open(moved / "class_1/000.jpg", "ab") as file:
        file.write(b"x")
    assert fingerprint(moved)["sha256"] != renamed["sha256"]
