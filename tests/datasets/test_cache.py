"""Decoded images on disk: the same pixels and trainings as without, whatever happens while they are written."""

import errno
import json
import multiprocessing
import os
import pickle
import re
import signal
import sys
import time

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms.v2 import functional

import datasets
from datasets import _cache_files, _images
from tests.datasets.layouts import read_folder
from tests.kit.data_sets import make_folder
from tests.kit.images import random_picture, write_image
from tests.kit.refusals import refused

ALL = ("training", "testing", "evaluation")


@pytest.fixture
def photographs(tmp_path):
    return make_folder(tmp_path / "things", n_classes=4, n_images=40, size=(33, 25))


def read(root, tmp_path=None, **flags):
    """The splits, through the cache of `tmp_path` where that is given."""
    cache = {} if tmp_path is None else {"image_cache": str(tmp_path / "cache")}
    return read_folder(root, input_size=16, **cache, **flags)


def files_of(tmp_path):
    """The index of the one cache, its lines after the first, and the file of the pixels."""
    (folder,) = (tmp_path / "cache").iterdir()
    first, *lines = (folder / "index.jsonl").read_text().splitlines(keepends=True)
    return folder / "index.jsonl", lines, folder / json.loads(first)["data"]


def check_cache(tmp_path, root):
    """Assert that the cache holds each image of `root` once, as decoding gives it, and nothing else."""
    _, lines, data = files_of(tmp_path)
    # later lines win
    entries = {name: entry for name, *entry in map(json.loads, lines)}
    pixels = np.fromfile(data, dtype=np.uint8)
    ends = []
    assert sorted(entries) == sorted(str(path.relative_to(root)) for path in root.glob("*/*"))
    for name, (size, changed, shape, strides, offset) in entries.items():
        stat = os.stat(root / name)
        expected = _images.decode(str(root / name)).permute(1, 2, 0).numpy()
        assert (size, changed, strides) == (stat.st_size, stat.st_mtime_ns, [1, 3 * shape[2], 3])
        np.testing.assert_array_equal(pixels[offset : offset + expected.size].reshape(expected.shape), expected)
        ends.append((offset, offset + expected.size))
    ends.sort()
    assert [end for _, end in ends] == [*(start for start, _ in ends[1:]), len(pixels)]


def as_decoded(dataset, expected=None):
    """Assert that the images of a split are those of their files, or those given."""
    for index, image in enumerate(expected or map(_images.decode, dataset.paths)):
        image_read = dataset.original(index)
        assert torch.equal(image_read, image) and image_read.stride() == image.stride(), dataset.paths[index]


def never(path, most_pixels=None):
    raise AssertionError(f"{path} is decoded")


def write_turned(path, size):
    exif = Image.Exif()
    exif[0x0112] = 6
    random_picture(5, size).save(path, exif=exif)
    return path


def test_every_kind_of_image_comes_from_the_cache_as_it_is_decoded(photographs, tmp_path, monkeypatch, capsys):
    read(photographs, tmp_path)
    assert "160 images decoded" in capsys.readouterr().out
    check_cache(tmp_path, photographs)
    for suffix, mode in (("jpg", "L"), ("jpg", "CMYK"), ("png", "RGBA"), ("png", "P"), ("gif", "P"), ("webp", "RGB")):
        write_image(photographs / "class_0" / f"{mode}.{suffix}", (1, ord(mode[0])), (21, 17), mode)
    write_turned(photographs / "class_0" / "turned.jpg", (21, 17))
    plain = read(photographs)
    originals = {split: [plain[split].original(i) for i in range(len(plain[split]))] for split in ALL}
    broken = photographs / "class_0" / "zzz.jpg"
    broken.write_bytes(b"no image")
    training = read(photographs, tmp_path)["training"]
    assert "7 images decoded" in capsys.readouterr().out
    with refused("class_0/zzz.jpg cannot be decoded"):
        training.original(training.paths.index(str(broken)))
    broken.unlink()
    monkeypatch.setattr(_images, "decode", never)
    second = read(photographs, tmp_path)
    assert capsys.readouterr().out == "", "nothing is done twice"
    for splits in (second, pickle.loads(pickle.dumps(second))):
        for split in ALL:
            as_decoded(splits[split], originals[split])
            for i, expected in enumerate(originals[split]):
                # The caller may change what it gets: the cache keeps its own
                splits[split].original(i).add_(1)
                torch.manual_seed(i)
                item = splits[split][i][1]
                torch.manual_seed(i)
                assert torch.equal(item, splits[split].transform(expected)), "bit for bit: the strides are the same too"
    with refused("--image_cache .*000.jpg: a file, expected a folder"):
        read(photographs, image_cache=str(photographs / "class_0" / "000.jpg"))


