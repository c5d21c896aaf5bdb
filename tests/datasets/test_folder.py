"""How a folder is read: as classes, super-classes or parts of a split, by its layout; ambiguous ones are refused."""

import os
import shutil

import pytest

import datasets
import parameters
from datasets import _check
from tests.datasets.layouts import check_split, names, read_folder
from tests.kit.images import write_image
from tests.kit.refusals import refused


def read(root, **flags):
    return read_folder(root, input_size=64, **flags)


def images(root, *folders, count=2):
    for folder in folders:
        for i in range(count):
            write_image(root / folder / f"{i}.jpg", (abs(hash(folder)) % 1000, i), (8, 8))
    return root


def test_every_subfolder_is_a_class_whatever_its_name(tmp_path):
    root = images(tmp_path / "things", "3.5mm jack", "adapter", "10.1 inch", "2.0", "zip drive", ".hidden", count=3)
    splits = read(root)
    assert names(splits) == {"training": ["10.1 inch", "2.0"], "testing": ["3.5mm jack", "adapter", "zip drive"]}
    check_split(splits["training"], 2, 6)
    check_split(splits["testing"], 3, 9)
    assert splits["training"].partial is None and set(splits["training"].super_labels.values()) == {None}
    images(root, "1 alone", count=1)
    splits = read(root)
    assert splits["training"].counts == {"images": 7, "classes": 3, "single_image_classes": 1}
    (root / "1b").mkdir()
    (root / "1b" / ".DS_Store").write_bytes(b"x")
    with refused("1b holds no image"):
        read(root)
    assert len(read(root, allow_partial_dataset=True)["training"].class_names) == 3
    with refused("1 class with images"):
        read(images(tmp_path / "one", "adapter"))


def test_what_cannot_be_read_is_named(tmp_path):
    root = images(tmp_path / "things", "a", "b", "c", "d")
    (gone := root / "c" / "9.jpg").symlink_to(tmp_path / "nowhere.jpg")
    with refused("9.jpg is a link to nothing"):
        read(root)
    splits = read(root, allow_partial_dataset=True)
    assert splits["testing"].counts["images"] == 4
    assert f"class folder {root / 'c'}: 1 links to nothing left out" in splits["training"].notes
    gone.unlink()
    (circle := root / "circle").symlink_to(circle)
    with refused("circle cannot be read"):
        read(root)
    circle.unlink()
    images(root, os.fsdecode(b"caf\xe9"))
    with refused(r"caf\\udce9' is no text"):
        read(root)


def test_super_classes_and_further_levels(tmp_path):
    splits = read(images(tmp_path / "two", "cats/small", "cats/large", "dogs/small", "dogs/large", "a b/x", "a/x"))
    assert names(splits)["training"] == ["a b/x", "a/x", "cats/large"]
    assert names(splits)["testing"] == ["cats/small", "dogs/large", "dogs/small"]
    assert splits["testing"].super_labels == {0: "cats", 1: "dogs", 2: "dogs"}
    assert [len(entries) for entries in splits["training"].image_dict.values()] == [2, 2, 2]
    oaks = ["plants/trees/oak/red", "plants/trees/oak/white"]
    splits = read(images(tmp_path / "more", *oaks, "plants/grass/rye/x", "animals/cats/lynx/x"))
    assert names(splits)["testing"] == oaks
    assert splits["testing"].super_labels == {0: "plants/trees/oak", 1: "plants/trees/oak"}
    assert ("animals/cats/lynx/x", "animals/cats/lynx", "animals/cats", "animals") in splits["training"].lineages
    testing = read(images(tmp_path / "split", "train/a/b/c", "train/a/b/d", "test/a/e/f"))["testing"]
    assert testing.lineages == {("a/e/f", "a/e", "a")}


@pytest.mark.parametrize("above", [("",), ("cats/", "dogs/")])
def test_parts_of_a_split(tmp_path, above):
    def named(letters):
        return [f"{up}{name}" for up in above for name in letters]

    def add(part, letters):
        return images(tmp_path, *(f"{part}/{name}" for name in named(letters)))

    add("train", "abc")
    root = add("test", "defg")
    splits = read(root)
    assert names(splits) == {"training": named("abc"), "testing": named("defg")}
    for split, folder in (("training", "/train/"), ("testing", "/test/")):
        assert all(folder in path for path in splits[split].paths)
    cut = read(root, use_tv_split=True, tv_split_perc=0.7)
    assert cut["validation"] is not None and cut["testing"].image_list == splits["testing"].image_list
    add("val", "cx")
    assert names(read(root)) == {"training": named("abc"), "validation": named("cx"), "testing": named("defg")}
    opt = parameters.read(["--dataset", "folder", "--dataset_folder_path", str(root), "--patience", "3"])
    assert opt.splits_to_eval == ["train", "val", "test"] and datasets.has_validation(opt)
    with refused("--use_tv_split.*has its own"):
        read(root, use_tv_split=True)
    (root / "test").rename(root / "query")
    add("gallery", "dh")
    splits = read(root)
    testing = splits["testing"]
    assert names(splits) == {"training": named("abc"), "validation": named("cx"), "testing": named("defgh")}
    assert testing.roles == {"query_images": 8 * len(above), "gallery_images": 4 * len(above)}
    assert splits["training"].roles == splits["validation"].roles == {}
    for index, path in enumerate(testing.paths):
        assert (testing.is_query[index], testing.is_gallery[index]) == ("/query/" in path, "/gallery/" in path)


