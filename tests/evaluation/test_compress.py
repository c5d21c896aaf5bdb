"""The table of codes: its numbers by plain loops over what the index finds, roles and sequences, files, mistakes in one line."""

import json

import numpy as np
import pytest

from evaluation import __main__ as command
from evaluation import compress
from tests.metrics._plain import random_space
from utilities.codes import Codes
from utilities.errors import UserError


@pytest.fixture
def files(tmp_path):
    """60 embeddings of unit length in a file, and 50 others from which codes learn."""
    features, labels = random_space(n=60, classes=9, seed=1)
    features = np.tile(features, 2)[:, :12] + np.random.default_rng(0).normal(size=(60, 12)) * 0.3
    features = (features / np.linalg.norm(features, axis=1, keepdims=True)).astype(np.float32)
    np.savez(tmp_path / "features.npz", features=features, labels=labels)
    np.savez(tmp_path / "training.npz", features=np.random.default_rng(1).normal(size=(50, 12)).astype(np.float32) / 3)
    return tmp_path


def by_loops(features, labels, decoded, candidates=None):
    """e_recall@1, map_r and recall@10 of float queries among decoded vectors, the query left out; candidates: those that are ranked."""
    hits, averages, recalls = [], [], []
    for q, query in enumerate(features.astype(np.float64)):
        order = {
            kind: sorted((i for i in range(len(rows)) if i != q), key=lambda i, rows=rows: (((rows[i] - query) ** 2).sum(), i))
            for kind, rows in (("exact", features.astype(np.float64)), ("coded", decoded.astype(np.float64)))
        }
        mine = order["coded"]
        relevant = sum(labels[i] == labels[q] for i in mine)
        first = {depth: [i for i in mine if candidates is None or i in candidates(q, depth)] for depth in (1, relevant, 10)}
        hits.append(float(labels[first[1][0]] == labels[q]))
        if relevant:
            found = np.array([labels[i] == labels[q] for i in first[relevant][:relevant]])
            averages.append((found * np.cumsum(found) / np.arange(1, len(found) + 1)).sum() / relevant)
        recalls.append(len({*first[10][:10]} & {*order["exact"][:10]}) / 10)
    return [np.mean(hits), np.mean(averages), np.mean(recalls)]


@pytest.mark.parametrize("width", [12, 6])
@pytest.mark.parametrize("name", ["float32", "float16", "int8"])
def test_numbers_are_those_of_loops(name, width, files):
    arrays = np.load(files / "features.npz")
    cut = arrays["features"][:, :width].astype(np.float64)
    cut = (cut / np.linalg.norm(cut, axis=1, keepdims=True)).astype(np.float32)
    index = Codes(name, width)
    index.calibrate(np.load(files / "training.npz")["features"][:, :width])
    index.add(cut)
    given = [str(files / "features.npz"), "--codes", name, "--prefixes", str(width), "--calibration", str(files / "training.npz")]
    row = next(row for row in command.main(["compress", *given]) if row["dimensions"] == width)
    expected = by_loops(cut, arrays["labels"], index.decoded(np.arange(60)))
    if width == 6:  # recall is against the whole embedding
        whole = by_loops(arrays["features"], arrays["labels"], arrays["features"])
        assert expected[:2] != whole[:2]
        exact = [{*np.argsort(np.square(arrays["features"].astype(np.float64) - q).sum(1), kind="stable")[1:11].tolist()} for q in arrays["features"].astype(np.float64)]
        found = [np.argsort(np.square(index.decoded(np.arange(60)).astype(np.float64) - q).sum(1), kind="stable") for q in cut.astype(np.float64)]
        expected[2] = np.mean([len({*[i for i in order.tolist() if i != q][:10]} & exact[q]) / 10 for q, order in enumerate(found)])
    assert [row["e_recall@1"], row["map_r"], row["recall@10"]] == pytest.approx(expected, abs=1e-9)


def test_binary_ranks_only_its_candidates(files):
    """The candidates are as many as the depth needs, the query's own image counted in, times the multiplier."""
    arrays = np.load(files / "features.npz")
    features, labels = arrays["features"], arrays["labels"]
    deepest = np.bincount(labels).max() - 1
    hamming = [np.argsort([((features[i] > 0) != (features[q] > 0)).sum() for i in range(60)], kind="stable") for q in range(60)]
    decoded = np.where(features > 0, 1, -1) / 12**0.5
    expected = by_loops(features, labels, decoded, lambda q, depth: hamming[q][: 22 if depth == 10 else 2 * (deepest + 1)])
    (row,) = command.main(["compress", str(files / "features.npz"), "--codes", "binary", "--rescore_multiplier", "2"])
    assert [row["e_recall@1"], row["map_r"], row["recall@10"]] == pytest.approx(expected, abs=1e-9)
    assert (row["bytes_a_vector"], row["dimensions"]) == (2, 12)


