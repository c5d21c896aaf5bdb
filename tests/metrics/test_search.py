"""The search is exact, bounded in memory, and does no work twice. Small limits give several tiles."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import metrics
from benchmarks import search
from metrics.neighbours.keys import AFTER_ALL, COLUMN, LOWEST, as_keys, scores_of
from metrics.neighbours.search import Limits, Need, Search
from tests.kit.plain_metrics import RETRIEVAL, assert_retrieval, orders, plain_per_query, random_space, ranked
from tests.kit.refusals import refused

LIMITS = [
    Limits(),
    Limits(sample=8),
    Limits(pairs=1),
    Limits(columns=16, rows=4, sample=9),
    Limits(columns=16, rows=4, pairs=1),
    Limits(columns=32, rows=16, sample=20, waiting=200),
    Limits(rows=4, sample=5, candidates=40),
    Limits(candidates=16, columns=8, rows=8),
]
SMALL = Limits(columns=16, rows=8, sample=10)
TILES = {"columns": 64, "rows": 16}

# plain values by data: several limits search the same
KNOWN = {}


def plain_values(names, features, labels, **reference):
    arrays = {"features": features, "labels": labels, **reference}
    key = tuple((name, np.asarray(array).tobytes()) for name, array in arrays.items() if array is not None)
    values = KNOWN.setdefault(key, {})
    values |= plain_per_query([name for name in names if name not in values], features, labels, **reference)
    return {name: values[name] for name in names}


def space_with(limits, features, labels, in_numpy=True, **settings):
    space = metrics.EmbeddingSpace(features, labels, **settings)
    space.search = Search(space, limits)
    space.search.in_numpy &= in_numpy
    return space


def searched(features, labels, names, limits=None, how=None, **reference):
    """The finished `Work` of a search whose values were those of the plain loops for every query."""
    space = space_with(limits, features, labels, **how or {}, **reference)
    measured = metrics.per_query(names, space)
    expected = plain_values(names, features, labels, **reference)
    for name in names:
        np.testing.assert_allclose(measured[name], expected[name], rtol=0, atol=1e-12, err_msg=name)
    return space.search.work


def assert_neighbours(features, labels, k, limits=None, how=None, query_sequences=None):
    """The first neighbours in their exact order, -1 where there are no more."""
    space = space_with(limits, features, labels, **how or {}, query_sequences=query_sequences)
    results = [order for _, order in orders(features, query_sequences=query_sequences)]
    assert space.neighbours(k).tolist() == [(order + [-1] * k)[:k] for order in results]
    assert space.visible.tolist() == [len(order) for order in results]
    n_relevant = [(labels[order] == label).sum() for order, label in zip(results, labels, strict=True)]
    assert space.relevant.tolist() == n_relevant


def limits_and_rounding():
    """Each of the limits with and without ties; half of them in the long tests alone."""
    for number, limits in enumerate(LIMITS):
        yield limits, number % 2 == 1
        if number < len(LIMITS) - 2:
            yield pytest.param(limits, number % 2 == 0, marks=pytest.mark.long)


def each_once(size, rows):
    """Scores of a search in itself in blocks of `rows`, each computed once."""
    return sum(min(rows, size - start) * (size - start) for start in range(0, size, rows))


def sequences(size, n_sequences, seed=0):
    """Numbers of `n_sequences` sequences, a third of the samples in none."""
    generator = np.random.default_rng(seed)
    return np.where(generator.random(size) < 1 / 3, -1, 7 * generator.integers(0, n_sequences, size))


@pytest.mark.parametrize(("limits", "rounded"), list(limits_and_rounding()))
def test_limits_and_sequences_change_no_value(limits, rounded):
    spread = 1.0 if rounded else 2.0
    features, labels = random_space(n=48, spread=spread, seed=8)
    features = np.round(features) if rounded else features
    # duplicates, of several classes and sequences
    features[16:24] = features[0]
    searched(features, labels, ["e_recall@2"], limits)
    for names, n_sequences in (
        (RETRIEVAL, 2),
        (["map_r", "mAP_c", "e_recall@4"], 16),
        (["mrr"], 2),
        (["map@3"], 16),
    ):
        searched(features, labels, names, limits, query_sequences=sequences(48, n_sequences))
    numbers = sequences(48, 8, seed=1)
    # queries 12 to 19 are the reference's 0 to 7
    exclude = np.where(np.arange(20) < 12, -1, np.arange(20) - 12)
    gallery = {"reference": features[12:], "reference_labels": labels[12:], "exclude": exclude}
    for names, hidden in (
        (["map_r", "mAP", "mrr"], {}),
        (RETRIEVAL, {"query_sequences": numbers[:20], "reference_sequences": numbers[12:]}),
        # a query itself is of another sequence there
        (["map_r"], {"query_sequences": numbers[:20], "reference_sequences": numbers[12:][::-1]}),
    ):
        searched(features[:20], labels[:20], names, limits, **gallery, **hidden)
    for depth, numbers in ((7, None), (49, sequences(48, 3, seed=3))):
        assert_neighbours(features, labels, depth, limits, query_sequences=numbers)


@pytest.mark.parametrize("how", [{"in_numpy": False}, pytest.param({"device": "cuda"}, marks=pytest.mark.gpu)], ids=str)
@pytest.mark.parametrize("limits", LIMITS)
def test_on_a_gpu_and_by_torch_on_the_cpu(limits, how):
    features, labels = random_space(n=40, spread=2.0, seed=8)
    features = np.round(features)
    numbers = sequences(40, 6)
    searched(features, labels, RETRIEVAL, limits, how, query_sequences=numbers)
    gallery = {"reference": features[12:], "reference_labels": labels[12:], "reference_sequences": numbers[12:]}
    searched(features, labels, RETRIEVAL, limits, how, query_sequences=numbers, **gallery)
    assert_neighbours(features, labels, 7, limits, how)


def test_sequences_that_hide_nearly_all():
    """A cut is set by the scores of a class's first samples: where the query may find none of these, it may others."""
    features, _ = random_space(n=90, spread=3.0, seed=33)
    labels = np.arange(90) % 2
    numbers = np.where(np.arange(90) < 60, 5, -1)
    for limits in (Limits(pairs=3), Limits(pairs=3, columns=16, rows=8, sample=10)):
        searched(features, labels, ["mrr", "e_recall@1", "map_r"], limits, query_sequences=numbers)
    features, labels = random_space(n=100, seed=34)
    for share, limits in itertools.product((1.0, 0.95), (Limits(), SMALL)):
        searched(features, labels, RETRIEVAL, limits, query_sequences=np.where(np.arange(100) < 100 * share, 3, -1))
    hidden = {"query_sequences": np.zeros(100, int), "uncounted": -1.0}
    values = metrics.compute(["e_recall@1", "map_r", "mAP_c"], features, labels, **hidden)
    assert values == {"e_recall@1": 0.0, "map_r": -1.0, "mAP_c": 0.0}


