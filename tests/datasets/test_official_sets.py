"""inshop, inaturalist2018, vehicleid and the boxes of cub200: official layouts, counts, roles, and what is said of damaged ones."""

import json

import numpy as np
import pytest
import torch

import datasets
from datasets import inaturalist2018, inshop, vehicleid
from datasets._layout import Published
from tests import builders
from tests.datasets import layouts
from tests.datasets.layouts import names, refused


def select(name, source, **flags):
    return datasets.select(name, None, source, 8, **flags)


def partial(name, source, **flags):
    return select(name, source, allow_partial_dataset=True, **flags)


@pytest.fixture
def fits(monkeypatch):
    """The counts of the small sets are the published ones."""
    monkeypatch.setattr(inshop, "PUBLISHED", Published((3, 3), (6, 9), (6, 3), (3, 3)))
    monkeypatch.setattr(inaturalist2018, "PUBLISHED", Published((5, 3), (15, 9)))
    monkeypatch.setattr(vehicleid, "PUBLISHED", {**vehicleid.PUBLISHED, 800: Published((4, 3), (9, 10))})


@pytest.mark.parametrize("layout", ["plain", "eval", "highres"])
def test_inshop(tmp_path, fits, capsys, layout):
    root = layouts.make_inshop(tmp_path, layout)
    for source in (root, tmp_path):
        splits = select("inshop", source)
        assert not capsys.readouterr().err and splits["training"].partial is None
    training, testing = splits["training"], splits["testing"]
    assert names(splits) == {"training": ["00000007", "00000014", "00000021"], "testing": ["00000028", "00000035", "00000042"]}
    assert training.is_query.all() and training.is_gallery.all() and training.roles == {}
    assert testing.roles == {"query_images": 6, "gallery_images": 3} and (testing.is_query ^ testing.is_gallery).all()
    assert testing.is_gallery.tolist() == [path.endswith("02_1_front.jpg") for path in testing.paths]
    assert list(training.super_labels.values()) == ["WOMEN/Dresses", "MEN/Dresses", "WOMEN/Dresses"]
    assert datasets.record(splits)["counts"]["testing"]["gallery_images"] == 3
    supers = partial("inshop", tmp_path, label_level_train=1)
    assert names(supers)["training"] == ["WOMEN/Dresses", "MEN/Dresses"] and len(supers["training"]) == 6
    anew = partial("inshop", tmp_path, split_scheme="class_disjoint", split_partitions=2, split_sets=1)
    assert all(split is None or split.roles == {} for split in anew.values()), "roles are of the data set's own test set"
    assert any("here all images ask" in note for note in anew["training"].notes)


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_a_damaged_list_is_named(tmp_path):
    path = layouts.make_inshop(tmp_path) / "list_eval_partition.txt"
    whole = path.read_text()
    for old, new, words in (
        ("15\n", "16\n", "names 15 images, its first line says 16"), ("15\n", "", "expected the count in the first line"),
        (" id_00000007 train", " id_00000007", "row 16: 2 fields"), (" id_00000007 train", " id_x train", "row 16"),
        (" id_00000007 train", " id_00000007 test", "row 16"), (" id_00000007 train", " id_00000028 train", "item id_00000028 is in train"),
    ):  # fmt: skip
        edit(path, old, new)
        with refused(words, path):
            select("inshop", tmp_path)
        path.write_text(whole)
    path = layouts.make_vehicleid(tmp_path) / "train_test_split" / "test_list_800.txt"
    for text, words in (("0000001 x\n", "expected the numbers of an image and of its vehicle"), ("0000011 9\n", "vehicle 9 is in train_list.txt too")):
        path.write_text(text)
        with refused(words, path):
            select("vehicleid", tmp_path)


RANKS = ("kingdom", "phylum", "class", "order", "family", "genus")
BIRD, PLANT = ("Animalia", "Chordata", "Aves", "Passeriformes"), ("Plantae", "Tracheophyta", "Magnoliopsida", "Lamiales")


