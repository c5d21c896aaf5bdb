"""Where data sets are found, in which layouts, in which order, and what is said when they are not as published."""

import shutil

import pytest

import datasets
from datasets import _cars196_classes, cars196, cub200, online_products
from datasets._layout import Published
from tests import builders
from utilities.errors import UnknownName, UserError

MAKERS = {
    ("cub200", "official"): builders.make_cub200, ("cub200", "icml"): builders.make_cub200,
    ("cars196", "official"): builders.make_cars196, ("cars196", "icml"): builders.make_cars196,
    ("cars196", "kaggle"): builders.make_cars196,
    ("online_products", "official"): builders.make_online_products, ("online_products", "icml"): builders.make_online_products,
}  # fmt: skip


def check_split(split, n_classes, n_images):
    """The contract of one split, whatever the data set."""
    assert split.n_classes == n_classes == len(split.avail_classes) and split.avail_classes == list(range(n_classes))
    assert len(split) == len(split.image_list) == len(split.paths) == n_images == split.counts["images"]
    assert sorted(split.image_dict) == list(range(n_classes)) == sorted(split.class_names) == sorted(split.super_labels)
    for label, entries in split.image_dict.items():
        for path, index in entries:
            assert split.image_list[index] == (path, label) and split.paths[index] == path
    assert sum(map(len, split.image_dict.values())) == n_images
    label, image, index = split[n_images - 1]
    assert (label, index) == (split.image_list[-1][1], n_images - 1)
    assert image.dtype.is_floating_point is False and image.shape == (3, 64, 64)


@pytest.mark.parametrize(("name", "layout"), MAKERS)
@pytest.mark.parametrize("own_folder", [False, True])
def test_every_layout_is_read_from_the_parent_and_as_the_folder_itself(tmp_path, name, layout, own_folder, capsys):
    root = MAKERS[name, layout](tmp_path, layout=layout)
    splits = datasets.select(name, None, root if own_folder else tmp_path, 64, allow_partial_dataset=True)
    assert list(splits) == ["training", "validation", "testing", "evaluation"] and splits["validation"] is None
    n_classes = 6 if name == "online_products" else 4
    for split in ("training", "testing", "evaluation"):
        check_split(splits[split], n_classes, 24)
        assert splits[split].partial
    names = {split: set(splits[split].class_names.values()) for split in splits if splits[split] is not None}
    assert not names["training"] & names["testing"] and names["training"] == names["evaluation"]
    assert splits["training"].paths == splits["evaluation"].paths
    assert not set(splits["training"].paths) & set(splits["testing"].paths)
    assert "WARNING" in capsys.readouterr().err
    if name == "online_products":
        assert set(splits["training"].super_labels.values()) <= set(builders.PRODUCTS)
    assert datasets.describe(splits).count("images of") >= 2 and datasets.record(splits)["partial"]


@pytest.mark.parametrize(("name", "folder"), [
    ("cub200", "cub2011/CUB_200_2011"), ("cub200", "cub200"), ("online_products", "online_products"),
])  # fmt: skip
def test_official_releases_under_every_name(tmp_path, name, folder):
    root = MAKERS[name, "official"](tmp_path / "made", layout="official")
    shutil.copytree(root, tmp_path / "source" / folder)
    splits = datasets.select(name, None, tmp_path / "source", allow_partial_dataset=True)
    assert splits["training"].root == str(tmp_path / "source" / folder)


@pytest.mark.parametrize("name", ["cub200", "cars196", "online_products"])
def test_layouts_agree(tmp_path, name):
    there = [key for key in MAKERS if key[0] == name]
    read = [datasets.select(name, None, MAKERS[key](tmp_path / key[1], layout=key[1]), allow_partial_dataset=True) for key in there]
    for split in ("training", "testing"):
        assert len({str(splits[split].class_names) for splits in read}) == 1
        assert len({str(splits[split].super_labels) for splits in read}) == 1
        sizes = [{label: len(entries) for label, entries in splits[split].image_dict.items()} for splits in read]
        assert all(size == sizes[0] for size in sizes)


def test_classes_come_in_the_order_of_their_ids_not_of_their_names(tmp_path):
    root = builders.make_cub200(tmp_path, layout="official", n_classes=12)
    splits = datasets.select("cub200", None, tmp_path, allow_partial_dataset=True)
    assert [name[:3] for name in splits["training"].class_names.values()] == [f"{c:03d}" for c in range(1, 7)]
    lists = root / "image_class_labels.txt"  # ids turned round: the lists decide, not the folders
    turned = [f"{line.split()[0]} {13 - int(line.split()[1])}" for line in lists.read_text().splitlines()]
    lists.write_text("\n".join(turned))
    (root / "classes.txt").unlink()
    splits = datasets.select("cub200", None, tmp_path, allow_partial_dataset=True)
    assert [name[:3] for name in splits["training"].class_names.values()] == [f"{c:03d}" for c in range(12, 6, -1)]