def test_means_and_macro_means_and_names_of_sequences():
    features, labels = random_space(n=80, classes=6, seed=35)
    numbers = sequences(80, 9, seed=2)
    assert_retrieval(features, labels, query_sequences=numbers)
    names = ["map_r", "e_recall@2", "c_map_r", "nmi", "dists@intra"]
    by_number = metrics.compute(names, features, labels, query_sequences=numbers)
    unrestricted = metrics.compute(names, features, labels)
    texts = np.where(numbers < 0, "", np.char.add("track ", numbers.astype(str)))
    without_some = [None if n < 0 else int(n) for n in numbers]
    forms = [texts, texts.astype(object), np.array(without_some, dtype=object), torch.from_numpy(numbers)]
    forms += [np.array([text or None for text in texts], dtype=object), numbers.astype(np.int16), numbers.tolist()]
    for form in forms:
        assert metrics.compute(names, features, labels, query_sequences=form) == by_number
    assert {name for name in names if unrestricted[name] != by_number[name]} == {"map_r", "c_map_r"}
    assert metrics.compute(names, features, labels, query_sequences=np.full(80, -1)) == unrestricted


def test_bad_sequences_are_one_line():
    numbers = np.zeros(5, int)
    gallery = {"reference": np.eye(3, 2), "reference_labels": np.zeros(3, int)}
    for wrong, words in (
        ({"query_sequences": np.zeros(4, int)}, "query_sequences must be (5,)"),
        ({"query_sequences": np.zeros(5)}, "of type float64"),
        ({"query_sequences": np.array([1, "a", None, 2, 3], dtype=object)}, "whole numbers, -1 for none, or names"),
        ({"query_sequences": numbers, "reference_sequences": numbers}, "query_sequences alone"),
        ({"query_sequences": numbers, **gallery}, "give both"),
        ({"query_sequences": numbers, **gallery, "reference_sequences": list("abc")}, "numbers, or names"),
    ):
        with refused(None, words):
            metrics.compute(["e_recall@1"], np.eye(5, 2), np.zeros(5, int), **wrong)


