"""Answers by the nearest image, class means and votes, and fused ones, against pinned values and plain loops."""

import numpy as np
import pytest

import metrics
from evaluation import naming, thresholds
from tests.kit.refusals import refused


def test_pinned_votes_and_means():
    # similarities .9 .8 .7 .6 .5 of a b b a c
    classes = np.array([0, 1, 1, 0, 2])
    gallery = -np.array([0.9, 0.8, 0.7, 0.6, 0.5])[:, None] + 2
    space = metrics.EmbeddingSpace(np.array([[0.0]]), np.array([0]), gallery, classes)
    expected = {1: (0, 0.9), 2: (0, 0.9), 3: (1, 0.75), 4: (0, 0.75), 9: (0, 0.75)}
    for k, (label, similarity) in expected.items():
        distance, named = naming._votes(space, k)
        assert (named[0], 2 - distance[0]) == (label, pytest.approx(similarity)), k
    gallery = np.array([[0.8, 0.6], [0.6, 0.8], [0.96, 0.28]])
    space = metrics.EmbeddingSpace(np.array([[1.0, 0.0]]), np.array([1]), gallery, np.array([0, 0, 1]))
    answers = naming.answers(space, "mean")
    assert answers.distance[0] == pytest.approx(0.282843, abs=1e-6)
    assert answers.right[0]
    only_first = metrics.EmbeddingSpace(np.array([[1.0, 0.0]]), np.array([0]), gallery[:2], np.array([0, 0]))
    assert naming.answers(only_first, "mean").distance[0] == pytest.approx(0.765367, abs=1e-6)


def _spaces(count: int):
    """Random spaces, some with a gallery, with sequences, of unit length, with ties, and one collapsed."""
    for seed in range(count):
        generator = np.random.default_rng(seed)
        features = generator.integers(-2, 3, (40, 3)).astype(np.float64)
        if seed % 3 == 0:
            features = generator.normal(size=(40, 3))
            features /= np.linalg.norm(features, axis=1, keepdims=True)
        if seed == count - 1:
            features[:] = 1
        labels = generator.integers(0, 9, 40)
        settings = {}
        if seed % 2:
            sequences = generator.integers(-1, 12, 40)
            settings["query_sequences"] = sequences
        if seed % 4 > 1:
            settings |= {"reference": features[:25], "reference_labels": labels[:25]}
            settings["exclude"] = np.where(np.arange(40) < 25, np.arange(40), -1)
            if seed % 2:
                settings["reference_sequences"] = sequences[:25]
        yield metrics.EmbeddingSpace(features, labels, **settings), settings


def _visible(space, settings, query: int) -> list[int]:
    """The gallery images that a query may find."""
    sequences = settings.get("query_sequences")
    columns = []
    for column in range(space.reference_size):
        in_sequence = sequences is not None and sequences[query] >= 0 and sequences[query] == sequences[column]
        if column != space.exclude[query] and not in_sequence:
            columns.append(column)
    return columns


def test_answers_agree_with_loops():
    for space, settings in _spaces(24):
        reference = space.references(slice(None))
        queries = space.queries(slice(None))
        lengths = np.linalg.norm(np.concatenate([reference, queries]), axis=1)
        has_unit_length = np.abs(lengths - 1).max() < 1e-6
        means = naming.answers(space, "mean")
        votes = naming.answers(space, "vote@4")
        for i in range(space.size):
            columns = _visible(space, settings, i)
            by_class = {}
            for column in columns:
                by_class.setdefault(int(space.reference_labels[column]), []).append(column)
            distances = {}
            for label, members in by_class.items():
                mean = reference[members].mean(0)
                length = np.linalg.norm(mean)
                if has_unit_length and length > 0:
                    mean = mean / length
                distances[label] = np.linalg.norm(queries[i] - mean)
            assert means.distance[i] == pytest.approx(min(distances.values()), abs=1e-6)
            order = sorted(distances, key=distances.get)
            if len(order) == 1 or distances[order[1]] > distances[order[0]] + 1e-6:
                assert means.right[i] == (order[0] == space.labels[i])
            near = sorted(columns, key=lambda j: (round(np.linalg.norm(queries[i] - reference[j]), 9), j))[:4]
            tally = {}
            for j in near:
                tally.setdefault(int(space.reference_labels[j]), []).append(np.linalg.norm(queries[i] - reference[j]))
            ranking = sorted(tally, key=lambda label: (-len(tally[label]), round(np.mean(tally[label]), 9)))
            assert votes.distance[i] == pytest.approx(np.mean(tally[ranking[0]]))
            assert votes.right[i] == (ranking[0] == space.labels[i])
            assert means.known[i] == (int(space.labels[i]) in by_class)