def test_cars_named_folders_get_the_official_order(tmp_path):
    assert len(set(_cars196_classes.NAMES)) == 196 and set(_cars196_classes.NAMES[:98]) == set(sorted(_cars196_classes.NAMES)[:98])
    names = ["Acura Integra Type R 2001", "Acura TSX Sedan 2012", "Ram C-V Cargo Van Minivan 2012", "Unheard Of 2030"]
    builders.make_folder(tmp_path / "cars196" / "images", names=sorted(names, reverse=True))
    splits = datasets.select("cars196", None, tmp_path, allow_partial_dataset=True)
    assert list(splits["training"].class_names.values()) == ["Acura TSX Sedan 2012", "Acura Integra Type R 2001"]  # ids 5 and 6
    assert list(splits["testing"].class_names.values()) == names[2:]


@pytest.mark.parametrize(("name", "layout"), [("cub200", "icml"), ("cub200", "official"), ("cars196", "icml"), ("cars196", "kaggle")])
def test_stray_files_and_folders_do_not_shift_the_split(tmp_path, name, layout):
    root = MAKERS[name, layout](tmp_path, layout=layout)
    before = datasets.select(name, None, tmp_path, allow_partial_dataset=True)
    images = root / "images" if layout != "kaggle" else root / "car_data/car_data/train"
    some_class = next(path for path in sorted(images.iterdir()) if path.is_dir())
    for stray in (images / ".DS_Store", images / "._x", images / "notes.txt", some_class / "._0.jpg", some_class / "Thumbs.db"):
        stray.write_bytes(b"x")
    (images / "000_notes").mkdir()
    (images / "000_notes" / "readme.txt").write_text("no image")
    (images / ".cache").mkdir()
    builders.write_image(images / "__MACOSX" / "a.jpg", 1)
    if name == "cub200":
        builders.write_image(images / "extra" / "a.jpg", 1)  # a folder of images without an id
    after = datasets.select(name, None, tmp_path, allow_partial_dataset=True)
    for split in ("training", "testing"):
        assert after[split].image_list == before[split].image_list and after[split].class_names == before[split].class_names


@pytest.mark.parametrize(("name", "module", "layout"), [
    ("cub200", cub200, "official"), ("cub200", cub200, "icml"), ("cars196", cars196, "official"),
    ("online_products", online_products, "icml"),
])  # fmt: skip
def test_counts_are_held_against_the_published_ones(tmp_path, monkeypatch, capsys, name, module, layout):
    root = MAKERS[name, layout](tmp_path, layout=layout)
    n = 6 if name == "online_products" else 4
    monkeypatch.setattr(module, "PUBLISHED", Published((n, n), (24, 24)))
    splits = datasets.select(name, None, tmp_path)
    assert splits["training"].partial is None and not capsys.readouterr().err
    victim = splits["testing"].paths[0]
    (root / victim).unlink()
    with pytest.raises(UserError) as caught:
        datasets.select(name, None, tmp_path)
    message = str(caught.value)
    assert "47 images" in message and "48 images" in message and "--allow_partial_dataset" in message and "\n" not in message
    assert str(root) in message and "http" in message
    splits = datasets.select(name, None, tmp_path, allow_partial_dataset=True)
    assert len(splits["testing"]) == 23 and "47 images" in splits["testing"].partial
    assert "WARNING" in capsys.readouterr().err and "PARTIAL" in datasets.describe(splits)


def test_published_counts():
    for module, classes, images, halves in (
        (cub200, 200, 11788, (5864, 5924)), (cars196, 196, 16185, (8054, 8131)), (online_products, 22634, 120053, (59551, 60502)),
    ):  # fmt: skip
        assert (sum(module.PUBLISHED.classes), sum(module.PUBLISHED.images), module.PUBLISHED.images) == (classes, images, halves)
    assert online_products.PUBLISHED.classes == (11318, 11316)


@pytest.mark.parametrize("name", ["cub200", "cars196", "online_products"])
def test_a_missing_data_set_is_one_line_that_says_what_was_expected_where(tmp_path, name):
    with pytest.raises(UserError) as caught:
        datasets.select(name, None, tmp_path)
    message = str(caught.value)
    assert str(tmp_path / name) in message and "--download" in message and "http" in message and "--source" in message
    assert "\n" not in message


