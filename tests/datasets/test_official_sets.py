"""Official layouts in small, with roles, cameras, distractors and boxes; re-identification on glyphs."""

import json

import numpy as np
import pytest
import torch

import architectures
import datasets
import evaluation
import parameters
from datasets import vehicleid
from engine.runtime import Runtime
from evaluation import from_splits, outputs
from tests.datasets import layouts
from tests.datasets.layouts import names, partial
from tests.kit.data_sets import make_cub200
from tests.kit.refusals import refused


@pytest.mark.parametrize("layout", ["plain", "eval", "highres"])
def test_inshop(tmp_path, layout):
    root = layouts.make_inshop(tmp_path, layout)
    assert partial("inshop", root)["testing"].paths == partial("inshop", tmp_path)["testing"].paths
    splits = partial("inshop", tmp_path)
    training = splits["training"]
    testing = splits["testing"]
    items = [f"{item * 7:08d}" for item in range(1, 7)]
    assert names(splits) == {"training": items[:3], "testing": items[3:]}
    assert training.is_query.all() and training.is_gallery.all() and training.roles == {}
    assert testing.roles == {"query_images": 6, "gallery_images": 3} and (testing.is_query ^ testing.is_gallery).all()
    assert testing.is_gallery.tolist() == [path.endswith("02_1_front.jpg") for path in testing.paths]
    assert list(training.super_labels.values()) == ["WOMEN/Dresses", "MEN/Dresses", "WOMEN/Dresses"]
    assert datasets.record(splits)["counts"]["testing"]["gallery_images"] == 3
    supers = partial("inshop", tmp_path, label_level_train=1)
    assert names(supers)["training"] == ["WOMEN/Dresses", "MEN/Dresses"] and len(supers["training"]) == 6
    # roles are of the data set's own test set
    anew = partial("inshop", tmp_path, split_scheme="class_disjoint", split_partitions=2, split_sets=1)
    assert all(split is None or split.roles == {} for split in anew.values())
    assert any("here every image has both" in note for note in anew["training"].notes)


def taxon(number):
    """A category of train2018.json. Prunella is a genus of birds and one of plants."""
    ranks = "Plantae Tracheophyta Magnoliopsida Lamiales Lamiaceae Prunella"
    if number < 8:
        family = "Prunellidae Prunella" if number < 4 else "Paridae Parus"
        ranks = f"Animalia Chordata Aves Passeriformes {family}"
    taxon = dict(zip(("kingdom", "phylum", "class", "order", "family", "genus"), ranks.split(), strict=True))
    return taxon | {"id": number, "name": f"species {number}", "supercategory": "Aves" if number < 8 else "Plantae"}


@pytest.mark.parametrize("layout", ["folder", "plain"])
def test_inaturalist2018_and_all_its_levels(tmp_path, layout):
    root = layouts.make_inaturalist2018(tmp_path, layout)
    base = partial("inaturalist2018", tmp_path)
    assert names(base) == {
        "training": ["Aves/2", "Aves/3", "Aves/5", "Aves/7", "Plantae/10"],
        "testing": ["Aves/4", "Plantae/9", "Plantae/11"],
    }
    assert list(base["testing"].super_labels.values()) == ["Aves", "Plantae", "Plantae"] and base["testing"].roles == {}
    taxa = {"images": [], "categories": list(map(taxon, (2, 3, 4, 5, 7, 9, 10, 11)))}
    (root / "train2018.json").write_text(json.dumps(taxa))
    splits = partial("inaturalist2018", root, inaturalist2018_levels="full")
    assert names(splits) == names(base)
    assert all(splits[split].paths == base[split].paths for split in ("training", "testing"))
    ranks = "Plantae/Tracheophyta/Magnoliopsida/Lamiales/Lamiaceae/Prunella".split("/")
    lineage = ["/".join(ranks[:depth]) for depth in range(6, 0, -1)]
    assert ("Plantae/9", *lineage) in splits["testing"].lineages
    levels = zip(*splits["training"].lineages | splits["testing"].lineages, strict=True)
    assert [len(set(level)) for level in levels] == [8, 3, 3, 2, 2, 2, 2]
    training = partial("inaturalist2018", root, inaturalist2018_levels="full", label_level_train=1)["training"]
    assert len(training.lineages) == training.n_classes == 3 and {len(row) for row in training.lineages} == {6}