def test_parts_and_classes_of_the_same_names(tmp_path):
    assert names(read(images(tmp_path / "a", "train", "test", "bus", "car")))["training"] == ["bus", "car"]
    splits = read(images(tmp_path / "b", "train/steam", "train/diesel", "bus/city", "bus/coach"))
    assert names(splits)["testing"] == ["train/diesel", "train/steam"]
    splits = read(images(tmp_path / "c", "train/a", "train/b", "test/b", "test/c"))
    assert names(splits) == {"training": ["a", "b"], "testing": ["b", "c"]}
    assert splits["testing"].avail_classes == [0, 1]
    assert any("train and test share 1 class:" in note and note.endswith("b") for note in splits["training"].notes)


@pytest.mark.parametrize(
    ("folders", "words"),
    [
        ("train/a test/b bus/c", "and also bus"),
        ("train/a query/b gallery/b bus/c", "and also bus"),
        ("train/a Test/b", "holds train and Test: is Test the part test"),
        ("train/a test/b validation/c", "validation the part val"),
        ("Train/a tset/b", "Train the part train"),
        ("train/a train/b val/c", "no test"),
        ("train/a query/b", "no gallery"),
        ("test/a test/b", "no train"),
        ("query/b gallery/b", "no train"),
        ("train/a test/b query/b gallery/b", "have roles or have none"),
        ("a b/c", "which are the classes"),
        ("a b b/c", "which are the classes"),
        ("train/a test/b/c", "which are the classes"),
        ("a b/c/d", "which are the classes"),
        ("a/train/b a/test/c", "train a part of the split.* Then X is .*a;|test a part of the split"),
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(tmp_path, folders, words):
    with refused(words, tmp_path):
        read(images(tmp_path, *folders.split()))


def test_folds_within_the_training_part_of_a_split(tmp_path):
    root = images(tmp_path / "things", *(f"train/{name}" for name in "abcd"), "query/x", "gallery/x", count=3)
    validated = []
    for fold in range(4):
        splits = read(root, split_scheme="class_disjoint", fold=fold)
        assert names(splits)["testing"] == ["x"] and splits["testing"].roles == {"query_images": 3, "gallery_images": 3}
        assert sorted(names(splits)["training"] + names(splits)["validation"]) == ["a", "b", "c", "d"]
        validated += names(splits)["validation"]
    assert validated == ["a", "b", "c", "d"]
    splits = read(root, split_scheme="closed_set", split_partitions=3, fold=2)
    assert names(splits)["training"] == names(splits)["validation"] == ["a", "b", "c", "d"]
    with refused("cuts validation from training"):
        read(images(root, "val/e"), split_scheme="class_disjoint", fold=0)


def test_circles_of_links_end_and_each_real_folder_is_read_once(tmp_path):
    """Two links to the folder itself double the paths at each level."""
    root = images(tmp_path / "things", "a", "b", "c", "d")
    links = {"loop0": root, "loop1": root, "up": tmp_path, "a/loop": root / "a", "0": root / "c"}
    for place, target in links.items():
        (root / place).symlink_to(target)
    splits = read(root)
    assert names(splits) == {"training": ["a", "b"], "testing": ["c", "d"]}, "not 0, the link to c"
    note = f"links to folders that are read under another name, left out: {root / '0'} and 4 more"
    assert note in splits["training"].notes
    assert not [problem for problem in _check.strays(root) if "loop" in problem]
    parts = images(tmp_path / "parts", "train/x/a", "train/x/b", "test/y/c", "test/y/d")
    (parts / "val").symlink_to(parts / "test")
    for place in ("train/loop", "train/x/loop", "test/loop", "loop0", "loop1"):
        (parts / place).symlink_to(parts)
    (parts / "train/elsewhere").symlink_to(images(tmp_path / "elsewhere", "e"))
    splits = read(parts)
    assert names(splits)["training"] == ["elsewhere/e", "x/a", "x/b"]
    assert names(splits)["testing"] == names(splits)["validation"] == ["y/c", "y/d"], "a part may be a link to another"


def test_whatever_pillow_reads_is_an_image(tmp_path):
    root = tmp_path / "things"
    endings = "jpg jpe JFIF png apng webp avif jp2 tga pbm dib pcx qoi gif".split()
    for name in "abcd":
        for ending in endings:
            write_image(root / name / f"1.{ending}", 1, (9, 8), {"pbm": "1"}.get(ending, "RGB"))
    (root / "e").mkdir()
    unread = [f"{name}/1.heic" for name in "abcd"]
    for file in (*unread, "e/2.heic", "e/3.HEIC", "a/Thumbs.db", "a/.hidden.db", "README", "list.csv"):
        (root / file).write_bytes(b"x")
    splits = read(root)
    assert len(splits["training"]) == 2 * len(endings)
    assert all(splits["training"][index][1].shape == (3, 64, 64) for index in range(len(endings)))
    expected = "9 files are not read, as their endings are none of images: 6 .heic, 1 "
    (note,) = [note for note in splits["training"].notes if note.startswith(expected)]
    assert all(f"1 {ending}" in note for ending in (".csv", "without an ending", ".db"))
    for place in "abcd":
        shutil.rmtree(root / place)
    with refused("no image. 4 files are not read.*2 .heic.*images end in .apng"):
        read(root)
