"""Planted near-duplicates are found, pictured and left out of the metrics, which are held to plain loops."""

import csv
import itertools
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

import datasets
import main
import metrics
import parameters
from tests.kit.images import write_image
from tests.kit.plain_metrics import orders, unit
from tests.kit.refusals import refused
from tests.kit.runs import run_words
from tools import overlap

SMALL = ["--arch", "conv4", "--not_pretrained", "--kernels", "0"]


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """Six classes of three images a part; in test copies of training images: as it is, resized, re-encoded."""
    root = tmp_path_factory.mktemp("data") / "tree"
    for c, i in itertools.product(range(12), range(3)):
        part = "train" if c < 6 else "test"
        write_image(root / part / f"class_{c:02d}" / f"{i}.png", (c, i), size=(60, 48))
    shutil.copy(root / "train" / "class_00" / "1.png", root / "test" / "class_06" / "copy.png")
    resized = Image.open(root / "train" / "class_02" / "2.png").resize((90, 72), Image.Resampling.BICUBIC)
    resized.save(root / "test" / "class_08" / "resized.png")
    Image.open(root / "train" / "class_04" / "0.png").save(root / "test" / "class_11" / "encoded.jpg", quality=70)
    return root


PLANTED = {
    ("test/class_06/copy.png", "train/class_00/1.png"),
    ("test/class_08/resized.png", "train/class_02/2.png"),
    ("test/class_11/encoded.jpg", "train/class_04/0.png"),
}


