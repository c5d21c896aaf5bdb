"""The neighbour search: whatever its limits, results are exact, memory is bounded and no work is done twice.

Limits are made small, so that a few hundred samples fill several blocks and tiles.
"""

import numpy as np
import pytest

import metrics
from benchmarks import search
from metrics._search import Limits, Search
from tests.metrics._plain import RETRIEVAL, plain_per_query, random_space, ranked

LIMITS = [
    Limits(),
    Limits(sample=8),
    Limits(pairs=1),
    Limits(columns=16, rows=4, sample=9),
    Limits(columns=16, rows=4, pairs=1),
    Limits(columns=32, rows=16, sample=20, waiting=200),
    Limits(rows=4, sample=5, kept=40),
    Limits(kept=16, columns=8, rows=8),
]


def searched(features, labels, names, limits=None, device="cpu", **reference):
    """The finished `Work` of a search whose values were those of the plain loops for every query."""
    space = metrics.EmbeddingSpace(features, labels, device=device, **reference)
    space.search = Search(space, limits)
    measured = metrics.per_query(names, space)
    expected = plain_per_query(names, features, labels, **reference)
    for name in names:
        np.testing.assert_allclose(measured[name], expected[name], rtol=0, atol=1e-12, err_msg=name)
    return space.search.work


def assert_neighbours(features, labels, k, limits=None):
    """The first k neighbours in their exact order."""
    space = metrics.EmbeddingSpace(features, labels)
    space.search = Search(space, limits)
    assert space.neighbours(k).tolist() == [ranked(query, features, i)[:k] for i, query in enumerate(features)]


def each_once(size, rows):
    """Scores of a search in itself in blocks of `rows`, each computed once."""
    return sum(min(rows, size - start) * (size - start) for start in range(0, size, rows))


@pytest.mark.parametrize("limits", LIMITS)
def test_limits_change_nothing(limits):
    features, labels = random_space(spread=2.0, seed=8)
    for names in (RETRIEVAL, ["e_recall@2"], ["map_r"], ["map_r", "mAP_c", "e_recall@4"], ["mrr"], ["map@3"]):
        searched(features, labels, names, limits)
    queries = {"reference": features[30:], "reference_labels": labels[30:], "exclude": np.where(np.arange(50) < 30, -1, np.arange(50) - 30)}
    searched(features[:50], labels[:50], ["map_r", "mAP", "mrr"], limits, **queries)
    features, labels = random_space(spread=1.0, seed=9)
    features = np.round(features)
    searched(features, labels, ["map_r", "map@3", "e_recall@1"], limits)
    assert_neighbours(features, labels, 7, limits)


@pytest.mark.parametrize("rows", [8, 16])  # 120 is no multiple of 16
def test_a_search_in_itself_computes_each_score_once(rows):
    features, labels = random_space(n=120, spread=0.2, seed=21)
    work = searched(features, labels, ["map_r", "mAP_c", "e_recall@2"], Limits(columns=32, rows=rows, sample=20))
    assert work.scores == each_once(120, rows)
    assert work.pruned == 0


def test_where_too_much_would_wait_a_search_in_itself_is_a_plain_one():
    features, labels = random_space(n=120, spread=0.2, seed=21)
    work = searched(features, labels, ["map_r", "mAP_c", "e_recall@2"], Limits(columns=32, rows=8, sample=20, waiting=100))
    assert work.scores == 120 * 120
    assert work.held <= 8 * 120, "nothing but one block"


