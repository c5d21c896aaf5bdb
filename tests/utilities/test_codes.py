"""Codes of embeddings: the pins of sentence-transformers' rules, loops, brute force over de-quantised vectors."""

import argparse

import numpy as np
import pytest

from tests.kit import tiny
from tests.kit.refusals import refused
from utilities import codes
from utilities.codes import Codes

D = 8
LEARNED = [pytest.param("pq2", marks=pytest.mark.long), pytest.param("opq2", marks=pytest.mark.long)]
ALL = ["float32", "float16", "int8", "binary", *LEARNED]


def vectors(count, seed, dimensions=D):
    return np.random.default_rng(seed).normal(size=(count, dimensions)).astype(np.float32)


@pytest.fixture(scope="module")
def learned():
    """name -> an empty index in a code that has learned from 9,984 vectors, made once."""
    indices = {}

    def empty_index(name):
        if name not in indices:
            indices[name] = Codes(name, D)
            indices[name].calibrate(vectors(codes.LEAST, 0))
        return indices[name].empty()

    return empty_index


def stored(index):
    """The codes as they lie in memory."""
    import faiss

    return faiss.vector_to_array(index.index.codes).reshape(len(index), -1)


def test_int8_by_the_pin_a_constant_dimension_and_steps_that_differ():
    rows = np.array([[-1, 0, 0.5], [1, 2, 0.5], [0, 1, 0.5]], dtype=np.float32)
    index = Codes("int8", 3)
    index.calibrate(rows)
    index.add(np.concatenate([rows, [[-9, 9, 0.7]]]))
    assert stored(index).tolist() == [[0, 0, 0], [255, 255, 0], [127, 127, 0], [0, 255, 0]], "beyond the range: its end"
    step = 2 / 255
    expected = [[-1 + place * step, place * step, 0.5] for place in (0.5, 255.5, 127.5)]
    np.testing.assert_allclose(index.decoded(np.arange(3)), expected, atol=1e-6)
    index = Codes("int8", 2)
    index.calibrate(np.array([[0, 0], [1, 100]], dtype=np.float32))
    index.add(np.array([[0.9, 10], [0.1, 20]], dtype=np.float32))
    assert stored(index).astype(int).sum(1).tolist() == [254, 76], "the product of codes would give the other order"
    assert index.decoded(np.arange(2)).sum(1) == pytest.approx([10.9, 20.1], abs=0.3)


def test_binary_by_the_pins():
    assert codes.bits(np.array([[0.3, -0.2, 0, 0.1, -0.5, 0.6, 0.7, -0.1, 0.2, 0.2]])).tolist() == [[150, 192]]
    query = np.array([[0.5, -0.4, 0.6, 0.1]], dtype=np.float32)
    index = Codes("binary", 4)
    # 1, 1 and 2 bits from the query's
    index.add(np.array([[0.9, 0.1, 0.3, 0.2], [0.8, -0.1, 0.5, -0.2], [-0.3, 0.7, 0.2, 0.1]]))
    assert 2 * index.decoded(np.arange(3)) @ query[0] == pytest.approx([0.8, 1.4, -0.2])
    assert index.search(query, 3)[1].tolist() == [[1, 0, 2]], "equal Hamming distances in the order of the float query"
    assert index.search(query, 1, rescored=1)[1].tolist() == [[0]]
    assert index.search(query, 1, rescored=2)[1].tolist() == [[1]]


