"""Decoded images on disk: the same pixels and trainings as without, whatever happens while they are written."""

import errno
import io
import json
import os
import pickle
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import datasets
import main
import parameters
from datasets import _cache, _images
from runs import checkpoint
from tests import builders
from utilities.errors import UserError

ROOT = Path(_cache.__file__).resolve().parent.parent
ALL = ("training", "testing", "evaluation")


@pytest.fixture
def things(tmp_path):
    return builders.make_folder(tmp_path / "things", n_classes=4, n_images=40, size=(33, 25))


def read(root, tmp_path, **flags):
    return datasets.select("folder", dataset_folder_path=str(root), input_size=16, image_cache=str(tmp_path / "cache"), **flags)


def folder_of(tmp_path):
    (folder,) = (tmp_path / "cache").iterdir()
    return folder


def entries(tmp_path):
    """The index's lines by name, of which later ones win, and the file of the pixels."""
    header, *lines = map(json.loads, (folder_of(tmp_path) / "index.jsonl").read_text().splitlines())
    return {line[0]: line[1:] for line in lines}, folder_of(tmp_path) / header["data"]


def whole(tmp_path, root):
    """Assert that the cache holds each image of `root` once, as decoding gives it, and nothing else."""
    found, data = entries(tmp_path)
    pixels, ends = np.fromfile(data, dtype=np.uint8), []
    assert sorted(found) == sorted(str(path.relative_to(root)) for path in root.glob("*/*"))
    for name, (size, changed, shape, strides, offset) in found.items():
        stat = os.stat(root / name)
        assert (size, changed) == (stat.st_size, stat.st_mtime_ns)
        expected = _images.decode(str(root / name)).permute(1, 2, 0).numpy()
        assert strides == [1, 3 * shape[2], 3]
        np.testing.assert_array_equal(pixels[offset : offset + expected.size].reshape(expected.shape), expected)
        ends.append((offset, offset + expected.size))
    ends.sort()
    assert [end for _, end in ends] == [*(start for start, _ in ends[1:]), len(pixels)]


def never(path, most_pixels=None):
    raise AssertionError(f"{path} is decoded")


def no_decoding(monkeypatch):
    monkeypatch.setattr(_images, "decode", never)


def test_images_come_from_the_cache_as_they_are_decoded(things, tmp_path, monkeypatch, capsys):
    plain = datasets.select("folder", dataset_folder_path=str(things), input_size=16)
    originals = {split: [plain[split].original(i) for i in range(len(plain[split]))] for split in ALL}
    first = read(things, tmp_path)
    said = capsys.readouterr().out
    assert "160 images decoded" in said
    whole(tmp_path, things)
    no_decoding(monkeypatch)
    second = read(things, tmp_path)
    assert capsys.readouterr().out == "", "nothing is done twice"
    for splits in (first, second, pickle.loads(pickle.dumps(second))):
        for split in ALL:
            for i, expected in enumerate(originals[split]):
                found = splits[split].original(i)
                assert torch.equal(found, expected) and found.stride() == expected.stride()
                found += 1  # the caller's own
                torch.manual_seed(i)
                item = splits[split][i][1]
                torch.manual_seed(i)
                assert torch.equal(item, splits[split].transform(expected)), "bit for bit: the strides are the same too"


def test_every_kind_of_image(tmp_path, monkeypatch):
    root = tmp_path / "things"
    for c in ("a", "b"):
        for suffix, mode in (("jpg", "L"), ("jpg", "CMYK"), ("png", "RGBA"), ("png", "P"), ("gif", "P"), ("webp", "RGB")):
            builders.write_image(root / c / f"{mode}.{suffix}", (ord(c), ord(mode[0])), (21, 17), mode)
        exif = Image.Exif()
        exif[0x0112] = 6
        builders.picture(5, (21, 17)).save(root / c / "turned.jpg", exif=exif)
    expected = [_images.decode(path) for path in datasets.select("folder", dataset_folder_path=str(root))["training"].paths]
    read(root, tmp_path)
    no_decoding(monkeypatch)
    training = read(root, tmp_path)["training"]
    for i, image in enumerate(expected):
        found = training.original(i)
        assert torch.equal(found, image) and found.stride() == image.stride(), training.paths[i]
    assert training.original(training.paths.index(str(root / "a" / "turned.jpg"))).shape == (3, 21, 17)


