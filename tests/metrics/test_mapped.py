"""Features in a memory map: the numbers of those in memory, and never more than a block is read at once."""

import functools

import numpy as np
import pytest

import metrics
from metrics import _inputs, _kmeans, _mapped, _space
from metrics.neighbours import search
from metrics.neighbours.search import Limits, Search
from tests.kit.plain_metrics import DISTS, RETRIEVAL, random_space, ranked
from tests.kit.refusals import refused
from tests.metrics.test_search import LIMITS

OTHERS = [*DISTS, "rho_spectrum@0", "alignment", "uniformity", "c_map_r", "c_recall@2", "mrr"]


def in_file(folder, features):
    np.save(folder / "features.npy", features)
    return np.load(folder / "features.npy", mmap_mode="r")


class Watched(_mapped.Stacked):
    """Rows of which it is known how many were read at once."""

    largest_read = 0

    def __getitem__(self, rows):
        results = super().__getitem__(rows)
        self.largest_read = max(self.largest_read, len(results))
        return results


@pytest.mark.parametrize(
    ("dtype", "order"), [(np.float16, "C"), (np.float32, "F"), (np.float64, "C"), (np.int32, "C"), (">f4", "C")]
)
def test_numbers_are_those_of_features_in_memory(tmp_path, dtype, order):
    features, labels = random_space(n=150, classes=11, spread=1.5, seed=3)
    features = np.asarray(4 * features).astype(dtype, order=order)
    features[20:30] = features[:10]
    mapped = in_file(tmp_path, features)
    names = RETRIEVAL + OTHERS
    for cut in (None, 50):
        values = []
        for x in (features, mapped):
            reference = [] if cut is None else [x[cut:], labels[cut:]]
            values.append(metrics.compute(names, x, labels, *reference))
        expected, results = values
        for name in names:
            rtol = 0 if metrics.searches(name) else 1e-12
            np.testing.assert_allclose(results[name], expected[name], rtol=rtol, err_msg=name)


@pytest.mark.parametrize("limits", LIMITS)
def test_whatever_the_limits_ranks_are_exact(tmp_path, limits):
    features = np.round(random_space(n=60, spread=1.0, seed=9)[0])
    space = metrics.EmbeddingSpace(in_file(tmp_path, features), np.arange(60) % 5)
    space.search = Search(space, limits)
    assert space.search.reference is None
    assert space.neighbours(9).tolist() == [ranked(query, features, i)[:9] for i, query in enumerate(features)]


def test_it_is_not_copied_and_read_in_blocks(tmp_path, monkeypatch):
    # The blocks of mapped features keep 1,024 rows at least
    monkeypatch.setattr(_inputs, "BLOCK", 16)
    monkeypatch.setattr(_space, "PAIRS", 1024)
    features, labels = random_space(n=1500, d=4, classes=15, spread=0.3, seed=4)
    features = features.astype(np.float32)
    # so many near ties that equal samples are looked for
    features[700:1050] = features[0]
    mapped = in_file(tmp_path, features)
    assert np.shares_memory(metrics.EmbeddingSpace(mapped, labels).features, mapped)
    watched = Watched((mapped, None))
    names = ["e_recall@1", "map_r", "c_map_r", "nmi", "c_nmi", "dists@inter", "rho_spectrum@0"]
    space = metrics.EmbeddingSpace(watched, labels)
    space.search = Search(space, Limits(columns=1024, rows=64, near_ties=0))
    assert len(np.unique(space.places)) == 1150
    space.neighbours(5)
    monkeypatch.setattr(search, "Limits", functools.partial(Limits, columns=1024))
    results = metrics.compute(names, watched, labels)
    assert 0 < watched.largest_read <= _space.PAIRS
    expected = metrics.compute(names, features, labels)
    for name in names:
        rtol = 1e-3 if "nmi" in name else 1e-12
        np.testing.assert_allclose(results[name], expected[name], rtol=rtol, err_msg=name)


def test_kmeans_reads_blocks_and_finds_the_clusters_of_features_in_memory():
    features, _ = random_space(n=900, d=6, classes=12, spread=0.2, seed=5)
    features = features.astype(np.float32)
    reads = []
    mapped = _mapped.Converted(lambda rows: reads.append(len(features[rows])) or features[rows], features.shape, 100)
    assert (_kmeans.kmeans(mapped, 12, seed=2) == _kmeans.kmeans(features, 12, seed=2)).all()
    assert max(reads) == 100
    # empty clusters
    collapsed = _mapped.Converted(lambda rows: np.ones((900, 2))[rows], (900, 2), 100)
    assert (_kmeans.kmeans(collapsed, 5) == _kmeans.kmeans(np.ones((900, 2), np.float32), 5)).all()


def test_stacked_rows_and_prefixes(tmp_path):
    rng = np.random.default_rng(0)
    in_memory = rng.normal(size=(7, 3))
    in_float32 = rng.normal(size=(9, 3)).astype(np.float32)
    rows_of_file = np.array([0, 3, 8])
    mapped = in_file(tmp_path, in_float32)
    expected = np.concatenate([in_memory, in_float32[rows_of_file], in_memory])
    stacked = _mapped.Stacked((in_memory, None), (mapped, rows_of_file), (in_memory, None))
    assert len(stacked) == 17 and stacked.shape == expected.shape and stacked.dtype == np.float64
    for rows in (
        slice(None),
        slice(5, 12),
        slice(16, 99),
        slice(3, 3),
        np.array([16, 0, 7, 9, 9]),
        np.zeros(0, dtype=int),
    ):
        assert np.array_equal(stacked[rows], expected[rows])
    for rows, values in ((stacked, expected), (mapped, in_float32)):
        prefix = values[:, :2].astype(np.float32)
        assert np.array_equal(metrics.prefix(rows, 2)[:], prefix)
    assert metrics.prefix(mapped, 3) is mapped
    unit = rng.normal(size=(50, 128))
    # The rounding to float16 moves the lengths from 1
    unit = (unit / np.linalg.norm(unit, axis=1, keepdims=True)).astype(np.float16)
    np.testing.assert_allclose(np.linalg.norm(metrics.prefix(unit, 8), axis=1), 1, rtol=1e-6)


def test_what_is_refused_of_a_map(tmp_path):
    features, labels = random_space(n=40)
    for changed, words in (
        (features[:, 0], "(N, D)"),
        (features + 1j, "expected numbers"),
        (features * np.nan, "40 of 40"),
    ):
        with refused(None, words):
            metrics.compute(["map_r"], in_file(tmp_path, changed), labels)
