"""Ground truth by lists: pins of revisitop and re-identification, plain loops, what cannot be lists."""

import numpy as np
import pytest

import metrics
from metrics import Lists
from tests.kit.plain_metrics import RETRIEVAL, orders, plain_value, random_lists
from tests.kit.refusals import refused

OXFORD = [4, 0, 7, 2, 1, 5, 3, 6, 8, 9]


NEW = ["ap_trapezoid", "mp@1", "mp@5", "mp@1000", "mmp@1", "mmp@5", "oracle@1", "oracle@5"]
# mAP… divides by the size of a class, which lists do not have
NAMES = [name for name in RETRIEVAL if not name.startswith("mAP")] + NEW


def ordered(order):
    """Features of reference samples that a query at 0 finds in this order."""
    places = np.empty(len(order))
    places[list(order)] = np.arange(1.0, len(order) + 1)
    return places[:, None]


@pytest.mark.parametrize(
    ("positives", "junk", "expected"),
    [
        # easy
        ([0, 1], [4, 2, 3], {"ap_trapezoid": 0.791667, "mp@1": 1, "mp@5": 2 / 3, "mp@10": 2 / 3}),
        # medium
        ([0, 1, 2, 3], [4], {"ap_trapezoid": 0.73125, "ap": 0.770833, "mp@1": 1, "mp@5": 0.6, "mp@10": 2 / 3}),
        # hard
        ([2, 3], [4, 0, 1], {"ap_trapezoid": 1 / 3, "mp@1": 0, "mp@5": 0.5, "mp@10": 0.5}),
    ],
)
def test_oxford_and_paris(positives, junk, expected):
    """evaluate.py of revisitop (be39832)."""
    lists = Lists.of([positives], [junk])
    results = metrics.compute(list(expected), [[0.0]], reference=ordered(OXFORD), lists=lists)
    assert results == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("relevance", "count", "name", "expected"),
    [
        # Google Landmarks v2 (tensorflow/models e4009b2)
        ("10100010", 3, "map@5", 5 / 9),
        ("1010", 2, "map@4", 5 / 6),
        ("1011", 3, "map@2", 1 / 2),
        # ILIAS (e81029e)
        ("101001", 3, "map@5", 5 / 9),
        ("101001", 3, "oracle@5", 2 / 3),
        ("10110", 3, "map@5", 0.805556),
        # Universal-Image-Embeddings (3768d3e)
        ("10110", 3, "mmp@5", 2 / 3),
        ("10110", 7, "mmp@5", 3 / 5),
        ("01110", 2, "mmp@5", 1 / 2),
    ],
)
def test_landmarks_and_objects(relevance, count, name, expected):
    """Hits in the order of the ranks, `count` in all: those that are missing come after the others."""
    hits = [rank for rank, hit in enumerate(relevance) if hit == "1"][:count]
    hits += range(len(relevance), len(relevance) + count - len(hits))
    results = metrics.compute(name, [[0.0]], reference=ordered(range(len(relevance) + count)), lists=Lists.of([hits]))
    assert results[name] == pytest.approx(expected, abs=1e-6)


def value_of(name, relevance):
    """One query's value of a name of NAMES; it has something to find."""
    if name not in NEW:
        return plain_value(name, relevance, sum(relevance), sum(relevance))
    # ranks from 0
    hits = [rank for rank, hit in enumerate(relevance) if hit]
    k = int(name.partition("@")[2] or 0)
    if name.startswith("mp@"):
        k = min(k, hits[-1] + 1)
    elif name.startswith("mmp@"):
        k = min(k, len(hits))
    elif name.startswith("oracle@"):
        return sum(relevance[:k]) / len(hits)
    else:
        before = [j / rank if rank else 1.0 for j, rank in enumerate(hits)]
        at = [(j + 1) / (rank + 1) for j, rank in enumerate(hits)]
        return np.mean([before, at])
    return sum(relevance[:k]) / k


