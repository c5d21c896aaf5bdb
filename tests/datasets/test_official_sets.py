"""inshop, inaturalist2018, vehicleid and the boxes of cub200: official layouts, counts, roles, and what is said of damaged ones."""

import numpy as np
import pytest
import torch

import datasets
from datasets import cub200, inaturalist2018, inshop, vehicleid
from datasets._layout import Published
from tests import builders
from tests.datasets import layouts
from utilities.errors import UserError


def select(name, source, **flags):
    return datasets.select(name, None, source, 8, **flags)


def names(split):
    return list(split.class_names.values())


def fits(monkeypatch):
    monkeypatch.setattr(inshop, "PUBLISHED", Published((3, 3), (6, 9), (6, 3), (3, 3)))
    monkeypatch.setattr(inaturalist2018, "PUBLISHED", Published((5, 3), (15, 9)))
    monkeypatch.setattr(vehicleid, "PUBLISHED", {800: Published((4, 3), (9, 10))})


def test_published_counts_are_those_of_the_papers():
    assert str(inshop.PUBLISHED) == (
        "52,712 images of 7,982 classes (training 25,882 of 3,997, test 26,830 of 3,985, query 14,218 of 3,985, gallery 12,612 of 3,985)"
    )
    assert str(inaturalist2018.PUBLISHED).startswith("461,939 images of 8,142 classes")
    assert {n: p.images for n, p in vehicleid.PUBLISHED.items()} == {800: (113346, 6493), 1600: (113346, 13377), 2400: (113346, 19777)}
    assert [module.EVALUATION_METRICS[-1] for module in (inshop, inaturalist2018, vehicleid)] == [
        "e_recall@40",
        "e_recall@32",
        "e_recall@5",
    ]


@pytest.mark.parametrize("layout", ["plain", "eval", "highres"])
@pytest.mark.parametrize("own_folder", [False, True])
def test_inshop(tmp_path, monkeypatch, capsys, layout, own_folder):
    fits(monkeypatch)
    root = layouts.make_inshop(tmp_path, layout)
    splits = select("inshop", root if own_folder else tmp_path)
    assert not capsys.readouterr().err and splits["training"].partial is None
    training, testing = splits["training"], splits["testing"]
    assert names(training) == ["00000007", "00000014", "00000021"] and names(testing) == ["00000028", "00000035", "00000042"]
    assert training.is_query.all() and training.is_gallery.all() and training.roles == {}
    assert testing.roles == {"query_images": 6, "gallery_images": 3}
    assert (testing.is_query ^ testing.is_gallery).all()
    for index, (path, _) in enumerate(testing.image_list):
        assert testing.is_gallery[index] == path.endswith("02_1_front.jpg")
    assert list(training.super_labels.values()) == ["WOMEN/Dresses", "MEN/Dresses", "WOMEN/Dresses"]
    assert testing[0][1].shape == (3, 8, 8) and testing.sequences is None and testing.role_draws is None
    assert "9 images of 3 classes; 6 are queries, 3 are in the gallery" in datasets.describe(splits)
    assert datasets.record(splits)["counts"]["testing"]["gallery_images"] == 3


def test_inshop_super_classes_train(tmp_path):
    layouts.make_inshop(tmp_path)
    training = select("inshop", tmp_path, allow_partial_dataset=True, label_level_train=1)["training"]
    assert names(training) == ["WOMEN/Dresses", "MEN/Dresses"] and len(training) == 6


def test_roles_are_of_the_own_test_set(tmp_path):
    layouts.make_inshop(tmp_path)
    splits = select("inshop", tmp_path, allow_partial_dataset=True, split_scheme="class_disjoint", split_partitions=2, split_sets=1)
    assert all(split is None or split.roles == {} for split in splits.values())
    assert any("here all images ask" in note for note in splits["training"].notes)


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


@pytest.mark.parametrize(("old", "new", "words"), [
    ("15\n", "16\n", "names 15 images, its first line says 16"),
    ("15\n", "", "expected the count in the first line"),
    ("image_name", "name", "expected 'image_name item_id evaluation_status'"),
    (" id_00000007 train", " id_00000007", "row 16: 2 fields"),
    (" id_00000007 train", " id_x train", "row 16"),
    (" id_00000007 train", " id_00000007 test", "row 16"),
    (" id_00000007 train", " id_00000028 train", "item id_00000028 is in train"),
])  # fmt: skip
def test_a_damaged_list_of_inshop_is_named(tmp_path, old, new, words):
    path = layouts.make_inshop(tmp_path) / "list_eval_partition.txt"
    edit(path, old, new)
    with pytest.raises(UserError, match=words) as caught:
        select("inshop", tmp_path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)
    if "first line says" in words:
        notes = select("inshop", tmp_path, allow_partial_dataset=True)["training"].notes
        assert any(words in note for note in notes)