def test_float32_has_the_numbers_of_an_evaluation_roles_sequences_and_lists_included(files):
    arrays = dict(np.load(files / "features.npz"))
    rng = np.random.default_rng(3)
    sequence = rng.integers(0, 30, 60)
    is_query = np.arange(60) % 2 == 0
    positives = [np.flatnonzero(arrays["labels"] == label) for label in arrays["labels"]]
    positives = [row[row != i][:4] for i, row in enumerate(positives)]
    junk = [np.setdiff1d(rng.choice(60, 5, replace=False), [*row, i]) for i, row in enumerate(positives)]
    lists = {}
    for kind, rows in (("positive", positives), ("junk", junk)):
        lists |= {f"{kind}_indptr": np.cumsum([0, *map(len, rows)]), f"{kind}_indices": np.concatenate(rows)}
    for name, more in (("sequence", {"sequence": sequence, "is_query": is_query, "is_gallery": ~is_query | (np.arange(60) < 20)}), ("lists", lists)):
        path = str(files / f"{name}.npz")
        np.savez(path, **arrays, **more)
        expected = command.main([path, "--evaluation_metrics", "e_recall@1", "map_r"])
        (row,) = command.main(["compress", path, "--codes", "float32"])
        assert {key: row[key] for key in expected} == pytest.approx(expected, abs=1e-12) and row["recall@10"] == 1


def test_the_folder_holds_the_table_and_what_it_was_measured_with(files, capsys):
    given = [str(files / "features.npz"), "--codes", "int8", "binary", "--prefixes", "4", "--calibration", str(files / "training.npz")]
    rows = command.main(["compress", *given, "--threads", "1", "--out", str(files / "out")])
    written = json.loads((files / "out" / "compression.json").read_text())
    assert written["rows"] == rows and [(row["code"], row["dimensions"]) for row in rows] == [("int8", 4), ("binary", 4), ("int8", 12), ("binary", 12)]
    assert (written["threads"], written["calibration_vectors"], written["images"], written["faiss_seed"]) == (1, 50, 60, 1234)
    assert written["processor"] and written["faiss"] and all(row["queries_a_second_1"] > 0 and row["build_seconds"] >= 0 for row in rows)
    assert (files / "out" / "compression.png").stat().st_size > 5000
    printed = capsys.readouterr().out
    assert "60 queries, 60 images in the index" in printed and "queries a second 1000" in printed


def test_faiss_s_seed_is_the_recorded_one():
    import faiss

    assert faiss.ClusteringParameters().seed == compress.codes.SEED


def test_memory_mapped_features(files):
    arrays = np.load(files / "features.npz")
    np.save(files / "features.npy", arrays["features"])
    np.save(files / "labels.npy", arrays["labels"])
    given = ["--codes", "float16", "--prefixes", "5"]
    one = command.main(["compress", str(files / "features.npz"), *given])
    other = command.main(["compress", str(files / "features.npy"), "--labels", str(files / "labels.npy"), *given])
    assert [[row[key] for key in ("e_recall@1", "map_r", "recall@10")] for row in one] == [[row[key] for key in ("e_recall@1", "map_r", "recall@10")] for row in other]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--codes", "pq5", "--calibration", "training.npz"], r"pq5: 5 does not divide the 12 dimensions"),
        (["--codes", "pq4", "--calibration", "training.npz"], r"pq4 learns from at least 9,984 .* there are 50"),
        (["--codes", "int8"], r"--codes int8 learns from training embeddings: name their file by --calibration"),
        (["--prefixes", "13"], r"--prefixes 13: the features of .* have 12 dimensions"),
        (["--calibration", "other.npz", "--codes", "int8"], r"--calibration .*: features are \(4, 3\), those of .* have 12 dimensions"),
        (["--calibration", "nan.npz", "--codes", "int8"], r"nan.npz: features hold NaN"),
        (["--calibration", "features.npz", "--codes", "int8"], r"features.npz: it is measured itself"),
        (["--out", "training.npz"], r"training.npz: a file, expected a folder"),
    ],
)
def test_mistakes_end_in_one_line(given, message, files):
    np.savez(files / "other.npz", features=np.eye(4, 3))
    np.savez(files / "nan.npz", features=np.full((4, 12), np.nan))
    given = [str(files / one) if one.endswith(".npz") else one for one in given]
    with pytest.raises(UserError, match=message):
        command.main(["compress", str(files / "features.npz"), *(["--codes", "float32"] if "--codes" not in given else []), *given])


def test_where_nothing_can_be_found_there_is_no_recall(tmp_path):
    np.savez(tmp_path / "one.npz", features=np.eye(1, 4), labels=[0])
    (row,) = command.main(["compress", str(tmp_path / "one.npz"), "--codes", "float16", "--out", str(tmp_path / "out")])
    assert np.isnan(row["recall@10"]) and json.loads((tmp_path / "out" / "compression.json").read_text())["rows"][0]["recall@10"] is None
