"""Re-identification: official layouts in small, roles, cameras, distractors; glyphs."""

import numpy as np
import pytest

import architectures
import datasets
import evaluation
import parameters
from evaluation import galleries, outputs, spaces
from tests.datasets import layouts
from tests.datasets.layouts import names
from training.runtime import Runtime

MAKERS = {"market1501": layouts.make_market1501, "msmt17": layouts.make_msmt17, "veri776": layouts.make_veri776}


def partial(name, source, **flags):
    return datasets.select(name, None, source, 8, allow_partial_dataset=True, **flags)


def files(split, rows):
    return {path.rpartition("/")[2].removesuffix(".jpg") for path, there in zip(split.paths, rows, strict=True) if there}


def camera(split, row):
    return split.sequence_names[int(split.sequences[row])]


def test_market1501(tmp_path):
    layouts.make_market1501(tmp_path, distractors=5)
    splits = partial("market1501", tmp_path)
    training, testing = splits["training"], splits["testing"]
    assert names(splits) == {"training": ["0002", "0007"], "testing": ["test_0001", "test_0003"]} and len(training) == 4 and training.roles == {}
    assert files(testing, testing.is_query) == set(layouts.MARKET["query"]) and splits["validation"] is None
    assert files(testing, testing.is_gallery) == {name for name in layouts.MARKET["bounding_box_test"] if not name.startswith("-1")}
    assert files(testing, testing.is_distractor) == {"0000_c1s1_000151_01", "0000_c6s3_095000_05"}
    assert (testing.sequences[testing.is_distractor] == -1).all() and "gallery; 2 distractors, of no class" in datasets.describe(splits)
    for row in np.flatnonzero(~testing.is_distractor):
        file = testing.paths[row].rpartition("/")[2]
        assert camera(testing, row) == f"test_{file[:4]} camera {file[6]}"
    more = partial("market1501", tmp_path, market1501_distractors=True)["testing"]
    assert more.counts["distractors"] == 7 and len(more) == len(testing) + 5
    splits = partial("market1501", tmp_path, split_scheme="class_disjoint", split_partitions=2, split_sets=1)  # of the training identities
    assert names(splits) == {"training": ["0007"], "validation": ["0002"], "testing": ["test_0001", "test_0003"]}
    assert splits["testing"].roles == {"query_images": 3, "gallery_images": 6}


def test_pictures_of_neighbours_among_which_are_distractors(tmp_path, monkeypatch, with_pictures):
    drawn = []
    monkeypatch.setattr("pictures.neighbours._tile", lambda *tile: drawn.append(tile[4]["s"]))
    layouts.make_market1501(tmp_path, distractors=3)
    opt = parameters.read([
        "--dataset", "market1501", "--source", str(tmp_path), "--market1501_distractors", "--allow_partial_dataset", "--arch", "conv4_normalize",
        "--embed_dim", "4", "--resize_size", "18", "--crop_size", "16", "--splits_to_eval", "test", "--kernels", "0",
    ])  # fmt: skip
    runtime, network = Runtime(opt), architectures.select(opt.arch, opt)
    embedded = evaluation.embed_all(network, evaluation.loaders(datasets.select("market1501", opt), opt), opt, runtime)
    paths = outputs.draw_pictures(tmp_path, embedded, "test", opt, "Group")
    assert {"distractor", "test_0001"} <= set(drawn) and "cmc.png" in {path.name for path in paths}
    assert 0 <= evaluation.score(embedded, opt, runtime)["test"]["inp"] <= 1


def test_a_query_of_veri776_in_the_gallery_is_one_image(tmp_path):
    layouts.make_veri776(tmp_path)
    splits = partial("veri776", tmp_path)
    testing = splits["testing"]
    assert names(splits) == {"training": ["0001", "0002"], "testing": ["test_0005", "test_0009"]} and len(testing) == 6
    assert files(testing, testing.is_query & testing.is_gallery) == {"0005_c001_00016450_0", "0005_c003_00013960_0"}
    assert files(testing, ~testing.is_gallery) == {"0009_c004_00019200_0"}
    opt = parameters.read(["--dataset", "veri776", "--source", str(tmp_path)])
    space = spaces.plans(galleries.images_of({"test": testing}), opt.but(splits_to_eval=["test"]))["test"].space
    assert space.findable()[0].tolist() == [2, 1, 2], "neither the query itself nor those of its camera"


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
    assert combined["validation"] is None and len(combined["training"]) == 10 and combined["testing"].paths == testing.paths


@pytest.mark.parametrize("name", MAKERS)
def test_what_is_measured(tmp_path, name):
    words = ["--dataset", name, "--source", str(MAKERS[name](tmp_path))]
    opt = parameters.read(words)
    assert opt.evaluation_metrics == ["e_recall@1", "e_recall@5", "e_recall@10", "ap", "inp"] and opt.eval_skip_unmatched == 1
    assert parameters.read([*words, "--eval_skip_unmatched", "0"]).eval_skip_unmatched == 0


def test_glyphs_across_fonts(few_glyphs):
    splits, plain = partial("glyphs", few_glyphs, glyphs_protocol="reid"), partial("glyphs", few_glyphs)
    for split in ("training", "testing"):
        found = splits[split]
        assert found.paths == plain[split].paths and found.image_list == plain[split].image_list and plain[split].roles == {}
        assert (found.is_query ^ found.is_gallery).all() and found.is_query.sum() * 4 == len(found)
        faces = np.array([path.rpartition("/")[2].removesuffix(".png") for path in found.paths])
        assert set(faces[found.is_query]) == {"DejaVuSans", "DejaVuSansMono", "DejaVuSerif", "STIXGeneral"}
        hidden = faces[found.sequences == found.sequences[np.flatnonzero(found.is_query)[1]]]
        assert hidden.tolist() == ["DejaVuSansMono", "DejaVuSansMono-Bold", "DejaVuSansMono-Oblique", "DejaVuSansMono-BoldOblique"]
    opt = parameters.read(["--dataset", "glyphs", "--glyphs_protocol", "reid"])
    assert opt.evaluation_metrics[-2:] == ["ap", "inp"] and opt.eval_skip_unmatched == 1
    assert parameters.read(["--dataset", "glyphs"]).eval_skip_unmatched is None
    space = spaces.plans(galleries.images_of({"test": splits["testing"]}), opt.but(splits_to_eval=["test"]))["test"].space
    assert set(space.findable()[0].tolist()) == {9} and set(space.findable()[1].tolist()) == {len(splits["testing"]) * 3 // 4 - 3}