def test_a_query_that_finds_nothing_has_no_answer():
    space = metrics.EmbeddingSpace(np.eye(2), np.array([0, 1]), query_sequences=np.array([3, 3]))
    for how in ("nearest", "mean", "vote@2"):
        answers = naming.answers(space, how)
        assert np.isinf(answers.distance).all(), how
        assert not answers.right.any()


def test_fused_answers_agree_with_a_loop():
    generator = np.random.default_rng(5)
    labels = generator.integers(0, 5, 20)
    sequences = generator.integers(-1, 8, 20)
    spaces = []
    for _ in range(2):
        spaces.append(metrics.EmbeddingSpace(generator.normal(size=(20, 3)), labels, query_sequences=sequences))
    calibrations = [thresholds.Logistic(-2, 1, 1), thresholds.Logistic(-1, 2, 1)]
    rows = np.array([1, 4, 5, 19])
    answers = naming.fused(spaces, calibrations, rows)
    for place, i in enumerate(rows.tolist()):
        probabilities = {}
        for j in _visible(spaces[0], {"query_sequences": sequences}, i):
            parts = []
            for space, calibration in zip(spaces, calibrations, strict=True):
                distance = np.linalg.norm(space.features[i] - space.features[j])
                parts.append(1 / (1 + np.exp(-calibration.slope * distance - calibration.intercept)))
            probabilities[j] = np.mean(parts)
        best = max(probabilities, key=probabilities.get)
        assert 1 - answers.distance[place] == pytest.approx(probabilities[best])
        assert answers.right[place] == (labels[best] == labels[i])


def test_fused_answers_are_the_same_however_many_near_images_are_listed(monkeypatch):
    for space, settings in _spaces(24):
        embeddings = np.random.default_rng(len(settings)).integers(-2, 3, (40, 3)).astype(np.float64)
        settings = dict(settings)
        labels = settings.pop("reference_labels", None)
        if "reference" in settings:
            settings["reference"] = embeddings[:25]
        second = metrics.EmbeddingSpace(embeddings, space.labels, reference_labels=labels, **settings)
        rows = np.arange(1, 40, 2)
        step = thresholds.Isotonic(np.array([0.5, 1.0, 2.0]), np.array([0.9, 0.4, 0.0]), 1)
        for calibrations in ([thresholds.Logistic(-4, 3, 1), step], [step, thresholds.Logistic(0.5, -1, 1)]):
            best_of_all = naming._best_of_all([space, second], calibrations, rows)
            for near in (1, 3, 100):
                monkeypatch.setattr(naming, "NEAR", near)
                spaces = [part.view(type(part)) for part in (space, second)]
                answers = naming.fused(spaces, calibrations, rows)
                parts = []
                for part, calibration in zip(spaces, calibrations, strict=True):
                    parts.append(calibration(np.sqrt(part.squared_distances(rows, best_of_all))))
                expected = np.where(best_of_all >= 0, 1 - np.mean(parts, axis=0), np.inf)
                np.testing.assert_allclose(answers.distance, expected, rtol=0, atol=1e-9)


def test_most_fused_answers_need_no_score_of_the_whole_gallery(monkeypatch):
    generator = np.random.default_rng(3)
    labels = np.repeat(np.arange(60), 10)
    centres = generator.normal(size=(60, 8))
    spaces = []
    for _ in range(2):
        spaces.append(metrics.EmbeddingSpace(centres[labels] + 0.3 * generator.normal(size=(600, 8)), labels))
    calibrations = [thresholds.Logistic(-4, 6, 1), thresholds.Logistic(-4, 6, 1)]
    rows = np.arange(600)
    best = naming._best_of_near(spaces, calibrations, rows)
    assert (best >= 0).mean() > 0.95
    np.testing.assert_array_equal(best[best >= 0], naming._best_of_all(spaces, calibrations, rows)[best >= 0])


def test_impossible_answers():
    for how in ("vote", "vote@0", "vote@x", "median"):
        with refused("--answer", how):
            naming.check(how)
