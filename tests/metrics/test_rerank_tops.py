"""Re-ranking of first neighbours and of the gallery against plain loops: SuperGlobal, database-side augmentation."""

import numpy as np
import pytest

import metrics
from metrics import AlphaExpansion, DatabaseAugmentation, Lists, SuperGlobal
from metrics.neighbours import dba, superglobal
from tests.kit.plain_metrics import ranked, unit, values_of
from tests.metrics.test_rerank import expanded, points

NAMES = ["e_recall@1", "map_r", "mrr", "mAP", "precision@1"]
X = np.array([(1, 0, 0), (0.8, 0.6, 0), (0, 1, 0), (0, 0.6, 0.8)])
QUERY = np.array([[0.96, 0.28, 0]])
GALLERY = np.array([(1, 0, 0), (0.8, 0.6, 0), (0.6, 0.8, 0), (0, 1, 0), (0, 0.6, 0.8), (0.6, 0, 0.8)])


def neighbours_of(rerank, queries, labels, **settings):
    space = metrics.EmbeddingSpace(queries, labels, **settings)
    space.search = rerank.search(space)
    return space.neighbours(space.reference_size).tolist()


def test_superglobal_of_one_query_by_hand():
    in_gallery = {"reference": GALLERY, "reference_labels": [0] * 6}
    assert neighbours_of(SuperGlobal(4, 1), QUERY, [0], **in_gallery) == [[1, 0, 2, 5, 3, 4]]
    assert neighbours_of(SuperGlobal(6, 2), QUERY, [0], **in_gallery) == [[1, 0, 2, 3, 5, 4]]
    search = SuperGlobal(4, 1).search(metrics.EmbeddingSpace(QUERY, [0], **in_gallery))
    scores = search.scores(np.array([0]), np.array([[0, 1, 2, 5]]), np.ones((1, 4), bool))
    np.testing.assert_allclose(scores, [[0.9776102, 1.0339732, 0.9566491, 0.6135845]], atol=5e-8)


def of_loops(query, top, reference, k, beta):
    """The top of one query in the order of its scores, by loops."""
    refined = []
    for i in top:
        nearest = sorted(
            (j for j in top if j != i), key=lambda j: (-round(reference[i] @ reference[j], 11), top.index(j))
        )[:k]
        weights = [beta * (reference[i] @ reference[j]) for j in nearest]
        total = reference[i] + sum(
            (w * reference[j] for w, j in zip(weights, nearest, strict=True)), np.zeros(len(query))
        )
        refined.append(total / (1 + sum(weights)))
    places = sorted(range(len(top)), key=lambda i: -round(query @ refined[i], 11))
    maximum = np.max([refined[i] for i in places[: k + 1]], axis=0)
    scores = [round((query + maximum) @ row / 2, 11) for row in refined]
    return [top[i] for i in sorted(range(len(top)), key=lambda i: -scores[i])]


def superglobal_lists(queries, reference, left_out, hidden, m, k, beta):
    """The list of each query: junk, `hidden`, is in its top and then taken away."""
    lists = []
    for query, itself, junk in zip(unit(queries), left_out, hidden, strict=True):
        in_order = ranked(query, unit(reference), itself)
        new = of_loops(query, in_order[:m], unit(reference), k, beta) + in_order[m:]
        lists.append([j for j in new if j not in junk])
    return lists


@pytest.mark.parametrize(("m", "k", "beta"), [(9, 3, 0.15), (25, 60, 0.3), (1, 9, 0.15), (5, 0, 1.0)])
def test_superglobal_of_a_set_in_itself_by_loops(m, k, beta):
    x, labels = points(44, seed=1)
    nobody = [()] * 44
    expected = superglobal_lists(x, x, range(44), nobody, m, k, beta)
    rerank = SuperGlobal(m, k, beta)
    assert neighbours_of(rerank, x, labels) == [row + [-1] for row in expected]
    values = metrics.compute(NAMES, x, labels, rerank=rerank)
    assert values == pytest.approx(values_of(NAMES, expected, labels, labels), abs=1e-12)