@pytest.mark.parametrize("rerank", [None, metrics.AlphaExpansion(5, 2.0), metrics.KReciprocal(5, 3)])
@pytest.mark.parametrize("in_itself", [False, True], ids=["a gallery", "themselves"])
def test_random_lists_by_loops(in_itself, rerank):
    """With ties, duplicates, queries without positives and one whose whole reference is junk."""
    for seed in range(2):
        decimals = 0 if rerank is None else 6
        features = np.round(np.random.default_rng(seed).standard_normal((70, 3)), decimals)
        queries, reference = (features, None) if in_itself else (features[:25], features[25:])
        size = 70 if in_itself else 45
        themselves = range(70) if in_itself else None
        positives, junk = random_lists(seed + 10, size, len(queries), themselves)
        found_by = [order for _, order in orders(queries, reference)]
        if rerank is not None:
            # the order without any judgement, by a search of the re-ranked lists for all of the reference
            all_rows = Lists.of([sorted(order) for order in found_by])
            space = metrics.EmbeddingSpace(queries, None, reference, lists=all_rows)
            space.search = rerank.search(space)
            found_by = [row[row >= 0].tolist() for row in space.neighbours(size)]
        results = metrics.compute(NAMES, queries, rerank=rerank, reference=reference, lists=Lists.of(positives, junk))
        for name in NAMES:
            values = []
            for order, expected_rows, ignored in zip(found_by, positives, junk, strict=True):
                relevance = [j in expected_rows for j in order if j not in ignored]
                value = value_of(name, relevance) if expected_rows else np.nan
                values.append(value)
            assert results[name] == pytest.approx(np.nanmean(values), abs=1e-12), name


def test_a_large_reference_gives_what_a_small_tile_gives():
    """Beyond one tile of the search the junk of each tile is hidden in it."""
    rng = np.random.default_rng(0)
    queries = rng.standard_normal((20, 8)).astype(np.float32)
    reference = rng.standard_normal((20_000, 8)).astype(np.float32)
    order = np.argsort(((queries[:, None] - reference) ** 2).sum(2), axis=1)  # (20, 20000)
    lists = Lists.of(order[:, [5, 400, 15_000]], np.hstack([order[:, :5], order[:, 100:300]]))
    results = metrics.compute(["ap", "e_recall@1", "inp"], queries, reference=reference, lists=lists)
    ranks = np.array([1, 400 - 5 - 200 + 1, 15_000 - 5 - 200 + 1])
    expected = np.mean(np.arange(1, 4) / ranks)
    assert results == pytest.approx({"ap": expected, "e_recall@1": 1, "inp": 3 / ranks[-1]})


def test_metrics_of_classes_need_labels():
    features = np.eye(3)
    lists = Lists.of([[1], [0], []])
    for name in ("nmi", "dists@intra", "e_recall@1_macro", "e_recall@1_worst10"):
        with refused("is of classes, and there are lists without labels"):
            metrics.compute([name, "ap"], features, lists=lists)
        assert np.isfinite(metrics.compute(name, features, [0, 0, 1], lists=lists)[name])


GALLERY = {"reference": np.ones((3, 1))}


SEQUENCES = {"query_sequences": [0, 1]}


@pytest.mark.parametrize(
    ("lists", "settings", "message"),
    [
        (Lists.of([[0], [3]]), GALLERY, "query 1 lists 3, which is outside the reference of 3"),
        (Lists.of([[0], [-1]]), GALLERY, "query 1 lists -1, which is outside"),
        (Lists.of([[0], [1, 2]], [[], [2]]), GALLERY, "query 1 lists 2 among its positives and its junk"),
        (Lists.of([[0], [1, 1]]), GALLERY, "query 1 lists 1 twice"),
        (Lists.of([[0]]), GALLERY, "positive_indptr must be (3,) whole numbers"),
        (Lists.of([[0], []], [[1]]), GALLERY, "junk_indptr must be (3,) whole numbers"),
        (Lists(np.array([0, 2, 1]), np.array([0])), GALLERY, "positive_indptr must rise from 0 to 1"),
        (Lists(np.array([0, 1, 2]), np.array([0.0, 1.0])), GALLERY, "whole numbers"),
        (Lists.of([[1], [1]]), {}, "query 1 lists itself, 1: an image is not its own positive"),
        (Lists.of([[1], [0]]), SEQUENCES, "lists already define what is not ranked: leave out the sequences"),
    ],
)
def test_what_cannot_be_lists(lists, settings, message):
    with refused(None, message):
        metrics.compute("ap", np.zeros((2, 1)), **settings, lists=lists)
