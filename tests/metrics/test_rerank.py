"""Re-ranked lists against plain dense versions: k-reciprocal encodings, and expanded queries."""

import numpy as np
import pytest

import metrics
from metrics import AlphaExpansion, KReciprocal, _mapped
from metrics.neighbours import rerank as reranking
from metrics.neighbours.search import Need
from tests.kit.plain_metrics import ranked, unit, values_of
from tests.utilities.test_hyperbolic import moebius_distance
from utilities.hyperbolic import Ball

NAMES = ["e_recall@1", "e_recall@4", "precision@1", "map_r", "mrr", "mAP", "mAP_c", "map@3"]
CLASSES = 8


def points(n, seed=0, d=4, copies=True):
    generator = np.random.default_rng(seed)
    labels = generator.integers(CLASSES, size=n)
    x = generator.normal(size=(CLASSES, d))[labels] + 0.7 * generator.normal(size=(n, d))
    if copies and n > 12:
        x[5] = x[2]
        x[9] = x[2]
    return x, labels


def distances_of(x, ball=None):
    """`(T, T)` by a double loop."""
    rows = x.tolist()
    if ball is not None:
        return np.array([[moebius_distance(a, b, ball.c, ball.clip_r) for b in rows] for a in rows])
    return np.array([[np.sqrt(sum((a - b) ** 2 for a, b in zip(p, q, strict=True))) for q in rows] for p in rows])


def dense(distances, k1, k2, weight):
    """Final distances `(T, T)` of all nodes to all, with dense matrices. A node comes first in its own list."""
    size = len(distances)
    original = distances**2
    largest = original.max(1, keepdims=True)
    original = original / np.where(largest > 0, largest, 1)

    def in_order(i):
        return sorted(range(size), key=lambda j: (j != i, distances[i, j], j))

    lists = [in_order(i) for i in range(size)]

    def reciprocal(i, k):
        return {j for j in lists[i][: k + 1] if i in lists[j][: k + 1]}

    encodings = np.zeros((size, size))
    for i in range(size):
        neighbours_of_node = reciprocal(i, k1)
        members = set(neighbours_of_node)
        for candidate in neighbours_of_node:
            theirs = reciprocal(candidate, int(np.around(k1 / 2)))
            if 3 * len(theirs & neighbours_of_node) > 2 * len(theirs):
                members |= theirs
        members = sorted(members)
        weights = np.exp(-original[i, members])
        encodings[i, members] = weights / weights.sum()
    if k2 > 1:
        encodings = np.array([encodings[lists[i][:k2]].mean(0) for i in range(size)])
    shared = np.minimum(encodings[:, None], encodings).sum(2)
    return (1 - weight) * (1 - shared / (2 - shared)) + weight * original


def lists_by(final, hides):
    """Of each query its reference in order, equal distances by index, without what it `hides(query, j)`."""
    lists = []
    for i, row in enumerate(final):
        in_order = sorted((round(value, 11), j) for j, value in enumerate(row))
        lists.append([j for _, j in in_order if not hides(i, j)])
    return lists


def check(expected, queries, of_queries, rerank, **settings):
    size = len(settings.get("reference", queries))
    space = metrics.space_of(settings.pop("ball", None), queries, of_queries, **settings)
    space.search = rerank.search(space)
    assert space.neighbours(size).tolist() == [row + [-1] * (size - len(row)) for row in expected]


BALLS = pytest.mark.parametrize("ball", [None, Ball(0.3, 2.3)], ids=["euclidean", "hyperbolic"])


@BALLS
def test_a_set_in_itself(ball):
    x, labels = points(50)
    distances = distances_of(x, ball)
    plain = metrics.compute(NAMES, x, labels, ball=ball)
    cases = [(20, 6, 0.3), (5, 1, 0.3), (6, 3, 0.0), (7, 2, 1.0), (100, 6, 0.3), (1, 1, 0.5), (2, 6, 0.3)]
    for k1, k2, weight in cases:
        lists = lists_by(dense(distances, k1, k2, weight), lambda i, j: i == j)
        rerank = KReciprocal(k1, k2, weight)
        check(lists, x, labels, rerank, ball=ball)
        measured = metrics.compute(NAMES, x, labels, ball=ball, rerank=rerank)
        assert measured == pytest.approx(values_of(NAMES, lists, labels, labels), abs=1e-12)
        assert (measured != plain) == (weight < 1 and k1 > 1)


