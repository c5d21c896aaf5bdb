"""The table of codes by plain loops over what the index finds; roles, sequences, files, mistakes."""

import json

import faiss
import numpy as np
import pytest

import metrics
from evaluation import __main__ as command
from tests.kit.plain_metrics import plain_value, random_space, ranked, unit
from tests.kit.refusals import refused
from tests.kit.splits import save
from tools import compress
from utilities.codes import Codes

NUMBERS = ("e_recall@1", "map_r", "recall@10")


@pytest.fixture
def files(tmp_path):
    """60 embeddings of unit length in a file, and 50 others from which codes learn."""
    features, labels = random_space(n=60, classes=9, seed=1)
    features = unit(np.tile(features, 2)[:, :12] + np.random.default_rng(0).normal(size=(60, 12)) * 0.3).astype(
        np.float32
    )
    np.savez(tmp_path / "features.npz", features=features, labels=labels)
    np.savez(tmp_path / "training.npz", features=np.random.default_rng(1).normal(size=(50, 12)).astype(np.float32) / 3)
    return tmp_path


def compressed(*words):
    return command.main(["compress", *map(str, words)])


def columns(rows, *names):
    return [tuple(row[name] for name in names) for row in rows]


def by_loops(features, labels, queries, decoded, candidates=None):
    """NUMBERS of float queries among decoded vectors, without itself. candidates: those that are ranked."""
    values = []
    for q in range(len(features)):
        mine = ranked(queries[q], decoded, q)
        exact = ranked(features[q], features, q)
        relevant = sum(labels[i] == labels[q] for i in mine)
        first = {}
        for depth in (1, relevant, 10):
            first[depth] = [i for i in mine if candidates is None or i in candidates(q, depth)]
        precision = np.nan
        if relevant:
            precision = plain_value("map_r", [labels[i] == labels[q] for i in first[relevant]], relevant, None)
        is_hit = labels[first[1][0]] == labels[q]
        values.append((is_hit, precision, len({*first[10][:10]} & {*exact[:10]}) / 10))
    return np.nanmean(values, axis=0).tolist()


def test_numbers_are_those_of_loops(files):
    arrays = np.load(files / "features.npz")
    training = files / "training.npz"
    words = "--codes float16 int8 --prefixes 6 --calibration".split()
    rows = compressed(files / "features.npz", *words, training)
    order = [("float16", 6), ("int8", 6), ("float16", 12), ("int8", 12)]
    assert columns(rows, "code", "dimensions") == order
    for row, (code, width) in zip(rows, order, strict=True):
        cut = unit(arrays["features"][:, :width].astype(np.float64)).astype(np.float32)
        index = Codes(code, width)
        index.calibrate(np.load(training)["features"][:, :width])
        index.add(cut)
        expected = by_loops(arrays["features"], arrays["labels"], cut, index.decoded(np.arange(60)))
        assert [row[key] for key in NUMBERS] == pytest.approx(expected, abs=1e-9), row


def test_binary_ranks_only_its_candidates(files):
    """The candidates are as many as the depth needs, the query's own image counted in, times the multiplier."""
    arrays = np.load(files / "features.npz")
    features = arrays["features"]
    labels = arrays["labels"]
    deepest = np.bincount(labels).max() - 1
    signs = features > 0
    hamming = np.argsort((signs[:, None] != signs).sum(2), axis=1, kind="stable")
    decoded = np.where(signs, 1, -1) / 12**0.5

    def candidates(query, depth):
        return hamming[query][: 22 if depth == 10 else 2 * (deepest + 1)]

    (row,) = compressed(files / "features.npz", "--codes", "binary", "--rescore_multiplier", "2")
    expected = by_loops(features, labels, features, decoded, candidates)
    assert [row[key] for key in NUMBERS] == pytest.approx(expected, abs=1e-9)
    assert (row["bytes_a_vector"], row["dimensions"]) == (2, 12)