def listed(folder, root):
    """The rows of the pairs, and those with training images by their places in the data."""
    with open(folder / "pairs.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    pairs = [(row["test_image"], row["image"]) for row in rows if row["split"] == "train"]
    return rows, {tuple(Path(path).relative_to(root).as_posix() for path in pair) for pair in pairs}


def test_planted_copies_are_found_and_left_out_those_of_the_pretraining_too(planted, tmp_path, capsys):
    torch.manual_seed(0)
    out = tmp_path / "out"
    deep = tmp_path / "pretraining" / "deep"
    write_image(deep / "other.png", 99)
    (deep / "._other.png").write_text("what some systems put beside a file")
    shutil.copy(planted / "test" / "class_07" / "2.png", deep / "seen.png")
    (content,) = overlap.main([str(planted), *SMALL, "--pretraining", str(deep.parent), "--out", str(out)])
    rows, pairs = listed(out, planted)
    assert pairs == PLANTED and all(float(row["similarity"]) >= 0.95 for row in rows)
    assert float(rows[0]["similarity"]) == pytest.approx(1, abs=1e-5)
    assert content["pairs"] == {"train": 3, "pretraining": 1}
    assert (content["with_near_duplicates"], content["test_images"]) == (4, 21)
    (seen,) = [row for row in rows if row["split"] == "pretraining"]
    assert seen["image"].endswith("deep/seen.png") and seen["test_image"].endswith("class_07/2.png")
    assert seen["test_class"] == "class_07"
    assert (out / "pairs.png").stat().st_size > 5000
    written = json.loads((out / "overlap.json").read_text())
    assert written["all"] == content["all"] and written["without"] == content["without"]
    output = capsys.readouterr().out
    assert "4 of 21 test images" in output and str(out / "pairs.csv") in output
    assert output.splitlines()[-1] == f"next: python -m webbrowser {(out / 'pairs.png').as_uri()}"


@pytest.mark.parametrize(
    ("count", "words", "proposed"),
    [(1, "", "DATA"), (0, " --threshold .98", "DATA --pictures 0 --threshold 0.93")],
)
def test_without_pictures_another_command_is_proposed(count, words, proposed, tmp_path, capsys):
    flags = overlap.parser().parse_args(["DATA", "--out", str(tmp_path / "none"), "--threshold", ".98"])
    overlap.propose_next([{"with_near_duplicates": count}], flags, f"DATA --pictures 0{words}".split())
    assert capsys.readouterr().out == f"next: python -m evaluation.overlap {proposed}\n"


def test_of_a_run_its_own_network_and_embedding(planted, tmp_path, capsys):
    words = "--n_epochs 1 --resize_size 72 --crop_size 64 --loss triplet --batch_mining semihard --dump_embeddings"
    words = run_words(planted, tmp_path, *words.split(), "--no_train_metrics")
    folder = main.main(parameters.read(words)).folder
    flags = yaml.safe_load((folder / "parameters.yaml").read_text())
    (folder / "parameters.yaml").write_text(yaml.safe_dump({**flags, "eval_pca": 3, "eval_no_normalize": True}))
    capsys.readouterr()
    words = "--kernels 0 --pictures 0 --evaluation_metrics e_recall@1 map_r nmi".split()
    (content,) = overlap.main([str(folder), *words])
    assert "--eval_pca 3, --eval_no_normalize of the run: not heeded here" in capsys.readouterr().out
    assert content["not_heeded"] == ["--eval_pca 3", "--eval_no_normalize"]
    assert listed(folder / "overlap", planted)[1] == PLANTED and not (folder / "overlap" / "pairs.png").exists()
    recorded = json.loads((folder / "summary.json").read_text())["selected"]["values"]["test"]
    assert {name: content["all"][name] for name in recorded} == recorded
    with np.load(folder / "embeddings_test.npz") as file:
        copies = ("copy.png", "resized.png", "encoded.jpg")
        keep = np.array([not path.endswith(copies) for path in file["paths"].tolist()])
        expected = metrics.compute(["e_recall@1", "map_r"], file["features"][keep], file["labels"][keep])
    assert {name: content["without"][name] for name in expected} == expected


def test_a_folder_is_measured_at_unit_length_where_the_network_normalises(planted, tmp_path):
    contents = []
    for arch in ("conv4", "conv4_normalize"):
        torch.manual_seed(0)
        words = ["--arch", arch, "--not_pretrained", "--kernels", "0", "--pictures", "0", "--out", str(tmp_path / arch)]
        contents += overlap.main([str(planted), *words, "--evaluation_metrics", "map_r"])
    plain, normalised = (content["all"]["map_r"] for content in contents)
    # pairs are those of the features as they are
    assert listed(tmp_path / "conv4", planted) == listed(tmp_path / "conv4_normalize", planted)
    torch.manual_seed(0)
    source = overlap.open_source(planted, overlap.parser().parse_args([str(planted), *SMALL]))
    test = source.splits["testing"]
    features = source.features(test, "test")
    labels = np.array([label for _, label in test.image_list])
    expected = [metrics.compute(["map_r"], rows, labels)["map_r"] for rows in (features, unit(features))]
    assert [plain, normalised] == pytest.approx(expected, rel=1e-5) and plain != pytest.approx(normalised, rel=0.01)


class StubDataset:
    """Test images of these classes."""

    def __init__(self, labels):
        self.image_list = [(f"{i}.png", label) for i, label in enumerate(labels)]
        self.super_labels = {label: "ab"[label % 2] for label in labels}


def by_loops(features, labels, test, is_query, is_gallery, concerned):
    """All hits; query -> hit of those which the concerned images leave; how many these leave alone."""

    def hits_of(is_present):
        gallery = np.flatnonzero(is_gallery & is_present)
        asks = np.flatnonzero(is_query & is_present)
        exclude = [gallery.tolist().index(i) if i in gallery else -1 for i in asks]
        sequences = {}
        if test.sequences is not None:
            sequences = {"query_sequences": test.sequences[asks], "reference_sequences": test.sequences[gallery]}
        right = [
            [bool(labels[gallery[j]] == labels[i]) for j in order]
            for i, (_, order) in zip(asks, orders(features[asks], features[gallery], exclude, **sequences), strict=True)
        ]
        return dict(zip(asks.tolist(), right, strict=True))

    all_hits = hits_of(np.ones(len(labels), bool))
    hits_without = hits_of(~concerned)
    asking = {i: float(any(right[:1])) for i, right in hits_without.items() if any(right) or not any(all_hits[i])}
    return [any(right[:1]) for right in all_hits.values()], asking, len(hits_without) - len(asking)


@pytest.mark.parametrize("roles", ["none", "fixed", "drawn"])
def test_queries_search_in_their_gallery_and_classwise_numbers_are_of_both(roles):
    """A query that is left alone is none, but can be found; one that always was counts as before."""
    generator = np.random.default_rng(2)
    labels = np.repeat(np.arange(4), 6)
    concerned = np.arange(24) % 5 == 3
    features = (generator.normal(size=(4, 5))[labels] + generator.normal(size=(24, 5))).astype(np.float32)
    sequences = np.where(generator.random(24) < 0.6, -1, generator.integers(0, 5, 24))
    n_draws = 3 if roles == "drawn" else 1
    galleries = generator.random((n_draws, 24)) < 0.5
    # of class 0 only a concerned image is in the gallery: its queries are left alone
    galleries[0, :6] = np.arange(6) == 3
    if roles == "drawn":
        kinds = [(~gallery, gallery) for gallery in galleries]
    else:
        kinds = [(generator.random(24) < 0.6, galleries[0])]
    if roles == "none":
        # image 1 is left alone, 2 always was
        labels[[0, 1]] = 7
        labels[2] = 8
        concerned[0] = True
        kinds = [(np.ones(24, bool), np.ones(24, bool))]
    test = StubDataset(labels.tolist())
    test.sequences = None
    if roles != "none":
        test.is_query, test.is_gallery = kinds[0]
        test.sequences = sequences
        test.role_draws = galleries if roles == "drawn" else None
    scores, scores_without, n_alone = overlap.metrics_without(
        ["e_recall@1", "e_recall@1_group_gap", "nmi", "fnmr@.1"], features, test, concerned
    )
    hits, asking, lone = zip(*[by_loops(features, labels, test, *kind, concerned) for kind in kinds], strict=True)
    assert scores["e_recall@1"] == pytest.approx(np.mean([np.mean(values_of_draw) for values_of_draw in hits]))
    assert scores_without["e_recall@1"] == pytest.approx(
        np.mean([np.mean(list(values_of_draw.values())) for values_of_draw in asking])
    )
    gaps = []
    for hit_of_query in asking:
        even = np.mean([hit for i, hit in hit_of_query.items() if labels[i] % 2 == 0])
        odd = np.mean([hit for i, hit in hit_of_query.items() if labels[i] % 2 == 1])
        gaps.append(abs(even - odd))
    assert scores_without["e_recall@1_group_gap"] == pytest.approx(np.mean(gaps))
    assert n_alone == lone[0] > 0
    pool = kinds[0][0] | kinds[0][1]
    # without roles the queries are the pool
    rows_without = pool & ~concerned if roles != "none" else np.isin(np.arange(24), list(asking[0]))
    for values, rows in ((scores, pool), (scores_without, rows_without)):
        expected = metrics.compute(["nmi", "fnmr@.1"], features[rows], labels[rows])
        assert {name: values[name] for name in expected} == expected
    without_queries = [np.ones(24, bool)] if roles == "none" else [galleries.any(0), kinds[0][0]]
    for lost in without_queries:
        with refused("no query is left"):
            overlap.metrics_without(["e_recall@1"], features, test, lost)


@pytest.mark.parametrize("blocks", [(1024, 65536), (3, 4)])
def test_pairs_against_plain_cosines(monkeypatch, blocks):
    monkeypatch.setattr(overlap, "ROWS", blocks[0])
    monkeypatch.setattr(overlap, "COLUMNS", blocks[1])
    generator = np.random.default_rng(1)
    test = generator.normal(size=(9, 5))
    train = generator.normal(size=(13, 5)) + 3
    val = generator.normal(size=(6, 5))
    train[4] = test[2]
    duplicates = overlap.near_duplicates(test, {"train": train, "val": val}, 0.7)
    expected = {}
    for split, reference in (("train", train), ("val", val)):
        cosines = unit(test - train.mean(0)) @ unit(reference - train.mean(0)).T
        expected |= {(i, j, split): cosine for (i, j), cosine in np.ndenumerate(cosines) if cosine >= 0.7}
    keys = zip(duplicates.test, duplicates.reference, duplicates.split, strict=True)
    assert dict(zip(keys, duplicates.similarity, strict=True)) == pytest.approx(expected, abs=1e-5)
    assert (np.diff(duplicates.similarity) <= 0).all() and (duplicates.test[0], duplicates.reference[0]) == (2, 4)
    monkeypatch.setattr(overlap, "MOST_PAIRS", 3)
    with refused("raise it"):
        overlap.near_duplicates(test, {"train": train}, -1)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["/nowhere"], "no such folder"),
        ([], "RUN_OR_DATA"),
        (["{planted}", "--threshold", "2"], "must be at most 1"),
        (["{planted}", "--evaluation_metrics", "mapr"], "Did you mean"),
        (["{planted}", "--pretraining", "/nowhere"], "no such folder"),
    ],
)
def test_mistakes_are_one_line(argv, message, planted):
    with refused(message):
        overlap.main([word.format(planted=planted) for word in argv] + SMALL)