def test_where_pruning_does_not_help_a_search_in_itself_goes_on_as_a_plain_one():
    """The second half has all its neighbours in the first half, and needs them all: twice as much waits as was estimated."""
    n = 120
    features = np.concatenate([0.01 * np.random.default_rng(26).standard_normal((n // 2, n)), np.eye(n)[: n // 2]])
    labels = np.arange(n) % 3
    work = searched(features, labels, [f"map@{n // 2 - 10}"], Limits(columns=32, rows=8, sample=n, waiting=n * n // 5))
    assert work.pruned > 0
    assert each_once(n, 8) < work.scores < n * n


@pytest.mark.parametrize("rounded", [False, True])
@pytest.mark.parametrize(
    ("names", "waiting"),
    [(["e_recall@3"], 1500), (["map_r", "e_recall@6"], 3000), (["map@3"], 3000), (["map_r", "map@5", "e_recall@1"], 3000)],
)
def test_what_waits_is_pruned_to_what_is_needed(names, waiting, rounded):
    features, labels = random_space(n=400, classes=80, spread=2.0, seed=22)
    features = np.round(2 * features) if rounded else features
    work = searched(features, labels, names, Limits(columns=64, rows=16, sample=30, waiting=waiting))
    free = searched(features, labels, names, Limits(columns=64, rows=16, sample=30))
    assert work.scores == free.scores == each_once(400, 16), "nothing that was dropped was needed after all"
    assert work.held < free.held and free.pruned == 0
    assert 0 < work.pruned <= 3 * waiting, "cuts rise for those that wait: not again and again"


def test_pruning_where_nothing_waits_for_some_blocks():
    """Two clusters far apart, one after the other: nothing of the first waits for the second."""
    features, labels = random_space(n=400, classes=80, spread=2.0, seed=22)
    features[200:] += 1000
    work = searched(features, labels, ["map@3"], Limits(columns=64, rows=16, sample=30, waiting=2000))
    assert work.pruned > 0
    assert work.scores == each_once(400, 16)


@pytest.mark.gpu
@pytest.mark.parametrize("limits", [Limits(), Limits(columns=32, rows=8, sample=20)])
def test_on_a_gpu(limits):
    features, labels = random_space(spread=2.0, seed=8)
    space = metrics.EmbeddingSpace(np.round(features), labels, device="cuda")
    space.search = Search(space, limits)
    expected = plain_per_query(RETRIEVAL, np.round(features), labels)
    for name, values in metrics.per_query(RETRIEVAL, space).items():
        np.testing.assert_allclose(values, expected[name], rtol=0, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("limits", LIMITS)
def test_what_runs_on_a_gpu_finds_the_same_on_the_cpu(limits):
    """All but the device: torch takes the candidates from the tiles, where numpy does on a CPU."""
    features, labels = random_space(n=60, spread=2.0, seed=8)
    features = np.round(features)
    for reference in ({}, {"reference": features[20:], "reference_labels": labels[20:]}):
        space = metrics.EmbeddingSpace(features, labels, **reference)
        space.search = Search(space, limits)
        space.search.in_numpy = False
        expected = plain_per_query(RETRIEVAL, features, labels, **reference)
        for name, values in metrics.per_query(RETRIEVAL, space).items():
            np.testing.assert_allclose(values, expected[name], rtol=0, atol=1e-12, err_msg=name)
        for own, query in enumerate(space.neighbours(7)):
            assert query.tolist() == ranked(features[own], reference.get("reference", features), -1 if reference else own)[:7]


def test_near_ties_beyond_the_depth_are_left_alone():
    """All of the reference lie at distances that float32 hardly tells apart, and five of them are needed."""
    n = 300
    reference = np.diag(1 + 1e-6 * np.arange(n))
    space = metrics.EmbeddingSpace(np.zeros((20, n)), np.zeros(20), reference, np.zeros(n))
    space.search = Search(space, Limits(sample=8))
    assert (space.neighbours(5) == np.arange(5)).all()
    assert 0 < space.search.work.reordered <= 400


@pytest.mark.parametrize("equal", [400, 200])
def test_ties_that_no_depth_bounds_do_not_pile_up(equal):
    features, labels = random_space(n=400, classes=80, spread=2.0, seed=23)
    features[:equal] = features[0]
    limits = Limits(columns=64, rows=16, sample=30, waiting=3000, kept=2000)  # more than a block may keep
    work = searched(features, labels, ["map_r", "e_recall@1"], limits)
    assert work.scores > each_once(400, 16)
    assert work.held <= limits.kept + 2 * limits.rows * limits.columns
    limits = Limits(columns=64, rows=16, sample=30, waiting=500)  # more than may wait
    work = searched(features, labels, ["e_recall@1"], limits)
    assert work.scores > each_once(400, 16)
    assert work.pruned <= limits.waiting + limits.rows * 400


def test_a_block_of_too_many_candidates_is_halved():
    features, labels = random_space(n=120, spread=2.0, seed=8)
    limits = Limits(columns=16, rows=16, kept=40)
    reference = {"reference": features, "reference_labels": labels, "exclude": np.arange(120)[::-1].copy()}  # no search in itself
    work = searched(features, labels, ["mAP"], limits, **reference)
    assert work.held <= limits.kept + limits.rows * limits.columns
    assert work.scores >= 120 * 120


@pytest.mark.parametrize("in_itself", [False, True])
def test_an_estimate_that_was_too_high_is_corrected(in_itself):
    features, labels = random_space(n=400, classes=3, spread=5.0, seed=27)
    limits = Limits(columns=64, rows=16, sample=12, pairs=1)
    features[Search(metrics.EmbeddingSpace(features, labels), limits).sample] *= 0.01  # the sample lies nearer than all others
    reference = {} if in_itself else {"reference": features, "reference_labels": labels}
    work = searched(features, labels, ["map@50"], limits, **reference)
    assert work.scores > (each_once(400, 16) if in_itself else 400 * 400), "some queries were searched again"


@pytest.mark.parametrize("names", [["e_recall@3", "map_r"], ["mAP", "mrr"]])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equal_samples_that_are_found_once_change_nothing(names, dtype):
    limits = Limits(few=0)
    rng = np.random.default_rng(24)
    features = rng.standard_normal((9, 5))[rng.integers(0, 9, 100)].astype(dtype)
    labels = rng.integers(0, 6, 100)
    features[20:30] += 1e-9 * rng.standard_normal((10, 5)).astype(dtype)  # equal in float32, in float64 not
    searched(features, labels, names, limits)
    searched(np.where(np.arange(100)[:, None] % 3, features, -0.0), labels, names, limits)
    searched(features[:40], labels[:40], names, limits, reference=features[30:], reference_labels=labels[30:])
    assert_neighbours(features, labels, 60, limits)


@pytest.mark.parametrize("equal", [900, 600])
def test_a_collapsed_space_does_not_take_a_distance_for_every_pair(equal):
    features, labels = random_space(n=900, d=16, classes=90, seed=25)
    features[:equal] = features[0]
    space = metrics.EmbeddingSpace(features, labels)
    found = space.neighbours(899)
    assert space.search.work.distances < 60 * 900, "and not the square of 900"
    for query in (0, 5, equal - 1, 899):
        assert found[query].tolist() == ranked(features[query], features, query)


@pytest.mark.parametrize("task", [5, 400, "map_r", "mrr"])
def test_the_searches_of_the_benchmark_find_the_same(task):
    features, labels = random_space(n=400, classes=20, seed=3)
    found = [search.result(make, features, labels, task)[0] for make in search.SEARCHES.values()]
    assert all(np.array_equal(found[0], other, equal_nan=True) for other in found[1:])
