"""Planted near-duplicates are found, pictured and left out of the metrics, which are held to plain loops."""

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

import main
import metrics
import parameters
from evaluation import overlap
from tests import builders
from tests.builders import refused
from utilities.errors import UserError

ROOT = Path(__file__).resolve().parent.parent.parent
SMALL = ["--arch", "conv4", "--not_pretrained", "--kernels", "0"]


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """X/train and X/test of six classes of three images; copies of training images in test: as it is, resized, re-encoded."""
    root = tmp_path_factory.mktemp("data") / "tree"
    for part, first in (("train", 0), ("test", 6)):
        for c in range(first, first + 6):
            for i in range(3):
                builders.write_image(root / part / f"class_{c:02d}" / f"{i}.png", (c, i), size=(60, 48))
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
    with open(folder / "pairs.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    return rows, {(Path(row["test_image"]).relative_to(root).as_posix(), Path(row["image"]).relative_to(root).as_posix()) for row in rows}


def test_planted_copies_are_found_and_left_out_those_of_the_pretraining_too(planted, tmp_path, capsys):
    torch.manual_seed(0)
    (content,) = overlap.main([str(planted), *SMALL, "--out", str(tmp_path / "out")])
    rows, pairs = listed(tmp_path / "out", planted)
    assert pairs == PLANTED and all(row["split"] == "train" and float(row["similarity"]) >= 0.95 for row in rows)
    assert rows[0]["test_class"] == "class_06" and float(rows[0]["similarity"]) == pytest.approx(1, abs=1e-5)
    assert content["with_near_duplicates"] == 3 and content["test_images"] == 21 and content["pairs"] == {"train": 3}
    assert (tmp_path / "out" / "pairs.png").stat().st_size > 5000
    written = json.loads((tmp_path / "out" / "overlap.json").read_text())
    assert written["all"] == content["all"] and written["without"] == content["without"]
    told = capsys.readouterr().out
    assert "3 of 21 test images" in told and "without" in told and str(tmp_path / "out" / "pairs.csv") in told
    torch.manual_seed(0)
    deep = tmp_path / "pretraining" / "deep"
    builders.write_image(deep / "other.png", 99)
    shutil.copy(planted / "test" / "class_07" / "2.png", deep / "seen.png")
    argv = [str(planted), *SMALL, "--pretraining", str(deep.parent), "--out", str(tmp_path / "more"), "--pictures", "0"]
    (content,) = overlap.main(argv)
    rows, _ = listed(tmp_path / "more", tmp_path.parent.parent)
    assert content["pairs"] == {"train": 3, "pretraining": 1} and content["with_near_duplicates"] == 4
    (seen,) = [row for row in rows if row["split"] == "pretraining"]
    assert seen["image"].endswith("deep/seen.png") and seen["test_image"].endswith("class_07/2.png")
    assert not (tmp_path / "more" / "pairs.png").exists()


def test_of_a_run_its_own_network_and_embedding(planted, tmp_path, capsys):
    run = main.main(parameters.read([
        "--dataset", "folder", "--dataset_folder_path", str(planted), "--save_path", str(tmp_path), "--arch", "conv4_normalize", "--embed_dim", "16",
        "--loss", "triplet", "--batch_mining", "semihard", "--bs", "8", "--n_epochs", "1", "--kernels", "0", "--evaluation_metrics", "e_recall@1",
        "map_r", "--lr", "0.001", "--seed", "3", "--dump_embeddings", "--no_train_metrics",
    ]))  # fmt: skip
    (content,) = overlap.main([str(run.folder), "--kernels", "0", "--evaluation_metrics", "e_recall@1", "map_r", "nmi"])
    _, pairs = listed(run.folder / "overlap", planted)
    assert pairs == PLANTED
    recorded = json.loads((run.folder / "summary.json").read_text())["selected"]["values"]["test"]
    assert {name: content["all"][name] for name in recorded} == recorded
    chosen = overlap.Task(run.folder, overlap.parser().parse_args([str(run.folder), "--kernels", "0"]))
    features = chosen.embeddings(np.empty((0, 1)))
    kept = np.array([not path.endswith(("copy.png", "resized.png", "encoded.jpg")) for path in chosen.seen["testing"].paths])
    labels = np.array([label for _, label in chosen.seen["testing"].image_list])
    expected = metrics.compute(["e_recall@1", "map_r"], features[kept], labels[kept])
    assert {name: content["without"][name] for name in expected} == expected
    assert content["not_heeded"] == []
    flags = yaml.safe_load((run.folder / "parameters.yaml").read_text())
    (run.folder / "parameters.yaml").write_text(yaml.safe_dump({**flags, "eval_pca": 3, "eval_no_normalize": True}))
    capsys.readouterr()
    (again,) = overlap.main([str(run.folder), "--kernels", "0", "--evaluation_metrics", "e_recall@1", "map_r", "nmi"])
    assert again["all"] == content["all"] and again["not_heeded"] == ["--eval_pca 3", "--eval_no_normalize"]
    assert "--eval_pca 3, --eval_no_normalize of the run: not heeded here" in capsys.readouterr().out


class Made:
    """Test images of these classes."""

    def __init__(self, labels):
        self.image_list = [(f"{i}.png", label) for i, label in enumerate(labels)]
        self.super_labels = {label: "ab"[label % 2] for label in labels}


def test_a_query_left_alone_is_no_query_but_can_be_found():
    labels = np.array([0, 0, 1, 1, 1, 2, 3, 3])
    features = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
    concerned = np.array([True, False, True, False, False, False, False, False])
    whole, reduced, alone = overlap.without(["e_recall@1", "map_r", "e_recall@1_group_gap"], features, Made(labels.tolist()), concerned)
    assert alone == 1 and whole["e_recall@1"] == metrics.compute("e_recall@1", features, labels)["e_recall@1"]
    hits = {}
    for query in (3, 4, 5, 6, 7):  # 1 is alone now; 5 always was, and counts as before
        others = [j for j in (1, 3, 4, 5, 6, 7) if j != query]
        hits[query] = labels[min(others, key=lambda j: ((features[j] - features[query]) ** 2).sum())] == labels[query]
    assert reduced["e_recall@1"] == pytest.approx(np.mean(list(hits.values())))
    assert reduced["e_recall@1_group_gap"] == pytest.approx(abs(hits[5] - np.mean([hits[i] for i in (3, 4, 6, 7)])))
    with pytest.raises(UserError, match="no query is left"):
        overlap.without(["e_recall@1"], features, Made(labels.tolist()), np.ones(8, dtype=bool))


def by_loops(features, labels, test, is_query, is_gallery, concerned):
    """The share of hits of all queries, that of those which the concerned images leave, and how many these leave alone."""

    def found(query, there):
        own = test.sequences[query]
        return [j for j in np.flatnonzero(is_gallery & there) if j != query and (own < 0 or test.sequences[j] != own)]

    def hit(query, there):
        order = sorted(found(query, there), key=lambda j: np.square(features[j] - features[query]).sum())
        return bool(order) and labels[order[0]] == labels[query]

    def able(query, there):
        return any(labels[j] == labels[query] for j in found(query, there))

    everything, left = np.ones(len(labels), bool), np.flatnonzero(is_query & ~concerned)
    asking = [query for query in left if able(query, ~concerned) or not able(query, everything)]
    hits = [hit(query, everything) for query in np.flatnonzero(is_query)]
    return np.mean(hits), np.mean([hit(query, ~concerned) for query in asking]), len(left) - len(asking)


@pytest.mark.parametrize("n_draws", [0, 3])
def test_queries_search_in_their_gallery_and_classwise_numbers_are_of_both(n_draws):
    generator = np.random.default_rng(2)
    labels, concerned = np.repeat(np.arange(4), 6), np.arange(24) % 5 == 3
    features = (generator.normal(size=(4, 5))[labels] + generator.normal(size=(24, 5))).astype(np.float32)
    test = Made(labels.tolist())
    test.sequences = np.where(generator.random(24) < 0.6, -1, generator.integers(0, 5, 24))
    galleries = generator.random((max(n_draws, 1), 24)) < 0.5
    galleries[0, :6] = np.arange(6) == 3  # the class 0 has a concerned image alone in the gallery: its queries are left alone
    kinds = [(~gallery, gallery) for gallery in galleries] if n_draws else [(generator.random(24) < 0.6, galleries[0])]
    (test.is_query, test.is_gallery), test.role_draws = kinds[0], galleries if n_draws else None
    found, left, alone = overlap.without(["e_recall@1", "nmi", "fnmr@.1"], features, test, concerned)
    shares, reduced, lone = zip(*[by_loops(features, labels, test, *kind, concerned) for kind in kinds], strict=True)
    assert found["e_recall@1"] == pytest.approx(np.mean(shares)) and left["e_recall@1"] == pytest.approx(np.mean(reduced))
    assert found["e_recall@1"] != metrics.compute("e_recall@1", features, labels)["e_recall@1"]
    assert alone == lone[0] > 0
    pool = test.is_query | test.is_gallery
    for values, rows in ((found, pool), (left, pool & ~concerned)):
        expected = metrics.compute(["nmi", "fnmr@.1"], features[rows], labels[rows])
        assert {name: values[name] for name in expected} == expected
    with pytest.raises(UserError, match="no query is left"):
        overlap.without(["e_recall@1"], features, test, galleries.any(0))
    with pytest.raises(UserError, match="no query is left"):
        overlap.without(["e_recall@1"], features, test, test.is_query)


@pytest.mark.parametrize("blocks", [(1024, 65536), (3, 4)])
def test_pairs_against_plain_cosines(monkeypatch, blocks):
    monkeypatch.setattr(overlap, "ROWS", blocks[0])
    monkeypatch.setattr(overlap, "COLUMNS", blocks[1])
    generator = np.random.default_rng(1)
    test, train, val = generator.normal(size=(9, 5)), generator.normal(size=(13, 5)) + 3, generator.normal(size=(6, 5))
    train[4] = test[2]
    found = overlap.near_duplicates(test, {"train": train, "val": val}, 0.7)
    mean, expected = train.mean(0), {}
    for split, other in (("train", train), ("val", val)):
        for i, a in enumerate(test - mean):
            for j, b in enumerate(other - mean):
                cosine = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
                if cosine >= 0.7:
                    expected[i, j, split] = cosine
    keys = zip(found.test, found.other, found.split, strict=True)
    assert dict(zip(keys, found.similarity, strict=True)) == pytest.approx(expected, abs=1e-5)
    assert (np.diff(found.similarity) <= 0).all() and (found.test[0], found.other[0]) == (2, 4)
    monkeypatch.setattr(overlap, "MOST_PAIRS", 3)
    with pytest.raises(UserError, match="raise it"):
        overlap.near_duplicates(test, {"train": train}, -1)


def test_mistakes_are_one_line(planted):
    for argv, said in (
        (["/nowhere"], "no such folder"),
        ([], "RUN_OR_DATA"),
        ([planted, "--threshold", "2"], "must be at most 1"),
        ([planted, "--arch", "resnet5"], "Did you mean"),
        ([planted, "--evaluation_metrics", "mapr"], "Did you mean"),
        ([planted, "--pretraining", "/nowhere"], "no such folder"),
        ([planted, "--dataset", "cub20"], "Did you mean"),
    ):
        with refused(said):
            overlap.main([*map(str, argv), *(["--kernels", "0"] if "--arch" in argv else SMALL)])


@pytest.mark.long
def test_the_command_ends_with_status_2(tmp_path):
    told = subprocess.run([sys.executable, "-m", "evaluation.overlap", str(tmp_path / "no")], cwd=ROOT, capture_output=True, text=True)
    assert told.returncode == 2 and told.stderr.count("\n") == 1 and "no such folder" in told.stderr
    text = overlap.parser().format_help()
    assert "--pretraining" in text and "0.95" in text