@pytest.mark.parametrize("numbers", [None, np.where(np.arange(120) % 3, np.arange(120) // 4, -1)])
def test_a_search_in_itself_computes_each_score_once_unless_too_much_would_wait(numbers):
    features, labels = random_space(n=120, spread=0.2, seed=21)
    names = ["map_r", "mAP_c", "e_recall@2"]

    def work_of(**limits):
        return searched(features, labels, names, Limits(columns=32, sample=20, **limits), query_sequences=numbers)

    # 120 is no multiple of 16
    for rows in (8, 16):
        work = work_of(rows=rows)
        assert (work.scores, work.pruned) == (each_once(120, rows), 0)
    work = work_of(rows=8, waiting=100)
    assert work.scores == 120 * 120 and work.held <= 8 * 120, "nothing but one block"


def test_where_pruning_does_not_help_a_search_in_itself_goes_on_as_a_plain_one():
    """The second half needs all its neighbours, in the first half: twice as much waits as was estimated."""
    n = 120
    features = np.concatenate([0.01 * np.random.default_rng(26).standard_normal((n // 2, n)), np.eye(n)[: n // 2]])
    limits = Limits(columns=32, rows=8, sample=n, waiting=n * n // 5)
    work = searched(features, np.arange(n) % 3, [f"map@{n // 2 - 10}"], limits)
    assert work.pruned > 0 and each_once(n, 8) < work.scores < n * n


@pytest.mark.parametrize("rounded", [False, True])
@pytest.mark.parametrize(
    ("names", "waiting"), [(["e_recall@3"], 1500), (["map_r", "e_recall@6"], 3000), (["map@3"], 3000)]
)
def test_what_waits_is_pruned_to_what_is_needed(names, waiting, rounded):
    features, labels = random_space(n=400, classes=80, spread=2.0, seed=22)
    features = np.round(2 * features) if rounded else features
    work = searched(features, labels, names, Limits(**TILES, sample=30, waiting=waiting))
    free = searched(features, labels, names, Limits(**TILES, sample=30))
    assert work.scores == free.scores == each_once(400, 16), "nothing that was dropped was needed after all"
    assert work.held < free.held and free.pruned == 0
    assert 0 < work.pruned <= 3 * waiting, "cuts rise for those that wait: not again and again"


def test_of_two_clusters_nothing_of_the_first_waits_for_the_second():
    features, labels = random_space(n=400, classes=80, spread=2.0, seed=22)
    features[200:] += 1000
    work = searched(features, labels, ["map@3"], Limits(**TILES, sample=30, waiting=2000))
    assert work.pruned > 0 and work.scores == each_once(400, 16)


def test_near_ties_beyond_the_depth_are_left_alone():
    """All of the reference lie at distances that float32 hardly tells apart, and five of them are needed."""
    gallery = {"reference": np.diag(1 + 1e-6 * np.arange(300)), "reference_labels": np.zeros(300)}
    space = space_with(Limits(sample=8), np.zeros((20, 300)), np.zeros(20), **gallery)
    assert (space.neighbours(5) == np.arange(5)).all() and 0 < space.search.work.reordered <= 400


@pytest.mark.parametrize("equal", [400, 200])
def test_ties_that_no_depth_bounds_do_not_pile_up(equal):
    features, labels = random_space(n=400, classes=80, spread=2.0, seed=23)
    features[:equal] = features[0]
    # The ties are more than a block may keep
    limits = Limits(**TILES, sample=30, waiting=3000, candidates=2000)
    work = searched(features, labels, ["map_r", "e_recall@1"], limits)
    assert work.scores > each_once(400, 16)
    assert work.held <= limits.candidates + 2 * limits.rows * limits.columns
    # The ties are more than may wait
    limits = Limits(**TILES, sample=30, waiting=500)
    work = searched(features, labels, ["e_recall@1"], limits)
    assert work.scores > each_once(400, 16) and work.pruned <= limits.waiting + limits.rows * 400


def test_a_block_of_too_many_candidates_is_halved():
    features, labels = random_space(n=120, spread=2.0, seed=8)
    limits = Limits(columns=16, rows=16, candidates=40)
    # no search in itself
    reference = {"reference": features, "reference_labels": labels, "exclude": np.arange(120)[::-1].copy()}
    work = searched(features, labels, ["mAP"], limits, **reference)
    assert work.held <= limits.candidates + limits.rows * limits.columns and work.scores >= 120 * 120


@pytest.mark.parametrize("in_itself", [False, True])
def test_an_estimate_that_was_too_high_is_corrected(in_itself):
    features, labels = random_space(n=400, classes=3, spread=5.0, seed=27)
    limits = Limits(**TILES, sample=12, pairs=1)
    sample = Search(metrics.EmbeddingSpace(features, labels), limits).sample
    # The sample lies nearer than all others, which misleads the estimate
    features[sample] *= 0.01
    reference = {} if in_itself else {"reference": features, "reference_labels": labels}
    work = searched(features, labels, ["map@50"], limits, **reference)
    n_scores = each_once(400, 16) if in_itself else 400 * 400
    assert work.scores > n_scores, "some queries were searched again"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equal_samples_that_are_found_once_change_nothing(dtype):
    limits = Limits(near_ties=0)
    rng = np.random.default_rng(24)
    features = rng.standard_normal((9, 5))[rng.integers(0, 9, 100)].astype(dtype)
    labels = rng.integers(0, 6, 100)
    # equal in float32, in float64 not
    features[20:30] += 1e-9 * rng.standard_normal((10, 5)).astype(dtype)
    for names in (["e_recall@3", "map_r"], ["mAP", "mrr"]):
        searched(features, labels, names, limits)
        searched(np.where(np.arange(100)[:, None] % 3, features, -0.0), labels, names, limits)
        searched(features[:40], labels[:40], names, limits, reference=features[30:], reference_labels=labels[30:])
    assert_neighbours(features, labels, 60, limits)


@pytest.mark.parametrize("equal", [900, 600])
def test_a_collapsed_space_does_not_take_a_distance_for_every_pair(equal):
    features, labels = random_space(n=900, d=16, classes=90, seed=25)
    features[:equal] = features[0]
    space = metrics.EmbeddingSpace(features, labels)
    results = space.neighbours(899)
    assert space.search.work.distances < 60 * 900, "and not the square of 900"
    for query in (0, 5, equal - 1, 899):
        assert results[query].tolist() == ranked(features[query], features, query)


def test_the_searches_of_the_benchmark_find_the_same():
    features, labels = random_space(n=400, classes=20, seed=3)
    for task in (5, 400, "map_r", "mrr"):
        results = [search.result(make, features, labels, task)[0] for make in search.SEARCHES.values()]
        assert all(np.array_equal(results[0], result, equal_nan=True) for result in results[1:]), task


def test_between_two_blocks_the_callers_precision_and_gradients_hold(monkeypatch):
    multiply = torch.mm
    precisions = []

    def watched(*arguments, **settings):
        precisions.append(torch.get_float32_matmul_precision())
        return multiply(*arguments, **settings)

    monkeypatch.setattr(torch, "mm", watched)
    space = metrics.EmbeddingSpace(np.random.default_rng(0).normal(size=(20, 3)), np.arange(20) % 4)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        results = Search(space, Limits(rows=4, columns=4, sample=5)).run([Need(np.full(20, 3), "first")])
        seen = [(torch.get_float32_matmul_precision(), torch.is_grad_enabled()) for _ in results]
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    assert len(seen) > 1 and set(seen) == {("medium", True)}
    assert precisions and set(precisions) == {"highest"}, "the products themselves are true float32"


# -0.0 is 0.0
SCORES = st.floats(width=32, allow_nan=False).map(lambda score: score + 0.0)


@given(st.lists(st.tuples(SCORES, st.integers(0, COLUMN)), min_size=1, max_size=20))
def test_keys_sort_by_descending_score_then_column(pairs):
    scores = np.array([s for s, _ in pairs], dtype=np.float32)
    columns = np.array([c for _, c in pairs])
    keys = as_keys(scores, columns)
    assert np.array_equal(scores_of(keys), scores) and np.array_equal(keys & COLUMN, columns)
    assert [pairs[i] for i in np.argsort(keys, kind="stable")] == sorted(pairs, key=lambda pair: (-pair[0], pair[1]))
    assert (keys < AFTER_ALL).all() and np.isnan(scores_of(np.array([AFTER_ALL]))).all(), (
        "an empty slot has no score and comes last"
    )
    assert (as_keys(np.array([-np.inf, LOWEST], dtype=np.float32), np.array([COLUMN, COLUMN])) < AFTER_ALL).all()
