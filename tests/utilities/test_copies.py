"""The same vectors are found as by comparing all pairs, up to rounding, whatever their number of copies."""

import numpy as np
import pytest

from utilities import copies


def plain(queries, reference, own_rows):
    """Whether each query has a copy, by all distances."""
    distances = np.linalg.norm(queries[:, None] - reference[None], axis=2)
    distances[np.arange(len(queries)), own_rows] = np.where(
        own_rows >= 0, np.inf, distances[np.arange(len(queries)), own_rows]
    )
    return (distances <= copies.TOLERANCE * np.linalg.norm(queries, axis=1)[:, None]).any(1)


@pytest.mark.parametrize("dimensions", [1, 3, 64])
@pytest.mark.parametrize("block", [7, 10_000])
def test_copies_are_those_of_all_pairs(dimensions, block, monkeypatch):
    monkeypatch.setattr(copies, "BLOCK", block)
    generator = np.random.default_rng(dimensions)
    reference = generator.standard_normal((300, dimensions)).astype(np.float32)
    queries = generator.standard_normal((100, dimensions)).astype(np.float32)
    queries[:30] = reference[100:130] * np.float32(1 + 1e-7)
    queries[40:45] = 0
    reference[7] = 0
    own_rows = np.full(100, -1)
    own_rows[:10] = np.arange(100, 110)
    own_rows[10:20] = np.arange(10)
    copy_rows = copies.find_copies(queries, reference, own_rows)
    assert ((copy_rows >= 0) == plain(queries.astype(float), reference.astype(float), own_rows)).all()
    assert copy_rows[10:30].tolist() == list(range(110, 130)) and (copy_rows[:10] != own_rows[:10]).all()
    assert copy_rows[40:45].tolist() == [7] * 5


def test_equal_vectors_all_of_them_few_or_none():
    equal_vectors = np.ones((50, 8), dtype=np.float32)
    copy_rows = copies.find_copies(equal_vectors, equal_vectors, np.arange(50))
    assert (copy_rows >= 0).all() and (copy_rows != np.arange(50)).all()
    assert copies.find_copies(equal_vectors[:1], equal_vectors[:1], np.arange(1)).tolist() == [-1]
    assert copies.find_copies(equal_vectors[:0], equal_vectors).shape == (0,)
    assert copies.find_copies(equal_vectors[:2], equal_vectors[:0]).tolist() == [-1, -1]
    with_nan = equal_vectors.copy()
    with_nan[3] = np.nan
    assert (copies.find_copies(with_nan, with_nan, np.arange(50)) >= 0).sum() == 49


def test_of_many_vectors_hardly_any_row_is_read_and_rounded_copies_are_found():
    generator = np.random.default_rng(0)
    reference = generator.standard_normal((40_000, 2)).astype(np.float32) @ generator.standard_normal((2, 16)).astype(
        np.float32
    )
    reference += generator.standard_normal(reference.shape).astype(np.float32)
    queries = reference[:500] + generator.standard_normal((500, 16)).astype(np.float32) * np.float32(1e-6)
    read = []

    def rows_of(rows):
        read.extend(rows)
        return reference[rows]

    finder = copies.CopyFinder([reference[:30_000], reference[30_000:]], 16, rows_of)
    assert (finder.find(queries, np.full(500, -1)) == np.arange(500)).all()
    assert len(read) < 600
    read.clear()
    assert (finder.find(reference[:5_000], np.arange(5_000)) == -1).all() and len(read) < 100