@pytest.mark.parametrize("layout", ["folder", "plain"])
def test_inaturalist2018(tmp_path, monkeypatch, capsys, layout):
    fits(monkeypatch)
    root = layouts.make_inaturalist2018(tmp_path, layout)
    splits = select("inaturalist2018", root.parent)
    assert not capsys.readouterr().err
    assert names(splits["training"]) == ["Aves/2", "Aves/3", "Aves/5", "Aves/7", "Plantae/10"]
    assert names(splits["testing"]) == ["Aves/4", "Plantae/9", "Plantae/11"]
    assert list(splits["testing"].super_labels.values()) == ["Aves", "Plantae", "Plantae"] and splits["testing"].roles == {}
    lists = root / "Inat_dataset_splits" if layout == "folder" else root
    edit(lists / "Inaturalist_train_set1.txt", "train_val2018/Aves/3/030.jpg", "030.jpg")
    with pytest.raises(UserError, match=r"Inaturalist_train_set1.txt, row 1: '030.jpg'"):
        select("inaturalist2018", root)
    edit(lists / "Inaturalist_train_set1.txt", "030.jpg", "Plantae/11/110.jpg")  # the folder may be left out, and this species tests
    with pytest.raises(UserError, match="species Plantae/11 is in train and in test"):
        select("inaturalist2018", root)


@pytest.mark.parametrize(
    ("vehicles", "classes"), [(800, ["61", "77", "100"]), (1600, ["61", "77", "80", "100"]), (2400, ["61", "75", "77", "80", "100"])]
)
def test_vehicleid_lists(tmp_path, vehicles, classes):
    layouts.make_vehicleid(tmp_path)
    splits = select("vehicleid", tmp_path, allow_partial_dataset=True, vehicleid_list=vehicles, vehicleid_protocol="set")
    assert names(splits["training"]) == ["3", "9", "12", "40"] and names(splits["testing"]) == classes
    assert splits["testing"].roles == {} and splits["testing"].role_draws is None


def test_vehicleid_draws_one_image_of_each_vehicle_ten_times(tmp_path, monkeypatch):
    fits(monkeypatch)
    layouts.make_vehicleid(tmp_path, "vehicleid")
    testing = select("vehicleid", tmp_path)["testing"]
    draws, labels = testing.role_draws, np.array([label for _, label in testing.image_list])
    assert draws.shape == (10, 10) and draws.dtype == bool
    for draw in draws:
        assert np.bincount(labels[draw], minlength=3).tolist() == [1, 1, 1]
    assert (testing.is_gallery == draws[0]).all() and (testing.is_query == ~draws[0]).all()
    assert testing.roles == {"query_images": 7, "gallery_images": 3, "draws": 10}
    again = select("vehicleid", tmp_path, seed=7)["testing"].role_draws
    assert (again == draws).all(), "the draws are of the protocol, not of the run"
    assert "drawn anew 10 times" in datasets.describe(select("vehicleid", tmp_path))
    anew = select("vehicleid", tmp_path, split_scheme="class_disjoint", split_partitions=2, split_sets=2, fold=0)
    assert anew["testing"].role_draws is None and anew["testing"].roles == {}
    assert any("query and gallery are those of the data set's own test set" in note for note in anew["training"].notes)


def test_galleries_are_drawn_uniformly():
    labels = ["a"] * 4 + ["b"] + ["a"]
    draws = vehicleid.draw_galleries(labels, n_draws=4000)
    assert draws.sum() == 8000 and draws[:, 4].all()
    share = draws.mean(axis=0)[[0, 1, 2, 3, 5]]
    assert np.abs(share - 0.2).max() < 4 * (0.2 * 0.8 / 4000) ** 0.5
    assert (vehicleid.draw_galleries(labels, seed=1) != vehicleid.draw_galleries(labels)).any()


@pytest.mark.parametrize(("text", "words"), [("0000001 x\n", "expected the numbers of an image and of its vehicle"), ("0000001 9 1\n", "row 1: "),
                                             ("0000011 9\n", "vehicle 9 is in train_list.txt too"), (None, "cannot be read")])  # fmt: skip