def test_a_changed_source_is_decoded_anew_and_said(things, tmp_path, capsys):
    read(things, tmp_path)
    victim, touched, gone = (things / "class_0" / f"{i:03d}.jpg" for i in range(3))
    builders.write_image(victim, 999, (50, 41))
    os.utime(touched, ns=(1, 1))
    gone.unlink()
    builders.write_image(things / "class_1" / "new.jpg", 998, (20, 20))
    capsys.readouterr()
    splits = read(things, tmp_path)
    said = capsys.readouterr().out
    assert "changed since, decoded anew: 2" in said and "3 images decoded" in said
    index = splits["training"].paths.index(str(victim))
    assert torch.equal(splits["training"].original(index), _images.decode(str(victim)))
    for path in things.glob("*/*"):  # all of them: the file does not grow beyond what is of use
        os.utime(path, ns=(2, 2))
    read(things, tmp_path)
    whole(tmp_path, things)
    assert len(list(folder_of(tmp_path).glob("images-*.bin"))) == 1


def test_others_go_on_while_a_cache_is_begun_anew(things, tmp_path):
    first = read(things, tmp_path)["training"]
    expected = [first.original(i) for i in range(5)]
    copy = pickle.dumps(first)
    for path in things.glob("*/*"):
        os.utime(path, ns=(2, 2))
    read(things, tmp_path)
    for dataset in (first, pickle.loads(copy)):  # one maps the old file, one finds it gone
        assert all(torch.equal(dataset.original(i), image) for i, image in enumerate(expected))


SCRIPT = """
import os, signal, sys
sys.path.insert(0, {root!r})
import torch
import datasets
from datasets import _cache, _images
torch.set_num_threads(1)
_cache.CHUNK = 8
{more}
splits = datasets.select("folder", dataset_folder_path={things!r}, input_size=16, image_cache={cache!r})
assert all(torch.equal(splits["training"].original(i), _images.decode(p)) for i, p in enumerate(splits["training"].paths))
print("went on")
"""


def start(things, tmp_path, more=""):
    script = SCRIPT.format(root=str(ROOT), things=str(things), cache=str(tmp_path / "cache"), more=more)
    return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.long
def test_two_processes_fill_one_cache(things, tmp_path):
    slow = "import time\nread = _images.decode\ndef decode(path, most_pixels=0):\n    time.sleep(.01)\n    return read(path)\n_images.decode = decode"
    processes = [start(things, tmp_path, slow) for _ in range(2)]
    said = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    outputs = "".join(out for out, _ in said)
    assert outputs.count("160 images decoded") == 1 and outputs.count("went on") == 2
    whole(tmp_path, things)


@pytest.mark.long
@pytest.mark.parametrize("moment", ["pixels", "lines"])
def test_a_kill_in_the_middle_loses_nothing(things, tmp_path, moment, monkeypatch):
    more = f"""
written = []
def write(file, content):
    written.append(0)
    stop = len(written) == (30 if {moment!r} == "pixels" else 36)  # in the fourth chunk, or in its lines
    file.write(bytes(memoryview(content).cast("B"))[: -7 if stop else None])
    if stop:
        os.kill(os.getpid(), signal.SIGKILL)
_cache._write_all = write
"""
    process = start(things, tmp_path, more)
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL
    before = len(entries_so_far(tmp_path))
    assert 24 <= before < 32
    seen = []
    decode = _images.decode
    monkeypatch.setattr(_images, "decode", lambda path, most_pixels=None: (seen.append(path), decode(path))[1])
    read(things, tmp_path)
    assert len(seen) == 160 - before
    whole(tmp_path, things)


def entries_so_far(tmp_path):
    return [line for line in (folder_of(tmp_path) / "index.jsonl").read_text().splitlines(keepends=True)[1:] if line.endswith("\n")]


def fill_the_disk(monkeypatch, after):
    written = []
    write = _cache._write_all

    def write_all(file, content):
        written.append(0)
        if len(written) > after:
            file.write(b"half of it")
            raise OSError(errno.ENOSPC, "No space left on device")
        write(file, content)

    monkeypatch.setattr(_cache, "_write_all", write_all)