def test_float32_has_the_numbers_of_an_evaluation_roles_sequences_lists_and_maps_included(files):
    arrays = dict(np.load(files / "features.npz"))
    rng = np.random.default_rng(3)
    is_query = np.arange(60) % 2 == 0
    positives = [np.flatnonzero(arrays["labels"] == label) for label in arrays["labels"]]
    positives = [row[row != i][:4] for i, row in enumerate(positives)]
    junk = [np.setdiff1d(rng.choice(60, 5, replace=False), [*row, i]) for i, row in enumerate(positives)]
    lists = metrics.Lists.of(positives, junk)._asdict()
    roles = {"sequence": rng.integers(0, 30, 60), "is_query": is_query, "is_gallery": ~is_query | (np.arange(60) < 20)}
    np.savez(files / "roles.npz", **arrays, **roles)
    np.savez(files / "lists.npz", **arrays, **lists)
    for name in ("features", "labels"):
        np.save(files / f"{name}.npy", arrays[name])
    for names in (["roles.npz"], ["lists.npz"], ["features.npy", "--labels", "labels.npy"]):
        words = [str(files / name) if "." in name else name for name in names]
        expected = command.main([*words, "--evaluation_metrics", "e_recall@1", "map_r"])
        (row,) = compressed(*words, "--codes", "float32")
        assert {key: row[key] for key in expected} == pytest.approx(expected, abs=1e-12) and row["recall@10"] == 1


def test_the_folder_holds_the_table_and_what_it_was_measured_with(files, capsys):
    out = files / "out"
    words = [files / "features.npz", *"--codes int8 binary --prefixes 4 --calibration".split(), files / "training.npz"]
    rows = compressed(*words, "--threads", "1", "--out", out)
    written = json.loads((out / "compression.json").read_text())
    order = [("int8", 4), ("binary", 4), ("int8", 12), ("binary", 12)]
    assert written["rows"] == rows and columns(rows, "code", "dimensions") == order
    facts = {"threads": 1, "calibration_vectors": 50, "images": 60, "faiss_seed": 1234}
    assert written.items() >= facts.items() and written["processor"] and written["faiss"]
    assert faiss.ClusteringParameters().seed == compress.codes.SEED
    assert all(row["queries_a_second_1"] > 0 and row["build_seconds"] >= 0 for row in rows)
    assert (out / "compression.png").stat().st_size > 5000
    assert "60 queries, 60 images in the index" in capsys.readouterr().out
    np.savez(files / "one.npz", features=np.eye(1, 4), labels=[0])
    (row,) = compressed(files / "one.npz", "--codes", "float16", "--out", out)
    assert np.isnan(row["recall@10"])
    assert json.loads((out / "compression.json").read_text())["rows"][0]["recall@10"] is None


def test_codes_that_cannot_be_learned_are_skipped_with_a_note(files, capsys):
    """50 vectors are too few for pq, 12 dimensions are no multiple of 64, and without a calibration nothing learns."""
    source = files / "features.npz"
    calibration = ["--calibration", files / "training.npz"]
    rows = compressed(source, *calibration, "--out", files / "out")
    assert [row["code"] for row in rows] == ["float32", "float16", "int8", "binary"]
    output = capsys.readouterr().out
    assert "note  skipped, 12 dimensions: pq64: 64 does not divide the 12 dimensions" in output
    assert "opq64: 64" in output
    assert len(json.loads((files / "out" / "compression.json").read_text())["skipped"]) == 2
    rows = compressed(source, "--codes", "pq4", "float32", "--prefixes", "6", *calibration)
    assert columns(rows, "code", "dimensions") == [("float32", 6), ("float32", 12)]
    output = capsys.readouterr().out
    assert "12 dimensions: pq4 needs at least 9,984" in output
    assert "6 dimensions: pq4: 4 does not divide the 6" in output
    assert [row["code"] for row in compressed(source)] == ["float32", "float16", "binary"]
    reason = "--codes int8 learns from training embeddings: name their file by --calibration"
    assert f"skipped, 12 dimensions: {reason}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--codes pq5 --calibration training.npz", r"pq5: 5 does not divide the 12 dimensions"),
        ("--codes pq4 --calibration training.npz", r"pq4 needs at least 9,984 .* there are 50"),
        ("--codes int8", r"--codes int8 learns from training embeddings: name their file by --calibration"),
        ("--codes float32 --prefixes 13", r"--prefixes 13: the features of .* have 12 dimensions"),
        (
            "--codes int8 --calibration other.npz",
            r"--calibration .*: features are \(4, 3\), those of .* have 12 dimensions",
        ),
        ("--codes int8 --calibration nan.npz", r"nan.npz: features hold NaN"),
        ("--codes int8 --calibration features.npz", r"features.npz: it is measured itself"),
        ("--codes float32 --out training.npz", r"training.npz: a file, expected a folder"),
    ],
)
def test_mistakes_end_in_one_line(words, message, files):
    save(files, other={"features": np.eye(4, 3)}, nan={"features": np.full((4, 12), np.nan)})
    arguments = [files / word if ".npz" in word else word for word in words.split()]
    with refused(message):
        compressed(files / "features.npz", *arguments)