def test_unknown_data_set():
    with pytest.raises(UnknownName, match="cub200"):
        datasets.select("cub20")


def test_damaged_lists(tmp_path):
    root = builders.make_cub200(tmp_path, layout="official")
    (root / "images.txt").write_text("1 a/b.jpg\n2\n")
    with pytest.raises(UserError, match="row 2"):
        datasets.select("cub200", None, tmp_path, allow_partial_dataset=True)
    root = builders.make_online_products(tmp_path, layout="official")
    (root / "Ebay_test.txt").unlink()
    with pytest.raises(UserError, match="Ebay_test.txt"):
        datasets.select("online_products", None, tmp_path, allow_partial_dataset=True)
    root = builders.make_cars196(tmp_path, layout="official")
    (root / "cars_annos.mat").write_bytes(b"nothing")
    with pytest.raises(UserError, match="cars_annos.mat"):
        datasets.select("cars196", None, tmp_path, allow_partial_dataset=True)


@pytest.mark.parametrize(
    "name,file,content,words",
    [
        ("cub200", "image_class_labels.txt", b"1 1\n2 x\n", "row 2: '2 x', expected image, label: the file is damaged"),
        ("cub200", "images.txt", b"x 001.A/0.jpg\n", "row 1: 'x 001.A/0.jpg', expected image, file"),
        ("cub200", "images.txt", b"1 001.A/0.jpg 3\n", "expected image, file"),
        ("cub200", "classes.txt", b"1 001.A\n\xff 002.B\n", "classes.txt: byte 8 is no text in UTF-8"),
        (
            "online_products",
            "Ebay_train.txt",
            b"image_id class_id super_class_id path\n1 x 1 bicycle_final/1.JPG\n",
            "row 2: '1 x 1 bicycle_final",
        ),
    ],
)
def test_a_damaged_list_is_one_line(tmp_path, name, file, content, words):
    root = getattr(builders, f"make_{name}")(tmp_path, layout="official")
    (root / file).write_bytes(content)
    with pytest.raises(UserError, match=words):
        datasets.select(name, None, tmp_path, allow_partial_dataset=True)


def test_folder(tmp_path):
    root = builders.make_folder(tmp_path / "things", n_classes=5, n_images=3)
    splits = datasets.select("folder", dataset_folder_path=str(root), input_size=64)
    check_split(splits["training"], 2, 6)
    check_split(splits["testing"], 3, 9)
    assert list(splits["training"].class_names.values()) == ["class_0", "class_1"] and splits["training"].partial is None
    with pytest.raises(UserError, match="--dataset_folder_path"):
        datasets.select("folder")
    with pytest.raises(UserError, match="no such folder"):
        datasets.select("folder", dataset_folder_path=str(tmp_path / "gone"))
    shutil.rmtree(root / "class_1")
    for c in (2, 3, 4):
        shutil.rmtree(root / f"class_{c}")
    with pytest.raises(UserError, match="1 classes"):
        datasets.select("folder", dataset_folder_path=str(root))


def test_an_empty_class_is_named(tmp_path):
    root = builders.make_folder(tmp_path / "things", n_classes=4, n_images=2)
    (root / "class_1b").mkdir()
    (root / "class_1b" / ".DS_Store").write_bytes(b"x")
    with pytest.raises(UserError, match="class_1b holds no image"):
        datasets.select("folder", dataset_folder_path=str(root))
    splits = datasets.select("folder", dataset_folder_path=str(root), allow_partial_dataset=True)
    assert len(splits["training"].class_names) == 2 and any("class_1b" in note for note in splits["training"].notes)


def test_classes_with_one_image_are_allowed_and_counted(tmp_path):
    root = builders.make_folder(tmp_path / "things", n_classes=4, n_images=2)
    builders.write_image(root / "class_0b" / "only.png", 1)
    splits = datasets.select("folder", dataset_folder_path=str(root))
    assert splits["training"].counts == {"images": 3, "classes": 2, "single_image_classes": 1}
    assert "1 of them with a single image" in datasets.describe(splits)


def test_a_published_count_may_be_unknown():
    found = Published((2, 3), (20, 31), (10, 3), (21, 3))
    assert Published((2, None), (20, 31), (10, None), (21, 3)).fits(found) and found.fits(found)
    assert not Published((2, None), (20, 30), (10, None), (21, 3)).fits(found)
    assert str(Published((2, None), (20, 31))) == "images of classes (training 20 of 2, test 31 of unknown)"