def test_a_damaged_list_of_vehicleid_is_named(tmp_path, text, words):
    path = layouts.make_vehicleid(tmp_path) / "train_test_split" / "test_list_800.txt"
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(UserError, match=words) as caught:
        select("vehicleid", tmp_path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(("name", "maker"), [
    ("inshop", layouts.make_inshop), ("inaturalist2018", layouts.make_inaturalist2018), ("vehicleid", layouts.make_vehicleid),
])  # fmt: skip
def test_missing_images_missing_sets_and_undecodable_files(tmp_path, monkeypatch, name, maker, capsys):
    fits(monkeypatch)
    with pytest.raises(UserError, match=f"--dataset {name}: not found") as caught:
        select(name, tmp_path)
    assert "https://" in str(caught.value) and "\n" not in str(caught.value)
    maker(tmp_path)
    before = select(name, tmp_path)["testing"]
    (victim, other), count = before.paths[:2], len(before)
    (tmp_path / victim).unlink()
    with pytest.raises(UserError, match="1 listed files are missing") as caught:
        select(name, tmp_path)
    assert victim in str(caught.value) and "\n" not in str(caught.value)
    (tmp_path / other).write_bytes(b"\xff\xd8no jpeg")
    testing = select(name, tmp_path, allow_partial_dataset=True)["testing"]
    assert len(testing) == count - 1 and testing.partial and "WARNING" in capsys.readouterr().err
    with pytest.raises(UserError, match=f"image {other} cannot be decoded"):
        testing[testing.paths.index(other)]


def test_download_where_there_is_an_address(tmp_path):
    for name in ("inshop", "vehicleid"):
        with pytest.raises(UserError, match="--download: this data set has no source to fetch from: .*https://"):
            select(name, tmp_path, download=True)
    assert inaturalist2018.DOWNLOAD.archives[0].urls[0].endswith("2018/train_val2018.tar.gz")


def with_boxes(tmp_path):
    root = builders.make_cub200(tmp_path, n_classes=4, n_images=2)
    (root / "bounding_boxes.txt").write_text("".join(f"{i} {i}.0 2.0 {10 + i}.0 20.0\n" for i in range(1, 9)))
    return root


def test_cub_boxes_crop_what_is_read(tmp_path):
    root = with_boxes(tmp_path)
    plain, cut = (select("cub200", root, allow_partial_dataset=True, cub_boxes=boxes) for boxes in (False, True))
    assert plain["testing"].boxes is None and cut["testing"].boxes.tolist()[0] == [5, 2, 20, 22]
    for split in ("training", "testing", "evaluation"):
        for index in range(4):
            x, y, right, bottom = map(int, cut[split].boxes[index])
            image = cut[split].original(index)
            assert torch.equal(image, plain[split].original(index)[:, y:bottom, x:right])
            assert cut[split]._size(index) == image.shape[1:]
    assert cut["testing"].transforms_as_resolved.startswith("Box; ") and "Box" not in plain["testing"].transforms_as_resolved
    assert cut["testing"].image_list == plain["testing"].image_list


def test_boxes_with_a_cache_and_a_limited_side(tmp_path):
    root = with_boxes(tmp_path)
    flags = {"allow_partial_dataset": True, "cub_boxes": True}
    cached = select("cub200", root, image_cache=str(tmp_path / "cache"), **flags)["testing"]
    plain = select("cub200", root, **flags)["testing"]
    limited = select("cub200", root, image_cache_side=20, **flags)["testing"]
    assert all(torch.equal(cached.original(i), plain.original(i)) for i in range(4))
    assert plain.original(0).shape == (3, 20, 15) and limited.original(0).shape == (3, 10, 8)  # 40 x 30 pixels at half the size
    assert limited._size(0) == (10, 8)


def test_boxes_that_are_not_there(tmp_path):
    root = with_boxes(tmp_path)
    path = root / "bounding_boxes.txt"
    edit(path, "8 8.0", "9 8.0")
    with pytest.raises(UserError, match="has no box of image 8, 004"):
        select("cub200", root, allow_partial_dataset=True, cub_boxes=True)
    edit(path, "8.0 2.0", "x 2.0")
    with pytest.raises(UserError, match="bounding_boxes.txt, row 8"):
        select("cub200", root, allow_partial_dataset=True, cub_boxes=True)
    path.write_text("".join(f"{i} 400.0 2.0 10.0 20.0\n" for i in range(1, 9)))
    with pytest.raises(UserError, match="nothing of it lies in its box"):
        select("cub200", root, allow_partial_dataset=True, cub_boxes=True)["testing"][0]
    path.unlink()
    with pytest.raises(UserError, match="bounding_boxes.txt cannot be read"):
        select("cub200", root, allow_partial_dataset=True, cub_boxes=True)
    (root / "images.txt").unlink()
    with pytest.raises(UserError, match="--cub_boxes needs the lists"):
        select("cub200", root, allow_partial_dataset=True, cub_boxes=True)
    assert cub200.PUBLISHED.query is None