def test_junk_is_in_the_top_of_superglobal_and_takes_no_rank():
    x, labels = points(40, seed=2, copies=False)
    queries = x[:6]
    reference = x[6:]
    junk = [ranked(query, unit(reference), -1)[1:5:2] for query in unit(queries)]
    positives = [sorted({*range(20, 30)} - {*ignored}) for ignored in junk]
    lists = Lists.of(positives, junk)
    expected = superglobal_lists(queries, reference, [-1] * 6, junk, 12, 3, 0.15)
    results = neighbours_of(
        SuperGlobal(12, 3), queries, labels[:6], reference=reference, reference_labels=labels[6:], lists=lists
    )
    assert results == [row + [-1, -1] for row in expected]


def test_few_images_little_memory_and_sequences(monkeypatch):
    for rerank in (SuperGlobal(), DatabaseAugmentation(5, 3.0), DatabaseAugmentation(2, 0.0, SuperGlobal(3, 2))):
        for x in (np.ones((1, 3)), np.zeros((2, 3)), np.ones((9, 3)), np.eye(3), -np.eye(3)):
            all_but_itself = [[*range(i), *range(i + 1, len(x)), -1] for i in range(len(x))]
            assert neighbours_of(rerank, x, np.arange(len(x))) == all_but_itself
        x, labels = points(60, seed=3)
        sequences = np.arange(60) // 3
        expected = metrics.compute(NAMES, x, labels, rerank=rerank, query_sequences=sequences)
        with monkeypatch.context() as patch:
            patch.setattr(superglobal, "NUMBERS", 40_000)
            patch.setattr(dba, "NUMBERS", 40)
            assert metrics.compute(NAMES, x, labels, rerank=rerank, query_sequences=sequences) == expected
        space = metrics.EmbeddingSpace(x, labels, query_sequences=sequences)
        space.search = rerank.search(space)
        assert not any(
            {*row} & {3 * (i // 3) + j for j in range(3)} for i, row in enumerate(space.neighbours(57).tolist())
        )


def augmented(reference, k, alpha):
    rows = unit(reference)
    sums = []
    for i, row in enumerate(rows):
        total = row.copy()
        for j in ranked(row, rows, i)[:k]:
            total = total + max(row @ rows[j], 0.0) ** alpha * rows[j]
        sums.append(total)
    return unit(np.array(sums))


def test_database_augmentation_by_hand():
    for (k, alpha), row in (((1, 1.0), (0.9597374, 0.2808987, 0)), ((2, 3.0), (0.9770661, 0.2129361, 0))):
        search = DatabaseAugmentation(k, alpha).search(metrics.EmbeddingSpace(X, [0, 0, 1, 1]))
        np.testing.assert_allclose(search.space.reference[0], row, atol=5e-8)


@pytest.mark.parametrize(("k", "alpha"), [(1, 1.0), (4, 3.0), (1, 0.0), (100, 2.0)])
@pytest.mark.parametrize("separate", [False, True])
def test_database_augmentation_by_loops(k, alpha, separate):
    """The gallery first, also where the queries are in it; then a search, expanded queries, or SuperGlobal."""
    x, labels = points(42, seed=5, copies=False)
    queries, reference = (x[:9], x[9:]) if separate else (x, x)
    gallery = {"reference": reference, "reference_labels": labels[9:]} if separate else {}
    left_out = [-1] * 9 if separate else range(42)
    new = augmented(reference, k, alpha)
    lists = [ranked(query, new, itself) for query, itself in zip(unit(queries), left_out, strict=True)]
    of_queries = labels[: len(queries)]
    ending = [] if separate else [-1]
    results = neighbours_of(DatabaseAugmentation(k, alpha), queries, of_queries, **gallery)
    assert results == [row + ending for row in lists]
    expanding = DatabaseAugmentation(k, alpha, AlphaExpansion(4, 2.0))
    expanded_lists = []
    for query, itself, row in zip(unit(queries), left_out, lists, strict=True):
        expanded_lists.append(ranked(expanded(query, new, row, 4, 2.0), new, itself))
    assert neighbours_of(expanding, queries, of_queries, **gallery) == [row + ending for row in expanded_lists]
    lists = superglobal_lists(queries, new, left_out, [()] * len(queries), 8, 2, 0.15)
    refining = DatabaseAugmentation(k, alpha, SuperGlobal(8, 2))
    assert neighbours_of(refining, queries, of_queries, **gallery) == [row + ending for row in lists]