def test_all_pairs_are_written_once_and_keep_copies_on_one_side(planted, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(planted, tmp_path / "tree")
    shutil.copy(planted / "test" / "class_07" / "1.png", tmp_path / "tree" / "test" / "class_09" / "again.png")
    (content,) = overlap.main([str(tmp_path / "tree"), *SMALL, "--all_pairs", "--out", str(out)])
    with open(out / "near_duplicates.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == content["pairs"]["train"] + 1 == 4
    within = [(Path(row["image"]).name, Path(row["other_image"]).name) for row in rows if row["split"] == "test"]
    assert within == [("1.png", "again.png")]
    flat = tmp_path / "flat"
    for part in ("train", "test"):
        shutil.copytree(tmp_path / "tree" / part, flat, dirs_exist_ok=True)
    table = tmp_path / "flat.csv"
    text = (out / "near_duplicates.csv").read_text()
    table.write_text(
        text.replace(str(tmp_path / "tree" / "train"), str(flat)).replace(str(tmp_path / "tree" / "test"), str(flat))
    )
    splits = datasets.select("folder", dataset_folder_path=str(flat), split_groups=[str(table)])
    names = {split: set(splits[split].class_names.values()) for split in ("training", "testing")}
    assert names["training"] >= {f"class_{c:02d}" for c in (0, 2, 4, 6, 8, 11)}, "classes with a copy follow the first"
    assert names["testing"] == {f"class_{c:02d}" for c in (7, 9, 10)}
