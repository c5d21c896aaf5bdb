"""The examples of docs/retrieval.md for other stores: ids are the rows of the index."""

import re
from pathlib import Path

import numpy as np
import pytest

from retrieval import __main__ as retrieval
from retrieval.index import Index
from tests.kit.images import write_image

DOCS = Path(__file__).resolve().parents[2] / "docs" / "retrieval.md"


def example(word):
    """The code of docs/retrieval.md that has this word."""
    (code,) = [code for code in re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL) if word in code]
    return code


@pytest.fixture(scope="module")
def indexed(run, tmp_path_factory):
    """A folder with the index `index`, of six images, two of which were added later, and out of their order."""
    folder = tmp_path_factory.mktemp("stores")
    images = [str(write_image(folder / f"{i}.png", i)) for i in (5, 2, 4, 0, 3, 1)]
    retrieval.main(["index", str(run), *images[:4], "--out", str(folder / "index")])
    retrieval.main(["index", str(run), *images[4:], "--out", str(folder / "index"), "--add"])
    assert Index(folder / "index").paths == images
    return folder


def test_faiss_finds_the_rows_of_the_index(indexed, monkeypatch, capsys):
    monkeypatch.chdir(indexed)
    names = {}
    exec(example('faiss.read_index("index/'), names)
    index = Index("index")
    distances, rows = index.search(index.vectors[:1], 5)
    assert names["ids"].tolist() == rows.tolist() and names["paths"] == index.paths
    printed = [line.split(" ", 1) for line in capsys.readouterr().out.splitlines()]
    assert [path for _, path in printed] == [index.paths[row] for row in rows[0]]
    assert np.allclose([float(distance) for distance, _ in printed], distances[0], atol=1e-3)


def test_qdrant_finds_the_rows_of_the_index(indexed, monkeypatch, capsys):
    pytest.importorskip("qdrant_client")
    index = Index(indexed / "index")
    code = example("qdrant_client").replace('"http://localhost:6333"', '":memory:"')
    exec(code, {"vectors": index.vectors, "paths": index.paths})
    _, rows = index.search(index.vectors[:1], 5)
    printed = [line.split(" ", 1)[1] for line in capsys.readouterr().out.splitlines()]
    assert printed == [index.paths[row] for row in rows[0]]