@BALLS
@pytest.mark.parametrize("n", [1, 15])
def test_queries_and_a_gallery_apart(n, ball):
    """Nodes are both; a query finds the gallery alone."""
    x, labels = points(45, seed=2, copies=False)
    # a sample of the gallery equals a query
    x[n] = x[0]
    # ours has the gallery first: where distances tie, the order of the nodes counts
    order = np.r_[n:45, :n]
    final = dense(distances_of(x[order], ball), 8, 4, 0.3)[45 - n :, : 45 - n]
    gallery = {"reference": x[n:], "reference_labels": labels[n:]}
    check(lists_by(final, lambda i, j: False), x[:n], labels[:n], KReciprocal(8, 4), ball=ball, **gallery)


def test_queries_that_are_in_the_reference_or_of_a_sequence():
    """A sequence's samples are nodes all the same."""
    x, labels = points(40, seed=3, copies=False)
    exclude = np.array([25, 26, 27, 28, 29] + [-1] * 10)
    final = dense(distances_of(x), 6, 3, 0.3)
    gallery = {"reference": x[:30], "reference_labels": labels[:30], "exclude": exclude}
    check(lists_by(final[25:, :30], lambda i, j: exclude[i] == j), x[25:], labels[25:], KReciprocal(6, 3), **gallery)
    sequences = np.arange(40) // 4
    space = metrics.EmbeddingSpace(x, labels, query_sequences=sequences)
    expected = lists_by(final, lambda i, j: sequences[i] == sequences[j])
    for block in KReciprocal(6, 3).search(space).run([Need(np.full(40, 20), "every")]):
        for query, row in zip(block.rows, block.columns, strict=True):
            assert row.tolist() == expected[query][:20]


def test_metrics_on_unit_vectors_are_re_ranked_by_their_own_distances_and_others_are_untouched():
    x, labels = points(40, seed=4)
    unranked = ["nmi", "f1", "dists@intra", "rho_spectrum@1"]
    for rerank in (KReciprocal(6, 3), AlphaExpansion(5)):
        values = metrics.compute(["c_map_r", "c_recall@1", "map_r"], x, labels, rerank=rerank)
        expected = metrics.compute(["map_r", "e_recall@1"], unit(x), labels, rerank=rerank).values()
        expected = [*expected, metrics.compute("map_r", x, labels, rerank=rerank)["map_r"]]
        assert list(values.values()) == pytest.approx(expected)
        assert metrics.compute(unranked, x, labels, rerank=rerank) == metrics.compute(unranked, x, labels)
    near = 1e-4 * points(40, seed=10, copies=False)[0] + 100
    far, moved = (metrics.compute(NAMES, place, labels, rerank=KReciprocal(6, 3)) for place in (near, near - 100))
    assert far == moved


def test_little_memory_changes_nothing(monkeypatch):
    x, labels = points(70, seed=5)
    cases = [
        ({}, KReciprocal(7, 3)),
        ({}, AlphaExpansion(6)),
        ({"reference": x[:30], "reference_labels": labels[:30]}, KReciprocal(5, 2)),
    ]
    expected = [metrics.compute(NAMES, x, labels, rerank=rerank, **reference) for reference, rerank in cases]
    monkeypatch.setattr(reranking, "NUMBERS", 150)
    monkeypatch.setattr(reranking, "ROWS", 3)
    assert [metrics.compute(NAMES, x, labels, rerank=rerank, **reference) for reference, rerank in cases] == expected