def test_vehicleid_draws_one_image_of_each_vehicle_ten_times(tmp_path):
    layouts.make_vehicleid(tmp_path)
    testing = partial("vehicleid", tmp_path)["testing"]
    draws = testing.role_draws
    labels = np.array([label for _, label in testing.image_list])
    assert draws.shape == (10, 10) and draws.dtype == bool
    assert all(np.bincount(labels[draw], minlength=3).tolist() == [1, 1, 1] for draw in draws)
    assert (testing.is_gallery == draws[0]).all() and (testing.is_query == ~draws[0]).all()
    assert testing.roles == {"query_images": 7, "gallery_images": 3, "draws": 10}
    # the draws are of the protocol, not of the run
    assert (partial("vehicleid", tmp_path, seed=7)["testing"].role_draws == draws).all()
    anew = partial("vehicleid", tmp_path, split_scheme="class_disjoint", split_partitions=2, split_sets=2, fold=0)
    assert anew["testing"].role_draws is None and anew["testing"].roles == {}
    for vehicles, classes in ((800, "61 77 100"), (1600, "61 77 80 100"), (2400, "61 75 77 80 100")):
        splits = partial("vehicleid", tmp_path, vehicleid_list=vehicles, vehicleid_protocol="set")
        assert names(splits) == {"training": ["3", "9", "12", "40"], "testing": classes.split()}
        assert splits["testing"].roles == {} and splits["testing"].role_draws is None
    draws = vehicleid.draw_galleries(["a"] * 4 + ["b"] + ["a"], n_draws=4000)
    assert draws.sum() == 8000 and draws[:, 4].all()
    assert np.abs(draws.mean(axis=0)[[0, 1, 2, 3, 5]] - 0.2).max() < 4 * (0.2 * 0.8 / 4000) ** 0.5, "uniformly"


def test_cub_boxes_crop_what_is_read(tmp_path):
    root = make_cub200(tmp_path, n_classes=4, n_images=2)
    (root / "bounding_boxes.txt").write_text("".join(f"{i} {i}.0 2.0 {10 + i}.0 20.0\n" for i in range(1, 9)))
    plain = partial("cub200", root)
    cut = partial("cub200", root, cub_boxes=True)
    cached = partial("cub200", root, cub_boxes=True, image_cache=str(tmp_path / "cache"))
    assert plain["testing"].boxes is None and cut["testing"].boxes.tolist()[0] == [5, 2, 20, 22]
    for split in ("training", "testing", "evaluation"):
        for index in range(4):
            x, y, right, bottom = map(int, cut[split].boxes[index])
            image = cut[split].original(index)
            assert torch.equal(image, plain[split].original(index)[:, y:bottom, x:right])
            assert torch.equal(image, cached[split].original(index)) and cut[split]._size(index) == image.shape[1:]
    assert cut["testing"].transforms_as_resolved.startswith("Box; ")
    assert "Box" not in plain["testing"].transforms_as_resolved
    limited = partial("cub200", root, cub_boxes=True, image_cache_side=20)["testing"]
    # Images of 40 x 30 pixels are held at half the size, and their boxes with them
    assert limited.original(0).shape == (3, 10, 8) and limited._size(0) == (10, 8)
    (root / "images.txt").unlink()
    with refused("--cub_boxes needs the lists"):
        partial("cub200", root, cub_boxes=True)