def test_a_changed_source_is_decoded_anew_and_said_and_others_go_on(photographs, tmp_path, capsys):
    read(photographs, tmp_path)
    victim, touched, gone = (photographs / "class_0" / f"{i:03d}.jpg" for i in range(3))
    write_image(victim, 999, (50, 41))
    os.utime(touched, ns=(1, 1))
    gone.unlink()
    write_image(photographs / "class_1" / "new.jpg", 998, (20, 20))
    capsys.readouterr()
    training = read(photographs, tmp_path)["training"]
    output = capsys.readouterr().out
    assert "changed since, decoded anew: 2" in output and "3 images decoded" in output
    expected = [_images.decode(path) for path in training.paths]
    as_decoded(training, expected)
    copy = pickle.dumps(training)
    # All sources change, and the file does not grow beyond what is of use
    for path in photographs.glob("*/*"):
        os.utime(path, ns=(2, 2))
    read(photographs, tmp_path)
    check_cache(tmp_path, photographs)
    _, _, data = files_of(tmp_path)
    assert list(data.parent.glob("images-*.bin")) == [data]
    # one maps the old file, one finds it gone
    for dataset in (training, pickle.loads(copy)):
        as_decoded(dataset, expected)


def in_another_process(work):
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    return process


@pytest.mark.long
def test_two_processes_fill_one_cache(photographs, tmp_path, monkeypatch, capfd):
    decode = _images.decode
    monkeypatch.setattr(_cache_files, "CHUNK", 8)
    monkeypatch.setattr(_images, "decode", lambda path, most_pixels=0: (time.sleep(0.01), decode(path))[1])
    processes = [in_another_process(lambda: as_decoded(read(photographs, tmp_path)["training"])) for _ in range(2)]
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0]
    assert capfd.readouterr().out.count("160 images decoded") == 1
    check_cache(tmp_path, photographs)


@pytest.mark.long
# The process is killed among the pixels of the fourth chunk, or among its lines
@pytest.mark.parametrize("stop", [30, 36])
def test_a_kill_in_the_middle_loses_nothing(photographs, tmp_path, stop, monkeypatch):
    written = []
    seen = []
    decode = _images.decode

    def write(file, content):
        written.append(0)
        data = bytes(memoryview(content).cast("B"))
        if len(written) < stop:
            file.write(data)
        else:
            file.write(data[:-7])
            os.kill(os.getpid(), signal.SIGKILL)

    with monkeypatch.context() as patch:
        patch.setattr(_cache_files, "CHUNK", 8)
        patch.setattr(_cache_files, "_write_all", write)
        process = in_another_process(lambda: read(photographs, tmp_path))
        process.join(120)
    assert process.exitcode == -signal.SIGKILL
    before = sum(line.endswith("\n") for line in files_of(tmp_path)[1])
    assert 24 <= before < 32
    monkeypatch.setattr(_images, "decode", lambda path, most_pixels=None: (seen.append(path), decode(path))[1])
    read(photographs, tmp_path)
    assert len(seen) == 160 - before
    check_cache(tmp_path, photographs)