def plainly_decoded(name, index, rows):
    """The rows after coding and decoding, in loops in float64; of a product by the learned centroids."""
    if name in ("float32", "float16"):
        return rows.astype(name).astype(np.float64)
    if name == "binary":
        return np.where(rows > 0, 1.0, -1.0) / D**0.5
    if name == "int8":
        low, high = (getattr(vectors(codes.LEAST, 0), end)(0).astype(np.float64) for end in ("min", "max"))
        columns = []
        for column, a, b in zip(rows.T.astype(np.float64), low, high, strict=True):
            levels = [min(max(int((x - a) * 255 / (b - a)), 0), 255) for x in column]
            columns.append([a + (level + 0.5) * (b - a) / 255 for level in levels])
        return np.array(columns).T
    import faiss

    turn = np.eye(D)
    product = index.index
    if name.startswith("o"):
        rotation = faiss.downcast_VectorTransform(product.chain.at(0)).A
        turn = faiss.vector_to_array(rotation).reshape(D, D).astype(np.float64)
        product = faiss.downcast_index(product.index)
    centroids = faiss.vector_to_array(product.pq.centroids).reshape(2, 256, D // 2).astype(np.float64)
    decoded_rows = []
    for row in rows.astype(np.float64) @ turn.T:
        parts = zip(centroids, np.split(row, 2), strict=True)
        nearest = [table[np.square(table - part).sum(1).argmin()] for table, part in parts]
        decoded_rows.append(np.concatenate(nearest))
    return np.array(decoded_rows) @ turn


@pytest.mark.parametrize("name", ALL)
def test_codes_are_those_of_loops_and_are_read_again(name, learned, tmp_path):
    index = learned(name)
    rows = vectors(60, 1)
    all_rows = np.arange(60)
    index.add(rows)
    np.testing.assert_allclose(index.decoded(all_rows), plainly_decoded(name, index, rows), atol=2e-6)
    assert index.bytes_a_vector == {"float32": 32, "float16": 16, "int8": 8, "binary": 1}.get(name, 2)
    index.write(tmp_path / "index")
    read_index = Codes.read(tmp_path / "index", name, D)
    assert index.size() == (tmp_path / "index").stat().st_size
    assert all(map(np.array_equal, index.search(vectors(5, 2), 4), read_index.search(vectors(5, 2), 4)))
    empty = read_index.empty()
    assert len(empty) == 0 and len(read_index) == 60
    empty.add(rows)
    assert (empty.decoded(all_rows) == index.decoded(all_rows)).all(), "it keeps what it has learned"


# 3 queries go by faiss's own search, 40 by blocks that are decoded
@pytest.mark.parametrize("count", [3, 40])
@pytest.mark.parametrize("name", ALL)
def test_search_is_brute_force_over_decoded_vectors(name, count, learned, monkeypatch):
    monkeypatch.setattr(codes, "BLOCK", 64)
    monkeypatch.setattr(codes, "NUMBERS", 500)
    index = learned(name)
    rows = vectors(150, 1)
    queries = vectors(count, 2)
    # equal ones: the earlier first
    rows[100:110] = rows[50:60]
    index.reserve(150)
    index.add(rows)
    decoded = index.decoded(np.arange(150)).astype(np.float64)
    distances, found_rows = index.search(queries, 7, rescored=3)
    for query, mine, at in zip(queries, found_rows, distances, strict=True):
        measured = [(tiny.distance(query.tolist(), row), i) for i, row in enumerate(decoded.tolist())]
        if name == "binary":
            hamming = [(int(((row > 0) != (query > 0)).sum()), i) for i, row in enumerate(rows)]
            measured = [measured[i] for _, i in sorted(hamming)[:21]]
        expected = sorted(measured)[:7]
        assert mine.tolist() == [i for _, i in expected] and at == pytest.approx([d for d, _ in expected], abs=1e-6)
    small_index = learned(name)
    small_index.add(rows[:2])
    assert small_index.search(queries, 7)[1].shape == (count, 2)


def test_what_cannot_be_coded():
    with refused("pq3: 3 does not divide the 8 dimensions: take M from 1, 2, 4, 8"):
        Codes("pq3", 8)
    with refused(r"opq4 needs at least 9,984 \(39 x 256\) training vectors, and there are 9,983"):
        Codes("opq4", 8).calibrate(vectors(9983, 0))
    for text in ("int4", "pq", "pq0", "qp8", "binary8"):
        with pytest.raises(argparse.ArgumentTypeError, match="is no code: float32, float16"):
            codes.name(text)
    assert codes.name("opq64") == "opq64"