def taxon(number):
    """A category of train2018.json. Prunella is a genus of birds and one of plants."""
    ranks = (*BIRD, "Prunellidae", "Prunella") if number < 4 else (*BIRD, "Paridae", "Parus") if number < 8 else (*PLANT, "Lamiaceae", "Prunella")
    return {"id": number, "name": f"species {number}", "supercategory": "Aves" if number < 8 else "Plantae", **dict(zip(RANKS, ranks, strict=True))}


def test_inaturalist2018_with_all_levels(tmp_path, fits):
    root = layouts.make_inaturalist2018(tmp_path)
    with refused("train2018.json cannot be read .*train2018.json.tar.gz"):
        select("inaturalist2018", root, inaturalist2018_levels="full")
    path = root / "train2018.json"
    path.write_text(json.dumps({"images": [], "categories": list(map(taxon, (2, 3, 4, 5, 7, 9, 10, 11)))}))
    splits, base = select("inaturalist2018", root, inaturalist2018_levels="full"), select("inaturalist2018", root)
    assert names(splits) == names(base) and all(splits[split].paths == base[split].paths for split in ("training", "testing"))
    lamiales = ["Plantae/Tracheophyta/Magnoliopsida/Lamiales", "Plantae/Tracheophyta/Magnoliopsida", "Plantae/Tracheophyta", "Plantae"]
    family = f"{lamiales[0]}/Lamiaceae"
    assert ("Plantae/9", f"{family}/Prunella", family, *lamiales) in splits["testing"].lineages
    assert [len(set(level)) for level in zip(*splits["training"].lineages | splits["testing"].lineages, strict=True)] == [8, 3, 3, 2, 2, 2, 2]
    training = select("inaturalist2018", root, inaturalist2018_levels="full", label_level_train=1)["training"]
    assert len(training.lineages) == training.n_classes == 3 and {len(row) for row in training.lineages} == {6}
    for text, words in ((json.dumps({"categories": [taxon(2), taxon(3)]}), "no id"), ('{"categories": [{"id": 2}]}', "expected JSON"), ("{", "restore it")):
        path.write_text(text)
        with refused(words, path):
            select("inaturalist2018", root, inaturalist2018_levels="full")


@pytest.mark.parametrize("layout", ["folder", "plain"])
def test_inaturalist2018(tmp_path, fits, capsys, layout):
    root = layouts.make_inaturalist2018(tmp_path, layout)
    splits = select("inaturalist2018", tmp_path)
    assert not capsys.readouterr().err
    species = {"training": ["Aves/2", "Aves/3", "Aves/5", "Aves/7", "Plantae/10"], "testing": ["Aves/4", "Plantae/9", "Plantae/11"]}
    assert names(splits) == species
    assert list(splits["testing"].super_labels.values()) == ["Aves", "Plantae", "Plantae"] and splits["testing"].roles == {}
    path = (root / "Inat_dataset_splits" if layout == "folder" else root) / "Inaturalist_train_set1.txt"
    edit(path, "train_val2018/Aves/3/030.jpg", "030.jpg")
    with refused(r"Inaturalist_train_set1.txt, row 1: '030.jpg'"):
        select("inaturalist2018", root)
    edit(path, "030.jpg", "Plantae/11/110.jpg")  # the folder may be left out, and this species tests
    with refused("species Plantae/11 is in train and in test"):
        select("inaturalist2018", root)


def test_vehicleid_draws_one_image_of_each_vehicle_ten_times(tmp_path, fits):
    layouts.make_vehicleid(tmp_path)
    splits = select("vehicleid", tmp_path)
    testing = splits["testing"]
    draws, labels = testing.role_draws, np.array([label for _, label in testing.image_list])
    assert draws.shape == (10, 10) and draws.dtype == bool
    assert all(np.bincount(labels[draw], minlength=3).tolist() == [1, 1, 1] for draw in draws)
    assert (testing.is_gallery == draws[0]).all() and (testing.is_query == ~draws[0]).all()
    assert testing.roles == {"query_images": 7, "gallery_images": 3, "draws": 10}
    assert (select("vehicleid", tmp_path, seed=7)["testing"].role_draws == draws).all(), "the draws are of the protocol, not of the run"
    anew = select("vehicleid", tmp_path, split_scheme="class_disjoint", split_partitions=2, split_sets=2, fold=0)
    assert anew["testing"].role_draws is None and anew["testing"].roles == {}
    for vehicles, classes in ((800, ["61", "77", "100"]), (1600, ["61", "77", "80", "100"]), (2400, ["61", "75", "77", "80", "100"])):
        splits = partial("vehicleid", tmp_path, vehicleid_list=vehicles, vehicleid_protocol="set")
        assert names(splits) == {"training": ["3", "9", "12", "40"], "testing": classes}
        assert splits["testing"].roles == {} and splits["testing"].role_draws is None


