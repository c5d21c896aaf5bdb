"""--dataset shards: tar files of WebDataset, their index, reading by offset, and what is said of damaged ones."""

import json
import os
import pickle
import tarfile

import torch

import datasets
from datasets import _content, _images, shards
from tests.datasets import layouts
from tests.datasets.layouts import names
from tests.kit.images import write_image
from tests.kit.refusals import refused
from tests.kit.runs import SHORT_RUN, pass_dry_run
from utilities.errors import UserError


def write_shards(folder, n_shards=3, n_images=8):
    """Shards of images of six classes; the last one has .json in the place of .cls. Returns the pattern."""
    for shard in range(n_shards):
        samples = {f"sub.dir/{shard}{i:03d}": str(i % 6) for i in range(n_images)}
        if shard == n_shards - 1:
            samples = {key: {"label": int(label), "category": f"c{int(label) % 2}"} for key, label in samples.items()}
        layouts.make_shard(folder / f"data-{shard:03d}.tar", samples)
    return str(folder / f"data-{{000..{n_shards - 1:03d}}}.tar")


def read(pattern, **flags):
    return datasets.select("shards", dataset_shards=str(pattern), input_size=8, **flags)


def test_shards_are_read_as_the_files_in_them(tmp_path):
    pattern = write_shards(tmp_path)
    splits = read(pattern)
    cached = read(pattern, image_cache=str(tmp_path / "cache"))
    assert names(splits) == {"training": ["0", "1", "2"], "testing": ["3", "4", "5"]}
    assert len(splits["training"]) == 15 and len(splits["testing"]) == 9
    assert len(cached["testing"].read.cache._places) == 24
    assert splits["testing"].super_labels == {0: "c1", 1: "c0", 2: "c1"}
    content = {}
    for shard in range(3):
        with tarfile.open(tmp_path / f"data-{shard:03d}.tar") as archive:
            content |= {member.name: archive.extractfile(member).read() for member in archive}
    content = {name: data for name, data in content.items() if name.endswith(".png")}
    for split in ("training", "testing"):
        # as a worker gets it
        copy = pickle.loads(pickle.dumps(cached[split]))
        for index, path in enumerate(splits[split].paths):
            expected = content[f"sub.dir/{path.partition('/sub.dir/')[2]}"]
            (tmp_path / "one.png").write_bytes(expected)
            assert _content.read(path).tobytes() == expected and splits[split]._size(index) == (10, 12)
            for dataset in (splits[split], cached[split], copy):
                assert torch.equal(dataset.original(index), _images.decode(str(tmp_path / "one.png")))
    assert splits["training"].fingerprint["bytes"] == sum(map(len, content.values()))


def test_shards_lie_below_the_working_folder_or_source(tmp_path, monkeypatch, capsys):
    write_shards(tmp_path)
    from_source = read("data-{000..002}.tar", source_path=str(tmp_path))["training"]
    monkeypatch.chdir(tmp_path)
    from_folder = read("./data-{000..002}.tar", source_path="nowhere")["training"]
    assert list(map(os.path.basename, from_folder.paths)) == list(map(os.path.basename, from_source.paths))
    assert from_folder.root == str(tmp_path)
    with refused("there is no more-0.tar, neither in"):
        read("more-{0..1}.tar")
    pattern = write_shards(tmp_path, n_images=12)
    pass_dry_run(["--dataset", "shards", "--dataset_shards", pattern, *SHORT_RUN[:8]], capsys)