@pytest.mark.parametrize("after", [0, 70, 64])
def test_a_full_disk_leaves_what_is_whole(things, tmp_path, after, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        fill_the_disk(patch, after)
        splits = read(things, tmp_path)
    said = capsys.readouterr().err
    assert "No space left on device" in said and f"{160 - 64 * (after > 64)} of 160 images are not in it" in said
    for dataset in (splits[split] for split in ALL):
        assert all(torch.equal(dataset.original(i), _images.decode(path)) for i, path in enumerate(dataset.paths))
    read(things, tmp_path)
    whole(tmp_path, things)


def test_some_of_the_disk_is_left_free(things, tmp_path, monkeypatch, capsys):
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr(_cache.shutil, "disk_usage", lambda folder: usage)
    splits = read(things, tmp_path)
    assert "1 GiB of its disk is free" in capsys.readouterr().err
    assert torch.equal(splits["training"].original(0), _images.decode(splits["training"].paths[0]))


@pytest.mark.parametrize("damage", ["zeros", "no index", "no pixels", "short pixels", "text", "offset", "strides", "shape", "a word"])
def test_a_damaged_cache_is_mended(things, tmp_path, damage):
    read(things, tmp_path)
    index, data = folder_of(tmp_path) / "index.jsonl", entries(tmp_path)[1]
    lines = index.read_bytes().splitlines(keepends=True)
    if damage == "zeros":  # the end of a file after a power cut
        index.write_bytes(b"".join(lines[:90]) + bytes(300))
    elif damage == "no index":
        index.unlink()
    elif damage == "no pixels":
        data.unlink()
    elif damage == "short pixels":
        os.truncate(data, data.stat().st_size // 3)
    elif damage == "text":
        index.write_bytes(b"[1, 2]\nnothing\n")
    else:  # by hand: name, size, time, shape, strides, offset
        entry = json.loads(lines[40])
        entry[{"offset": 5, "strides": 4, "shape": 3, "a word": 3}[damage]] = {"offset": -9, "strides": [1, 10**9, 3], "shape": [3, 0, 9], "a word": ["3", 1, 1]}[damage]
        index.write_bytes(b"".join([*lines[:40], json.dumps(entry).encode() + b"\n", *lines[41:]]))
    read(things, tmp_path)
    whole(tmp_path, things)


def test_an_image_that_cannot_be_decoded_is_told_when_it_is_asked_for(things, tmp_path):
    victim = things / "class_0" / "000.jpg"
    victim.write_bytes(b"no image")
    splits = read(things, tmp_path)
    assert torch.equal(splits["training"].original(1), _images.decode(splits["training"].paths[1]))
    with pytest.raises(UserError, match="class_0/000.jpg cannot be decoded"):
        splits["training"][0]


def test_what_is_no_folder_is_refused(things, tmp_path):
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(UserError, match="--image_cache .*cache: a file, expected a folder"):
        read(things, tmp_path)


@pytest.mark.parametrize("cached", [True, False])
def test_the_side_limits_the_long_side_with_and_without_cache(things, tmp_path, cached):
    from torchvision.transforms.v2 import functional

    builders.write_image(things / "class_0" / "000.jpg", 5, (90, 300))
    cache = {"image_cache": str(tmp_path / "cache")} if cached else {}
    training = datasets.select("folder", dataset_folder_path=str(things), input_size=16, image_cache_side=30, **cache)["training"]
    assert training.original(0).shape == (3, 30, 9) and training.original(1).shape == (3, 23, 30)
    expected = functional.resize(_images.decode(training.paths[0]), [30, 9])
    assert torch.equal(training.original(0), expected)
    assert training.transforms_as_resolved.startswith("LongSide(30); ")
    torch.manual_seed(0)
    item = training[0][1]
    other = datasets.select("folder", dataset_folder_path=str(things), input_size=16, image_cache_side=30)["training"]
    torch.manual_seed(0)
    assert torch.equal(item, other[0][1])


def test_sides_and_data_sets_do_not_mix(things, tmp_path):
    another = builders.make_folder(tmp_path / "others", n_classes=2, n_images=2, size=(33, 25))
    for root, side in ((things, 0), (things, 20), (another, 0)):
        training = read(root, tmp_path, image_cache_side=side)["training"]
        assert max(training.original(0).shape) == (side or 33)
    assert len(list((tmp_path / "cache").iterdir())) == 3


@pytest.mark.long
def test_data_sets_in_memory_are_read_from_it(tmp_path, monkeypatch):
    cache = {"image_cache": str(tmp_path / "cache")}
    plain, cached = datasets.select("glyphs"), datasets.select("glyphs", **cache)
    monkeypatch.setattr(_images, "_with_pillow", None)
    again = datasets.select("glyphs", **cache)
    for split in ALL:
        assert torch.equal(plain[split].pixels, cached[split].pixels) and torch.equal(plain[split].pixels, again[split].pixels)
    with pytest.raises(UserError, match="--image_cache_side.*shown whole"):
        datasets.select("glyphs", image_cache_side=32)


@pytest.mark.long
@pytest.mark.parametrize("kernels", ["0", "1"])
def test_a_training_is_bit_equal(folder_data, tmp_path, kernels):
    def train(name, *more):
        return main.main(parameters.read([
            "--dataset", "folder", "--dataset_folder_path", str(folder_data), "--save_path", str(tmp_path), "--savename", name,
            "--n_epochs", "2", "--loss", "triplet", "--batch_mining", "semihard", "--data_sampler", "greedy_coreset", "--data_batchmatch_bigbs", "16",
            *builders.SMALL, *builders.SHORT_RUN, "--kernels", kernels, *more,
        ]))  # fmt: skip

    cache = ["--image_cache", str(tmp_path / "cache")]
    runs = [train("plain"), train("fills", *cache), train("uses", *cache)]
    weights = [checkpoint.read(run.folder / checkpoint.LAST)["state_dict"] for run in runs]
    assert all(torch.equal(value, other[name]) for other in weights[1:] for name, value in weights[0].items())
    metrics = [[row for row in (run.folder / "CSV_Logs" / "metrics.csv").read_text().splitlines() if "seconds" not in row] for run in runs]
    assert metrics[0] == metrics[1] == metrics[2]


def test_decoders_give_the_same_pixels(tmp_path, monkeypatch):
    """torchvision's, torchcodec's where it is installed, Pillow's."""
    paths = [builders.write_image(tmp_path / f"{mode}.jpg", 3, (41, 29), mode) for mode in ("RGB", "L", "CMYK")]
    for name, more in (("progressive", {"progressive": True}), ("444", {"subsampling": 0}), ("422", {"subsampling": 1})):
        builders.picture(4, (203, 155)).save(tmp_path / f"{name}.jpg", quality=85, **more)
        paths.append(tmp_path / f"{name}.jpg")
    exif = Image.Exif()
    exif[0x0112] = 6
    builders.picture(5, (64, 48)).save(tmp_path / "turned.jpg", exif=exif)
    found = {}
    for package in (*_images.JPEG_PACKAGES, None):
        try:
            decoder = _images._decoder_of(package)
        except ImportError:
            continue
        monkeypatch.setattr(_images, "_jpeg_decoder", lambda decoder=decoder: decoder)
        found[package] = [_images.decode(str(path)) for path in (*paths, tmp_path / "turned.jpg")]
    assert {"torchvision", None} <= set(found)
    for images in found.values():
        for ours, pillows in zip(images, found[None], strict=True):
            assert torch.equal(ours, pillows)


def test_decoding_goes_on_without_torchvisions_decoders(tmp_path, monkeypatch):
    path = builders.write_image(tmp_path / "a.jpg", 3, (41, 29))
    expected = _images.decode(str(path))
    stand_in = type(sys)("torchcodec.decoders")
    stand_in.decode_jpeg = lambda data, mode: torch.from_numpy(np.array(Image.open(io.BytesIO(data.numpy().tobytes())))).permute(2, 0, 1)
    for modules in (
        {"torchvision.io": None, "torchcodec.decoders": stand_in, "torchcodec": stand_in},
        {"torchvision.io": None, "torchcodec.decoders": None},
    ):
        with monkeypatch.context() as patch:
            for name, module in modules.items():
                patch.setitem(sys.modules, name, module)
            for function in (_images.jpeg_package, _images._jpeg_decoder):
                function.cache_clear()
            package = _images.jpeg_package()
            assert package == ("torchcodec" if modules["torchcodec.decoders"] else None)
            assert torch.equal(_images.decode(str(path)), expected)
    for function in (_images.jpeg_package, _images._jpeg_decoder):
        function.cache_clear()
    assert _images.jpeg_package() == "torchvision" and re.fullmatch(r"torchvision [\d.]+, PIL [\d.]+", _images.decoders())