@pytest.mark.parametrize("after", [0, 70, 64, None])
def test_a_full_disk_leaves_what_is_whole(photographs, tmp_path, after, monkeypatch, capsys):
    """It fails after so many writes; None: too little of it is free."""
    writes_left = list(range(after or 0))
    write = _cache_files._write_all

    def write_all(file, content):
        if not writes_left:
            file.write(b"half of it")
            raise OSError(errno.ENOSPC, "No space left on device")
        writes_left.pop()
        write(file, content)

    with monkeypatch.context() as patch:
        if after is None:
            patch.setattr(_cache_files.shutil, "disk_usage", lambda folder: type("Usage", (), {"free": 1000}))
        else:
            patch.setattr(_cache_files, "_write_all", write_all)
        splits = read(photographs, tmp_path)
    message = capsys.readouterr().err
    assert ("1 GiB of its disk is free" if after is None else "No space left on device") in message
    assert f"{96 if after == 70 else 160} of 160 images are not in it" in message
    as_decoded(splits["training"])
    read(photographs, tmp_path)
    check_cache(tmp_path, photographs)


# what is done to the files of index and pixels, what a line becomes, or a place in a line (name, size, time, shape, …)
# and its new value
DAMAGES = {
    "zeros after a power cut": lambda index, data: index.write_bytes(
        b"".join([*index.read_bytes().splitlines(keepends=True)[:11], b"\0" * 300])
    ),
    "no index": lambda index, data: index.unlink(),
    "no pixels": lambda index, data: data.unlink(),
    "short pixels": lambda index, data: os.truncate(data, data.stat().st_size // 3),
    "text": lambda index, data: index.write_bytes(b"[1, 2]\nnothing\n"),
    "a header of another kind": lambda index, data: index.write_bytes(
        b"[" * 100_000 + index.read_bytes()[index.read_bytes().index(b"\n") :]
    ),
    "a number of 5,000 digits": b'["a", %s]\n' % (b"9" * 5000),
    "deep": b"[" * 100_000 + b"\n",
    "no text": b"\xff\xfe\n",
    "offset": (5, -9),
    "another offset": (5, 0),
    "no number": (5, float("nan")),
    "strides": (4, [1, 10**9, 3]),
    "shape": (3, [3, 0, 9]),
    "a word": (3, ["3", 1, 1]),
    "halves": (3, [3.0, 25.0, 33.0]),
    "another shape": (3, [1, 25, 33]),
    "no list": (4, 3),
    "a list as name": (0, ["a"]),
    "a number as name": (0, 7),
    "a line twice": b"",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_cache_is_mended(tmp_path, damage):
    photographs = make_folder(tmp_path / "things", n_classes=2, n_images=10, size=(33, 25))
    read(photographs, tmp_path)
    index, lines, data = files_of(tmp_path)
    line = lines[9].encode()
    if callable(damage):
        damage(index, data)
    else:
        if isinstance(damage, tuple):
            entry = json.loads(line)
            entry[damage[0]] = damage[1]
            damage = json.dumps(entry).encode() + b"\n"
        index.write_bytes(index.read_bytes().replace(line, damage or line * 2))
    read(photographs, tmp_path)
    check_cache(tmp_path, photographs)


def test_a_cache_from_someone_else_writes_to_no_file_outside_of_it(photographs, tmp_path):
    """Whatever its index names, and whatever is a link in it: the user's files stay, and the cache is made anew."""
    read(photographs, tmp_path)
    index, lines, data = files_of(tmp_path)
    mine = tmp_path / "thesis.bin"
    mine.write_bytes(b"\0" * 50_000)
    notes = index.with_name("images-notes.bin")
    other_file = tmp_path / "lock"
    notes.write_bytes(b"mine")
    header = json.loads(index.read_text().splitlines()[0])
    names = ["../../thesis.bin", str(mine), notes.name, "a\0b", "a" * 300, 7]
    for how in (*names, "link", "hard link", "linked index", "linked lock", "hard linked lock"):
        index, _, data = files_of(tmp_path)
        other_file.write_bytes(b"mine too")
        if how in names:
            index.write_text(json.dumps({**header, "data": how}) + "\n" + "".join(lines[:3]))
        elif how == "link":
            data.unlink()
            data.symlink_to(mine)
        elif how == "hard link":
            data.unlink()
            os.link(mine, data)
        elif how == "linked index":
            index.replace(tmp_path / "elsewhere.jsonl")
            index.symlink_to(tmp_path / "elsewhere.jsonl")
        else:
            lock = index.with_name("lock")
            lock.unlink()
            lock.symlink_to(other_file) if how == "linked lock" else os.link(other_file, lock)
            # A changed image gives the cache something to write
            os.utime(min(photographs.glob("*/*")), ns=(1, len(how)))
        read(photographs, tmp_path)
        if how == "linked lock":
            index.with_name("lock").unlink()
            read(photographs, tmp_path)
        assert mine.read_bytes() == b"\0" * 50_000 and notes.read_bytes() == b"mine", how
        assert other_file.read_bytes() == b"mine too", how
        everything = {name for name, *_ in map(json.loads, files_of(tmp_path)[1])}
        assert len(everything) == 160, how
    assert (tmp_path / "elsewhere.jsonl").read_text().count("\n") == 161


def test_a_linked_cache_is_not_written(photographs, tmp_path, capsys):
    read(photographs, tmp_path)
    index, _, _ = files_of(tmp_path)
    (tmp_path / "home").mkdir()
    index.parent.rename(tmp_path / "home" / "cache")
    index.parent.symlink_to(tmp_path / "home" / "cache")
    (tmp_path / "home" / "cache" / "index.jsonl").unlink()
    as_decoded(read(photographs, tmp_path)["training"])
    assert "cannot be written (it is a link)" in capsys.readouterr().err
    assert not (tmp_path / "home" / "cache" / "index.jsonl").exists()


def test_the_side_limits_the_long_side_with_and_without_cache(photographs, tmp_path):
    write_image(photographs / "class_0" / "000.jpg", 5, (90, 300))
    plain, cached = (read(photographs, cache, image_cache_side=30)["training"] for cache in (None, tmp_path))
    for training in (plain, cached):
        assert training.original(0).shape == (3, 30, 9) and training.original(1).shape == (3, 23, 30)
        assert torch.equal(training.original(0), functional.resize(_images.decode(training.paths[0]), [30, 9]))
        assert training.transforms_as_resolved.startswith("LongSide(30); ")
    another = make_folder(tmp_path / "others", n_classes=2, n_images=2, size=(33, 25))
    for root, side in ((photographs, 0), (photographs, 20), (another, 0)):
        assert max(read(root, tmp_path, image_cache_side=side)["training"].original(1).shape) == (side or 33)
    assert len(list((tmp_path / "cache").iterdir())) == 4, "sides and data sets do not mix"


@pytest.mark.long
def test_data_sets_in_memory_are_read_from_it(tmp_path, monkeypatch):
    cache = {"image_cache": str(tmp_path / "cache")}
    plain = datasets.select("glyphs")
    cached = datasets.select("glyphs", **cache)
    monkeypatch.setattr(_images, "_with_pillow", None)
    for splits in (cached, datasets.select("glyphs", **cache)):
        assert all(torch.equal(plain[split].pixels, splits[split].pixels) for split in ALL)


def test_decoders_give_the_same_pixels_and_stand_in_for_each_other(tmp_path, monkeypatch):
    """torchvision's, torchcodec's where it is installed, Pillow's."""
    paths = [write_image(tmp_path / f"{mode}.jpg", 3, (41, 29), mode) for mode in ("RGB", "L", "CMYK")]
    for number, options in enumerate([{"progressive": True}, {"subsampling": 0}, {"subsampling": 1}]):
        paths.append(tmp_path / f"{number}.jpg")
        random_picture(4, (203, 155)).save(paths[-1], quality=85, **options)
    paths.append(write_turned(tmp_path / "turned.jpg", (64, 48)))
    decoded = {}
    modules = ["torchvision.io", "torchcodec.decoders"]
    for n_lacking, package in enumerate(["torchvision", "torchcodec", None]):
        with monkeypatch.context() as patch:
            for name in modules[:n_lacking]:
                patch.setitem(sys.modules, name, None)
            _images.jpeg_package.cache_clear()
            _images._jpeg_decoder.cache_clear()
            if _images.jpeg_package() == package:
                decoded[package] = [_images.decode(str(path)) for path in paths]
    _images.jpeg_package.cache_clear()
    _images._jpeg_decoder.cache_clear()
    assert {"torchvision", None} <= set(decoded) and re.fullmatch(r"torchvision [\d.]+, PIL [\d.]+", _images.decoders())
    for images in decoded.values():
        assert all(map(torch.equal, images, decoded[None]))