def test_the_index_is_written_once_and_again_when_a_shard_changes(tmp_path, monkeypatch, capsys):
    def unwritable(path, *_, **__):
        raise UserError(f"cannot write {path}: read-only")

    pattern = write_shards(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(shards, "write_json", unwritable)
        before = read(pattern)["training"]
    assert "read through again by each run" in capsys.readouterr().err
    assert len(before) == 15 and not list(tmp_path.glob("*.json"))
    scanned = []
    plain = shards._scanned
    monkeypatch.setattr(shards, "_scanned", lambda shard: scanned.append(shard) or plain(shard))
    for _ in range(2):
        assert read(pattern)["training"].image_list == before.image_list and len(scanned) == 3
    files = [tmp_path / f"data-{i:03d}.tar.index.json" for i in range(3)]
    layouts.make_shard(tmp_path / "data-001.tar", {"only": "0"})
    files[0].write_text("{damaged")
    content = json.loads(files[2].read_text())
    content["keys"].pop()
    files[2].write_text(json.dumps(content))
    assert len(read(pattern)["training"]) == len(before) - 4 and len(scanned) == 6
    os.utime(tmp_path / "data-001.tar", ns=(1, 1))
    read(pattern)
    assert len(scanned) == 7


def test_braces():
    for pattern, expected in (
        ("a.tar", "a"),
        ("d-{08..11}.tar", "d-08 d-09 d-10 d-11"),
        ("{a,b}-{1..2}.tar", "a-1 a-2 b-1 b-2"),
        ("{x,}y.tar", "xy y"),
        ("d-{98..101}.tar", "d-98 d-99 d-100 d-101"),
    ):
        assert shards.expand(pattern) == [f"{name}.tar" for name in expected.split()]
    for braces in ("{0..9}" * 8, "{a,b}" * 60, "{0..1000000}", "{0..999999999999999999}"):
        with refused(r"its braces make [\d,]+ names, and at most 1,000,000 are read"):
            shards.expand(f"{braces}.tar")
    for pattern, words in (
        ("d-{0.." + "9" * 5000 + "}.tar", "a number of more than 18 digits"),
        ("d-{3..1}.tar", "counts from 3 to 1"),
        ("d-{1..2.tar", "a brace without its partner"),
        ("d-{0..1}.tar.gz", "is no .tar"),
    ):
        with refused(words):
            read(pattern)


def test_damaged_shards_and_images_are_named(tmp_path):
    pattern = write_shards(tmp_path)
    path = tmp_path / "data-001.tar"
    data = path.read_bytes()
    with tarfile.open(path) as archive:
        first = archive.getmembers()[1]
        third = archive.getmembers()[3]
    path.write_bytes(data[: first.offset_data] + b"\0" * 30 + data[first.offset_data + 30 :])
    training = read(pattern)["training"]
    index = next(index for index, name in enumerate(training.paths) if name.endswith("1000.png"))
    with refused(r"image .*data-001.tar#.*1000.png cannot be decoded \(no known image format"):
        training[index]
    path.write_bytes(data[:1000])
    with refused("cannot be read .the tar file ends at byte 1,000"):
        training[index]
    (tmp_path / "data-001.tar.index.json").unlink()
    for damaged in (
        b"",
        b"no tar" * 300,
        # cut in a header, in an image, between two images
        data[: third.offset + 100],
        data[: third.offset_data + 20],
        data[: third.offset],
        # a later header is damaged, the first one is
        data[: third.offset] + b"\x07" * 300 + data[third.offset + 300 :],
        b"\x07" * 300 + data[300:],
        # the file is gone
        None,
    ):
        path.unlink() if damaged is None else path.write_bytes(damaged)
        with refused(f"shard {path} (is damaged|cannot be read)"):
            read(pattern)
        assert not (tmp_path / "data-001.tar.index.json").exists()


def test_places_of_a_class_and_keys_that_are_not_unique(tmp_path):
    for label in ({"label": "x"}, {"cls": "x"}, {"class": "x"}, {"label": None, "cls": "x"}, "x"):
        assert names(read(layouts.make_shard(tmp_path / "data.tar", {"a": label, "b": "y"})))["training"] == ["x"]
    path = layouts.make_shard(tmp_path / "data.tar", {"a": "0", "b": None, "c": {"text": "x"}, "d": " ", "z": "1"})
    with refused("images without a class.*3, the first .*data.tar: b"):
        read(path)
    splits = read(path, allow_partial_dataset=True)
    assert len(splits["training"]) == len(splits["testing"]) == 1
    layouts.make_shard(tmp_path / "more.tar", {"a": "0"})
    with tarfile.open(path, "a") as archive, tarfile.open(tmp_path / "more.tar") as source:
        for member in source.getmembers():
            archive.addfile(member, source.extractfile(member))
    with refused("a.png is the second image called a"):
        read(path)


def test_files_of_a_shard_that_are_not_read_are_counted_by_ending(tmp_path):
    path = layouts.make_shard(tmp_path / "data.tar", {"a": "0", "b": "1"})
    contents = {"c.avif": write_image(tmp_path / "c.avif", 1, layouts.SIZE).read_bytes(), "c.cls": b"1"}
    with tarfile.open(path, "a") as archive:
        for name in ("c.avif", "c.cls", "a.txt", "b.txt", "d.heic", "a.seg.png"):
            layouts.add_file(archive, name, contents.get(name, b"x"))
    # The second reading goes by the index
    for _ in range(2):
        splits = read(path)
        assert len(splits["testing"]) == 2 and splits["testing"][1][1].shape == (3, 8, 8)
        note = "4 files are not read, as their endings are none of images: 2 .txt, 1 .heic, 1 .seg.png"
        assert note in splits["training"].notes
    content = json.loads((index := tmp_path / "data.tar.index.json").read_text())
    # the index of a Pillow that reads fewer kinds of files
    index.write_text(json.dumps({**content, "endings": [".jpg"]}))
    assert read(path)["training"].notes == splits["training"].notes