MAKERS = {"market1501": layouts.make_market1501, "msmt17": layouts.make_msmt17, "veri776": layouts.make_veri776}


def files(split, rows):
    return {split.paths[row].rpartition("/")[2].removesuffix(".jpg") for row in np.flatnonzero(rows)}


def camera(split, row):
    return split.sequence_names[int(split.sequences[row])]


def findable(testing, opt):
    """How many images are relevant to each query, and how many take a rank."""
    images = from_splits.images_of({"test": testing})
    return from_splits.tasks(images, opt.but(splits_to_eval=["test"]))["test"].findable()


def test_market1501(tmp_path):
    layouts.make_market1501(tmp_path, distractors=5)
    splits = partial("market1501", tmp_path)
    training = splits["training"]
    testing = splits["testing"]
    assert names(splits) == {"training": ["0002", "0007"], "testing": ["test_0001", "test_0003"]}
    assert len(training) == 4 and training.roles == {} and splits["validation"] is None
    assert files(testing, testing.is_query) == set(layouts.MARKET["query"])
    gallery = {name for name in layouts.MARKET["bounding_box_test"] if not name.startswith("-1")}
    assert files(testing, testing.is_gallery) == gallery
    assert files(testing, testing.is_distractor) == {"0000_c1s1_000151_01", "0000_c6s3_095000_05"}
    assert (testing.sequences[testing.is_distractor] == -1).all()
    assert "gallery; 2 distractors, without a class" in datasets.describe(splits)
    for row in np.flatnonzero(~testing.is_distractor):
        file = testing.paths[row].rpartition("/")[2]
        assert camera(testing, row) == f"test_{file[:4]} camera {file[6]}"
    with_distractors = partial("market1501", tmp_path, market1501_distractors=True)["testing"]
    assert with_distractors.counts["distractors"] == 7 and len(with_distractors) == len(testing) + 5
    # of the training identities
    splits = partial("market1501", tmp_path, split_scheme="class_disjoint", split_partitions=2, split_sets=1)
    assert names(splits) == {"training": ["0007"], "validation": ["0002"], "testing": ["test_0001", "test_0003"]}
    assert splits["testing"].roles == {"query_images": 3, "gallery_images": 6}


def test_pictures_of_neighbours_among_which_are_distractors(tmp_path, monkeypatch, with_pictures):
    colours = []
    monkeypatch.setattr("pictures.neighbours._tile", lambda *tile: colours.append(tile[4]["s"]))
    layouts.make_market1501(tmp_path, distractors=3)
    words = f"--dataset market1501 --source {tmp_path} --market1501_distractors --allow_partial_dataset --kernels 0"
    small = "--arch conv4_normalize --embed_dim 4 --resize_size 18 --crop_size 16 --splits_to_eval test"
    opt = parameters.read([*words.split(), *small.split()])
    runtime = Runtime(opt)
    network = architectures.select(opt.arch, opt)
    embedded = evaluation.embed_all(network, evaluation.loaders(datasets.select("market1501", opt), opt), opt, runtime)
    paths = outputs.draw_pictures(tmp_path, embedded, "test", opt, "Group")
    assert {"distractor", "test_0001"} <= set(colours) and "cmc.png" in {path.name for path in paths}
    assert 0 <= evaluation.score(embedded, opt, runtime)["test"]["inp"] <= 1


def test_a_query_of_veri776_in_the_gallery_is_one_image(tmp_path):
    layouts.make_veri776(tmp_path)
    splits = partial("veri776", tmp_path)
    testing = splits["testing"]
    assert names(splits) == {"training": ["0001", "0002"], "testing": ["test_0005", "test_0009"]} and len(testing) == 6
    assert files(testing, testing.is_query & testing.is_gallery) == {"0005_c001_00016450_0", "0005_c003_00013960_0"}
    assert files(testing, ~testing.is_gallery) == {"0009_c004_00019200_0"}
    opt = parameters.read(["--dataset", "veri776", "--source", str(tmp_path)])
    assert findable(testing, opt)[0].tolist() == [2, 1, 2], "neither the query itself nor those of its camera"


