"""`query --threshold`: queries beyond it are unknown; the file of a decision is for its own network and answer."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from retrieval import __main__ as retrieval
from retrieval import answers, threshold
from retrieval.answers import Neighbour
from runs import Embedder
from tests.kit.images import write_image
from tests.kit.refusals import refused

SENTENCE = "T = 0.4 (distance; farther is new). With 95 % confidence at most 5 % of images of new ones get a name."


def decision(folder, **changes):
    """The file of a decision."""
    content = {
        "threshold": 0.4,
        "promise": "confident",
        "a": 0.05,
        "d": 0.05,
        "n": 60,
        "needed": 59,
        "k": 1,
        "answer": "nearest",
        "gallery": {"classes": 2, "images": 3},
        "growth": 31.0,
        "sentence": SENTENCE,
        "rates": {},
        "network": {"dimensions": 8, "eval_space": "euclidean", "unit_length": True, "probes": []},
    }
    path = folder / "decision.json"
    path.write_text(json.dumps({**content, **changes}))
    return str(path)


@pytest.fixture
def index(run, tmp_path, capsys):
    """The folder of an index of five images, and their paths."""
    paths = [str(tmp_path / "images" / f"{i}.jpg") for i in range(5)]
    for number in range(5):
        write_image(tmp_path / "images" / f"{number}.jpg", number)
    retrieval.main(["index", str(run), str(tmp_path / "images"), "--out", str(tmp_path / "index")])
    capsys.readouterr()
    return str(tmp_path / "index"), paths


def test_accepted_is_nearer_strictly():
    near = [Neighbour("a", 1, 0.2, "x"), Neighbour("a", 2, 0.4, "y"), Neighbour("b", 1, 0.4, "x")]
    assert answers.below(near, ["a", "b", "c"], 0.4) == [
        near[0],
        Neighbour("b", 0, 0.4, "unknown"),
        Neighbour("c", 0, np.inf, "unknown"),
    ]
    assert answers.below(near, ["a", "b"], np.inf) == near and answers.count_self_neighbours(near) == 0
    text = answers.text(answers.below(near, ["a", "b"], 0.4))
    assert text.splitlines() == ["a:", "   1  0.200000  x", "b:", "   0  0.400000  unknown"]


def test_a_distance(run, index, tmp_path, capsys):
    folder, paths = index
    everything = retrieval.main(["query", folder, paths[0], paths[3], "--exclude_self"])
    nearest = {neighbour.query: neighbour.distance for neighbour in everything if neighbour.rank == 1}
    limit = max(nearest.values())
    capsys.readouterr()
    for ending in (".json", ".csv", ".html"):
        words = ["--threshold", repr(limit), "--exclude_self", "--out", str(tmp_path / f"found{ending}")]
        accepted = retrieval.main(["query", folder, paths[0], paths[3], *words])
        expected = []
        for query, distance in nearest.items():
            if distance == limit:
                expected.append(Neighbour(query, 0, distance, "unknown"))
            expected += [near for near in everything if near.query == query and near.distance < limit]
        assert accepted == expected
    output = capsys.readouterr()
    assert output.out.count(f"{0:>4}  {limit:.6f}  unknown") == 3 and f"--threshold {limit!r}" in output.err
    (unknown,) = [row for row in json.loads((tmp_path / "found.json").read_text()) if row["path"] == "unknown"]
    assert unknown["rank"] == 0 and unknown["distance"] == limit
    page = (tmp_path / "found.html").read_text()
    assert page.count("<b>unknown</b>") == 1 and "no longer there" not in page


def test_a_decision_and_its_growth(run, index, tmp_path, capsys):
    folder, paths = index
    vectors = Embedder(run)(paths)
    probes = [{"path": paths[2], "vector": vectors[2].tolist()}]
    write_image(tmp_path / "elsewhere.jpg", 7)
    probes.append(
        {"path": str(tmp_path / "elsewhere.jpg"), "vector": Embedder(run)(str(tmp_path / "elsewhere.jpg"))[0].tolist()}
    )
    network = {"dimensions": 8, "eval_space": "euclidean", "probes": probes}
    path = decision(tmp_path, threshold=0.0, network=network)
    assert [near.path for near in retrieval.main(["query", folder, paths[0], "--threshold", path])] == ["unknown"]
    printed = " ".join(capsys.readouterr().err.split())
    assert SENTENCE in printed and "nothing in" not in printed
    growth = f"the index holds 5 images, the gallery of {path} 3: the rate of new ones can be 1.67 times as high"
    assert f"{growth}, at most 8.4 % in place of 5 %" in printed
    decision(tmp_path, gallery={"classes": 2, "images": 5}, promise=None)
    retrieval.main(["query", folder, paths[0], "--threshold", path])
    printed = " ".join(capsys.readouterr().err.split())
    assert "times as high" not in printed
    assert f"note: nothing in {path} shows whether it is of this index's network" in printed


def test_what_is_refused(run, index, tmp_path):
    folder, paths = index
    probe = {"path": paths[0], "vector": [1.0] + [0.0] * 7}
    for changes, words in (
        ({"answer": "mean"}, "it is of --answer mean, and query answers by the nearest image"),
        ({"answer": "pairs"}, "it is of --answer pairs"),
        ({"network": {"dimensions": 64}}, "another network: it is of embeddings of 64 dimensions, the index has 8"),
        ({"network": {"probes": [probe]}}, "another network: the vector of"),
        ({"network": {"eval_space": "hyperbolic"}}, "hyperbolic distances"),
        ({"network": {"probes": [{"path": 3}]}}, "vector"),
        ({"threshold": None}, "decision.json"),
        ({"threshold": -1}, "decision.json"),
        ({"gallery": 3}, "decision.json"),
        ({"a": "x"}, "decision.json"),
    ):
        with refused(None, words):
            retrieval.main(["query", folder, paths[0], "--threshold", decision(tmp_path, **changes)])
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "broken.json").write_text("{")
    for text in ("nan", "-0.5", "missing.json", str(tmp_path / "list.json"), str(tmp_path / "broken.json"), ""):
        with refused(None):
            threshold.read(text)
    coded = SimpleNamespace(code="int8", about={"dimensions": 8})
    with refused("it is of exact distances, and the index is in code int8"):
        threshold.read(decision(tmp_path)).check(coded, None)
    assert threshold.read("0.5").check(coded, None) == [] and threshold.read("inf").value == np.inf