@pytest.mark.parametrize("rerank", [KReciprocal(), AlphaExpansion()])
def test_degenerate_spaces(rerank):
    line = np.random.default_rng(0).normal(size=(12, 1))
    all_but_itself = [[*range(i), *range(i + 1, 9)] for i in range(9)]
    spaces = [
        (np.zeros((1, 3)), [0]),
        (np.zeros((2, 3)), [0, 0]),
        (np.ones((9, 3)), [0, 0, 0, 1, 1, 1, 2, 3, 4]),
        (np.eye(3), [0, 1, 2]),
        (line, [0] * 12),
    ]
    names = ["e_recall@1", "map_r", "mAP", "mrr"]
    for ball in (None, Ball(0.1, 2.3), Ball(0, 2.3)):
        for x, labels in spaces:
            values = metrics.compute(names, x, np.array(labels), ball=ball, rerank=rerank)
            # no query has anything to find: e_recall and mAP count misses
            if len(set(labels)) == len(labels):
                assert np.isnan([values.pop("map_r"), values.pop("mrr")]).all()
            assert all(0 <= value <= 1 for value in values.values())
        check(all_but_itself, np.ones((9, 3)), np.arange(9), rerank, ball=ball)


def expanded(query, reference, order, n, alpha):
    total = query.copy()
    weights = 1.0
    for j in order[:n]:
        norms = np.linalg.norm(query) * np.linalg.norm(reference[j])
        weight = max(query @ reference[j] / norms, 0.0) ** alpha if norms else 0.0
        total = total + weight * reference[j]
        weights = weights + weight
    return total / weights


@pytest.mark.parametrize(("n", "alpha"), [(1, 3.0), (6, 3.0), (100, 1.0), (6, 0.0)])
@pytest.mark.parametrize("separate", [False, True])
def test_alpha_query_expansion(n, alpha, separate):
    x, labels = points(48, seed=6, copies=False)
    queries, reference = (x[:12], x[12:]) if separate else (x, x)
    gallery = {"reference": reference, "reference_labels": labels[12:]} if separate else {}
    left_out = [-1] * 12 if separate else range(48)
    lists = []
    for query, itself in zip(queries, left_out, strict=True):
        new = expanded(query, reference, ranked(query, reference, itself), n, alpha)
        lists.append(ranked(new, reference, itself))
    check(lists, queries, labels[: len(queries)], AlphaExpansion(n, alpha), **gallery)


class PresentRows(_mapped.Stacked):
    """Rows of files, of which none is asked for that is not there."""

    def __getitem__(self, rows):
        assert isinstance(rows, slice) or (np.asarray(rows) >= 0).all()
        return super().__getitem__(rows)


def test_expansion_of_few_images_in_files():
    x, labels = points(8, seed=6, copies=False)
    spaces = (
        metrics.EmbeddingSpace(x, labels, reference, labels, exclude=np.arange(8))
        for reference in (x, PresentRows((x, None)))
    )
    results, expected = (AlphaExpansion(50).search(space).space.features for space in spaces)
    np.testing.assert_allclose(results, expected, rtol=1e-12)


def test_alpha_query_expansion_of_one_query_by_hand():
    """(1, 0) + .8^3 (.8, .6) + .6^3 (.6, .8), at unit length."""
    space = metrics.EmbeddingSpace([[1.0, 0.0]], [0], [[0.8, 0.6], [0.6, 0.8]], [0, 0])
    results = unit(AlphaExpansion(2, 3.0).search(space).space.features)
    np.testing.assert_allclose(results, [[0.954656, 0.297710]], atol=1e-6)


def test_alpha_query_expansion_in_the_ball_expands_tangent_vectors():
    x, labels = points(30, seed=8, copies=False)
    ball = Ball(0.3, 2.3)
    near = lists_by(distances_of(x, ball), lambda i, j: i == j)
    new = [expanded(x[i], x, near[i], 4, 3.0) for i in range(30)]
    final = [[moebius_distance(query.tolist(), sample, ball.c, ball.clip_r) for sample in x.tolist()] for query in new]
    check(lists_by(final, lambda i, j: i == j), x, labels, AlphaExpansion(4), ball=ball)