def test_galleries_are_drawn_uniformly():
    labels = ["a"] * 4 + ["b"] + ["a"]
    draws = vehicleid.draw_galleries(labels, n_draws=4000)
    assert draws.sum() == 8000 and draws[:, 4].all()
    assert np.abs(draws.mean(axis=0)[[0, 1, 2, 3, 5]] - 0.2).max() < 4 * (0.2 * 0.8 / 4000) ** 0.5


@pytest.mark.parametrize(("module", "maker", "last"), [
    (inshop, layouts.make_inshop, "e_recall@40"), (inaturalist2018, layouts.make_inaturalist2018, "e_recall@32"),
    (vehicleid, layouts.make_vehicleid, "e_recall@5"),
])  # fmt: skip
def test_missing_images_and_missing_sets(tmp_path, fits, module, maker, last, capsys):
    name = module.__name__.rpartition(".")[2]
    with refused(f"--dataset {name}: not found", "https://"):
        select(name, tmp_path)
    if not module.DOWNLOAD.archives:
        with refused("--download: this data set has no source to fetch from: .*https://"):
            select(name, tmp_path, download=True)
    assert module.EVALUATION_METRICS[-1] == last
    maker(tmp_path)
    before = select(name, tmp_path)["testing"]
    (tmp_path / before.paths[0]).unlink()
    with refused("1 listed files are missing", before.paths[0]):
        select(name, tmp_path)
    testing = partial(name, tmp_path)["testing"]
    assert len(testing) == len(before) - 1 and testing.partial and "WARNING" in capsys.readouterr().err


def test_cub_boxes_crop_what_is_read(tmp_path):
    root = builders.make_cub200(tmp_path, n_classes=4, n_images=2)
    path = root / "bounding_boxes.txt"
    path.write_text("".join(f"{i} {i}.0 2.0 {10 + i}.0 20.0\n" for i in range(1, 9)))
    cache = {"image_cache": str(tmp_path / "cache")}
    plain, cut, cached = (partial("cub200", root, **flags) for flags in ({}, {"cub_boxes": True}, {"cub_boxes": True, **cache}))
    assert plain["testing"].boxes is None and cut["testing"].boxes.tolist()[0] == [5, 2, 20, 22]
    for split in ("training", "testing", "evaluation"):
        for index in range(4):
            x, y, right, bottom = map(int, cut[split].boxes[index])
            image = cut[split].original(index)
            assert torch.equal(image, plain[split].original(index)[:, y:bottom, x:right]) and torch.equal(image, cached[split].original(index))
            assert cut[split]._size(index) == image.shape[1:]
    assert cut["testing"].transforms_as_resolved.startswith("Box; ") and "Box" not in plain["testing"].transforms_as_resolved
    assert cut["testing"].image_list == plain["testing"].image_list
    limited = partial("cub200", root, cub_boxes=True, image_cache_side=20)["testing"]
    assert limited.original(0).shape == (3, 10, 8) and limited._size(0) == (10, 8)  # 40 x 30 pixels at half the size
    edit(path, "8 8.0", "9 8.0")
    with refused("has no box of image 8, 004"):
        partial("cub200", root, cub_boxes=True)
    edit(path, "8.0 2.0", "x 2.0")
    with refused("bounding_boxes.txt, row 8"):
        partial("cub200", root, cub_boxes=True)
    (root / "images.txt").unlink()
    with refused("--cub_boxes needs the lists"):
        partial("cub200", root, cub_boxes=True)