@pytest.mark.parametrize("version", ["V1", "V2"])
def test_msmt17(tmp_path, version):
    layouts.make_msmt17(tmp_path, version)
    splits = partial("msmt17", tmp_path)
    training, validation, testing = (splits[split] for split in ("training", "validation", "testing"))
    assert names(splits) == {"training": ["0", "1", "2"], "validation": ["0", "2"], "testing": ["test_0", "test_1"]}
    assert [len(split) for split in (training, validation, testing)] == [6, 4, 6]
    assert validation.roles == {} and testing.roles == {"query_images": 2, "gallery_images": 4}
    assert camera(testing, int(np.flatnonzero(testing.is_query)[0])) == "test_0 camera 01"
    assert any(f"MSMT17 {version}" in note and ("blurred" in note) == (version == "V2") for note in training.notes)
    combined = partial("msmt17", tmp_path, msmt17_combined=True)
    assert combined["validation"] is None and len(combined["training"]) == 10
    assert combined["testing"].paths == testing.paths


@pytest.mark.parametrize("name", MAKERS)
def test_what_is_measured(tmp_path, name):
    words = ["--dataset", name, "--source", str(MAKERS[name](tmp_path))]
    opt = parameters.read(words)
    assert opt.evaluation_metrics == ["e_recall@1", "e_recall@5", "e_recall@10", "ap", "inp"]
    assert opt.eval_skip_unmatched == 1
    assert parameters.read([*words, "--eval_skip_unmatched", "0"]).eval_skip_unmatched == 0


def test_glyphs_across_fonts(few_glyphs):
    splits = datasets.select("glyphs", None, few_glyphs, glyphs_protocol="reid")
    plain = datasets.select("glyphs", None, few_glyphs)
    for split in ("training", "testing"):
        images = splits[split]
        assert images.image_list == plain[split].image_list and plain[split].roles == {}
        assert (images.is_query ^ images.is_gallery).all() and images.is_query.sum() * 4 == len(images)
        faces = np.array([path.rpartition("/")[2].removesuffix(".png") for path in images.paths])
        assert set(faces[images.is_query]) == {"DejaVuSans", "DejaVuSansMono", "DejaVuSerif", "STIXGeneral"}
        hidden = faces[images.sequences == images.sequences[np.flatnonzero(images.is_query)[1]]]
        assert hidden.tolist() == [f"DejaVuSansMono{style}" for style in ("", "-Bold", "-Oblique", "-BoldOblique")]
    opt = parameters.read(["--dataset", "glyphs", "--glyphs_protocol", "reid"])
    assert opt.evaluation_metrics[-2:] == ["ap", "inp"] and opt.eval_skip_unmatched == 1
    relevant, ranked = findable(splits["testing"], opt)
    assert set(relevant.tolist()) == {9} and set(ranked.tolist()) == {len(splits["testing"]) * 3 // 4 - 3}


def test_cuhk03(tmp_path):
    root = layouts.make_cuhk03(tmp_path)
    splits = partial("cuhk03", tmp_path)
    testing = splits["testing"]
    assert names(splits) == {"training": ["1", "2"], "testing": ["test_844", "test_1284"]}
    queries = {path.rpartition("/")[2] for path, role in zip(testing.paths, testing.is_query, strict=True) if role}
    assert queries == {"2_001_1_01.png", "2_001_2_06.png", "3_001_1_01.png"}
    assert testing.roles == {"query_images": 3, "gallery_images": 3}
    assert camera(testing, 0) == "test_844 camera 1" and "images_detected" in testing.paths[0]
    with refused("cuhk03_new_protocol_config_labeled.mat .*--cuhk03_boxes labeled needs it"):
        partial("cuhk03", root, cuhk03_boxes="labeled")
